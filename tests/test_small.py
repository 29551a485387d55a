"""Small problems in one compiled call: what it says of an answer is the truth, and it says nothing where it has none."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import oracle
import pytest
from repeats import seeds
from scipy.sparse import csr_array

import svmcore
from svmcore._types import Kernel, KernelKind, Status
from svmcore.base import threads
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.whole import gram_of
from svmcore.problem import border, formulations
from svmcore.problem.certify import certificate
from svmcore.solvers import _block_jit as block_pieces
from svmcore.solvers import _ends_jit, small
from svmcore.solvers import _small_jit as pieces
from svmcore.solvers._contract import rounding
from svmcore.train import nu

pytestmark = pytest.mark.home

N = 150
KERNELS = {KernelKind.RBF: (0.5, 0.0), KernelKind.LAPLACIAN: (0.4, 0.0), KernelKind.POLY: (0.3, 1.0)}


def problems(n=N):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, 5))
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    costs = 2.0 * rng.uniform(0.5, 1.5, n)
    costs[::10] = 0.0
    target = np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)
    return X, {
        "classes": formulations.svc(y, costs, "hinge", True),
        "numbers": formulations.svr(target, costs, 0.1, "epsilon_insensitive", True),
        "quantile": formulations.quantile(target, costs, 0.7, True),
        "one class": formulations.one_class(costs, 0.3),
    }


def matrix(X, kind):
    gamma, coef0 = KERNELS[kind]
    return KernelMatrix(X, Kernel(int(kind), gamma, coef0, 3, 0.0), cache_bytes=1 << 26)


def test_a_start_is_where_it_begins():
    X, qps = problems()
    qp, K = qps["classes"], matrix(X, KernelKind.RBF)
    cold = small.at_once(qp, K, np.zeros(len(qp.c)), 1e-6)
    warm = small.at_once(qp, K, cold.beta, 1e-6)
    assert warm.n_iter == 0
    assert np.array_equal(warm.beta, cold.beta)


def test_only_rows_that_steps_look_at_are_computed():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(600, 2)), rng.normal(size=(600, 2)) + 4.0])
    y = np.repeat([0, 1], 600)
    quick, block = (svmcore.train_svc(X, y, 10.0, gamma=0.2, **how) for how in ({}, {"solver": "block"}))
    assert (quick.solver, block.solver) == ("small", "block")
    assert quick.n_kernel_evals < 0.1 * block.n_kernel_evals
    assert quick.objective == pytest.approx(block.objective, rel=1e-4)
    assert quick.kkt_violation == pytest.approx(svmcore.certificate(
        X, y, quick.alpha, quick.intercept, C=10.0, gamma=0.2).kkt_violation, abs=1e-12)  # fmt: skip


@pytest.mark.parametrize("how", [{"callback": lambda _: False}, {"trace": True}, {"stopping": "gap"}])
def test_whoever_wants_to_look_on_gets_another_solver(how):
    X, y = problems()[0], np.arange(N) % 2
    assert svmcore.train_svc(X, y, **how).solver in ("block", "smo")
    assert svmcore.train_svc(X, y).solver == "small"


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_where_it_does_not_arrive_the_solvers_take_over(kernel, monkeypatch):
    X, y = problems()[0], np.arange(N) % 2
    expected = svmcore.train_svc(X, y, 5.0, tol=1e-6, kernel=kernel)
    assert expected.solver == "small"
    monkeypatch.setattr(small, "PATIENCE", small.PATIENCE._replace(each=0, more=5))
    found = svmcore.train_svc(X, y, 5.0, tol=1e-6, kernel=kernel)
    assert found.solver in ("block", "interior", "smo")
    assert found.converged
    assert found.objective == pytest.approx(expected.objective, rel=1e-9)


def test_other_problems_have_no_way():
    X, qps = problems()
    qp = qps["classes"]
    assert not small.has_way(qp._replace(equality=False))
    assert not small.has_way(qp._replace(upper=np.full(len(qp.c), np.inf)))
    assert small.has_way(qp._replace(upper=np.full(len(qp.c), np.inf), diag=np.ones(len(qp.c))))
    assert not small.has_way(qp._replace(c=np.zeros(small.MOST + 1)))
    assert not small.has_way(qp._replace(c=np.zeros(small.LEAST - 1)))
    assert small.serves(KernelMatrix(csr_array(X), matrix(X, KernelKind.RBF).kernel, cache_bytes=1 << 20))
    assert small.serves(matrix(np.ones((small.MOST_POINTS + 1, 2)), KernelKind.RBF))
    linear = Kernel(int(KernelKind.LINEAR), 0.0, 0.0, 3, 0.0)
    assert not small.serves(KernelMatrix(np.ones((small.MOST_POINTS + 1, 2)), linear, cache_bytes=1 << 20))


def agrees(qp, K, found, tol, rel=1e-10, width=4.0 * oracle.EPS):
    """What is said is what the certificate says. A gap multiplies residuals by widths of boxes: `width` of their sum."""
    full = certificate(qp, K, found.beta)
    assert found.violation <= tol
    assert full.infeasibility <= 1e-13 * np.abs(found.beta).sum()
    size = max(1.0, np.abs(found.beta).sum() * float(K.diagonal.max()))
    room = qp.upper - qp.lower
    assert found.gap == pytest.approx(full.gap, rel=rel, abs=size * max(1e-13, width * room[np.isfinite(room)].sum()))
    assert found.violation == pytest.approx(full.kkt_violation, rel=rel, abs=1e-13 * size)
    assert found.bias == pytest.approx(full.intercept, rel=rel, abs=1e-13 * size)
    assert found.objective == pytest.approx(full.objective, rel=rel, abs=1e-13 * size)


MATRICES = {kind.name: lambda X, kind=kind: matrix(X, kind) for kind in KERNELS} | {
    "linear": lambda X: KernelMatrix(X, Kernel(int(KernelKind.LINEAR), 1.0, 0.0, 3, 0.0), cache_bytes=1 << 26),
    "wide": lambda X: KernelMatrix(
        np.repeat(X, 20, axis=1), Kernel(int(KernelKind.RBF), 0.02, 0.0, 3, 0.0), cache_bytes=1 << 26
    ),
    "given": lambda X: KernelMatrix(
        np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1)), Kernel(int(KernelKind.PRECOMPUTED), 1.0, 0.0, 1, 0.25),
        cache_bytes=1 << 26,
    ),
}  # fmt: skip


@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-8])
@pytest.mark.parametrize("name", list(problems()[1]))
@pytest.mark.parametrize("kind", list(MATRICES))
def test_all_that_is_said_is_what_the_certificate_says(kind, name, tol):
    X, qps = problems()
    K, qp = MATRICES[kind](X), qps[name]
    assert small.serves(K)
    assert small.has_way(qp)
    found = small.at_once(qp, K, formulations.feasible_start(qp, np.zeros(len(qp.c))), tol)
    if found is None:  # values are large, or the rank is low, and pair steps slow
        assert kind == "POLY" or (kind, name) == ("linear", "quantile")
        return
    assert formulations.balanced(qp, found.beta) is found.beta
    if kind in ("POLY", "RBF", "LAPLACIAN"):
        agrees(qp, K, found, tol, rel=1e-11, width=0.0)
        assert found.n_rounds >= (found.n_iter > 0)
    else:
        agrees(qp, K, found, tol)
        assert found.n_evals <= (np.count_nonzero(found.beta) + found.n_iter) * len(qp.c)


@pytest.mark.parametrize("tol", [1e-3, 1e-8])
@pytest.mark.parametrize("loss", ["squared_hinge", "squared_epsilon_insensitive"])
def test_squared_losses_have_a_diagonal(loss, tol):
    X, _ = problems()
    costs = np.linspace(0.5, 3.0, N)
    if loss == "squared_hinge":
        qp = formulations.svc(np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0), costs, loss, True)
    else:
        qp = formulations.svr(np.sin(X[:, 0]), costs, 0.1, loss, True)
    assert qp.infinite
    assert small.has_way(qp)
    K = matrix(X, KernelKind.RBF)
    agrees(qp, K, small.at_once(qp, K, np.zeros(len(qp.c)), tol), tol)


def many(seed, tasks=40):
    """A matrix, and tasks over some of its rows, in any number of spans, with costs of their own."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 90))
    X = rng.normal(size=(n, 3)) * rng.choice([1e-2, 1.0, 1e2])
    if seed % 3 == 0:
        X = np.round(X)  # ties and equal points
    kind = [KernelKind.RBF, KernelKind.LAPLACIAN, KernelKind.POLY][seed % 3]
    K = KernelMatrix(X, Kernel(int(kind), 0.4 / max(1.0, X.std()) ** 2, 1.0, 2, 0.0), cache_bytes=1 << 26)
    made = []
    while len(made) < tasks:
        rows = np.flatnonzero(rng.random(n) < rng.choice([0.3, 0.8, 1.0]))
        if rows.size < 2:
            continue
        costs = rng.choice([0.0, 1e-6, 0.1, 1.0, 30.0], rows.size)
        which = rng.integers(4)
        if which == 0:
            signs = rng.choice([-1.0, 1.0], rows.size)
            qp = formulations.svc(signs, costs, "hinge", True)
        elif which == 1:
            qp = formulations.svr(rng.normal(size=rows.size), costs, 0.2, "epsilon_insensitive", True)
        elif which == 2:
            qp = formulations.quantile(rng.normal(size=rows.size), costs, 0.3, True)
        else:
            qp = formulations.one_class(costs + 1e-3, 0.4)
        if len(qp.c):
            made.append(qp._replace(point=rows[qp.point]))
    return K, made


