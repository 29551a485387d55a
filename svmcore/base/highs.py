"""Linear and small quadratic programs by HiGHS; the only importer of highspy, which is loaded when a program is there.

A `LinearProgram` keeps one solver object: the path's steps solve hundreds of programs of changing size, and making a
solver costs more than solving a small one.

Where highspy has no wheels, or does not load, linear programs are solved by the HiGHS that scipy has inside. That one takes
no quadratic programs. Its solver is made anew for each program.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from svmcore._errors import CostWarning, warn
from svmcore._types import FloatArray

_FEASIBILITY = 1e-10  # HiGHS's tolerance for rows, bounds and multipliers, the finest that it takes
_INTERIOR_STEPS = 300
"""An interior point that arrives takes some 40 steps. One that cannot come as near as asked would go on for ever."""


class Optimum(NamedTuple):
    """`ok` is False when HiGHS did not reach an optimum; `x` is then its last point (or empty). `dual` is one per row."""

    x: FloatArray
    value: float
    ok: bool
    iterations: int
    message: str
    dual: FloatArray


class LinearProgram:
    """min cost'x with row_lower <= A x <= row_upper and lower <= x <= upper; infinite bounds allowed.

    Of many solutions it takes a vertex. With `interior` it takes one from the middle of them, where interior points end that
    do not cross over to a vertex. scipy's HiGHS always ends at a vertex. Quadratic programs may take `qp_limit` iterations.
    """

    def __init__(self, *, interior: bool = False, qp_limit: int | None = None) -> None:
        self.n_solved = 0
        self._highspy = highspy()
        if self._highspy is None:
            return
        self._solver = self._highspy.Highs()
        self._solver.setOptionValue("output_flag", False)
        self._solver.setOptionValue("threads", 1)
        self._solver.setOptionValue("presolve", "off")
        self._solver.setOptionValue("primal_feasibility_tolerance", _FEASIBILITY)
        self._solver.setOptionValue("dual_feasibility_tolerance", _FEASIBILITY)
        if interior:
            self._solver.setOptionValue("solver", "ipm")
            self._solver.setOptionValue("run_crossover", "off")
            self._solver.setOptionValue("ipm_optimality_tolerance", _FEASIBILITY)
            self._solver.setOptionValue("ipm_iteration_limit", _INTERIOR_STEPS)
        if qp_limit is not None:
            self._solver.setOptionValue("qp_iteration_limit", qp_limit)

    def solve(
        self,
        cost: Any,
        A: Any,
        row_lower: Any,
        row_upper: Any,
        lower: Any,
        upper: Any,
        *,
        hessian: Any = None,
    ) -> Optimum:
        """Solve one program. With `hessian` (symmetric, positive semi-definite) the objective gains 1/2 x'Hx."""
        self.n_solved += 1
        A = np.atleast_2d(np.asarray(A, dtype=np.float64))
        cost = np.asarray(cost, dtype=np.float64)
        A = A if A.size else np.empty((0, cost.size))
        rows = _bound(row_lower, A.shape[0]), _bound(row_upper, A.shape[0])
        columns = _bound(lower, cost.size), _bound(upper, cost.size)
        if self._highspy is None:
            return _solved_by_scipy(cost, A, rows, columns) if hessian is None else _NO_QUADRATIC
        model = self._highspy.HighsModel()
        lp = model.lp_
        lp.num_row_, lp.num_col_ = A.shape
        lp.col_cost_ = cost
        lp.col_lower_, lp.col_upper_ = columns
        lp.row_lower_, lp.row_upper_ = rows
        used = A != 0.0
        lp.a_matrix_.format_ = self._highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int32)
        at_row, at_column = np.nonzero(used)
        lp.a_matrix_.index_ = at_column.astype(np.int32)
        lp.a_matrix_.value_ = A[at_row, at_column]
        if hessian is not None:
            _set_hessian(model, np.asarray(hessian, dtype=np.float64), self._highspy.HessianFormat.kTriangular)
        self._solver.passModel(model)
        self._solver.run()
        status = self._solver.getModelStatus()
        info = self._solver.getInfo()
        solution = self._solver.getSolution()
        x = np.array(solution.col_value, dtype=np.float64)
        dual = np.array(solution.row_dual, dtype=np.float64)
        ok = status == self._highspy.HighsModelStatus.kOptimal and x.size == cost.size
        counts = (info.simplex_iteration_count, info.qp_iteration_count, info.ipm_iteration_count)
        n_iter = sum(max(int(count), 0) for count in counts)
        message = self._solver.modelStatusToString(status)
        return Optimum(x, float(info.objective_function_value), ok, n_iter, message, dual)


