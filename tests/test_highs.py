"""HiGHS behind our own interface: against programs with known answers."""

from __future__ import annotations

import numpy as np
import pytest
from checkouts import ran

import svmcore
from svmcore.base import highs as _highs
from svmcore.base.highs import LinearProgram, solve_qp

HAS_HIGHSPY = _highs.highspy() is not None
needs_highspy = pytest.mark.skipif(not HAS_HIGHSPY, reason="highspy is not installed")


@pytest.fixture(params=[pytest.param("highspy", marks=needs_highspy), "scipy"], autouse=True)
def solver(request, monkeypatch):
    """Whose HiGHS solves."""
    if request.param == "scipy":
        monkeypatch.setattr(_highs, "highspy", lambda: None)
    return request.param


INF = np.inf


def test_lp_with_known_vertex():
    # max x + 2y, x + y <= 4, x + 3y <= 6, x, y >= 0 -> (3, 1)
    got = LinearProgram().solve([-1.0, -2.0], [[1.0, 1.0], [1.0, 3.0]], -INF, [4.0, 6.0], 0.0, INF)
    assert got.ok
    assert got.x == pytest.approx([3.0, 1.0], abs=1e-12)
    assert got.value == pytest.approx(-5.0, abs=1e-12)


def test_lp_without_rows_and_free_columns():
    got = LinearProgram().solve([1.0, 0.0], np.zeros((0, 2)), [], [], [-2.0, -INF], [5.0, INF])
    assert got.ok
    assert got.x[0] == -2.0


def test_infeasible_and_unbounded_are_reported_not_raised():
    assert not LinearProgram().solve([1.0], [[1.0]], 2.0, 3.0, 0.0, 1.0).ok
    assert not LinearProgram().solve([-1.0], [[0.0]], -INF, 1.0, 0.0, INF).ok


def test_which_of_many_solutions_is_taken(solver):
    """min x, and y + z = 1 within [0, 1]: every y is optimal. scipy's HiGHS ends at a vertex."""
    arguments = [1.0, 0.0, 0.0], [[0.0, 1.0, 1.0]], 1.0, 1.0, [-1.0, 0.0, 0.0], [2.0, 1.0, 1.0]
    vertex, middle = LinearProgram().solve(*arguments), LinearProgram(interior=True).solve(*arguments)
    for got in (vertex, middle):
        assert got.ok
        assert got.x[0] == pytest.approx(-1.0, abs=1e-9)
        assert got.x[1:].sum() == pytest.approx(1.0, abs=1e-9)
        assert got.iterations >= 0
    assert sorted(vertex.x[1:]) == [0.0, 1.0]
    assert (0.1 < middle.x[1] < 0.9) == (solver == "highspy")


def test_an_interior_point_that_cannot_arrive_ends():
    """A program of a path with next to no room (at most 4e-12), at which HiGHS 1.15 went on for ever."""
    A = np.zeros((6, 2))
    A[:, 0] = -79.75026121115522, 0.0, -101.0969638512696, 192.713655885156, -239.41441898574226, 227.54798816301079
    A[:2, 1] = 0.707106781186548, -0.7071067811865471
    low = [-5.968077143592154e-10, -2.998130632647644e-10, -0.6631746497326437, -0.6349090739747864]
    high = [0.9999999994031923, 0.9999999997001869, 0.33682535026735627, 0.36509092602521365]
    low, high = [*low, -0.06792974255610662, -0.633986533106036], [*high, 0.9320702574438934, 0.36601346689396397]
    got = LinearProgram(interior=True).solve([-1.0, 0.0], A, low, high, [0.0, -INF], [1.0, INF])
    assert got.iterations <= 300
    assert got.value == pytest.approx(0.0, abs=1e-9)
    assert got.ok or "limit" in got.message


def test_one_model_solves_programs_of_changing_size():
    program = LinearProgram()
    for n in (5, 2, 9, 1, 30):
        # min sum x, x_i >= i
        got = program.solve(np.ones(n), np.eye(n), np.arange(n), INF, -INF, INF)
        assert got.ok
        assert got.x == pytest.approx(np.arange(n), abs=1e-12)
    assert program.n_solved == 5


def test_lp_agrees_with_scipy_on_random_programs():
    from scipy.optimize import linprog

    rng = np.random.default_rng(0)
    program = LinearProgram()
    for _ in range(40):
        m, n = rng.integers(1, 8, 2)
        A, x = rng.normal(size=(m, n)), rng.normal(size=n)
        slack = rng.random(m)
        cost = rng.normal(size=n)
        got = program.solve(cost, A, A @ x - slack, A @ x + slack, x - 1.0, x + 2.0)
        want = linprog(
            cost,
            np.vstack([A, -A]),
            np.concatenate([A @ x + slack, slack - A @ x]),
            bounds=list(zip(x - 1, x + 2, strict=True)),
        )
        assert got.ok
        assert got.value == pytest.approx(want.fun, rel=1e-8, abs=1e-8)


