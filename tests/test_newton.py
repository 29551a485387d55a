"""Newton's method for linear machines: the objectives of a plain oracle and of other solvers, bad data, every loss."""

from __future__ import annotations

import pickle

import numpy as np
import oracle_linear as oracle
import pytest
from scipy import sparse
from warned import quiet

import svmcore
from svmcore._types import Status
from svmcore.compiler.jit import DISABLED
from svmcore.problem import formulations
from svmcore.solvers import _losses, _newton, _rows

CLASSES, NUMBERS = ("hinge", "squared_hinge"), ("epsilon_insensitive", "squared_epsilon_insensitive", "pinball")
LOSSES = CLASSES + NUMBERS
INTERCEPTS = ("free", "embedded", "none")
pytestmark = [pytest.mark.home, pytest.mark.filterwarnings("ignore::svmcore.ScaleWarning")]
SEEDS = [*range(1 if DISABLED else 8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 40))]
WORST = -1e-9  # a relative gap below this is a fault, whatever the rest


def problem(seed: int, loss: str, *, many: bool = True) -> tuple[np.ndarray, np.ndarray, float, dict]:
    """Random rows with zeros, rows that are there twice, a constant column, weights; and the words of the problem."""
    rng = np.random.default_rng([seed, len(loss)])
    n, d = int(rng.integers(2, 60 if many else 16)), int(rng.integers(1, 9))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-1, 2, size=d) * (rng.random((n, d)) < rng.uniform(0.2, 1.0))
    X[n // 2] = X[0]
    X[:, 0] = 1.0 if seed % 5 == 0 else X[:, 0]
    targets = X @ rng.normal(size=d) + rng.normal(size=n)
    words = {"loss": loss, "sample_weight": rng.integers(0, 3, size=n) / 2.0 if seed % 3 == 0 else None}
    C = float(10.0 ** rng.integers(-2, 3))
    if loss in CLASSES:
        y = np.where(targets > np.median(targets), 1.0, -1.0)
        y[:2] = 1.0, -1.0
        if words["sample_weight"] is not None:
            words["sample_weight"][:2] = 1.0
        return X, y, C, words
    if words["sample_weight"] is not None:
        words["sample_weight"][0] = 1.0
    return X, targets, C, words | ({"tau": 0.3} if loss == "pinball" else {"epsilon": float(rng.choice([0.0, 0.3]))})


def fit(X, y, C, words, intercept="free", **more):
    train = svmcore.train_svc if words["loss"] in CLASSES else svmcore.train_svr
    how = {"free": True, "none": False}.get(intercept, "embedded")
    scaling = {"intercept_scaling": 1.5} if intercept == "embedded" else {}
    return train(X, y, C, kernel="linear", fit_intercept=how, **scaling, **words, **more)


def of_oracle(X, y, C, words, intercept):
    costs = C * (np.ones(len(y)) if words["sample_weight"] is None else words["sample_weight"])
    kept = costs > 0
    tau = 1.5 if intercept == "embedded" else 0.0
    epsilon = words.get("tau", words.get("epsilon", 0.0))
    rest = X[kept], y[kept], costs[kept], words["loss"]
    w, b = oracle.descend(*rest, tau, epsilon)
    return (lambda w, b: oracle.primal(*rest, w, b, tau, epsilon)), w, b


@pytest.mark.parametrize("intercept", ["embedded", "none"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_oracle_is_a_minimum(loss, intercept):
    X, y, C, words = problem(1, loss, many=False)
    value, w, b = of_oracle(X, y, min(C, 1.0), words, intercept)
    rng = np.random.default_rng(0)
    for _ in range(50):
        step = 1e-3 * rng.normal(size=len(w) + 1)
        assert value(w + step[:-1], b + (step[-1] if intercept == "embedded" else 0.0)) >= value(w, b) - 1e-12


@pytest.mark.parametrize("intercept", ["embedded", pytest.param("none", marks=pytest.mark.ci)])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_objective_is_that_of_the_oracle(loss, intercept):
    for seed in range(2 if DISABLED else 5):
        X, y, C, words = problem(seed, loss, many=False)
        C = min(C, 1.0)
        value, w, b = of_oracle(X, y, C, words, intercept)
        for rows in (X, sparse.csr_matrix(X)):
            found = fit(rows, y, C, words, intercept, solver="newton", tol=1e-10)
            assert found.status is Status.CONVERGED
            assert value(found.coef_, found.intercept_) == pytest.approx(value(w, b), rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("intercept", ["embedded", "none"])
@pytest.mark.parametrize("loss", LOSSES)
def test_sweeps_end_where_the_oracle_ends(loss, intercept):
    _, _, _, words = problem(1, loss)
    rng = np.random.default_rng(5)
    X = rng.normal(size=(24, 5)) * (rng.random((24, 5)) < 0.7)
    y = X @ rng.normal(size=5) + rng.normal(size=24)
    y = np.where(y > 0.0, 1.0, -1.0) if loss in CLASSES else y
    value, w, b = of_oracle(X, y, 0.5, words, intercept)
    found = fit(sparse.csr_matrix(X), y, 0.5, words, intercept, solver="coordinate", tol=1e-7)
    assert (found.status, found.solver) == (Status.CONVERGED, "coordinate")
    assert value(found.coef_, found.intercept_) == pytest.approx(value(w, b), rel=1e-7)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "epsilon_insensitive", "squared_epsilon_insensitive"])
@pytest.mark.parametrize("C", [0.01, 0.5])
@pytest.mark.parametrize("seed", [0, 2])
def test_estimators_of_few_rows_end_where_the_oracle_ends(seed, loss, C):
    X, y, _, words = problem(seed, loss, many=False)
    estimator = svmcore.LinearSVC if loss in CLASSES else svmcore.LinearSVR
    epsilon = words.get("epsilon", 0.0)
    more = {} if loss in CLASSES else {"epsilon": epsilon}
    found = estimator(loss=loss, C=C, tol=1e-8, **more).fit(X, y)
    costs = np.full(len(y), C * (2.0 if loss.startswith("squared") else 1.0))  # the oracle's count half
    rest = X, y, costs, loss
    exact = oracle.primal(*rest, *oracle.descend(*rest, 1.0, epsilon), 1.0, epsilon)
    value = oracle.primal(*rest, found.coef_.ravel(), float(np.ravel(found.intercept_)[0]), 1.0, epsilon)
    assert value == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", INTERCEPTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_objective_is_that_of_another_solver(seed, intercept, loss):
    X, y, C, words = problem(seed, loss, many=not DISABLED)
    with quiet(svmcore.ConvergenceWarning):
        other = fit(X, y, C, words, intercept, solver="smo", tol=1e-10, time_limit=20.0)
        for rows in (X, sparse.csr_matrix(X)):
            found = fit(rows, y, C, words, intercept, solver="newton", tol=1e-7)
            assert found.relative_gap > WORST or abs(found.gap) < 1e-12
            if found.status is Status.CONVERGED:
                assert found.objective == pytest.approx(
                    other.objective, rel=1e-7, abs=abs(found.gap) + abs(other.gap) + 1e-11
                )
            else:  # what rounding leaves
                assert found.relative_gap < 1e-6


# ---- LinearSVC and LinearSVR -----------------------------------------------------------------------------------------


def rows_and_classes(n=240, d=6, k=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.argmax(X @ rng.normal(size=(d, k)) + rng.normal(size=(n, k)), axis=1)


def objective(machine, X, y, row, loss, C=1.0):
    signs = np.where(y == machine.classes_[1 if len(machine.coef_) == 1 else row], 1.0, -1.0)
    w, b = machine.coef_[row], machine.intercept_[row]
    short = np.maximum(0.0, 1.0 - signs * (X @ w + b))
    return 0.5 * (w @ w + b * b) + C * float((short**2 if loss == "squared_hinge" else short).sum())


SHAPES = {"few": (240, 6, "dense"), "many": (4200, 20, "dense"), "wide": (40, 90, "dense"), "sparse": (4200, 20, "sparse"),
          "sparse-wide": (260, 400, "sparse"), "sparse-few": (40, 90, "sparse")}  # fmt: skip


@pytest.mark.compiled
@pytest.mark.parametrize("loss", CLASSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_way_to_a_linear_classifier_has_liblinears_objective(shape, loss):
    svm = pytest.importorskip("sklearn.svm")
    n, d, kind = SHAPES[shape]
    X, y = rows_and_classes(n, d)
    C = 0.05
    rows = sparse.csr_matrix(X * (np.abs(X) > 0.5)) if kind == "sparse" else X
    machine = svmcore.LinearSVC(loss=loss, tol=1e-9 if loss == "hinge" else 1e-7, C=C).fit(rows, y)
    assert machine.converged_
    found = machine._fitted.machines
    assert {one.solver for one in found} == {"coordinate" if shape == "sparse-wide" else "newton"}
    with quiet():
        theirs = svm.LinearSVC(loss=loss, tol=1e-10, max_iter=20_000, dual=loss == "hinge", random_state=0, C=C)
        theirs.fit(rows, y)
    for row, one in enumerate(found):
        assert WORST < one.relative_gap <= 1e-9 + 1e-13
        mine, best = (objective(each, rows, y, row, loss, C) for each in (machine, theirs))
        assert mine <= best * (1.0 + 1e-8)
        assert one.primal_objective == pytest.approx(mine, rel=1e-10)  # it is the machine that the certificate is of


@pytest.mark.compiled
@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_way_to_a_linear_regression_is_certified(shape, loss):
    n, d, kind = SHAPES[shape]
    X, y = rows_and_classes(n, d)
    rows = sparse.csr_matrix(X * (np.abs(X) > 0.5)) if kind == "sparse" else X
    machine = svmcore.LinearSVR(loss=loss, epsilon=0.1, tol=1e-8).fit(rows, y + 0.1 * X[:, 0])
    assert machine.converged_
    assert WORST < machine._fitted.found.relative_gap <= 1e-8 + 1e-13


@pytest.mark.compiled
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("shape", ["few", "many", "sparse", "sparse-wide"])
def test_the_default_gap_is_no_worse_than_liblinears(shape, C):
    svm = pytest.importorskip("sklearn.svm")
    n, d, kind = SHAPES[shape]
    X, y = rows_and_classes(n, d)
    rows = sparse.csr_matrix(X * (np.abs(X) > 0.5)) if kind == "sparse" else X
    bend = C * (float(rows.multiply(rows).sum() if kind == "sparse" else (rows**2).sum()) / n + 1.0)
    for loss in CLASSES:
        machine = svmcore.LinearSVC(loss=loss, C=C).fit(rows, y)
        exact = svmcore.LinearSVC(loss=loss, C=C, tol=1e-9).fit(rows, y)
        with quiet():
            theirs = svm.LinearSVC(loss=loss, C=C, random_state=0).fit(rows, y)
        for row, one in enumerate(machine._fitted.machines):
            least = objective(exact, rows, y, row, loss, C)
            gap = objective(theirs, rows, y, row, loss, C) / least - 1.0
            assert one.relative_gap > WORST
            assert objective(machine, rows, y, row, loss, C) / least - 1.0 <= max(gap, 1e-6)
            assert objective(machine, rows, y, row, loss, C) * (1.0 - one.relative_gap) <= least * (1.0 + 1e-9)
            if one.relative_gap > 1e-6 * (1.0 + 1e-6):
                assert loss == "hinge"
                assert one.relative_gap <= 1e-4
                assert one.kkt_violation <= 1e-5 or one.relative_gap <= 1e-6 * bend


def test_one_row_of_a_class_and_limits():
    machine = svmcore.LinearSVC().fit([[0.0], [1.0]], [0, 1])
    assert machine.predict([[0.0], [1.0]]).tolist() == [0, 1]
    X, y = rows_and_classes(300, 8)
    with pytest.warns(UserWarning, match="Stopped at max_iter=1 passes"):
        stopped = svmcore.LinearSVC(max_iter=1).fit(X, y)
    assert stopped.n_iter_ == 1
    assert not stopped.converged_
    with pytest.warns(UserWarning, match="time_limit"):
        late = svmcore.LinearSVC(time_limit=0.0).fit(X, y)
    assert np.isfinite(late.coef_).all()
    assert late.dual_gap_ > 0.0


@pytest.mark.compiled
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_steps_from_a_matrix_in_single_precision_end_at_the_same_machine(C, monkeypatch):
    X, y = rows_and_classes(500, 220)
    X *= 10.0 ** np.linspace(-2, 2, 220)
    X[:, 1] = X[:, 0]
    add, seen = _rows.DenseFeatures._add_wide, set()
    monkeypatch.setattr(
        "svmcore.solvers._rows.DenseFeatures._add_wide",
        lambda self, part, by, sign, out: [seen.add(out.dtype.name), add(self, part, by, sign, out)][1],
    )
    quick = svmcore.LinearSVC(C=C, tol=1e-6).fit(X, y)
    assert "float32" in seen
    assert ("float64" in seen) == (C == 100.0)
    monkeypatch.setattr("svmcore.solvers._newton.SINGLE", 1000)
    seen.clear()
    exact = svmcore.LinearSVC(C=C, tol=1e-6).fit(X, y)
    assert seen == {"float64"}
    for one, other in zip(quick._fitted.machines, exact._fitted.machines, strict=True):
        assert one.solver == "newton"
        assert WORST < one.relative_gap <= 1e-8
        assert one.primal_objective == pytest.approx(other.primal_objective, rel=2e-8)


@pytest.mark.compiled
@pytest.mark.parametrize("C", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("n", [230, 500, 1500])
def test_rows_that_can_be_separated_take_tens_of_steps_whatever_they_cost(n, C):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 220))
    y = X @ rng.normal(size=220) > 0.0
    X *= 10.0 ** np.linspace(-2, 2, 220)
    machine = svmcore.LinearSVC(C=C).fit(X, y)  # a warning would be an error
    found = machine._fitted.found
    assert (found.solver, found.status) == ("newton", Status.CONVERGED)
    assert WORST < found.relative_gap <= 1e-6
    assert machine.n_iter_ <= 100
    assert found.primal_objective == pytest.approx(objective(machine, X, y, 0, "squared_hinge", C), rel=1e-9)


def test_a_machine_that_is_stopped_while_its_costs_grow_says_its_own_gap():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 220)) * 10.0 ** np.linspace(-2, 2, 220)
    y = X @ rng.normal(size=220) > 0.0
    with pytest.warns(UserWarning, match="Stopped at max_iter=30 passes"):
        machine = svmcore.LinearSVC(C=1e5, max_iter=30).fit(X, y)
    found = machine._fitted.found
    assert found.gap > 0.0
    words = {"kernel": "linear", "loss": "squared_hinge", "fit_intercept": "embedded", "intercept_scaling": 1.0}
    again = svmcore.certificate(X, np.where(y, 1, -1), found.alpha, found.intercept, C=2e5, **words)
    assert found.kkt_violation == pytest.approx(again.kkt_violation, rel=1e-6)
    assert found.gap == pytest.approx(again.gap, rel=1e-6)


def test_a_machine_keeps_its_own_rows():
    X, y = rows_and_classes(80, 3, 2)
    machine = svmcore.LinearSVC().fit(X, y)
    gap = machine.dual_gap_
    again = svmcore.LinearSVC().fit(X, y)
    X[:] = 0.0
    assert again.dual_gap_ == gap


@pytest.mark.compiled
def test_the_bits_do_not_depend_on_the_number_of_threads():
    X, y = rows_and_classes(5000, 30)
    for rows in (X, sparse.csr_matrix(X)):
        one, two = (svmcore.LinearSVC(n_threads=n).fit(rows, y).coef_ for n in (1, 2))
        assert np.array_equal(one, two)


def test_a_machine_whose_tube_holds_all_targets_is_found_in_one_call():
    X, _ = rows_and_classes(60, 4)
    machine = svmcore.LinearSVR(epsilon=10.0).fit(X, np.sin(X[:, 0]))
    assert machine.converged_
    assert np.abs(machine.coef_).max() <= 1e-6


@pytest.mark.skipif(not DISABLED, reason="the factor of compiled code cannot be taken away")
def test_without_a_factor_the_next_way_is_gone(monkeypatch):
    X, y = rows_and_classes(40, 3)
    expected = svmcore.LinearSVC().fit(X, y)
    monkeypatch.setattr("svmcore.solvers._newton_jit.factorise", lambda _: False)
    with quiet():
        machine = svmcore.LinearSVC().fit(X, y)
    assert machine.dual_gap_ >= expected.dual_gap_ - 1e-9


def test_support_vectors_are_those_of_their_rows_whenever_they_are_asked_for():
    X, y = rows_and_classes(60, 90, 2)
    rows = sparse.csr_matrix(X)
    machine = svmcore.LinearSVC(loss="hinge").fit(rows, y)
    found = machine._fitted.found
    again = pickle.loads(pickle.dumps(found))
    for one in (found, again):
        assert np.array_equal(one.support_vectors.toarray(), X[one.support])
    assert found.support_vectors is found.support_vectors
    assert np.allclose(found.decision_function(rows), machine.decision_function(rows), atol=1e-10)


@pytest.mark.parametrize(
    ("seed", "loss", "factor", "tol"),
    [(28, "epsilon_insensitive", 1e-2, 1e-4), (96, "epsilon_insensitive", 1e-2, 1e-9), (62, "hinge", 1.0, 1e-9)],
)
def test_machines_whose_variables_are_all_at_bounds_but_for_rounding_are_found(seed, loss, factor, tol):
    X, y, C, words = problem(seed, loss)
    found = fit(X, y, factor * C, words, solver="newton", tol=tol)
    assert found.solver == "newton"
    assert found.status is Status.CONVERGED
    assert found.kkt_violation <= tol
    assert WORST < found.relative_gap < 1e-9


def wild(seed):
    """Rows for LIBLINEAR: scales from 1e-3 to 1e3, empty rows and columns, a constant one, int64 indices, dense or CSR."""
    rng = np.random.default_rng([seed, 5])
    n, d = int(rng.integers(2, 40)), int(rng.integers(1, 12))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-1, 2, size=d) * (rng.random((n, d)) < rng.uniform(0.3, 1.0))
    X[:, 0] = 2.0 if seed % 4 == 0 else X[:, 0]
    X[:, -1] = 0.0 if seed % 4 == 1 else X[:, -1]
    X[n // 2] = 0.0 if seed % 3 == 0 else X[n // 2]
    rows = sparse.csr_matrix(X) if seed % 2 else X
    if seed % 2:
        rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    y = np.where(X @ rng.normal(size=d) + rng.normal(size=n) > 0.0, 1, 0)
    y[:2] = 0, 1
    return X, rows, y, float(10.0 ** rng.integers(-3, 2)), rng.integers(1, 4, size=n) / 2.0


@pytest.mark.compiled
@pytest.mark.parametrize("intercept", [1.0, 3.0, None])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "l1", "epsilon_insensitive", "squared_epsilon_insensitive"])
def test_nobody_has_a_lower_objective_than_liblinears_tightest(loss, intercept):
    svm = pytest.importorskip("sklearn.svm")
    regression = "epsilon" in loss
    for seed in range(34):  # 510 problems in all
        X, rows, y, C, weights = wild(seed)
        words = {"C": C, "fit_intercept": intercept is not None, "intercept_scaling": intercept or 1.0}
        words |= {"penalty": "l1"} if loss == "l1" else {"loss": loss}
        words |= {"epsilon": 0.2} if regression else {}
        target = y + X[:, 0] / (1.0 + np.abs(X[:, 0])) if regression else y
        kind = "LinearSVR" if regression else "LinearSVC"
        dual = {"hinge": True, "epsilon_insensitive": True}.get(loss, False)
        with quiet():
            ours = getattr(svmcore, kind)(tol=1e-9 if dual else 1e-7, **words).fit(rows, target, weights)
            theirs = getattr(svm, kind)(tol=1e-10, max_iter=5000, dual=dual, random_state=0, **words)
            theirs.fit(X, target, weights)
        mine, best = (oracle.liblinear(one, 0, X, target, C * weights, loss, intercept) for one in (ours, theirs))
        assert mine <= best * (1.0 + 1e-8) + 1e-12, seed
        (found,) = ours._fitted.machines
        rounding = abs(found.gap) < 1e-10 * C * weights.sum()  # which sends a machine to another solver
        assert found.solver == ("lasso" if loss == "l1" else "newton") or rounding, seed
        assert found.relative_gap > WORST or abs(found.gap) < 1e-12, seed
        assert ours.converged_ or found.relative_gap < 1e-6, seed


@pytest.mark.compiled
@pytest.mark.parametrize(("C", "most"), [(0.1, 8), (1.0, 10), (100.0, 12)])
def test_a_loose_gap_of_a_linear_loss_is_reached_in_its_last_round(C, most):
    rng = np.random.default_rng(3)
    X = (rng.random((6000, 60)) < 0.2).astype(float)
    y = np.sign(X @ rng.normal(size=60) + rng.normal(size=6000))
    rows = _rows.rows_of(X, 1.0)
    steps = []
    for goal in (1e-3, 0.0):  # asked for, and not said
        losses = _losses.losses_from(formulations.svc(y, np.full(6000, C), "hinge", False), 6000)
        machine = _newton.Newton(rows, losses, free=False, squared=False, poll=lambda: False, goal=goal)
        _newton.started(machine)
        enough = _losses.Enough(1e-3)
        found = lambda m, e=enough: e.met(_losses.measured(rows, m.losses, False)[2])  # noqa: E731
        assert _newton.solve(machine, enough.met, found, 400) is Status.CONVERGED
        steps.append(machine.steps)
    assert steps[0] <= most
    assert steps[0] < steps[1]
