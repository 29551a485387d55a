"""Linear and small quadratic programs by HiGHS; the only importer of highspy.

A `LinearProgram` keeps one solver object: the path's steps solve hundreds of programs of changing size, and making a
solver costs more than solving a small one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import highspy
import numpy as np

from svmcore._types import FloatArray

_FEASIBILITY = 1e-10  # HiGHS's tolerance for rows, bounds and multipliers, the finest that it takes


class Optimum(NamedTuple):
    """`ok` is False when HiGHS did not reach an optimum; `x` is then its last point (or empty). `dual` is one per row."""

    x: FloatArray
    value: float
    ok: bool
    iterations: int
    message: str
    dual: FloatArray


class LinearProgram:
    """min cost'x with row_lower <= A x <= row_upper and lower <= x <= upper; infinite bounds allowed."""

    def __init__(self) -> None:
        self._solver = highspy.Highs()
        self._solver.setOptionValue("output_flag", False)
        self._solver.setOptionValue("threads", 1)
        self._solver.setOptionValue("presolve", "off")
        self._solver.setOptionValue("primal_feasibility_tolerance", _FEASIBILITY)
        self._solver.setOptionValue("dual_feasibility_tolerance", _FEASIBILITY)
        self.n_solved = 0

    def limit_qp(self, max_iter: int) -> None:
        """Let quadratic programs take so many iterations at most."""
        self._solver.setOptionValue("qp_iteration_limit", max_iter)

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
        A = np.atleast_2d(np.asarray(A, dtype=np.float64))
        model = highspy.HighsModel()
        lp = model.lp_
        cost = np.asarray(cost, dtype=np.float64)
        lp.num_col_ = cost.size
        lp.num_row_ = A.shape[0] if A.size else 0
        lp.col_cost_ = cost
        lp.col_lower_ = _bound(lower, cost.size)
        lp.col_upper_ = _bound(upper, cost.size)
        if lp.num_row_:
            lp.row_lower_ = _bound(row_lower, A.shape[0])
            lp.row_upper_ = _bound(row_upper, A.shape[0])
            used = A != 0.0
            lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
            lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int32)
            rows, columns = np.nonzero(used)
            lp.a_matrix_.index_ = columns.astype(np.int32)
            lp.a_matrix_.value_ = A[rows, columns]
        else:
            lp.row_lower_ = lp.row_upper_ = np.empty(0)
            lp.a_matrix_.start_ = np.zeros(1, dtype=np.int32)
        if hessian is not None:
            _set_hessian(model, np.asarray(hessian, dtype=np.float64))
        self._solver.passModel(model)
        self._solver.run()
        self.n_solved += 1
        status = self._solver.getModelStatus()
        info = self._solver.getInfo()
        solution = self._solver.getSolution()
        x = np.array(solution.col_value, dtype=np.float64)
        dual = np.array(solution.row_dual, dtype=np.float64)
        ok = status == highspy.HighsModelStatus.kOptimal and x.size == cost.size
        n_iter = max(int(info.simplex_iteration_count), 0) + max(int(info.qp_iteration_count), 0)
        message = self._solver.modelStatusToString(status)
        return Optimum(x, float(info.objective_function_value), ok, n_iter, message, dual)


def _bound(values: Any, size: int) -> FloatArray:
    return np.ascontiguousarray(np.broadcast_to(np.asarray(values, dtype=np.float64), size))


def _set_hessian(model: Any, H: FloatArray) -> None:
    """The lower triangle of H, column by column."""
    n = H.shape[0]
    model.hessian_.dim_ = n
    model.hessian_.format_ = highspy.HessianFormat.kTriangular
    start, index, value = [0], [], []
    for j in range(n):
        rows = np.flatnonzero(H[j:, j]) + j
        index.append(rows)
        value.append(H[rows, j])
        start.append(start[-1] + rows.size)
    model.hessian_.start_ = np.array(start, dtype=np.int32)
    model.hessian_.index_ = np.concatenate(index).astype(np.int32)
    model.hessian_.value_ = np.concatenate(value)


def solve_lp(cost: Any, A: Any, row_lower: Any, row_upper: Any, lower: Any, upper: Any) -> Optimum:
    """One linear program with a solver of its own."""
    return LinearProgram().solve(cost, A, row_lower, row_upper, lower, upper)


def solve_qp(
    hessian: Any, cost: Any, A: Any, row_lower: Any, row_upper: Any, lower: Any, upper: Any, max_iter: int | None = None
) -> Optimum:
    """One small convex quadratic program: min 1/2 x'Hx + cost'x (active set; it may cycle, hence `max_iter`)."""
    program = LinearProgram()
    if max_iter is not None:
        program.limit_qp(max_iter)
    return program.solve(cost, A, row_lower, row_upper, lower, upper, hessian=hessian)