def batch_of(gram, problem, starts):
    return small.Batch(gram, small.joined(problem), np.concatenate(starts))


def judged(seeds, tol):
    """Every task that claims the tolerance is judged from the data; a share of them may be given up. Returns both counts."""
    judged_tasks = lost = 0
    for seed in seeds:
        K, qps = many(seed)
        starts = [formulations.feasible_start(qp, np.zeros(len(qp.c))) for qp in qps]
        batch = batch_of(gram_of(K), [(qp, small.spans_of(qp.point)) for qp in qps], starts)
        batch.solve(tol, 1)
        for k, qp in enumerate(qps):
            found = batch.outcome(k, tol)
            judged_tasks += 1
            if found is None:
                lost += 1
                continue
            assert ((found.beta >= qp.lower) & (found.beta <= qp.upper)).all()
            agrees(qp, K, found, tol)
    return judged_tasks, lost


@pytest.mark.compiled
@pytest.mark.parametrize("tol", [1e-3, 1e-8])
@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(100, 350), marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_a_judge_of_many_tasks(tol, seeds):
    tasks, lost = judged(seeds, tol)
    assert tasks == 40 * len(seeds)
    assert lost <= 0.05 * tasks


def test_tasks_are_the_same_alone_together_and_on_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 0.0)
    K, qps = many(1, tasks=9)
    gram = gram_of(K)
    problem = [(qp, small.spans_of(qp.point)) for qp in qps]
    starts = [formulations.feasible_start(qp, np.zeros(len(qp.c))) for qp in qps]
    alone = []
    for one, start in zip(problem, starts, strict=True):
        batch = batch_of(gram, [one], [start])
        batch.solve(1e-4, 1)
        alone.append((batch.tasks.beta, batch.tasks.told[0]))
    for count in (1, 2, 3):
        batch = batch_of(gram, problem, starts)
        batch.solve(1e-4, count)
        assert np.array_equal(np.concatenate([beta for beta, _ in alone]), batch.tasks.beta)
        assert np.array_equal([told for _, told in alone], batch.tasks.told)
    assert not any(start.any() and not qp.total for start, qp in zip(starts, qps, strict=True))


