"""Kernel machines over parts: the answer of one machine, whatever the parts are; rounds, certificates, checkpoints."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kept import parts_of
from refusals import refused
from scipy.sparse import csr_matrix
from test_distributed_linear import _by_class, _empty_and_unequal, _twice
from warned import quiet

import svmcore
from svmcore._types import Kernel, KernelKind
from svmcore.distributed import rounds, scan, train_svc, train_svr
from svmcore.kernel.matrix import KernelMatrix
from svmcore.problem import formulations, measures

pytestmark = pytest.mark.compiled


def wavy(n=1500, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sign(np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.7 * rng.normal(size=n))


@pytest.fixture
def dear(monkeypatch):
    """No certificate in float64 only because it is cheap: what decides is what is recomputed."""
    monkeypatch.setattr(rounds, "CHEAP", 0.0)


def same(ours, ref, tol=1e-6):
    assert ours.converged
    assert ours.kkt_violation <= tol
    assert abs(ours.objective - ref.objective) <= 1e-8 * abs(ref.objective)


@pytest.mark.parametrize("parts", [1, 2, 7, 16])
def test_any_number_of_parts_gives_the_answer_of_one_machine(parts):
    X, y = wavy()
    ref = svmcore.train_svc(X, y, tol=1e-8)
    ours = train_svc(X, y, tol=1e-6, parts=parts, working_set=200)
    same(ours, ref)
    assert len(ours.rounds) > 2  # a working set of 200 does not hold it all
    found = svmcore.certificate(X, y, np.concatenate(ours.alpha), ours.intercept, C=1.0)
    assert found.kkt_violation <= 1e-6
    assert abs(found.kkt_violation - ours.kkt_violation) < 1e-10
    assert abs(found.gap - ours.gap) < 1e-8 * abs(ref.objective)
    assert found.infeasibility < 1e-10
    local = ours.to_local()
    assert (local.predict(X) == ours.predict(X)).all()
    assert np.allclose(local.decision_function(X[:9]), ref.decision_function(X[:9]), atol=1e-4)


@pytest.mark.parametrize("kernel", ["laplacian", "poly", "sigmoid"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_kernels_and_losses(kernel, loss):
    X, y = wavy(700)
    form = {"kernel": kernel, "loss": loss, "C": 2.0, "gamma": 0.05 if kernel == "sigmoid" else "scale", "coef0": 0.0}
    ref = svmcore.train_svc(X, y, tol=1e-7, **form)
    same(train_svc(X, y, tol=1e-6, parts=3, working_set=150, **form), ref)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_regression_has_two_variables_a_row(fit_intercept):
    X, _ = wavy(700)
    y = np.sin(X[:, 0]) + X[:, 1]
    form = {"epsilon": 0.05, "fit_intercept": fit_intercept}
    ref = svmcore.train_svr(X, y, tol=1e-7, **form)
    ours = train_svr(X, y, tol=1e-6, parts=5, working_set=150, **form)
    same(ours, ref)
    assert np.allclose(ours.predict(X[:9]), ref.predict(X[:9]), atol=1e-4)


def _sparse(X, y):
    return [(csr_matrix(np.where(np.abs(X[a]) < 0.5, 0.0, X[a])), y[a]) for a in np.array_split(np.arange(len(y)), 3)]


def _single(X, y):
    return [(X[a].astype(np.float32), y[a]) for a in np.array_split(np.arange(len(y)), 3)]


@pytest.mark.parametrize("cut", [_by_class, _empty_and_unequal, _twice, _sparse, _single])
def test_any_parts_will_do(cut):
    X, y = wavy()
    parts = cut(X, y)
    rows = np.concatenate([p[0].toarray() if hasattr(p[0], "toarray") else p[0] for p in parts])
    ref = svmcore.train_svc(rows, np.concatenate([p[1] for p in parts]), tol=1e-8)
    same(train_svc(parts, tol=1e-6, working_set=300), ref)


def test_weights():
    X, y = wavy()
    weight = np.random.default_rng(2).uniform(0.0, 2.0, len(y))
    weight[::3] = 0.0
    form = {"C": 3.0, "sample_weight": weight, "class_weight": {-1.0: 2.0, 1.0: 0.5}}
    same(train_svc(X, y, tol=1e-6, parts=4, working_set=200, **form), svmcore.train_svc(X, y, tol=1e-8, **form))


@given(st.integers(2, 40), st.integers(1, 6), st.sampled_from([1e-3, 1.0, 1e3]), st.integers(2, 9), st.integers(0, 99))
@settings(max_examples=40)
def test_small_problems_with_ties(n, parts, C, working_set, seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, (n, 2)).astype(float)
    y = rng.integers(0, 2, n)
    y[:2] = 0, 1
    with quiet(svmcore.ConvergenceWarning):  # a gap above 1 %: C = 1,000 at this tolerance
        ours = train_svc(X, y, C=C, parts=parts, working_set=working_set, gamma=0.5)
    ref = svmcore.train_svc(X, y, C=C, tol=1e-8, gamma=0.5)
    assert ours.kkt_violation <= 1e-3
    assert abs(ours.objective - ref.objective) <= ours.gap + 1e-9 * abs(ref.objective)


def test_single_precision_is_proved_from_the_rows_that_decide(dear):
    X, y = wavy(3000)
    ours = train_svc(X, y, parts=4, working_set=500)
    assert ours.stats["precision"] == "float32"
    assert 0 < ours.stats["decisive"] < 1500
    found = svmcore.certificate(X, y, np.concatenate(ours.alpha), ours.intercept, C=1.0)
    assert abs(found.kkt_violation - ours.kkt_violation) < 1e-10
    assert abs(found.gap - ours.gap) <= ours.stats["error"] * np.concatenate(ours.alpha).sum()
    exact = train_svc(X, y, parts=4, working_set=500, certificate="whole")
    assert exact.stats["exact"]
    assert abs(found.objective - exact.objective) < 1e-9 * abs(found.objective)


def test_the_bound_on_single_precision_holds(dear):
    X, y = wavy(2000, 20)
    fit = []
    prove = rounds.prove

    def kept(run, **words):
        fit.append(run)
        return prove(run, **words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "prove", kept)
        ours = train_svc(X.astype(np.float32), y, parts=3, working_set=500)
    coef = np.concatenate(ours.alpha) * y
    exact = svmcore.certificate(X.astype(np.float32), y, np.abs(coef), ours.intercept, C=1.0)
    fields = np.concatenate([state.field[: part.n] for part, state in fit[0].pairs(fit[0].stand.states)])
    Z = X.astype(np.float32).astype(np.float64)
    distances = ((Z[:, None, :] - Z[None, :300]) ** 2).sum(-1)
    K = np.exp(-distances / (20 * Z.var()))
    assert exact.kkt_violation <= 1e-3
    assert np.abs(fields[:300] - coef @ K).max() < rounds.error_of(fit[0])


def test_groups_descend_and_tight_tolerances_use_float64():
    X, y = wavy()
    ours = train_svc(X, y, parts=6, working_set=60, tol=1e-7, C=10.0)
    same(ours, svmcore.train_svc(X, y, tol=1e-9, C=10.0), 1e-7)
    groups = [each.groups for each in ours.rounds]
    assert max(groups) > 1
    assert groups[-1] == 1
    duals = np.array([each.dual for each in ours.rounds])
    assert (np.diff(duals) > -1e-6 * duals[-1]).all()
    assert ours.stats["precision"] == "float64"


def test_bits_depend_on_the_parts_alone():
    X, y = wavy()
    one = train_svc(X, y, parts=5, working_set=200, n_threads=1)
    two = train_svc(X, y, parts=5, working_set=200, engine="threads", n_threads=3)
    assert one.objective == two.objective
    assert all((a == b).all() for a, b in zip(one.alpha, two.alpha, strict=True))
    assert [a._replace(seconds=0.0) for a in one.rounds] == [b._replace(seconds=0.0) for b in two.rounds]


def test_a_stopped_run_goes_on_from_its_checkpoint(tmp_path):
    X, y = wavy()
    form = {"parts": 4, "C": 10.0, "tol": 1e-5, "working_set": 150}
    file = tmp_path / "run.npz"
    whole = train_svc(X, y, **form)
    with pytest.warns(svmcore.ConvergenceWarning, match="callback"):
        cut = train_svc(X, y, **form, checkpoint=file, callback=lambda report: report.n_iter >= 4)
    assert len(cut.rounds) == 4
    assert 0.0 < cut.relative_gap < 0.5
    proof = svmcore.certificate(X, y, np.concatenate(cut.alpha), cut.intercept, C=10.0)
    assert proof.infeasibility < 1e-9
    assert abs(proof.gap - cut.gap) < 1e-4 * abs(proof.objective)
    rest = train_svc(X, y, **form, checkpoint=file)
    assert rest.converged
    assert len(rest.rounds) < len(whole.rounds)
    assert abs(rest.objective - whole.objective) <= 1e-8 * abs(whole.objective)
    refused("another problem: rows of the parts", train_svc, X, y, **form | {"parts": 3}, checkpoint=file)


@pytest.mark.parametrize("which", ["y", "sample_weight"])
def test_a_checkpoint_belongs_to_its_labels_and_weights(tmp_path, which):
    X, y = wavy(300)
    file, weight = tmp_path / "run.npz", np.linspace(0.5, 1.5, 300)
    train_svc(X, y, sample_weight=weight, parts=2, checkpoint=file, working_set=50)
    if which == "y":
        y = -y
    else:
        weight = weight[::-1]
    with pytest.raises(svmcore.InputError, match="another problem: checksum of y and sample_weight"):
        train_svc(X, y, sample_weight=weight, parts=2, checkpoint=file)


@pytest.mark.parametrize("value", [5.0, 0.5, np.nan])
def test_a_checkpoint_whose_point_is_not_allowed_is_refused(tmp_path, value):
    X, y = wavy(300)
    file = tmp_path / "run.npz"
    train_svc(X, y, parts=2, checkpoint=file, working_set=50)
    arrays = parts_of(file)
    beta = scan.unpack(arrays["part_0"]).copy()
    beta[np.flatnonzero((beta != 0.0) & (np.abs(beta) != 1.0))[0]] = value
    arrays["part_0"] = scan.pack(scan.ScanState(beta, beta))
    np.savez(file, **arrays)
    refused("holds a point that this problem does not allow", train_svc, X, y, parts=2, checkpoint=file)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_keeps_the_last_round():
    X, y = wavy(3000)
    rounds_seen = []

    def interrupt(report):
        if report.n_iter == 2:
            rounds_seen.append(report)
            os.kill(os.getpid(), signal.SIGINT)

    assert threading.current_thread() is threading.main_thread()
    with pytest.warns(svmcore.ConvergenceWarning, match="interrupted"):
        cut = train_svc(X, y, parts=4, working_set=100, tol=1e-6, callback=interrupt)
    assert len(rounds_seen) == 1
    assert len(cut.rounds) >= 2
    assert np.isfinite(cut.relative_gap)


def test_limits_before_there_is_anything():
    X, y = wavy(300)
    with pytest.raises(svmcore.StoppedError, match="before there was anything"):
        train_svc(X, y, time_limit=0.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"kernel": "precomputed"}, "kernel='precomputed' is not known over parts"),
        ({"C": np.inf}, "C=inf"),
        ({"loss": "epsilon_insensitive"}, "loss='epsilon_insensitive'"),
        ({"working_set": 0}, "working_set=0"),
        ({"certificate": "none"}, "certificate='none'"),
        ({"checkpoint": "/nowhere/at/all.npz"}, "folder that does not exist"),
        ({"gamma": "large"}, "gamma='large'"),
    ],
)
def test_messages(words, message):
    X, y = wavy(50)
    refused(message, train_svc, X, y, **words)


@pytest.mark.parametrize("form", [np.asarray, csr_matrix])
def test_linear_machines_of_many_features_take_rounds(form):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 600)) * (rng.random((200, 600)) < 0.1)
    y = X[:, :20].sum(axis=1) + rng.normal(size=200) > 0
    ref = svmcore.train_svc(X, y, kernel="linear", tol=1e-8)
    ours = train_svc(form(X), y, kernel="linear", parts=3, tol=1e-6, working_set=60)
    same(ours, ref)
    assert np.allclose(ours.coef_, ref.coef_, atol=1e-5)
    assert (ours.predict(form(X)) == ref.predict(X)).all()


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_sparse_rows_of_few_features_are_made_dense_only_where_they_fill_little_memory(loss, monkeypatch):
    X, y = wavy(300, 5)
    X[np.abs(X) < 0.5] = 0.0
    rows, kernel = csr_matrix(X), Kernel(int(KernelKind.LINEAR), 1.0, 0.0, 3, 0.0)
    K, qp = KernelMatrix(rows, kernel, cache_bytes=0), formulations.svc(y, np.full(300, 0.5), loss, True)
    ref = svmcore.train_svc(X, y, 0.5, kernel="linear", loss=loss, tol=1e-8)
    for most, solver in ((1e9, scan.interior), (0.0, scan.newton)):
        monkeypatch.setattr(scan.interior, "MOST_BYTES", most)
        assert scan._solver(K) is solver
        beta, odd = scan.correct(rows, np.arange(300), kernel, qp, 1e-6, 1)
        assert not odd
        assert measures.objective(qp, beta, qp.c - qp.diag * beta - X @ (X.T @ beta)) == pytest.approx(ref.objective)
    assert scan._solver(KernelMatrix(X, kernel, cache_bytes=0)) is scan.interior
    assert scan._solver(KernelMatrix(rows[:4], kernel, cache_bytes=0)) is scan.block


@pytest.mark.slow
def test_a_million_rows_from_files(tmp_path):
    """Out of core: 1,000,000 rows of 20 features; minutes."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(20, 3))
    for k in range(16):
        X = rng.normal(size=(62_500, 20)).astype(np.float32)
        y = np.sign(np.tanh(X @ w[:, 0]) + np.sin(X @ w[:, 1] / 3.0) + 0.2 * rng.normal(size=len(X)))
        np.savez(tmp_path / f"{k:02d}.npz", X=X, y=y.astype(np.int8))
    ours = train_svc(str(tmp_path / "*.npz"), C=0.1)
    assert ours.converged
    assert ours.kkt_violation <= 1e-3
    assert ours.relative_gap < 1e-3
    assert len(ours.rounds) <= 20
    assert sum(ours.rows) == 1_000_000