def test_a_quadratic_program_is_refused_by_scipys(solver):
    if solver == "scipy":
        got = solve_qp(np.eye(2), np.ones(2), np.empty((0, 2)), [], [], 0.0, 1.0)
        assert not got.ok
        assert "quadratic" in got.message


@needs_highspy
def test_both_agree_on_the_programs_of_paths(solver, monkeypatch):
    """Of random paths with many ties, in every mode: values, and which rows bear."""
    programs = []
    solve = LinearProgram.solve

    def noted(self, *arguments):
        programs.append(arguments)
        return solve(self, *arguments)

    monkeypatch.setattr(LinearProgram, "solve", noted)
    for seed in range(4):
        rng = np.random.default_rng([8, seed])
        X, y = rng.integers(-2, 3, (30, 2)).astype(float), np.where(rng.random(30) < 0.5, 1, -1)
        path = svmcore.svm_path(X, y, kernel="linear", lambda_min=0.01, factorization=["svd", "qr"][seed % 2])
        assert path.certify().relative_gap <= 1e-9
        path.solution_set(1.0).extent()
    monkeypatch.undo()
    assert len(programs) > 30
    ours = LinearProgram()
    monkeypatch.setattr(_highs, "highspy", lambda: None)
    theirs = LinearProgram()
    for arguments in programs:
        one, other = ours.solve(*arguments), theirs.solve(*arguments)
        assert (one.ok, one.x.size, one.dual.size) == (other.ok, other.x.size, other.dual.size)
        assert other.value == pytest.approx(one.value, rel=1e-9, abs=1e-9)
        cost, A, low, high, lower, upper = (np.asarray(part) for part in arguments)
        for got in (one, other):  # the multipliers prove it: value = bounds of rows and columns, each at its price
            price = cost - got.dual @ A.reshape(-1, cost.size)
            bounds = [(got.dual, low, high), (price, lower, upper)]
            proof = sum(_worth(duals, *np.broadcast_arrays(least, most)) for duals, least, most in bounds)
            assert proof == pytest.approx(got.value, rel=1e-6, abs=1e-6)


def _worth(duals, low, high):
    used = np.abs(duals) > 1e-9
    return float(np.sum(duals[used] * np.where(duals > 0.0, low, high)[used]))


def test_chunking_needs_no_quadratic_programs(solver):
    X, y = svmcore.load_data("demo:spirals")
    found = svmcore.train_svc(X, y, 10.0, gamma=0.15, solver="chunking")
    assert found.converged
    assert (found.stats["highs"] > 0) == (solver == "highspy")


BROKEN = """
import sys, types, warnings
BEFORE
import svmcore
from svmcore.base import highs as _highs
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for _ in range(2):
        print(_highs.LinearProgram().solve([1.0], [[1.0]], 2.0, 3.0, 0.0, 9.0).x.tolist())
print(*[f"{w.category.__name__}: {w.message}" for w in said], sep="\\n")
"""


@pytest.mark.parametrize("solver", ["scipy"], indirect=True)  # a process of its own decides
@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("sys.meta_path.insert(0, type('Absent', (), {'find_spec': staticmethod(absent)}))", ""),
        pytest.param(
            "sys.modules['highspy'] = types.ModuleType('highspy')",
            "AttributeError: module 'highspy' has no attribute 'Highs'",
            marks=pytest.mark.ci,
        ),
    ],
    ids=["absent", "broken"],
)
def test_without_highspy_scipy_solves_and_only_a_broken_one_is_told_of(solver, before, said):
    if "absent" in before:
        before = (
            "def absent(name, *_):\n    if name == 'highspy': raise ModuleNotFoundError('none', name=name)\n" + before
        )
    program = BROKEN.replace("BEFORE", before)
    first, second, *rest = ran(program)[0].splitlines()
    assert (first, second) == ("[2.0]", "[2.0]")
    assert len(rest) == 1
    assert rest[0].startswith("CostWarning: highspy is installed but does not load" if said else "")
    assert said in rest[0]


@needs_highspy
def test_qp_projects_onto_the_simplex(solver):
    if solver == "scipy":
        pytest.skip("scipy has no quadratic programs")
    # min |x - p|^2 / 2, sum x = 1, x >= 0 with p = (0.9, 0.5, -1): (0.7, 0.3, 0)
    p = np.array([0.9, 0.5, -1.0])
    got = solve_qp(np.eye(3), -p, np.ones((1, 3)), 1.0, 1.0, 0.0, INF)
    assert got.ok
    assert got.x == pytest.approx([0.7, 0.3, 0.0], abs=1e-7)
