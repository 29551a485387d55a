"""Linear machines over parts: the answer of one machine, whatever the parts are; files, checkpoints, limits, messages."""

from __future__ import annotations

import importlib
import os
import sys
from itertools import pairwise

import numpy as np
import pytest
from checkouts import ran
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from scipy.sparse import csr_matrix

import svmcore
from svmcore.distributed import band, rounds, train_linear, train_svc
from svmcore.distributed import files as sources

pytestmark = pytest.mark.compiled


# Where a fit of a thousand rows is solved: at the master, by rounds over thin bands, by the rounds of kernel machines.
METHODS = {
    "memory": {},
    "bands": {"LEAST": 100, "SPREAD": 0.0},
    "rounds": {"LEAST": 2, "SPREAD": 0.0, "MOST_ROUNDS": 0, "NEWTON_STEPS": 0},
}


@pytest.fixture(params=METHODS)
def method(request, monkeypatch):
    for name, value in METHODS[request.param].items():
        monkeypatch.setattr(band, name, value)
    monkeypatch.setattr(rounds, "AT_ONCE", 0)
    return request.param


def overlapping(n=1500, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.where(X @ rng.normal(size=d) + 0.7 * rng.normal(size=n) > 0.3, "yes", "no")


def same(ours, ref, tol):
    assert ours.converged
    assert ours.kkt_violation <= tol
    assert abs(ours.objective - ref.objective) <= 1e-8 * abs(ref.objective)
    assert ours.relative_gap < 1e-6


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("parts", [1, 2, 7, 16])
def test_any_number_of_parts_gives_the_answer_of_one_machine(parts, loss, method):
    X, y = overlapping()
    ref = svmcore.train_svc(X, y, kernel="linear", loss=loss, tol=1e-8)
    ours = train_linear(X, y, loss=loss, tol=1e-6, parts=parts)
    same(ours, ref, 1e-6)
    assert ours.stats["method"] == ("rounds" if method == "rounds" else "band")
    assert ours.stats["passes"] <= (13 if loss == "squared_hinge" else 6)
    assert len(ours.rows) == parts
    assert np.allclose(ours.coef_, ref.coef_, atol=1e-5)
    assert abs(ours.intercept - ref.intercept) < 1e-5
    # nobody's word: the certificate of the library for what came out
    found = svmcore.certificate(X, y, np.concatenate(ours.alpha), ours.intercept, C=1.0, kernel="linear", loss=loss)
    assert found.kkt_violation <= 2e-6
    assert abs(found.objective - ours.objective) <= 1e-9 * abs(ref.objective)
    assert found.infeasibility < 1e-9
    local = ours.to_local()
    assert (local.predict(X) == ours.predict(X)).all()
    assert np.allclose(local.decision_function(X), ours.decision_function(X))


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_regression_has_two_variables_a_row(loss, fit_intercept, method):
    X, _ = overlapping(700)
    y = X @ np.arange(6.0) + np.random.default_rng(1).normal(size=700)
    ref = svmcore.train_svr(X, y, kernel="linear", loss=loss, tol=1e-8, fit_intercept=fit_intercept)
    same(train_linear(X, y, loss=loss, tol=1e-6, parts=3, fit_intercept=fit_intercept), ref, 1e-6)


def _by_class(X, y):
    order = np.argsort(y, kind="stable")
    return [(X[a], y[a]) for a in np.array_split(order, 5)]


def _empty_and_unequal(X, y):
    edges = [0, 0, 1, 3, 700, 700, len(y)]
    return [(X[a:b], y[a:b]) for a, b in pairwise(edges)]


def _twice(X, y):
    return [(X[:750], y[:750]), (X[750:], y[750:]), (X[:750], y[:750]), (X[750:], y[750:])]


def _sparse(X, y):
    return [(csr_matrix(X[a]), y[a]) for a in np.array_split(np.arange(len(y)), 3)]


@pytest.mark.parametrize("cut", [_by_class, _empty_and_unequal, _twice, _sparse])
def test_any_parts_will_do(cut, method):
    X, y = overlapping()
    parts = cut(X, y)
    rows = np.concatenate([p[0].toarray() if hasattr(p[0], "toarray") else p[0] for p in parts])
    ref = svmcore.train_svc(rows, np.concatenate([p[1] for p in parts]), kernel="linear", tol=1e-8)
    same(train_linear(parts, tol=1e-6), ref, 1e-6)
    same(train_linear([p[0] for p in parts], [p[1] for p in parts], tol=1e-6, engine="threads"), ref, 1e-6)


def test_weights_and_single_precision(method):
    X, y = overlapping()
    X = X.astype(np.float32)
    weight = np.random.default_rng(2).uniform(0.0, 2.0, len(y))
    weight[::3] = 0.0
    words = {"C": 10.0, "sample_weight": weight, "class_weight": "balanced"}
    ref = svmcore.train_svc(X, y, kernel="linear", tol=1e-8, **words)
    same(train_linear(X, y, tol=1e-6, parts=4, **words), ref, 1e-6)


def test_regression_with_rows_of_weight_zero():
    # 5 rows of 10 are left: their 10 variables span as many places as they are, without being neighbours
    X = np.arange(20.0).reshape(10, 2) % 7
    y = np.arange(10.0) % 4
    weight = np.array([1.0, 0, 1, 0, 1, 0, 1, 0, 0, 1])
    ref = svmcore.train_svr(X, y, kernel="linear", tol=1e-8, sample_weight=weight)
    same(train_linear(X, y, loss="epsilon_insensitive", tol=1e-6, sample_weight=weight, parts=1), ref, 1e-6)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_bits_depend_on_the_parts_alone(loss, method):
    X, y = overlapping()
    one = train_linear(X, y, parts=5, loss=loss)
    two = train_linear(X, y, parts=5, loss=loss, engine="threads", n_threads=3)
    assert one.objective == two.objective
    assert (one.coef_ == two.coef_).all()
    assert two.engine == "threads"


@settings(max_examples=90)
@given(
    st.integers(2, 40), st.integers(1, 3), st.integers(1, 6), st.sampled_from([1e-3, 1.0, 1e3]), st.integers(0, 99),
    st.sampled_from([{}, {"LEAST": 5, "SPREAD": 0.0}, {"MOST_ROUNDS": 0}]),
)  # fmt: skip
def test_small_problems_with_ties(n, d, parts, C, seed, method):
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, (n, d)).astype(float)
    y = rng.integers(0, 2, n)
    y[:2] = 0, 1
    with pytest.MonkeyPatch.context() as patch:
        for name, value in method.items():
            patch.setattr(band, name, value)
        ours = train_linear(X, y, C=C, parts=parts, tol=1e-6)
    ref = svmcore.train_svc(X, y, C=C, kernel="linear", tol=1e-8)
    assert ours.kkt_violation <= 1e-6
    assert abs(ours.objective - ref.objective) <= 1e-8 * max(1.0, abs(ref.objective)) * max(C, 1.0)