@pytest.mark.parametrize("tol", [1e-3, 1e-7])
@pytest.mark.parametrize("nu", [0.1, 0.5, 0.9])
def test_sums_of_both_sides_are_kept_and_say_which_cost(nu, tol):
    X, qps = problems()
    qp, K = qps["classes"]._replace(), matrix(X, KernelKind.RBF)
    most = 2.0 * min(qp.upper.sum(), -qp.lower.sum()) / (qp.upper - qp.lower).sum()
    gram, spans = gram_of(K), small.spans_of(qp.point)
    ((t, found),) = small.with_nu(gram, small.joined([(qp, spans)]), [nu * most], tol, 1)
    C = 1.0 / t
    there = qp._replace(lower=C * qp.lower, upper=C * qp.upper)
    agrees(there, K, found, tol)
    room = there.upper - there.lower
    assert np.abs(found.beta).sum() / room.sum() == pytest.approx(nu * most, rel=1e-10)


def test_a_batch_of_shares_has_each_of_them_or_the_machine_of_the_least():
    """A share in the middle, one that overlapping classes do not allow, one above the largest, and a hard margin."""
    X = np.random.default_rng(3).normal(size=(80, 2))
    X[40:60] += 20.0  # a cloud apart, for the hard margin
    noisy = np.where(X[:40, 0] > 0.5, 1.0, -1.0)
    noisy[:3] *= -1.0
    most = 2.0 * min(np.mean(noisy > 0.0), np.mean(noisy < 0.0))
    apart = np.concatenate([np.ones(20), -np.ones(20)])
    K = KernelMatrix(X, Kernel(int(KernelKind.LINEAR), 1.0, 0.0, 1, 0.0), cache_bytes=1 << 20)
    gram, size = gram_of(K), float(K.diagonal.mean())
    tasks = [
        formulations.svc(signs, np.ones(40), "hinge", True)._replace(point=np.arange(a, a + 40))
        for signs, a in ((noisy, 0), (noisy, 0), (noisy, 0), (apart, 40))
    ]
    nus = [0.9 * most, 0.02, 1.01 * most, 0.05]
    found = small.with_nu(gram, small.joined([(qp, small.spans_of(qp.point)) for qp in tasks]), nus, 1e-6, 1)
    assert found[2] is None
    shares = []
    for qp, one in zip(tasks, found, strict=True):
        if one is not None:
            t, answer = one
            agrees(qp._replace(lower=qp.lower / t, upper=qp.upper / t), K, answer, 1e-6 * min(1.0, size / t))
            shares.append(t * np.abs(answer.beta).sum() / 40.0)
    assert shares[0] == pytest.approx(0.9 * most, rel=1e-10)
    assert 0.02 < shares[1] < shares[0]
    assert found[1][0] == pytest.approx(size / 100.0, rel=1e-12)
    assert shares[2] == pytest.approx(0.05, rel=1e-10)


