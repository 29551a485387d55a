"""The cheap confirmation of a certificate against the whole of it: the same numbers, or no word at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from repeats import seeds

import svmcore
from svmcore._types import Kernel, KernelKind
from svmcore.kernel.matrix import KernelMatrix, kernel_product
from svmcore.kernel.pairs import PairProduct
from svmcore.kernel.rough import RoughProduct
from svmcore.kernel.tiles import DenseTiles
from svmcore.problem import certify, formulations, measures
from svmcore.problem.certify import Residual, certificate
from svmcore.simd.lanes import MULTIPLIES_PAIRS
from svmcore.solvers._contract import SolverTask

N = 60


def confirm(qp, K, beta, residual, error):
    return certify.confirm(Residual(qp, K, beta, residual, error))


def point(seed: int, regression: bool, equality: bool):
    """A dual point with most variables at their bounds, near the optimum's pattern, and its exact residual."""
    rng = np.random.default_rng([21, seed])
    X = rng.normal(size=(N, 3))
    costs = rng.uniform(0.5, 2.0, N)
    if regression:
        qp = formulations.svr(np.sin(X[:, 0]), costs, 0.1, "epsilon_insensitive", equality)
    else:
        qp = formulations.svc(np.where(rng.random(N) < 0.5, 1.0, -1.0), costs, "hinge", equality)
    side = rng.integers(0, 8, len(qp.c))
    share = np.where(side < 4, 0.0, np.where(side < 7, 1.0, rng.random(len(qp.c))))
    beta = np.where(qp.upper > 0, share * qp.upper, share * qp.lower)
    K = KernelMatrix(X, Kernel(int(KernelKind.RBF), 0.5, 0.0, 3, 0.5), cache_bytes=1 << 20)
    return qp, K, beta, measures.residual(qp, beta, kernel_product(qp, K, beta)), rng


@pytest.mark.parametrize("brief", [0.0, certify._BRIEF])
@pytest.mark.parametrize("equality", [True, False])
@pytest.mark.parametrize("regression", [False, True])
@pytest.mark.parametrize("error", [0.0, 1e-6, 0.05, 0.3])
@seeds(8)
def test_what_is_confirmed_is_what_the_whole_certificate_says(seed, error, regression, equality, brief, monkeypatch):
    monkeypatch.setattr(certify, "_BRIEF", brief)
    monkeypatch.setattr(certify, "_FEW", 0)
    qp, K, beta, exact, rng = point(seed, regression, equality)
    bound = error * rng.random(len(beta)) if seed % 2 else error
    rough = exact + bound * rng.uniform(-1.0, 1.0, len(beta))
    found, full = confirm(qp, K, beta, rough, bound), certificate(qp, K, beta)
    if found is None:
        assert error == 0.3
        return
    assert found[0] == pytest.approx(full.kkt_violation, abs=1e-12)
    assert found[1] == pytest.approx(full.intercept, abs=1e-12)


@pytest.mark.parametrize("error", [np.inf, np.nan, 1e3])
def test_nothing_is_said_where_nothing_is_known(error):
    qp, K, beta, exact, _ = point(0, False, True)
    assert confirm(qp, K, beta, exact, error) is None


def test_an_extreme_that_does_not_exist_is_not_confirmed():
    """All variables at their upper ends: none can grow."""
    qp, K, _, _, _ = point(0, False, True)
    top = qp.upper.copy()
    exact = measures.residual(qp, top, kernel_product(qp, K, top))
    assert confirm(qp, K, top, exact, 1e-6) is None


# ---- the gap by what is known -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [1e-6, 0.05, 1.0])
@pytest.mark.parametrize("regression", [False, True])
@seeds(4)
def test_the_gap_lies_where_what_is_known_of_the_residual_puts_it(seed, regression, error):
    qp, K, beta, exact, rng = point(seed, regression, True)
    if seed % 2:
        qp = qp._replace(diag=rng.uniform(0.1, 1.0, len(beta)), upper=np.where(qp.upper > 0, np.inf, 0.0))
        exact = measures.residual(qp, beta, kernel_product(qp, K, beta))
    known = Residual(qp, K, beta, exact + error * rng.uniform(-1.0, 1.0, len(beta)), error)
    b = measures.bias(qp, beta, exact)
    gap = measures.gap(qp, beta, exact, b)
    truth = gap / abs(gap - measures.objective(qp, beta, exact))
    _, least, largest = known.relative_gap(b)
    assert least <= truth <= largest
    known.sharpen(b)
    value, closer, closest = known.relative_gap(b)
    assert least <= closer <= truth <= closest <= largest
    assert not known.exact.all()
    if error < 1e-3:
        assert value == pytest.approx(truth, rel=1e-3)