def test_parts_from_files(tmp_path):
    X, y = overlapping()
    y = (y == "yes").astype(np.int64)
    ref = svmcore.train_svc(X, y, kernel="linear", tol=1e-8)
    cuts = np.array_split(np.arange(len(y)), 3)
    for k, a in enumerate(cuts):
        np.savez(tmp_path / f"{k}.npz", X=X[a], y=y[a])
        np.savez_compressed(tmp_path / f"c{k}.npz", X=X[a], y=y[a])
        np.save(tmp_path / f"X{k}.npy", X[a])
        np.save(tmp_path / f"y{k}.npy", y[a])
        rows = [" ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row)) for row in X[a].tolist()]
        lines = [f"{label} {row}" for label, row in zip(y[a].tolist(), rows, strict=True)]
        (tmp_path / f"{k}.svm").write_text("\n".join(lines) + "\n")
    same(train_linear(str(tmp_path / "?.npz"), tol=1e-6), ref, 1e-6)
    same(train_linear([tmp_path / f"c{k}.npz" for k in range(3)], tol=1e-6), ref, 1e-6)
    same(train_linear([tmp_path / f"{k}.svm" for k in range(3)], tol=1e-6), ref, 1e-6)
    xs, ys = [tmp_path / f"X{k}.npy" for k in range(3)], [tmp_path / f"y{k}.npy" for k in range(3)]
    ours = train_linear(xs, ys, tol=1e-6)
    same(ours, ref, 1e-6)
    assert ours.parts == [str(x) for x in xs]
    found = sources.sources(str(tmp_path / "0.npz"))[0].read()
    assert isinstance(found.X, np.memmap)
    assert np.array_equal(found.X, X[cuts[0]])


def test_parquet_has_a_part_for_every_row_group(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    X, y = overlapping()
    columns = {f"f{k}": X[:, k] for k in range(6)} | {"label": y, "w": np.ones(len(y))}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", row_group_size=400)
    ref = svmcore.train_svc(X, y, kernel="linear", tol=1e-8)
    ours = train_linear(tmp_path / "a.parquet", label="label", sample_weight="w", tol=1e-6)
    same(ours, ref, 1e-6)
    assert ours.rows == [400, 400, 400, 300]
    refused("no column 'klass'", train_linear, tmp_path / "a.parquet", label="klass")
    for words in ({"y": y}, {"sample_weight": np.ones(len(y))}):
        with pytest.raises(svmcore.InputError, match="are columns; name them with label= and sample_weight="):
            train_linear(tmp_path / "a.parquet", label="label", **words)


def test_a_stopped_run_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(band, "MOST_ROUNDS", 0)
    monkeypatch.setattr(rounds, "AT_ONCE", 0)
    monkeypatch.setattr(rounds, "LEAST_SET", 30)
    monkeypatch.setattr(rounds, "SET_SHARE", 10**9)
    X, y = overlapping()
    file = tmp_path / "run.npz"
    whole = train_linear(X, y, parts=4, C=100.0, tol=1e-6)
    with pytest.warns(svmcore.ConvergenceWarning, match="callback"):
        cut = train_linear(
            X, y, parts=4, C=100.0, tol=1e-6, checkpoint=file, callback=lambda report: report.n_iter >= 5
        )
    assert 0.0 < cut.relative_gap < 1.0  # what was reached is feasible, and known
    assert cut.certificate.objective >= whole.objective
    rest = train_linear(X, y, parts=4, C=100.0, tol=1e-6, checkpoint=file)
    assert rest.converged
    assert len(rest.rounds) < len(whole.rounds)
    assert abs(rest.objective - whole.objective) <= 1e-8 * abs(whole.objective)
    refused(r"another problem: C is 100\.0 there and 1\.0 here", train_linear, X, y, parts=4, checkpoint=file)
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    refused("is no checkpoint", train_linear, X, y, checkpoint=tmp_path / "bad.npz")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.npz")  # nobody waits for somebody who writes to it
        refused(r"is no checkpoint \(.*it is no regular file", train_linear, X, y, checkpoint=tmp_path / "pipe.npz")


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_rounds_that_were_stopped_go_on_from_their_checkpoint(tmp_path, monkeypatch, loss):
    monkeypatch.setattr(band, "LEAST", 100)
    monkeypatch.setattr(band, "SPREAD", 0.0)
    X, y = overlapping()
    file = tmp_path / "run.npz"
    words = {"parts": 4, "C": 0.1, "tol": 1e-6, "loss": loss}
    whole = train_linear(X, y, **words)
    with pytest.warns(svmcore.ConvergenceWarning, match="callback"):
        cut = train_linear(X, y, **words, checkpoint=file, callback=lambda report: report.n_iter >= 1)
    assert cut.certificate.objective >= whole.objective
    assert np.isfinite(cut.gap)
    rest = train_linear(X, y, **words, checkpoint=file)
    assert rest.converged
    assert len(rest.rounds) <= len(whole.rounds)
    assert not any(np.isnan(at.dual) for at in rest.rounds)  # no sample is drawn again
    assert abs(rest.objective - whole.objective) <= 1e-8 * abs(whole.objective)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_time_limit_keeps_what_was_reached(loss, method):
    X, y = overlapping()
    with pytest.warns(svmcore.ConvergenceWarning, match="time_limit"):
        cut = train_linear(X, y, time_limit=0.0, loss=loss)
    assert not cut.converged
    assert cut.gap >= 0.0


def test_lines_of_progress(capsys, method):
    X, y = overlapping(200)
    ours = train_linear(X, y, verbose=1)
    assert capsys.readouterr().err.count("fit:") == len(ours.rounds) + (method == "rounds")
    assert "parts" in str(ours)
    assert "<table" in ours._repr_html_()


def _bad(X, y):
    part = X.copy()
    part[3, 2] = np.nan
    return [(X, y), (part, y)]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (_bad, "part 1 contains nan at row 3, column 2"),
        (lambda X, y: [(X, y), (X[:, :2], y)], "part 1 has 2 columns and another part has 6"),
        (lambda X, y: [(X, y), (X, y[:3])], "part 1 has 1500 rows of X and y of shape"),
        (lambda X, y: [(X, y), (csr_matrix(X), y)], "part 0 is dense and part 1 is not"),
        (lambda X, y: [(X, np.ones(len(y)))], "one class only"),
        (lambda X, y: [(X, y), (X, np.full(len(y), "other"))], "3 classes"),
        (lambda X, y: [(X[:0], y[:0])], "all 1 parts are empty"),
        (lambda X, y: [(X, y, -np.ones(len(y)))], "sample_weight of part 0 contains -1"),
        (
            lambda X, y: [(X, y), (X, y, np.ones(len(y)))],
            "part 1 has weights and part 0 has none; give weights to every",
        ),
        (lambda X, y: [(X, y, np.ones(len(y))), (X[:0], y[:0]), (X, y)], "part 0 has weights and part 2 has none"),
        (lambda X, y: [(X, y), (X, y == "yes")], "labels of part 1 are numbers and those of part 0 are strings"),
        (lambda X, y: [(X, y == "yes"), (X, y)], "labels of part 0 are numbers and those of part 1 are strings"),
        (lambda X, y: [(X.tolist(), y), ([[1.0], [2.0, 3.0]], y[:2])], "part 1 is no array"),
    ],
)
def test_messages_name_the_part(parts, message):
    refused(message, train_linear, parts(*overlapping()))