@functools.cache
def highspy() -> Any:
    """The package, or None where it is not installed, or does not load. The latter is said once."""
    try:
        import highspy as package

        package.Highs  # noqa: B018  (some of its parts load and its solver does not)
    except Exception as error:  # whatever a library that does not fit this system may raise
        if not (isinstance(error, ModuleNotFoundError) and error.name == "highspy"):
            why = str(error).strip().partition("\n")[0]
            warn(
                f"highspy is installed but does not load ({type(error).__name__}: {why}); scipy's HiGHS solves linear "
                "programs, and chunking its quadratic ones without; reinstall or remove highspy",
                CostWarning,
            )
        return None
    return package


_NO_QUADRATIC = Optimum(np.empty(0), np.nan, False, 0, "scipy's HiGHS takes no quadratic programs", np.empty(0))


def _solved_by_scipy(
    cost: FloatArray, A: FloatArray, rows: tuple[FloatArray, FloatArray], columns: tuple[FloatArray, FloatArray]
) -> Optimum:
    """The same by scipy: rows with two equal bounds are equations, and each other bound of a row is an inequality."""
    from scipy import optimize

    linprog: Any = optimize.linprog  # whose types know lists of bounds, and no arrays
    low, high = rows
    equal = low == high
    above, below = ~equal & (high < np.inf), ~equal & (low > -np.inf)
    found = linprog(
        cost,
        A_ub=np.concatenate([A[above], -A[below]]),
        b_ub=np.concatenate([high[above], -low[below]]),
        A_eq=A[equal],
        b_eq=low[equal],
        bounds=np.column_stack(columns),
        method="highs-ds",
        options={
            "presolve": False,
            "primal_feasibility_tolerance": _FEASIBILITY,
            "dual_feasibility_tolerance": _FEASIBILITY,
        },
    )
    if found.x is None or found.status != 0:
        return Optimum(np.empty(0), np.nan, False, int(found.nit), str(found.message), np.empty(0))
    dual, of_inequalities = np.zeros(A.shape[0]), np.asarray(found.ineqlin.marginals)
    count = int(above.sum())
    dual[above] += of_inequalities[:count]
    dual[below] -= of_inequalities[count:]
    dual[equal] = found.eqlin.marginals
    return Optimum(np.asarray(found.x), float(found.fun), True, int(found.nit), str(found.message), dual)


def _bound(values: Any, size: int) -> FloatArray:
    return np.ascontiguousarray(np.broadcast_to(np.asarray(values, dtype=np.float64), size))


def _set_hessian(model: Any, H: FloatArray, triangular: Any) -> None:
    """The lower triangle of H, column by column."""
    n = H.shape[0]
    model.hessian_.dim_ = n
    model.hessian_.format_ = triangular
    start, index, value = [0], [], []
    for j in range(n):
        rows = np.flatnonzero(H[j:, j]) + j
        index.append(rows)
        value.append(H[rows, j])
        start.append(start[-1] + rows.size)
    model.hessian_.start_ = np.array(start, dtype=np.int32)
    model.hessian_.index_ = np.concatenate(index).astype(np.int32)
    model.hessian_.value_ = np.concatenate(value)


def solve_qp(
    hessian: Any, cost: Any, A: Any, row_lower: Any, row_upper: Any, lower: Any, upper: Any, max_iter: int | None = None
) -> Optimum:
    """One small convex quadratic program: min 1/2 x'Hx + cost'x (active set; it may cycle, hence `max_iter`)."""
    return LinearProgram(qp_limit=max_iter).solve(cost, A, row_lower, row_upper, lower, upper, hessian=hessian)