def test_a_share_that_hardly_falls_any_more_is_not_waited_for():
    """Of classes that overlap, the machine of a tenth of the largest C has nearly the same share."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    qp = formulations.svc(np.where(X[:, 0] + rng.normal(size=60) > 0.0, 1.0, -1.0), np.ones(60), "hinge", True)
    K = KernelMatrix(X, Kernel(int(KernelKind.LINEAR), 1.0, 0.0, 1, 0.0), cache_bytes=1 << 20)
    size = float(K.diagonal.mean())
    alone = small.joined([(qp, small.spans_of(qp.point))])
    ((t, found),) = small.with_nu(gram_of(K), alone, [0.02], 1e-6, 1)
    assert t == pytest.approx(size / 10.0, rel=1e-12)
    ((first, none),) = small.with_nu(gram_of(K), alone, [0.02], 1e-6, 1, small.PATIENCE._replace(most=40))
    assert none is None  # too few steps even for a C of one
    assert first == pytest.approx(size, rel=1e-12)
    there = qp._replace(lower=qp.lower / t, upper=qp.upper / t)
    agrees(there, K, found, 1e-6)
    far = small.at_once(there._replace(lower=10.0 * there.lower, upper=10.0 * there.upper), K, np.zeros(60), 1e-6)
    assert far is not None
    assert np.abs(found.beta).sum() == pytest.approx(0.1 * np.abs(far.beta).sum(), rel=0.03)


def test_sums_of_both_sides_of_a_tube():
    X, qps = problems()
    qp, K = qps["numbers"], matrix(X, KernelKind.RBF)
    target = 0.5 * (qp.c[: len(qp.c) // 2] + qp.c[len(qp.c) // 2 :])
    qp = qp._replace(c=np.concatenate([target, target]))
    shared = small.with_share(gram_of(K), qp, 0.4, 1e-8)
    half = len(target)
    assert shared.beta[:half].sum() == pytest.approx(0.2 * qp.upper[:half].sum(), rel=1e-10)
    assert shared.beta[half:].sum() == pytest.approx(-0.2 * qp.upper[:half].sum(), rel=1e-10)
    tube = qp._replace(c=np.concatenate([target - shared.half, target + shared.half]))
    assert certificate(tube, K, shared.beta).kkt_violation <= 1e-7


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "sigmoid", "laplacian"])
@pytest.mark.parametrize("shape", [(20, 3), (20, 100), (300, 5)], ids=str)
@pytest.mark.parametrize("offset", [0.0, 2.0])
def test_every_way_to_a_matrix_gives_its_values(kernel, shape, offset):
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape)
    spec = border.kernel(kernel, X, "scale", 3, 1.0, offset)
    K = KernelMatrix(X, spec.kernel, cache_bytes=0)
    values = gram_of(K)[:, : shape[0]]
    expected = oracle.kernel_matrix(kernel, X, X, spec.kernel.gamma, spec.kernel.coef0) + offset
    np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12)
    assert np.array_equal(values, values.T)
    assert K.n_evals >= shape[0] * (shape[0] + 1) // 2
    if kernel in ("rbf", "laplacian"):
        assert (np.diag(values) == 1.0 + offset).all()


def test_spans_are_neighbours():
    for point in ([0], [3, 4, 5], [0, 1, 3, 4], [2, 2, 3], [1, 0], [0, 1, 2, 0, 1, 2], [5, 3, 4]):
        spans = small.spans_of(np.array(point))
        assert np.concatenate([np.arange(a, b) for a, b in spans]).tolist() == point


def test_by_name_it_says_what_it_cannot_do():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(small.MOST + 1, 2))
    with pytest.warns(svmcore.ConvergenceWarning, match="The limit of 'small'"):
        found = svmcore.train_svc(X, np.arange(len(X)) % 2, solver="small")
    assert found.status is Status.LIMITED


class Boxes(NamedTuple):
    beta: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def boxes(seed, unit=1.0):
    """Some values at a bound, some inside."""
    rng = np.random.default_rng(seed)
    lower, upper = -unit * (0.5 + rng.random(9)), unit * (0.5 + rng.random(9))
    share = rng.choice([0.0, 0.25, 0.5, 0.75, 1.0], 9)
    return Boxes(np.where(share == 1.0, upper, lower + share * (upper - lower)), lower, upper)


@pytest.mark.parametrize("unit", [1.0, 1e-5])
@seeds(5)
def test_the_sum_is_put_right_where_there_is_most_room(seed, unit):
    work = boxes(seed, unit)
    before = work.beta.copy()
    room = np.minimum(before - work.lower, work.upper - before)
    missing = 0.5 * room.max()
    for sign in (1.0, -1.0):
        work.beta[:] = before
        block_pieces.repair_sum(work, before.sum() + sign * missing)
        assert work.beta.sum() == pytest.approx(before.sum() + sign * missing, rel=1e-12, abs=1e-14 * unit)
        assert np.flatnonzero(work.beta != before).tolist() == [int(np.argmax(room))]
        work.beta[:] = before
        block_pieces.repair_sum(work, before.sum() + sign * 2.1 * missing)  # more than there is room for
        assert np.array_equal(work.beta, before)


@pytest.mark.parametrize("unit", [1.0, 1e-5])
@seeds(5)
def test_measures_are_those_of_the_dual_point(seed, unit):
    work = boxes(seed, unit)
    rng = np.random.default_rng([seed, 1])
    c, v, b = rng.normal(size=9), unit * rng.normal(size=9), work.beta
    high, low, bias = _ends_jit.bias_of(v, work)
    objective, gap = _ends_jit.worth_of(work, pieces.Dual(c, np.zeros(9), 0.0, v, v), bias)
    free = v[(b > work.lower) & (b < work.upper)]
    assert (high, low) == (v[b < work.upper].max(), v[b > work.lower].min())
    assert bias == pytest.approx(free.mean() if free.size else 0.5 * (high + low), rel=1e-12)
    assert objective == pytest.approx(-0.5 * b @ (c + v), rel=1e-12)
    assert gap == pytest.approx((np.where(v > bias, work.upper, work.lower) - b) @ (v - bias), rel=1e-9)


def test_a_box_without_an_end_has_no_gap_to_name():
    work = Boxes(np.array([1.0, -1.0]), np.array([0.0, -np.inf]), np.array([np.inf, 0.0]))
    for v, gap in ((np.zeros(2), 0.0), (np.array([1.0, -1.0]), 2e300)):
        assert _ends_jit.worth_of(work, pieces.Dual(v, np.zeros(2), 0.0, v, v), 0.0)[1] == gap


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("unit", [1.0, 1e-5])
@seeds(8)
def test_extremes_of_a_side_are_those_of_its_variables(seed, unit, above):
    rng = np.random.default_rng(seed)
    side = np.array([True] * 5 + [False] * 4)
    room = unit * (0.5 + rng.random(9))
    share = rng.choice([0.0, 1.0] if seed % 2 else [0.0, 0.5, 1.0], 9)
    share[side == above] = 1.0 if seed == 1 else 0.0 if seed == 3 else share[side == above]
    work = Boxes(np.where(side, share, -share) * room, np.where(side, 0.0, -room), np.where(side, room, 0.0))
    v = rng.normal(size=9)
    grows, shrinks = ((work.beta < work.upper) & (side == above), (work.beta > work.lower) & (side == above))
    found = _ends_jit.ends_of(v, work, 0.0, 1.0 if above else -1.0)
    highest, lowest = v[grows].max(initial=-1e300), v[shrinks].min(initial=1e300)
    assert found[:2] == (highest, lowest)
    ends = [end for end in (highest, lowest) if abs(end) < 1e300]
    free = grows & shrinks
    assert _ends_jit.middle_of(*found) == pytest.approx(v[free].mean() if free.any() else np.mean(ends), rel=1e-12)


def test_what_a_start_misses_of_its_sum_is_put_right():
    X, qps = problems()
    qp, K = qps["one class"], matrix(X, KernelKind.RBF)
    start = formulations.feasible_start(qp, np.zeros(len(qp.c)))
    start[np.argmax(start)] -= 1e-6
    found = small.at_once(qp, K, start, 1e-3)
    assert found.n_iter > 0
    assert found.beta.sum() == pytest.approx(qp.total, rel=1e-13)


def test_rows_of_another_task_are_not_read():
    """What overflows in float32 is infinite there, and infinite minus infinite would come into the next task."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    X[:20] *= 1e25
    signs = np.tile([1.0, -1.0], 10)
    qps = [formulations.svc(signs, np.ones(20), "hinge", True)._replace(point=np.arange(a, a + 20)) for a in (0, 20)]
    problem = [(qp, small.spans_of(qp.point)) for qp in qps]
    both, alone = (batch_of(X @ X.T, some, [np.zeros(20)] * len(some)) for some in (problem, problem[1:]))
    with np.errstate(all="ignore"):
        for batch in (both, alone):
            batch.solve(1e-3, 1)
    assert np.array_equal(both.beta(1), alone.beta(0))
    assert both.outcome(1, 1e-3) is not None