@pytest.mark.parametrize("words", [{"y": [0, 1]}, {"sample_weight": [1.0, 2.0]}])
def test_nothing_is_given_beside_pairs(words):
    X, y = overlapping(100)
    refused("leave y and sample_weight out", train_linear, [(X, y)], **words)


def test_messages_about_lists_and_single_numbers():
    X, y = overlapping(20)
    with pytest.raises(svmcore.InputError, match="X is a list of 2 parts; give y as a list of as many parts"):
        train_linear([X[:12].tolist(), X[12:].tolist()], y)
    refused(r"X has 3 dimension.*in a list of parts every part is an array", train_linear, X.reshape(10, 2, 6), y[:10])
    refused("y is no array, and no list of parts either", train_linear, X, [y[:12].tolist(), y[12:].tolist()])
    refused("X has 20 rows and y has 1; give one label a row", train_linear, X, 1.0)
    refused("sample_weight has 1 numbers for 20 samples", train_linear, X, y, 1.0, sample_weight=1.0)


def test_parts_are_lists_as_well():
    X, y = overlapping(200)
    whole = train_linear([(X[:120], y[:120]), (X[120:], y[120:])])
    rows, labels = X.tolist(), y.tolist()
    for parts in (
        ([(rows[:120], labels[:120]), (rows[120:], labels[120:])],),
        ([[X[:120], y[:120]], [rows[120:], labels[120:]]],),
        ([rows[:120], rows[120:]], [labels[:120], y[120:]]),
    ):
        assert train_linear(*parts).objective == whole.objective


