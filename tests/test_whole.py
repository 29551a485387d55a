"""Small problems in one compiled call: what it says of an answer is the truth, and it says nothing where it has none."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import svmcore
from svmcore import solvers
from svmcore._types import Kernel, KernelKind
from svmcore.kernel.matrix import KernelMatrix
from svmcore.problem import formulations
from svmcore.problem.certify import certificate
from svmcore.solvers import _block_jit as block_pieces
from svmcore.solvers import _whole
from svmcore.solvers import _whole_jit as pieces

N = 150
KERNELS = {
    KernelKind.RBF: (0.5, 0.0),
    KernelKind.LAPLACIAN: (0.4, 0.0),
    KernelKind.POLY: (0.3, 1.0),
}


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


@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-7])
@pytest.mark.parametrize("kind", list(KERNELS))
@pytest.mark.parametrize("name", list(problems()[1]))
def test_all_that_is_said_is_what_the_certificate_says(name, kind, tol):
    X, qps = problems()
    qp, K = qps[name], matrix(X, kind)
    assert _whole.serves(K)
    assert _whole.has_way(qp)
    start = formulations.feasible_start(qp, np.zeros(len(qp.c)))
    found = _whole.at_once(qp, K, start, tol)
    if found is None:
        assert kind == KernelKind.POLY, "its values are large, and pair steps slow"
        return
    assert found.n_rounds >= (found.n_iter > 0)
    full = certificate(qp, K, found.beta)
    assert found.violation <= tol
    assert formulations.balanced(qp, found.beta) is found.beta
    size = np.abs(found.beta).sum() * float(K.diagonal.max())
    for mine, exact in (
        (found.violation, full.kkt_violation),
        (found.bias, full.intercept),
        (found.objective, full.objective),
        (found.gap, full.gap),
    ):
        assert mine == pytest.approx(exact, rel=1e-11, abs=1e-13 * max(1.0, size))


def test_a_start_is_where_it_begins():
    X, qps = problems()
    qp, K = qps["classes"], matrix(X, KernelKind.RBF)
    cold = _whole.at_once(qp, K, np.zeros(len(qp.c)), 1e-6)
    warm = _whole.at_once(qp, K, cold.beta, 1e-6)
    assert warm.n_iter == 0
    assert np.array_equal(warm.beta, cold.beta)


def test_only_rows_that_steps_look_at_are_computed():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(600, 2)), rng.normal(size=(600, 2)) + 4.0])
    y = np.repeat([0, 1], 600)
    quick, block = (svmcore.train_svc(X, y, 10.0, gamma=0.2, **how) for how in ({}, {"solver": "block"}))
    assert quick.solver == block.solver == "block"
    assert quick.n_kernel_evals < 0.1 * block.n_kernel_evals
    assert quick.objective == pytest.approx(block.objective, rel=1e-4)
    assert quick.kkt_violation == pytest.approx(svmcore.certificate(
        X, y, quick.alpha, quick.intercept, C=10.0, gamma=0.2).kkt_violation, abs=1e-12)  # fmt: skip


@pytest.mark.parametrize("how", [{"callback": lambda _: False}, {"trace": True}, {"stopping": "gap"}])
def test_whoever_wants_to_look_on_gets_the_solver(how, monkeypatch):
    X, y = problems()[0], np.arange(N) % 2
    asked = []
    at_once = _whole.at_once
    monkeypatch.setattr(_whole, "at_once", lambda *task: asked.append(1) or at_once(*task))
    assert svmcore.train_svc(X, y, **how).solver == "block"
    assert not asked
    assert svmcore.train_svc(X, y).solver == "block"
    assert asked


def test_where_it_does_not_arrive_the_solvers_take_over(monkeypatch):
    X, y = problems()[0], np.arange(N) % 2
    expected = svmcore.train_svc(X, y, 5.0, tol=1e-6)
    monkeypatch.setattr(_whole, "_ROUNDS", 1)
    monkeypatch.setattr(_whole, "_MORE_STEPS", 0)
    monkeypatch.setattr(_whole, "_STEPS", 1)
    ran = []
    run = solvers.load("block").run
    monkeypatch.setattr(solvers.load("block"), "run", lambda *task, **how: ran.append(1) or run(*task, **how))
    found = svmcore.train_svc(X, y, 5.0, tol=1e-6)
    assert ran
    assert found.converged
    assert found.objective == pytest.approx(expected.objective, rel=1e-9)


def test_other_problems_have_no_way():
    X, qps = problems()
    qp = qps["classes"]
    assert not _whole.has_way(qp._replace(equality=False))
    assert not _whole.has_way(qp._replace(upper=np.full(len(qp.c), np.inf)))
    assert not _whole.has_way(qp._replace(diag=np.ones(len(qp.c))))
    linear = Kernel(int(KernelKind.LINEAR), 0.0, 0.0, 3, 0.0)
    assert not _whole.serves(KernelMatrix(X, linear, cache_bytes=1 << 20))
    bent = Kernel(int(KernelKind.SIGMOID), 0.5, 0.0, 3, 0.0)
    assert not _whole.serves(KernelMatrix(X, bent, cache_bytes=1 << 20))


class Boxes(NamedTuple):
    beta: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class Residual(NamedTuple):
    c: np.ndarray
    v: np.ndarray


def boxes(seed, unit=1.0):
    """Some values at a bound, some inside."""
    rng = np.random.default_rng(seed)
    lower, upper = -unit * (0.5 + rng.random(9)), unit * (0.5 + rng.random(9))
    share = rng.choice([0.0, 0.25, 0.5, 0.75, 1.0], 9)
    return Boxes(np.where(share == 1.0, upper, lower + share * (upper - lower)), lower, upper)


@pytest.mark.parametrize("unit", [1.0, 1e-5])
@pytest.mark.parametrize("seed", range(5))
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
@pytest.mark.parametrize("seed", range(5))
def test_measures_are_those_of_the_dual_point(seed, unit):
    work = boxes(seed, unit)
    rng = np.random.default_rng([seed, 1])
    task = Residual(rng.normal(size=9), unit * rng.normal(size=9))
    b, v = work.beta, task.v
    free = (b > work.lower) & (b < work.upper)
    bias, objective, gap = pieces._measured(work, task, 3.0, 1.0)
    assert bias == pytest.approx(v[free].mean() if free.any() else 2.0, rel=1e-12)
    assert objective == pytest.approx(-0.5 * b @ (task.c + v), rel=1e-12)
    assert gap == pytest.approx((np.where(v > bias, work.upper, work.lower) - b) @ (v - bias), rel=1e-9)