def no_matrix(*_):
    raise AssertionError("a kernel matrix is made")


@pytest.mark.parametrize("words", [{"loss": "squared_hinge"}, {"nu": 0.3}, {}])
@pytest.mark.parametrize("room", [{"n": 150, "cache_mb": 0.01}, {"n": small.MOST_POINTS + 1}])
def test_a_matrix_is_made_where_there_is_room_for_all_points(room, words, monkeypatch):
    n = room["n"]
    X = np.random.default_rng(0).normal(size=(n, 2))
    weights = np.zeros(n)
    weights[:150] = 1.0  # points without weight have a row, too
    monkeypatch.setattr(small, "gram_of", no_matrix)
    monkeypatch.setattr(nu, "gram_of", lambda K: gram_of(K) if K.n <= nu._SOME < n else no_matrix())
    found = svmcore.train_svc(X, X[:, 0] > 0.1, sample_weight=weights, cache_mb=room.get("cache_mb"), tol=1e-2, **words)
    assert found.converged


def test_by_name_it_makes_no_matrix_of_many_points(monkeypatch):
    monkeypatch.setattr(small, "gram_of", no_matrix)
    n = small.MOST_POINTS + 1
    X = np.random.default_rng(0).normal(size=(n, 2))
    with pytest.warns(svmcore.ConvergenceWarning, match="The limit of 'small'"):
        svmcore.train_svc(X, X[:, 0] > 0.0, sample_weight=(np.arange(n) < 100) * 1.0, solver="small")