@pytest.mark.parametrize("text", [b"", b"no archive", b"PK\x03\x04" + bytes(99)])
def test_a_broken_archive_is_named(tmp_path, text):
    X, y = overlapping(100)
    np.savez(tmp_path / "a.npz", X=X, y=y)
    (tmp_path / "b.npz").write_bytes(text)
    refused(r"part .*b\.npz is a damaged \.npz file", train_linear, str(tmp_path / "*.npz"))
    np.savez(tmp_path / "b.npz", X=X[:50], y=y[:50])
    whole = (tmp_path / "b.npz").read_bytes()
    (tmp_path / "b.npz").write_bytes(whole[:1000] + bytes([whole[1000] ^ 255]) + whole[1001:])
    refused(r"part .*b\.npz is a damaged file \(BadZipFile: Bad CRC-32", train_linear, str(tmp_path / "*.npz"))
    np.savez(tmp_path / "b.npz", X=X, y=np.array([None] * 100))
    refused(r"part .*b\.npz: y holds Python objects, which are never unpickled", train_linear, str(tmp_path / "*.npz"))


@pytest.mark.parametrize(("name", "text"), [("X", b""), ("X", b"no array"), ("y", b"\x93NUMPY"), ("X", None)])
def test_a_broken_array_is_named(tmp_path, name, text):
    X, y = overlapping(100)
    for each, array in (("X", X), ("y", y)):
        np.save(tmp_path / f"{each}.npy", array)
    file = tmp_path / f"{name}.npy"
    file.write_bytes(file.read_bytes()[:300] if text is None else text)
    with pytest.raises(svmcore.InputError, match=rf"part .*{name}\.npy is a damaged file \(ValueError: (?!.*unsafe)"):
        train_linear([tmp_path / "X.npy"], [tmp_path / "y.npy"])


def _raise(error):
    raise error("no memory")


def test_a_broken_table_is_named(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    whole = {"a": [1.0, 2.0], "y": [0, 1]}
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(whole), tmp_path / "b.parquet")
    for error, kind in ((pyarrow.lib.ArrowMemoryError, svmcore.InputError), (MemoryError, MemoryError)):
        with monkeypatch.context() as patch:
            patch.setattr(sources, "_row_group", lambda *_, error=error: _raise(error))
            with pytest.raises(kind):
                train_linear(tmp_path / "b.parquet", label="y")
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(99))
    refused(r"part .*a\.parquet is a damaged file \(ArrowInvalid", train_linear, tmp_path / "a.parquet", label="y")