def test_a_fit_whose_gap_is_near_the_limit_of_the_warning_knows_it_from_what_it_has():
    """Here a gap of 0.5 to 2 % was computed from all points, whatever was known of it."""
    rng = np.random.default_rng(4)
    y = np.where(np.arange(2400) % 2, 1.0, -1.0)
    X = rng.normal(size=(2400, 50)) + 0.45 * y[:, None]
    solution = svmcore.train_svc(X, y, C=10.0, tol=2.7e-3, solver="block", n_threads=1)
    assert callable(solution.measured)
    assert solution.stats["certificate_evals"] < 0.1 * len(X) * len(solution.support)
    assert 0.006 < solution.relative_gap < 0.01


# ---- certificates that pass over points beyond the margin ---------------------------------------------------------------

KERNELS = {
    "rbf": Kernel(int(KernelKind.RBF), 0.5, 0.0, 3, 0.0),
    "wide": Kernel(int(KernelKind.RBF), 0.01, 0.0, 3, 0.25),
    "laplacian": Kernel(int(KernelKind.LAPLACIAN), 0.3, 0.0, 3, 0.25),
    "poly": Kernel(int(KernelKind.POLY), 0.2, 1.0, 4, 0.0),
    "sigmoid": Kernel(int(KernelKind.SIGMOID), 0.1, 0.1, 3, 0.5),
}
FORMS = ("hinge", "squared_hinge", "regression", "quantile", "one class")


def features(kernel, seed, n=400):
    rng = np.random.default_rng([5, seed])
    d, shift = (60, 0.4) if kernel == "wide" else (3, 1.5)
    return rng.normal(size=(n, d)) + np.where(rng.random(n) < 0.5, shift, -shift)[:, None], rng


def sparse_point(form, kernel, equality, seed, n=400):
    """A rough optimum with few vectors: the answer of a few pair steps, say."""
    X, rng = features(kernel, seed, n)
    y, costs = np.sign(X.sum(axis=1)), rng.uniform(0.5, 2.0, n)
    if form == "regression":
        qp = formulations.svr(np.sin(X[:, 0]), costs, 0.2, "epsilon_insensitive", equality)
    elif form == "quantile":
        qp = formulations.quantile(np.sin(X[:, 0]), costs, 0.3, equality)
    elif form == "one class":
        qp = formulations.one_class(costs, 0.1)
    else:
        qp = formulations.svc(y, costs, form, equality)
    K = KernelMatrix(X, KERNELS[kernel], cache_bytes=1 << 20)
    start = formulations.feasible_start(qp, np.zeros(len(qp.c)))
    solver = svmcore.solvers.load("smo")
    from svmcore._control import new_control

    control = new_control("fit", None, None, 0)
    with control:
        raw = solver.run(SolverTask(qp, K, control, 0.05, start, max_iter=2000))
    return qp, raw.beta, rng


def points_of(form, kernel, seed, n=400):
    return KernelMatrix(features(kernel, seed, n)[0], KERNELS[kernel], cache_bytes=1 << 20)


def both(monkeypatch, qp, kernel, seed, beta, intercept, *, best=False, known=None):
    """The certificate that passes over points, the one of all points, and how many points were passed over."""
    asked = []
    whole = points_of("", kernel, seed)
    kernel_product(qp, whole, beta)
    call = RoughProduct.__call__
    monkeypatch.setattr(certify, "_BRIEF", 0.0)
    monkeypatch.setattr(certify, "_FEW", 0)
    monkeypatch.setattr(
        RoughProduct, "__call__", lambda self, X, n, rows: asked.append(len(rows)) or call(self, X, n, rows)
    )
    K = points_of("", kernel, seed)
    full = certificate(qp, whole, beta, intercept, best=best)
    assert not asked
    found = certificate(qp, K, beta, intercept, best=best, known=known and known(K))
    return found, full, sum(asked)


def assert_same(found, full):
    for name in ("objective", "primal_objective", "gap", "kkt_violation", "infeasibility", "intercept"):
        assert getattr(found, name) == pytest.approx(getattr(full, name), rel=1e-9, abs=1e-9), name


@pytest.mark.parametrize("equality", [True, False])
@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("form", FORMS)
def test_points_that_are_passed_over_change_no_number(monkeypatch, form, kernel, equality):
    qp, beta, _ = sparse_point(form, kernel, equality, 1)
    for intercept, best in ((None, False), (None, True), (0.3, False)):
        with monkeypatch.context() as patch:
            found, full, asked = both(patch, qp, kernel, 1, beta, intercept, best=best)
        assert (asked > 0) == (form != "quantile")  # each of its variables is free or has weight
        assert_same(found, full)