def test_a_gap_that_is_no_number_is_not_believed(monkeypatch):
    at_once = small.at_once
    monkeypatch.setattr(small, "at_once", lambda *how: at_once(*how)._replace(gap=np.nan))
    assert svmcore.train_svc(problems()[0], np.arange(N) % 2).solver != "small"


@pytest.mark.parametrize("unit", [1e-5, 1e5])
def test_a_share_does_not_depend_on_the_unit_of_the_weights(unit):
    X, qps = problems()
    qp, K = qps["classes"], matrix(X, KernelKind.RBF)
    other = qp._replace(lower=unit * qp.lower, upper=unit * qp.upper)
    (t, found), (scaled, same) = (
        small.with_nu(gram_of(K), small.joined([(one, small.spans_of(qp.point))]), [0.4], 1e-6, 1)[0]
        for one in (qp, other)
    )
    assert scaled == pytest.approx(unit * t, rel=1e-4)
    np.testing.assert_allclose(found.beta, same.beta, atol=1e-3 * np.abs(found.beta).max())


@pytest.mark.parametrize("solver", ["auto", pytest.param("smo", marks=pytest.mark.compiled)])
def test_the_cost_of_a_nu_says_which_variables_are_at_their_bound(solver):
    X, y = problems()[0], np.arange(N) % 2
    weights = np.random.default_rng(1).uniform(0.1, 2.0, N)
    for share in np.linspace(0.2, 0.85, 12):
        found = svmcore.train_svc(X, y, nu=share, sample_weight=weights, solver=solver)
        told = svmcore.certificate(X, y, found.alpha, found.intercept, C=found.C, sample_weight=weights)
        assert told.kkt_violation <= 1e-3
        assert np.abs(found.alpha).sum() == pytest.approx(share * found.C * weights.sum(), rel=1e-9)


