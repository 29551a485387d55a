"""`exemplars`: every machine is the one that its query and the negatives have alone."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kept import stored
from scipy import sparse

import svmcore
from svmcore.simd.passes import TOGETHER
from svmcore.trials import exemplars as room

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Q = RNG.normal(size=(2 * TOGETHER + 3, 4))
TIGHT = {"tol": 1e-9}


def function(A, B):
    return A @ B.T + 1.0


def alone(q, X, options, weights=None):
    """The machine of one query, by brute force."""
    rows = sparse.vstack([q, X]).tocsr() if sparse.issparse(X) else np.vstack([q, X])
    labels = np.r_[1, -np.ones(X.shape[0], int)]
    weights = None if weights is None else np.r_[1.0, weights]
    options = {"gamma": 0.3, "C": 1.0, "class_weight": None} | options
    if options["class_weight"] == "balanced":
        total = len(labels) if weights is None else weights.sum()
        options["class_weight"] = {1: total / 2, -1: total / (2 * (total - 1))}
    return svmcore.train_svc(rows, labels, sample_weight=weights, **options, **TIGHT)


def held_against_brute_force(found, Q, X, options, weights=None):
    assert len(found) == Q.shape[0]
    assert found.converged
    values = found.decision_function(X)
    for k in range(Q.shape[0]):
        other, machine = alone(Q[[k]], X, options, weights), found[k]
        top = other.C * np.r_[1.0, np.ones(X.shape[0]) if weights is None else weights]
        top *= np.where(np.arange(len(top)) == 0, *((other.terms.factors or (1.0, 1.0))[::-1]))
        assert machine.objective == pytest.approx(other.objective, rel=1e-6, abs=1e-9)
        slack = TIGHT["tol"] * top.sum()  # what violations of this size can cost
        assert machine.primal_objective == pytest.approx(other.primal_objective, rel=1e-6, abs=2 * slack)
        assert machine.params == other.params
        assert machine.classes.tolist() == other.classes.tolist()
        assert 0.0 <= machine.certificate.infeasibility <= 1e-12 * max(1.0, np.abs(machine.dual_coef).sum())
        np.testing.assert_allclose(machine.decision_function(X), values[:, k], atol=1e-9 * (1.0 + abs(values).max()))
        assert machine.alpha[0] == found.weight[k]
        np.testing.assert_array_equal(-machine.alpha[1:], found.coef[[k]].toarray()[0])
        assert (machine.alpha <= top * (1 + 1e-12)).all()
        if ((other.alpha > 1e-6 * top) & (other.alpha < (1 - 1e-6) * top)).any():  # or the intercept is not unique
            np.testing.assert_allclose(values[:, k], other.decision_function(X), atol=1e-5)


CASES = [
    {},
    {"C": 100.0},
    {"C": 0.01, "class_weight": {1: 50.0}},
    {"class_weight": "balanced"},
    {"C": 10.0, "class_weight": {-1: 0.01, 1: 2.0}},
    {"kernel": "linear", "C": 1e3},
    {"kernel": "poly", "degree": 2, "coef0": 1.0},
    {"kernel": "laplacian"},
    {"gamma": 20.0},
    {"kernel": function},
]


@pytest.mark.parametrize("options", CASES, ids=[*map(str, CASES[:-1]), "a function"])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_machine_is_what_it_is_alone(options, weighted):
    weights = RNG.integers(1, 3, len(X)) * 1.0 if weighted else None
    found = svmcore.exemplars(Q, X, sample_weight=weights, **{"gamma": 0.3} | options, **TIGHT)
    held_against_brute_force(found, Q, X, options, weights)


@pytest.mark.home
@pytest.mark.parametrize("gamma", [0.3, 30.0])
def test_both_starts_lead_there(gamma):
    """Where few negatives support a machine tasks start at zero, where all do along the difference of the means."""
    few = svmcore.exemplars(Q, X, gamma=gamma, **TIGHT)
    assert (few.coef.nnz < 0.5 * few.coef.shape[0] * few.coef.shape[1]) == (gamma < 1.0)
    K = np.exp(-gamma * ((X[:, None] - X) ** 2).sum(-1))
    for k, q in enumerate(Q):
        own = np.exp(-gamma * ((X - q) ** 2).sum(-1))
        f = K @ few.coef[[k]].toarray()[0] + few.weight[k] * own + few.intercept[k]
        beta = few.coef[[k]].toarray()[0]
        assert (f[beta == 0.0] <= -1.0 + 1e-8).all()
        np.testing.assert_allclose(f[(beta < -1e-7) & (beta > -1.0)], -1.0, atol=1e-8)
        assert few.weight[k] == pytest.approx(-beta.sum(), abs=1e-12)


@given(st.integers(0, 2**32 - 1))
def test_any_problem(seed):
    rng = np.random.default_rng(seed)
    n, m, d = int(rng.integers(1, 20)), int(rng.integers(1, 12)), int(rng.integers(1, 4))
    points, queries = rng.integers(-2, 3, (n, d)) * 1.0, rng.integers(-2, 3, (m, d)) * 1.0
    options = {
        "kernel": str(rng.choice(["linear", "rbf"])),
        "gamma": float(10.0 ** rng.uniform(-2, 1)),
        "C": float(10.0 ** rng.uniform(-2, 2)),
        "class_weight": None if rng.random() < 0.5 else {1: float(10.0 ** rng.uniform(-1, 2))},
    }
    weights = rng.integers(1, 3, n) * 1.0 if rng.random() < 0.5 else None
    found = svmcore.exemplars(queries, points, sample_weight=weights, **options, **TIGHT)
    held_against_brute_force(found, queries, points, options, weights)


def test_dense_and_sparse_rows_in_any_mixture():
    points, queries = np.where(X > 0.5, X, 0.0), np.where(Q > 0.5, Q, 0.0)
    plain = svmcore.exemplars(queries, points, gamma=0.3, **TIGHT)
    for make, make_too in ((sparse.csr_matrix,) * 2, (np.array, sparse.csr_matrix), (sparse.csr_matrix, np.array)):
        found = svmcore.exemplars(make(queries), make_too(points), gamma=0.3, **TIGHT)
        np.testing.assert_allclose(found.decision_function(make(X)), plain.decision_function(X), atol=1e-7)
        np.testing.assert_allclose(found[3].decision_function(X), plain[3].decision_function(X), atol=1e-7)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_origin_and_the_scale_of_the_negatives_change_nothing(kernel):
    far = np.array([1e4, -1e3, 0.0, 7.0])
    plain = svmcore.exemplars(Q, X, 5.0, kernel=kernel, gamma=0.3, **TIGHT)
    moved = svmcore.exemplars(Q + far, X + far, 5.0, kernel=kernel, gamma=0.3, **TIGHT)
    np.testing.assert_allclose(moved.decision_function(X + far), plain.decision_function(X), atol=1e-5)
    np.testing.assert_allclose(moved[2].decision_function(X + far), plain[2].decision_function(X), atol=1e-5)
    scaled = svmcore.exemplars(
        Q * [1, 2, 3, 4] + far, X * [1, 2, 3, 4] + far, 5.0, standardize=True, kernel=kernel, **TIGHT
    )
    usual = svmcore.exemplars((Q - X.mean(0)) / X.std(0), (X - X.mean(0)) / X.std(0), 5.0, kernel=kernel, **TIGHT)
    np.testing.assert_allclose(scaled.decision_function(X * [1, 2, 3, 4] + far), usual.decision_function(
        (X - X.mean(0)) / X.std(0)), atol=1e-5)  # fmt: skip
    if kernel == "linear":
        np.testing.assert_allclose(moved[1].coef_, plain[1].coef_, atol=1e-6)


@pytest.mark.compiled
def test_the_bits_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(room, "_SLICE", 2 * TOGETHER)
    queries = np.concatenate([Q, Q + 0.1, Q - 0.2])
    one = svmcore.exemplars(queries, X, 3.0, n_jobs=1)
    for n_jobs in (2, 3):
        other = svmcore.exemplars(queries, X, 3.0, n_jobs=n_jobs)
        for name in ("weight", "intercept", "violation", "gap", "n_iter"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        assert (one.coef != other.coef).nnz == 0


def test_a_query_among_the_negatives_and_equal_negatives():
    points = np.vstack([X[:5], X[:5], X[3:4]])
    found = svmcore.exemplars(points[:3], points, 2.0, gamma=0.3, **TIGHT)
    held_against_brute_force(found, points[:3], points, {"C": 2.0})


def test_it_behaves_as_a_sequence_and_says_what_it_is():
    found = svmcore.exemplars(Q, X)
    assert repr(found).startswith(f"<Exemplars: {len(Q)} machines, ")
    assert [machine.n_points for machine in found] == [61] * len(Q)
    assert found[-1].intercept == found[len(Q) - 1].intercept
    with pytest.raises(IndexError, match="there are 19 machines; 19 is none of them"):
        found[19]
    machine = stored(found[0])
    np.testing.assert_array_equal(machine.predict(X), found[0].predict(X))


def test_later_changes_of_the_rows_change_nothing():
    points, queries = X.copy(), Q.copy()
    found = svmcore.exemplars(queries, points)
    before = found.decision_function(X)
    points[:], queries[:] = 0.0, 0.0
    np.testing.assert_array_equal(found.decision_function(X), before)


@pytest.mark.compiled
@pytest.mark.parametrize("why", ["a callback", "the time", "Ctrl-C"])
def test_what_is_complete_is_kept(why, monkeypatch):
    monkeypatch.setattr(room, "_SLICE", TOGETHER)
    words = {"callback": lambda progress: progress.done > 0.5} if why == "a callback" else {}
    if why == "the time":
        words = {"time_limit": 0.0}
    if why == "Ctrl-C":
        real = room._some

        def interrupted(*task):
            os.kill(os.getpid(), signal.SIGINT)
            return real(*task)

        monkeypatch.setattr(room, "_some", interrupted)
    found = svmcore.exemplars(Q, X, **words)
    assert len(found) == {"a callback": 2 * TOGETHER}.get(why, TOGETHER)
    assert not found.converged
    assert not found.status.ok
    assert (found.violation <= 1e-3).all()
    whole = svmcore.exemplars(Q, X) if why != "Ctrl-C" else None
    if whole is not None:
        np.testing.assert_array_equal(found.weight, whole.weight[: len(found)])
    assert found.decision_function(X).shape == (60, len(found))


def test_progress_is_told():
    told = []
    svmcore.exemplars(Q, X, callback=lambda progress: told.append(progress.done))
    assert told == [1.0]


def test_what_misses_the_tolerance_is_said():
    with pytest.warns(svmcore.ConvergenceWarning, match=f"of {len(Q)} machines missed the tolerance"):
        found = svmcore.exemplars(Q, X, tol=1e-18)
    assert not found.converged
    worst = int(np.argmax(found.violation))
    assert not found[worst].converged
    assert found[worst].kkt_violation == found.violation[worst]


BAD = [
    (Q[:, :3], X, {}, "Q has 3 features, and X 4; give as many"),
    (Q[0], X, {}, "Q.*one sample: X.reshape|Q"),
    (np.empty((0, 4)), X, {}, "Q is empty"),
    (np.where(Q > 2.0, np.nan, Q), X, {}, "Q contains nan"),
    (Q, np.where(X > 1.5, np.inf, X), {}, "X contains inf"),
    (Q, X, {"C": np.inf}, "C=inf"),
    (Q, X, {"C": -1.0}, "C=-1.0"),
    (Q, X, {"kernel": "precomputed"}, "kernel='precomputed' knows nothing of the queries"),
    (Q, X, {"class_weight": {2: 1.0}}, "class_weight"),
    (Q, X, {"class_weight": 50.0}, "class_weight=50.0 is not known"),
    (Q, X, {"sample_weight": np.ones(3)}, "sample_weight"),
    (Q, X, {"n_jobs": 0}, "n_jobs=0 is not a number of workers"),
    (Q, X, {"tol": 0.0}, "tol=0.0"),
    (Q, np.zeros((2001, 4)), {}, "2001 rows: this is for at most 2,000 rows"),
    (Q, X, {"kernel": "rfb"}, "kernel='rfb' is not known"),
    (Q, X, {"gama": 1.0}, "did you mean 'gamma'"),
    (Q, X, {"feature_names": ["a"]}, "feature_names holds 1 names"),
]


@pytest.mark.parametrize(("Q", "X", "options", "words"), BAD, ids=lambda value: str(value)[:30])
def test_what_cannot_be_is_refused_in_words(Q, X, options, words):
    with pytest.raises(svmcore.InputError, match=words):
        svmcore.exemplars(Q, X, **options)


def test_columns_of_data_frames_are_put_in_order():
    pd = pytest.importorskip("pandas")
    names = ["a", "b", "c", "d"]
    found = svmcore.exemplars(pd.DataFrame(Q, columns=names)[names[::-1]], pd.DataFrame(X, columns=names))
    plain = svmcore.exemplars(Q, X)
    np.testing.assert_array_equal(found.weight, plain.weight)
    assert found[0].feature_names == tuple(names)