@given(
    seed=st.integers(0, 5),
    which=st.integers(0, 10**6),
    by=st.floats(-1e3, 1e3),
    form=st.sampled_from(FORMS[:3]),
    kernel=st.sampled_from(["rbf", "wide"]),
    where=st.sampled_from([RoughProduct, PairProduct]),
)
def test_a_wrong_multiplier_or_a_wrong_value_of_a_solver_or_an_estimate_at_a_point_that_was_passed_over_is_noticed(
    seed, which, by, form, kernel, where
):
    """Whatever is planted, the certificate is that of all points in float64. It asks nobody what the solver thought.

    But where the solver contradicts its own rough values, it does not believe these, either: neither float32 nor integers.
    """
    qp, beta, _ = sparse_point(form, kernel, True, seed)
    K = points_of("", kernel, seed)
    known = Residual(qp, K, beta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certify, "_BRIEF", 0.0)
        patch.setattr(certify, "_FEW", 0)
        honest = certificate(qp, K, beta, known=known)
        over = np.flatnonzero(~known.exact)
        assert len(over)
        t = over[which % len(over)]

        def told(K):
            """What a solver says: a value that is off, and a bound that denies it."""
            v = measures.residual(qp, beta, kernel_product(qp, points_of("", kernel, seed), beta))
            v[t] += by
            return Residual(qp, K, beta, v, 1e-9)

        found, full, asked = both(patch, qp, kernel, seed, beta, None, known=told)
        assert asked > 0
        assert_same(found, full)
        assert_same(found, honest)
    lost = beta.copy()
    s = np.flatnonzero(beta)[which % np.count_nonzero(beta)]
    lost[s] = 0.0

    def said(K):
        v = measures.residual(qp, lost, kernel_product(qp, points_of("", kernel, seed), lost))
        return Residual(qp, K, lost, v, 1e-9)

    call = RoughProduct.__call__

    def planted(self, X, n, rows):
        values, bounds = call(self, X, n, rows)
        values[rows == qp.point[s]] += by * isinstance(self, where)
        return values, bounds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoughProduct, "__call__", planted)
        found, full, asked = both(patch, qp, kernel, seed, lost, None, known=said)
        assert asked > 0
        assert_same(found, full)
    wrong = beta.copy()
    wrong[t] = qp.upper[t] if qp.upper[t] > 0 else qp.lower[t]
    if not np.isfinite(wrong[t]):
        wrong[t] = np.sign(wrong[t])
    with pytest.MonkeyPatch.context() as patch:
        found, full, _ = both(patch, qp, kernel, seed, wrong, None)
        assert_same(found, full)
        assert found.infeasibility > honest.infeasibility + 0.1
        assert found.gap != pytest.approx(honest.gap, rel=1e-3)


@pytest.mark.parametrize("kernel", ["rbf", "wide"])
def test_a_solver_s_word_is_not_used_where_so_few_entries_are_open_that_float32_does_not_pay(monkeypatch, kernel):
    qp, beta, _ = sparse_point("hinge", kernel, True, 2)
    s = np.flatnonzero(beta)[0]
    lost = np.where(np.arange(len(beta)) == s, 0.0, beta)
    v = measures.residual(qp, lost, kernel_product(qp, points_of("", kernel, 2), lost))
    v[s] = -3.0 * np.sign(qp.upper[s] + qp.lower[s])  # far beyond the margin, it says
    monkeypatch.setattr(certify, "_FEW_OPEN", 1.0)
    found, full, asked = both(monkeypatch, qp, kernel, 2, lost, None, known=lambda K: Residual(qp, K, lost, v, 1e-9))
    assert (asked > 0) == (kernel == "wide" and MULTIPLIES_PAIRS)
    assert_same(found, full)


def test_a_float32_value_that_is_not_finite_decides_nothing(monkeypatch):
    qp, beta, _ = sparse_point("hinge", "poly", True, 3)
    kernel = KERNELS["poly"]._replace(coef0=3e9, degree=5)
    monkeypatch.setitem(KERNELS, "poly", kernel)
    found, full, asked = both(monkeypatch, qp, "poly", 3, beta, None)
    assert asked > 0
    assert found.kkt_violation == pytest.approx(full.kkt_violation, rel=1e-9)
    assert found.gap == pytest.approx(full.gap, rel=1e-9)


