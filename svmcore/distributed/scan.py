"""What a part does for a kernel machine: pure functions of a part, its state and what the master sends.

A part keeps ``beta`` and ``field = K beta`` over its rows, 16 bytes a row, and nothing else: its rows are read by blocks
from where they are at every product. Variables and rows of all parts have names: the part's number in the high bits, their
place in it in the low ones. Products are float32 for dense rows and kernels of distances, with a bound on their error, and
float64 for everything else, or where a part is told so.
"""

from __future__ import annotations

import zlib
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from svmcore._control import Control
from svmcore._types import LANES, DualQP, FloatArray, IntArray, Kernel, KernelKind, Status
from svmcore.base.threads import one_blas_thread, split
from svmcore.distributed.parts import BLOCK, Assignment, Part, blocks, coefficients_of
from svmcore.distributed.sums import Sums, measured
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import dense_points, is_sparse, packed_rows, packed_weights, padded, sparse_points, stacked
from svmcore.kernel.products import point_product, shape_of
from svmcore.kernel.table import facts_of
from svmcore.problem import measures
from svmcore.simd import loops, packing
from svmcore.solvers import block, interior, newton
from svmcore.solvers._contract import SolverTask

_PLACE = 40  # bits of a place in a part
MOST_FEATURES = 500  # of a linear kernel; with more it is a kernel as any other
_START_TOL = 0.1  # tolerance of a part's own start, in units of the targets
_START_BYTES, _CORRECT_BYTES = 1 << 28, 1 << 29  # memory for Gram matrices there, and for those of a working set


class ScanState(NamedTuple):
    """Where a part stands."""

    beta: FloatArray
    field: FloatArray  # over the rows, padded to panels


class Change(NamedTuple):
    """What a round changes: rows with the change of their coefficients, and the new values of the variables."""

    X: Any
    coef: FloatArray
    ids: IntArray
    values: FloatArray


class Near(NamedTuple):
    """Variables near to violating, by name, each with the name of its row."""

    ids: IntArray
    rows: IntArray
    v: FloatArray
    beta: FloatArray
    lower: FloatArray
    upper: FloatArray
    diag: FloatArray


class Survey(NamedTuple):
    """What a part says of its state.

    `sums` are those of `measured`, then sum |beta| and sum beta^2; after the extremes of the residual the largest scaled norm
    of a row, and entry of the diagonal of the kernel matrix.
    """

    sums: Sums
    near: Near


def owner_of(names: IntArray) -> IntArray:
    """The parts that names belong to."""
    return names >> _PLACE


def place_of(names: IntArray) -> IntArray:
    """The places that names stand for."""
    return names & ((np.int64(1) << _PLACE) - 1)


def is_single(task: Assignment) -> bool:
    """Whether products may be computed in float32."""
    return not task.sparse and facts_of(task.kernel).exponential


def _factor(kernel: Kernel) -> float:
    """What coordinates are scaled by, so that the kernel is a power of two of their distance."""
    scale = shape_of(kernel).scale
    return float(np.sqrt(scale) if kernel.kind == KernelKind.RBF else scale)