@pytest.mark.parametrize("most", [0, 1, 5])
def test_nu_within_too_few_steps_says_so(most):
    X, y = problems()[0][:60], np.arange(60) % 2
    with pytest.warns(svmcore.ConvergenceWarning, match="max_iter"):
        found = svmcore.train_svc(X, y, nu=0.5, max_iter=most)
    assert found.status is Status.MAX_ITER
    assert found.C > 0.0
    assert (found.solver, found.n_iter) == ("small", most)


def test_two_variables_of_a_point_are_one_where_there_is_no_tube():
    """Both of them may be above zero then: what they take from each other changes nothing."""
    X = np.random.default_rng(5).normal(size=(30, 2))
    found = svmcore.train_svr(X, X[:, 0], 10.0, epsilon=0.0, tol=1e-8)
    assert found.solver == "small"
    assert found.converged
    other = svmcore.train_svr(X, X[:, 0], 10.0, epsilon=0.0, tol=1e-8, solver="smo")
    assert found.objective == pytest.approx(other.objective, rel=1e-9)
    assert found.kkt_violation <= 1e-8


@pytest.mark.parametrize("most", [1, 7])
def test_there_are_no_more_steps_than_allowed(most):
    X, qps = problems()
    qp, K = qps["classes"], matrix(X, KernelKind.RBF)
    problem = [(qp, small.spans_of(qp.point))]
    batch = batch_of(gram_of(K), problem, [np.zeros(len(qp.c))])
    batch.solve(1e-8, 1, small.PATIENCE._replace(most=most))
    assert batch.tasks.told[0, pieces.STEPS] == most