@pytest.mark.compiled
def test_the_certificate_of_a_wide_machine_reads_few_points_in_float64():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(1500, 64)) + np.where(np.arange(1500) % 2, 0.5, -0.5)[:, None]
    y = np.where(np.arange(1500) % 2, 1.0, -1.0)
    solution = svmcore.train_svc(X, y, C=1.0, solver="smo", n_threads=1)
    asked, roughly = [], {RoughProduct: 0, PairProduct: 0}
    product_at, call = KernelMatrix.product_at, RoughProduct.__call__

    def counted(self, X, n, rows):
        roughly[type(self)] += len(rows)
        return call(self, X, n, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoughProduct, "__call__", counted)
        patch.setattr(
            KernelMatrix,
            "product_at",
            lambda K, targets, *rest: asked.append(len(targets)) or product_at(K, targets, *rest),
        )
        found = svmcore.certificate(X, y, solution.alpha, solution.intercept)
    assert len(solution.support) < 750
    assert 0 < sum(asked) < 1.3 * len(solution.support)
    if MULTIPLIES_PAIRS:  # integers decide most of the others
        assert roughly[RoughProduct] < 0.2 * roughly[PairProduct]
    assert found.kkt_violation <= 1e-3
    assert found.gap == pytest.approx(solution.gap, rel=1e-6)


def wide_fit(monkeypatch, tamper=None, C=3.0):
    """A fit by blocks over columns that are kept; `tamper` changes what the solver hands over."""
    from svmcore.solvers import block

    rng = np.random.default_rng(11)
    y = np.where(np.arange(3700) % 2, 1.0, -1.0)
    X = rng.normal(size=(3700, 50)) + 0.3 * y[:, None]
    kept = []
    run = block.run

    def watched(task):
        raw = run(task)
        kept.append((task.qp, task.K, raw))
        return raw if tamper is None else tamper(task.qp, raw)

    with monkeypatch.context() as patch:
        patch.setattr(block, "run", watched)
        solution = svmcore.train_svc(X, y, C=C, solver="block", n_threads=1)
    return solution, *kept[-1]


@pytest.mark.compiled
@settings(max_examples=12)
@given(which=st.integers(0, 10**6), by=st.floats(0.05, 10.0))
def test_wrong_float32_values_in_our_own_tiles_at_a_point_that_the_fit_passes_over_are_noticed(which, by):
    """Kernel values of one point and its class are too large in every column: the fit thinks it beyond the margin."""
    store = DenseTiles._store
    with pytest.MonkeyPatch.context() as patch:
        honest, qp, _, raw = wide_fit(patch)
        inside = np.flatnonzero((raw.beta != 0.0) & (np.arange(qp.c.size) > 2000))  # behind the first working set
        t = inside[which % inside.size]

        def planted(self, points, out):
            store(self, points, out)
            out[: len(points), t] += np.float32(by) * (qp.c[points] == qp.c[t])

        patch.setattr(DenseTiles, "_store", planted)
        solution, _, K, raw = wide_fit(patch)
    exact = measures.residual(qp, raw.beta, kernel_product(qp, KernelMatrix(K.X, K.kernel, cache_bytes=0), raw.beta))
    assert raw.beta[t] == 0.0
    assert np.abs(raw.residual - exact)[t] > 1.0
    found = solution.certificate
    assert found.kkt_violation == pytest.approx(measures.violation(qp, raw.beta, exact), abs=1e-11)
    assert found.gap == pytest.approx(measures.gap(qp, raw.beta, exact, solution.intercept), rel=1e-9)
    assert found.kkt_violation > 3.0 * honest.certificate.kkt_violation


@pytest.mark.compiled
@pytest.mark.parametrize("by", [-3.0, 3.0])
def test_a_wrong_residual_or_multiplier_that_a_solver_hands_over_is_noticed(monkeypatch, by):
    honest, _, _, raw = wide_fit(monkeypatch)
    far = np.flatnonzero((raw.beta == 0.0) & (np.abs(raw.residual - honest.intercept) > 0.8))

    def lies(qp, raw):
        raw.residual[far[0]] += by
        return raw

    told, *_ = wide_fit(monkeypatch, lies)
    assert told.certificate.kkt_violation == pytest.approx(honest.certificate.kkt_violation, abs=1e-11)
    assert told.certificate.gap == pytest.approx(honest.gap, rel=1e-7)

    def moves(qp, raw):
        pair = far[0], far[qp.upper[far] != qp.upper[far[0]]][0]
        raw.beta[list(pair)] = np.where(qp.upper[list(pair)] > 0.0, 1.0, -1.0)
        return raw

    with pytest.warns(svmcore.ConvergenceWarning):
        moved, *_ = wide_fit(monkeypatch, moves)
    assert moved.certificate.kkt_violation > 0.5