@pytest.mark.parametrize("form", ["npz", "svm", "npy"])
def test_weights_beside_files_count(tmp_path, form):
    X, y = overlapping(200)
    weights = [np.linspace(0.0, 1.0, 100), np.linspace(1.0, 2.0, 100)]
    files, labels = [tmp_path / f"{k}.{form}" for k in range(2)], None
    for k, file in enumerate(files):
        rows = X[k::2], (y[k::2] == "yes").astype(int)
        if form == "npz":
            np.savez(file, X=rows[0], y=rows[1])
        elif form == "svm":
            svmcore.save_data(file, *rows)
        else:
            np.save(file, rows[0])
            np.save(tmp_path / f"y{k}.npy", rows[1])
            labels = [tmp_path / "y0.npy", tmp_path / "y1.npy"]
        np.save(tmp_path / f"w{k}", weights[k])
    ours = train_linear(files, labels, sample_weight=weights)
    named = train_linear(files, labels, sample_weight=str(tmp_path / "w?.npy"))
    arrays = train_linear([(X[k::2], y[k::2], weights[k]) for k in range(2)])
    assert ours.objective == named.objective
    assert abs(ours.objective - arrays.objective) <= 1e-9 * abs(arrays.objective)
    one = train_linear(files[0], None if labels is None else labels[0], sample_weight=weights[0])
    assert abs(one.objective - train_linear([(X[::2], y[::2], weights[0])]).objective) <= 1e-9 * abs(one.objective)
    with pytest.raises(
        svmcore.InputError, match="X is 2 files; give sample_weight as a list of as many arrays or files"
    ):
        train_linear(files, labels, sample_weight=weights[0])
    if form != "npy":
        refused(r"part .*0\.\w+ holds y, and y is given as well", train_linear, files, [y[::2], y[1::2]])


def test_a_checkpoint_among_the_parts_is_refused(tmp_path):
    X, y = overlapping(100)
    np.savez(tmp_path / "a.npz", X=X, y=y)
    with pytest.raises(svmcore.InputError, match=r"checkpoint=.* fits the pattern of the parts, .*another folder"):
        train_linear(str(tmp_path / "*.npz"), checkpoint=tmp_path / "run.npz")
    train_svc([(X, y)], checkpoint=tmp_path / "run.npz", working_set=20)
    refused(r"run\.npz is the checkpoint of a fit, and holds no rows", train_linear, str(tmp_path / "*.npz"))


def test_messages_about_files(tmp_path):
    refused("no such file", train_linear, [str(tmp_path / "a.npz")])
    refused("no file is called", train_linear, str(tmp_path / "*.npz"))
    X, y = overlapping(100)
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(svmcore.InputError, match=r"part .*X.npy has its y in .*y.npy, and there is no such"):
        train_linear([tmp_path / "X.npy"], [tmp_path / "y.npy"])
    np.savez(tmp_path / "a.npz", X=X, y=y)
    gone = sources.sources(str(tmp_path / "a.npz"))[0]
    (tmp_path / "a.npz").unlink()
    refused(r"part .*a.npz is gone", gone.read)
    refused("client= belongs to", train_linear, X, y, engine="serial", client=object())
    refused("engine='spark'", train_linear, X, y, engine="spark")


def test_nothing_optional_is_loaded():
    """But for scikit-learn, which estimators need, and which loads whatever it likes of data frames."""
    pytest.importorskip("sklearn")
    look = "print(*({'dask', 'distributed', 'pyarrow', 'sklearn'} & set(sys.modules)))"
    program = f"import sys, svmcore.distributed as d; d.train_svc; {look}; d.DaskSVC; {look}"
    functions, estimators = ran(program)[0].splitlines()
    assert functions == ""
    assert not {"dask", "distributed"} & set(estimators.split())


def test_without_dask_a_sentence_says_what_to_install(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    X, y = overlapping(20)
    with pytest.raises(svmcore.MissingExtraError, match=r"svmcore\[dask\]"):
        train_linear(X, y, engine="dask")


def test_without_pyarrow_a_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(svmcore.MissingExtraError, match="pyarrow"):
        train_linear(tmp_path / "a.parquet", label="y")


def test_a_word_of_another_library():
    X, y = overlapping(20)
    refused("it is called n_threads here", train_linear, X, y, n_jobs=2)


def test_what_is_for_one_machine_is_said():
    X, y = overlapping(20)
    refused(r"no parameter 'nu' over parts; svmcore.train_svc, .*, has it", train_svc, X, y, nu=0.5)
    refused("C=inf is for rows in memory", train_linear, X, y, C=np.inf)