def _panels(X: Any, task: Assignment) -> Any:
    """Rows in float32 panels, centred and scaled."""
    count = -(-len(X) // LANES)
    out, squares = np.empty((count, X.shape[1], LANES), np.float32), np.empty(count * LANES)
    rows = np.ascontiguousarray(X, dtype=np.float64)
    packing.pack_panels(rows, np.arange(len(X)), task.centre, _factor(task.kernel), 0, count, out, squares)
    return out


def _add(part: Part, X: Any, coef: FloatArray, exact: bool, n_threads: int, out: FloatArray) -> None:
    """out += K(part, X) coef. In place: out, padded to panels."""
    task = part.task
    if not X.shape[0]:
        return
    if is_single(task) and not exact:
        shape = shape_of(task.kernel)
        rows = packed_rows(_panels(X, task), np.arange(X.shape[0]))
        weights = packed_weights(rows, coef)
        for first, rows_here in blocks(part.X):
            panels = _panels(rows_here, task)
            here = out[first : first + len(panels) * LANES]
            work = float(rows.size * len(here))
            split(partial(loops.add_block, shape, rows, weights, panels, out=here), len(panels), work, n_threads)
        return
    sources = _points(X)
    for first, rows_here in blocks(part.X):
        targets = _points(rows_here)
        n = rows_here.shape[0]
        out[first : first + n] += point_product(task.kernel, targets, sources, coef, task.n_features, n_threads)


def _points(X: Any) -> Any:
    return sparse_points(X, None) if is_sparse(X) else dense_points(X.astype(np.float64), np.arange(X.shape[0]))


# ---- the start -------------------------------------------------------------------------------------------------------


def load(number: int, source: Any, task: Assignment) -> Part:
    """The part, and what it must know of its rows: the largest scaled norm."""
    part = Part(number, source, task)
    kernel = task.kernel
    if is_single(task):
        for _, rows in blocks(part.X):
            scaled = np.abs((rows.astype(np.float64) - task.centre) * _factor(kernel))
            size = scaled.sum(axis=1) if kernel.kind == KernelKind.LAPLACIAN else np.sqrt((scaled * scaled).sum(axis=1))
            part.largest = max(part.largest, float(size.max(initial=0.0)))
        part.diagonal = 1.0
    elif part.n:
        for _, rows in blocks(part.X):
            wide = rows if is_sparse(rows) else rows.astype(np.float64)
            diagonal = KernelMatrix(wide, kernel, cache_bytes=1 << 20).diagonal
            part.diagonal = max(part.diagonal, float(np.abs(diagonal).max(initial=0.0)))
    return part


@one_blas_thread
def start(part: Part, share: float, tol: float, time_left: float | None, n_threads: int) -> FloatArray:
    """The part solved by itself with `share` times its costs, divided by `share`: feasible for the whole problem.

    A part of one class has only zero to offer, and so has any where `share` is 0.
    """
    qp = part.qp
    m = len(qp.c)
    zero: FloatArray = np.zeros(m)
    if not m or not share or (qp.equality and (not (qp.lower < 0.0).any() or not (qp.upper > 0.0).any())):
        return zero
    unit = float(np.mean(np.abs(qp.c)))
    rows = part.X if is_sparse(part.X) else np.array(part.X, dtype=np.float64)
    K = KernelMatrix(rows, part.task.kernel, cache_bytes=_START_BYTES, n_threads=n_threads)
    own = qp._replace(lower=share * qp.lower, upper=share * qp.upper, diag=qp.diag / share)
    control = Control(time_limit=time_left, callback=None, verbose=0)
    raw = _solver(K).run(SolverTask(own, K, control, max(tol, _START_TOL * unit), zero))
    beta = raw.beta / share
    for bound, given in ((own.lower, qp.lower), (own.upper, qp.upper)):  # exactly at its bound is at its bound
        beta = np.where(raw.beta == bound, given, beta)
    return np.asarray(beta)


def _solver(K: KernelMatrix) -> Any:
    """For linear kernels of few features what takes as long whatever C is; else blocks."""
    if not interior.few_features(K) or K.n_features > MOST_FEATURES:
        return block
    return interior if interior.has_features(K) else newton


def support(part: Part, beta: FloatArray) -> Change:
    """The rows with a coefficient, and these; of a linear kernel over dense rows one row, which is their sum."""
    rows, coef = coefficients_of(part.qp, beta, part.n)
    if part.task.kernel.kind == KernelKind.LINEAR and not is_sparse(part.X):
        w = np.zeros((1, part.task.n_features))
        for first in range(0, len(rows), BLOCK):
            w += coef[first : first + BLOCK] @ part.X[rows[first : first + BLOCK]].astype(np.float64)
        return Change(w, np.ones(1), np.empty(0, np.int64), np.empty(0))
    return Change(part.X[rows], coef, np.empty(0, np.int64), np.empty(0))


@one_blas_thread
def begin(part: Part, beta: FloatArray, exact: bool, n_threads: int, *changes: Change) -> ScanState:
    """The field of a point of which all parts have sent their support."""
    field: FloatArray = np.zeros(padded(part.n))
    for change in changes:
        _add(part, change.X, change.coef, exact, n_threads, field)
    return ScanState(beta, field)


# ---- a round ---------------------------------------------------------------------------------------------------------


@one_blas_thread
def advance(part: Part, state: ScanState, change: Change | None, exact: bool, n_threads: int) -> ScanState:
    """The state after a round."""
    if change is None:
        return state
    beta, field = state.beta.copy(), state.field.copy()
    _add(part, change.X, change.coef, exact, n_threads, field)
    mine = owner_of(change.ids) == part.number
    beta[place_of(change.ids[mine])] = change.values[mine]
    return ScanState(beta, field)


def _residual(part: Part, state: ScanState) -> FloatArray:
    return measures.residual(part.qp, state.beta, state.field[: part.n])


def survey(part: Part, state: ScanState, bias: float, most: int, also: IntArray) -> Survey:
    """Sums of the certificate at `bias`, and the variables nearest to violating, with those that `also` names."""
    qp, beta = part.qp, state.beta
    v = _residual(part, state)
    up, down = beta < qp.upper, beta > qp.lower
    pull = np.maximum(np.where(up, v - bias, -np.inf), np.where(down, bias - v, -np.inf))
    chosen = np.argpartition(-pull, most - 1)[:most] if 0 < most < len(v) else np.arange(len(v) if most else 0)
    chosen = np.union1d(chosen, place_of(also[owner_of(also) == part.number])).astype(np.int64)
    at = measured(qp, beta, v, bias)
    sums = at._replace(
        totals=np.append(at.totals, [np.abs(beta).sum(), beta @ beta]),
        low=np.append(at.low, [0.0, 0.0]), high=np.append(at.high, [part.largest, part.diagonal]),
    )  # fmt: skip
    first = np.int64(part.number) << _PLACE
    place = first | chosen, first | qp.point[chosen]
    return Survey(sums, Near(*place, *(each[chosen] for each in (v, beta, qp.lower, qp.upper, qp.diag))))


def fetch(part: Part, rows: IntArray) -> Any:
    """Some rows, by name."""
    return part.X[place_of(rows)]


def changed(coef: FloatArray, ids: IntArray, values: FloatArray, blocks: list[Any]) -> Change:
    """What all parts must know of a round: its rows come from the parts that have them."""
    return Change(stacked(blocks), coef, ids, values)


@one_blas_thread
def correct(
    X: Any, rows: IntArray, kernel: Kernel, qp: DualQP, tol: float, n_threads: int, control: Control | None = None
) -> tuple[FloatArray, bool]:
    """The best change of some variables, whose rows are some of X, while all others stay: a dual problem, from zero.

    And whether the kernel was found not to be positive.
    """
    X = X[rows] if is_sparse(X) else np.array(X[rows], dtype=np.float64)
    K = KernelMatrix(X, kernel, cache_bytes=_CORRECT_BYTES, n_threads=n_threads)
    task = SolverTask(qp, K, control or Control(time_limit=None, callback=None, verbose=0), tol, np.zeros(len(qp.c)))
    raw = _solver(K).run(task)
    if raw.status is Status.LIMITED:
        raw = block.run(task)
    return np.asarray(raw.beta), raw.status is Status.STATIONARY


# ---- the end ---------------------------------------------------------------------------------------------------------


class Decisive(NamedTuple):
    """Variables whose exact residual could decide the violation or the bias, with their rows."""

    X: Any
    c: FloatArray
    beta: FloatArray
    lower: FloatArray
    upper: FloatArray
    diag: FloatArray


def decisive(part: Part, state: ScanState, error: float, top: float, bottom: float) -> Decisive:
    """Those that are free, or may be beyond `top` or `bottom` with residuals that are off by `error`."""
    qp, beta = part.qp, state.beta
    v = _residual(part, state)
    up, down = beta < qp.upper, beta > qp.lower
    i = np.flatnonzero((up & down) | (up & (v + error >= top)) | (down & (v - error <= bottom)))
    return Decisive(part.X[qp.point[i]], qp.c[i], beta[i], qp.lower[i], qp.upper[i], qp.diag[i])


def rows_in(found: list[Decisive]) -> Any:
    """The rows of all of them."""
    return stacked([part.X for part in found])


@one_blas_thread
def share_of_product(part: Part, state: ScanState, X: Any, n_threads: int) -> Sums:
    """What this part's support adds to the product at the rows of X, in float64."""
    own, task = support(part, state.beta), part.task
    if not own.X.shape[0]:
        return Sums(np.zeros(X.shape[0]))
    return Sums(point_product(task.kernel, _points(X), _points(own.X), own.coef, task.n_features, n_threads))


def pack(state: ScanState) -> Any:
    """The point of a part for a checkpoint; as most variables are at their bounds, it is a bit or two each."""
    return np.frombuffer(zlib.compress(state.beta.tobytes(), level=1), np.uint8)


def unpack(packed: Any) -> FloatArray:
    """The point that was packed."""
    return np.frombuffer(zlib.decompress(packed.tobytes()))


def balance(part: Part, beta: FloatArray) -> Sums:
    """Whether a point misses its boxes, the sum of its variables, and that of their sizes: what a checkpoint is asked."""
    inside = len(beta) == len(part.qp.c) and bool(((part.qp.lower <= beta) & (beta <= part.qp.upper)).all())
    return Sums(np.array([not inside, beta.sum(), np.abs(beta).sum()], dtype=np.float64))


def coefficients(part: Part, state: ScanState) -> tuple[IntArray, FloatArray]:
    """Rows with a coefficient, and these."""
    return coefficients_of(part.qp, state.beta, part.n)


def vectors(part: Part, state: ScanState) -> tuple[IntArray, FloatArray, Any]:
    """The same with their features."""
    rows, coef = coefficients(part, state)
    return rows, coef, part.X[rows]


def weights(part: Part, state: ScanState) -> FloatArray:
    """What the part adds to the weights of a linear machine."""
    own = support(part, state.beta)
    return np.asarray(own.X.T @ own.coef, dtype=np.float64).ravel()