def test_where_pair_steps_crawl_free_variables_move_together():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) + 0.5])
    y = np.repeat([-1.0, 1.0], 40)
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1))
    qp = formulations.svc(y, np.full(80, 1e4), "hinge", True)
    batch = small.Batch(K, small.joined([(qp, small.spans_of(qp.point))]), np.zeros(80))
    batch.solve(1e-3, 1)
    found = batch.outcome(0, 1e-3)
    assert found is not None
    other = svmcore.train_svc(K, y, 1e4, kernel="precomputed", solver="interior", tol=1e-6)
    assert found.objective == pytest.approx(other.objective, rel=1e-9)
    assert found.n_iter < 9000  # SMO takes 18,000
    shares = small.with_nu(
        K, small.joined([(formulations.svc(y, np.ones(80), "hinge", True), small.spans_of(qp.point))]), [0.73], 1e-3, 1
    )
    assert shares[0] is not None


def test_a_sharp_tolerance_takes_few_more_steps_than_a_rough_one():
    """With few free variables, which move together; with more of them than there is room for, pair steps reach it alone."""
    rng = np.random.default_rng(1)
    X = np.vstack([rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) + 1.0])
    y = np.repeat([-1.0, 1.0], 40)
    for width, few in ((0.7, True), (8.0, False)):
        K = matrix(width * X, KernelKind.RBF)
        qp = formulations.svc(y, np.full(80, 1.0 if few else 9.0), "hinge", True)
        steps = []
        for tol in (1e-3, 1e-11):
            found = small.at_once(qp, K, np.zeros(80), tol)
            assert found is not None
            steps.append(found.n_iter)
        free = np.count_nonzero((qp.lower < found.beta) & (found.beta < qp.upper))
        assert (free <= pieces.FACE) == few
        assert steps[1] < 1.5 * steps[0] or not few


def test_steps_end_where_rounding_hides_the_tolerance():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 2))
    K = matrix(X, KernelKind.RBF)
    qp = formulations.svc(np.where(X[:, 0] + 0.5 * rng.normal(size=60) > 0, 1.0, -1.0), np.full(60, 1e5), "hinge", True)
    found = small.at_once(qp, K, np.zeros(60), 1e-13)
    assert found is not None
    assert found.status is Status.PRECISION
    noise = rounding(qp, K, found.beta)
    assert 1e-13 < certificate(qp, K, found.beta).kkt_violation < 20.0 * noise
    batch = batch_of(gram_of(K), [(qp, small.spans_of(qp.point))], [np.zeros(60)])
    batch.solve(1e-13, 1)
    assert batch.outcome(0, 1e-13) is None  # it is not at the tolerance
    assert batch.outcome(0, 1e-3) is not None


def test_an_objective_of_zero_asks_for_no_further_steps():
    """The origin lies among the points, so that no weights are the answer, whose gap is rounding."""
    X = np.random.default_rng(4).normal(size=(80, 2))
    K = KernelMatrix(X, Kernel(int(KernelKind.LINEAR), 1.0, 0.0, 3, 0.0), cache_bytes=1 << 26)
    qp = formulations.one_class(np.ones(80), 0.5)
    found = small.at_once(qp, K, formulations.feasible_start(qp, np.zeros(80)), 1e-3)
    assert found is not None
    assert found.quiet(0.01)
    assert abs(found.gap) <= found.vanishing < 1e-6
    assert found.n_iter < 80
