"""Gaussian-process regression (kernel ridge): ``(K + noise I) alpha = y`` by conjugate gradients, Cholesky or Widrow-Hoff.

Cost     one product with K an iteration: n^2 kernel values, computed again each time where K does not fit the cache and
         never stored then. Widrow-Hoff: a kernel row and n operations for each update of one weight.
Stops    residual: ``|y - A alpha| <= tol |y|``, A = K + noise I; bounds: the relative width of the bounds below <= tol.
Bounds   for any alpha with residual r, in the manner of Skilling: ``q = 2 y'alpha - alpha'A alpha`` is at most
         ``y' A^-1 y``, because A is positive definite, and ``q + r'r / noise`` is at least that, because A >= noise I.
         The same two sides bound the variance at a point.
Widrow-Hoff  ``alpha_i += eta_i (y_i - (A alpha)_i)``, sweep by sweep: gradient ascent on ``y'alpha - 1/2 alpha'A alpha``, one
         weight at a time. That is the solver "adatron" without bounds; eta_i = 1 / A_ii is the exact step. Each sweep has a
         new order, drawn with a fixed seed: in the order of the file some hundred times as many sweeps may be needed.
Reference  Cristianini and Shawe-Taylor (2000), section 7.6, table 7.3; Gibbs and MacKay (1997) for the bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from svmcore import _kernels, solvers
from svmcore._control import Callback, Control, new_control
from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._keywords import Gamma, KernelLike, checked
from svmcore._types import NONZERO, DualQP, FloatArray, Kernel, KernelKind, Raw, Status
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import aligned, dense_points, is_sparse, new_scratch, padded, sparse_points
from svmcore.kernel.products import call_kernel
from svmcore.models import archive
from svmcore.models.decision import Decision
from svmcore.problem import border
from svmcore.problem import columns as _columns
from svmcore.problem.columns import Columns, OfColumns
from svmcore.solvers._contract import SolverTask

FORMAT = "svmcore-gp-1"
_REALS = ("noise", "residual", "lower", "upper", "fit_seconds", "tol", "y_mean", "y_scale")
_WHOLES = ("n_iter", "n_kernel_evals")
SOLVERS = ("cg", "cholesky", "widrow-hoff")
STOPPING = ("residual", "bounds")
_REFRESH = 50  # iterations between two residuals computed from the data
_TIGHTER = 0.1  # what a sweep's tolerance is multiplied with where it was not enough
_CONSTANT = 1e-14  # targets that spread less, relative to the largest, are one value but for rounding
_COLUMNS = 256  # test points whose variances are computed together


class _System:
    """A = K + noise I as products; K is stored when it fits the cache."""

    def __init__(self, K: KernelMatrix, noise: float) -> None:
        self.K, self.noise = K, noise
        self.index = np.arange(K.n)
        self.gram: FloatArray | None = None
        if 8.0 * K.n**2 <= K.cache_bytes:
            self.gram = np.ascontiguousarray(K.rows(self.index))

    def __matmul__(self, vectors: FloatArray) -> FloatArray:
        if self.gram is not None:
            return np.asarray(self.gram @ vectors + self.noise * vectors)
        if vectors.ndim == 1:
            return self.K.product(self.index, vectors) + self.noise * vectors
        columns = [self.K.product(self.index, np.ascontiguousarray(column)) for column in vectors.T]
        return np.stack(columns, axis=1) + self.noise * vectors

    def dense(self) -> FloatArray:
        A = self.K.rows(self.index).copy() if self.gram is None else self.gram.copy()
        A[np.diag_indices(self.K.n)] += self.noise
        return A


def bounds(y: FloatArray, alpha: FloatArray, residual: FloatArray, noise: float) -> tuple[Any, Any]:
    """Both sides of ``y' A^-1 y`` from any alpha and its residual; columns are separate systems."""
    lower = np.sum(alpha * (y + residual), axis=0)  # 2 y'alpha - alpha'A alpha
    return lower, lower + np.sum(residual * residual, axis=0) / noise


class _ConjugateRun:
    """Conjugate gradients on one right-hand side, with its trace."""

    def __init__(self, system: _System, y: FloatArray, tol: float, stopping: str) -> None:
        self.system, self.y, self.tol, self.stopping = system, y, tol, stopping
        self.size = float(np.linalg.norm(y))
        self.trace: list[tuple[float, float, float, int]] = []

    def relative(self, residual: FloatArray) -> float:
        return float(np.linalg.norm(residual)) / max(self.size, NONZERO)

    def met(self, alpha: FloatArray, residual: FloatArray) -> bool:
        if self.stopping == "residual":
            return self.relative(residual) <= self.tol
        lower, upper = bounds(self.y, alpha, residual, self.system.noise)
        return bool(upper - lower <= self.tol * abs(upper))

    def record(self, alpha: FloatArray, residual: FloatArray) -> None:
        lower, upper = bounds(self.y, alpha, residual, self.system.noise)
        self.trace.append((self.relative(residual), float(lower), float(upper), self.system.K.n_evals))

    def solve(self, start: FloatArray, max_iter: int, control: Control, trace: bool) -> tuple[FloatArray, Status, int]:
        """Table 7.3, from any start; the residual is computed afresh now and then, and before convergence is claimed."""
        alpha = start.copy()
        residual = self.y - (self.system @ alpha) if alpha.any() else self.y.copy()
        direction = residual.copy()
        n_iter, since, best, failures = 0, 0, np.inf, 0
        while True:
            if self.met(alpha, residual):
                residual = self.y - (self.system @ alpha)
                if self.met(alpha, residual):
                    return alpha, Status.CONVERGED, n_iter
                direction, since = residual.copy(), 0
                now = self.relative(residual)
                failures = 0 if now < 0.5 * best else failures + 1
                best = min(best, now)
                if failures > 3:
                    return alpha, Status.PRECISION, n_iter
            if 0 <= max_iter <= n_iter:
                return alpha, Status.MAX_ITER, n_iter
            status = control.check(n_iter, self.relative(residual), -0.5 * float(alpha @ (self.y + residual)))
            if status is not None:
                return alpha, status, n_iter
            image = self.system @ direction
            curvature, square = float(direction @ image), float(residual @ residual)
            if curvature <= 0.0:
                return alpha, Status.LIMITED, n_iter
            step = square / curvature
            alpha += step * direction
            since += 1
            if since % _REFRESH:
                residual = residual - step * image
            else:
                residual = self.y - (self.system @ alpha)
            direction = residual + (float(residual @ residual) / square) * direction
            n_iter += 1
            if trace:
                self.record(alpha, residual)
            if n_iter > 20 * len(alpha) + 1000:
                return alpha, Status.PRECISION, n_iter


class _WidrowHoff:
    """Sweeps of single weights, by the solver that does the same for support vector machines."""

    def __init__(self, run: _ConjugateRun, rates: Any) -> None:
        self.run, self.rates = run, rates
        n, free = run.system.K.n, np.full(run.system.K.n, np.inf)
        self.qp = DualQP(run.y, -free, free, np.full(n, run.system.noise), np.arange(n), equality=False)

    def solve(self, start: FloatArray, max_iter: int, control: Control, trace: bool) -> tuple[FloatArray, Status, int]:
        """Sweep until the criterion holds: the largest residual at first small enough for its norm, then smaller."""
        run, alpha, n_iter = self.run, start, 0
        tol = max(run.tol * run.size / np.sqrt(len(start)), NONZERO)
        while True:
            most = max_iter if max_iter < 0 else max_iter - n_iter
            task = SolverTask(self.qp, run.system.K, control, tol, alpha, max_iter=most, trace=trace)
            raw: Raw = solvers.load("adatron").run(task, order="random", learning_rate=self.rates, face_steps=False)
            alpha, n_iter = raw.beta, n_iter + raw.n_iter
            if raw.trace is not None:  # bounds need the whole residual, which sweeps do not have at hand
                values = zip(raw.trace["objective"], raw.trace["n_kernel_evals"], strict=True)
                run.trace += [(np.nan, -2.0 * objective, np.inf, int(count)) for objective, count in values]
            if not raw.status.ok or run.met(alpha, run.y - (run.system @ alpha)):
                return alpha, raw.status, n_iter
            tol *= _TIGHTER


def _many(system: _System, B: FloatArray, tol: float) -> tuple[FloatArray, FloatArray]:
    """A^-1 B by simultaneous conjugate gradients: the solutions and their residuals."""
    X = np.zeros_like(B)
    R = B.copy()
    P = B.copy()
    target = tol * np.linalg.norm(B, axis=0)
    for n_iter in range(20 * len(B) + 1000):
        live = np.flatnonzero(np.linalg.norm(R, axis=0) > target)
        if not len(live):
            break
        image = system @ np.ascontiguousarray(P[:, live])
        square = np.sum(R[:, live] ** 2, axis=0)
        curvature = np.sum(P[:, live] * image, axis=0)
        step = np.where(curvature > 0.0, square / np.where(curvature > 0.0, curvature, 1.0), 0.0)
        X[:, live] += step * P[:, live]
        R[:, live] -= step * image
        P[:, live] = R[:, live] + (np.sum(R[:, live] ** 2, axis=0) / square) * P[:, live]
        if n_iter > len(B) and (curvature <= 0.0).all():
            break
    return X, B - (system @ X)


def _cholesky(system: _System, y: FloatArray) -> FloatArray:
    """A^-1 y, dense."""
    n = system.K.n
    border.memory(16.0 * n**2, f"a dense {n} x {n} system", "use solver='cg'")
    try:
        return np.asarray(linalg.solve(system.dense(), y, assume_a="pos", check_finite=False))
    except linalg.LinAlgError:
        raise InputError(
            f"K + noise I is not positive definite with noise={system.noise:g}; use a positive semi-definite kernel, "
            "or more noise"
        ) from None


@dataclass(frozen=True, eq=False, repr=False)
class GPSolution(OfColumns):
    """A trained Gaussian process.

    Attributes
    ----------
    alpha : (n,) the weights: the mean is ``sum_i alpha_i k(x_i, x)``.
    noise : the variance of the noise, added to the diagonal of K.
    residual : ``|y - A alpha| / |y|``, recomputed from the data.
    lower, upper : bounds on ``y' A^-1 y``.
    y_mean, y_scale : of the targets, where `normalize_y` was asked for; else 0 and 1. `alpha` and the bounds are those of
        ``(y - y_mean) / y_scale``, predictions are in the units of y.
    status, converged, n_iter, n_kernel_evals, fit_seconds, solver, trace : the course of the run.
    """

    alpha: FloatArray
    noise: float
    residual: float
    lower: float
    upper: float
    status: Status
    converged: bool
    n_iter: int
    n_kernel_evals: int
    fit_seconds: float
    solver: str
    kernel: Kernel
    X: Any
    columns: Columns
    tol: float
    y_mean: float = 0.0
    y_scale: float = 1.0
    function: Callable[[Any, Any], Any] | None = None
    n_threads: int = 1
    cache_bytes: int = 0
    trace: dict[str, NDArray[Any]] | None = None
    _kept: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"<GPSolution: {len(self.alpha)} points, {self.solver}, residual {self.residual:.1e}, "
            f"{self.n_iter} iterations, {self.status.name.lower()}>"
        )

    def _checked(self, X: Any) -> Any:
        X = self.columns.apply(X)
        if self.function is None and self.kernel.kind != KernelKind.PRECOMPUTED and is_sparse(X) != is_sparse(self.X):
            from scipy import sparse

            X = sparse.csr_matrix(X) if is_sparse(self.X) else X.toarray()
        return X

    def save(self, file: Any) -> None:
        """Write the process to an .npz file that `svmcore.load` reads, training data included. Nothing is pickled."""
        archive.write(file, self.fields())

    def fields(self) -> dict[str, Any]:
        """The process as the arrays of a file."""
        archive.refuse("process", self.function)
        numbers = {name: np.array(getattr(self, name)) for name in (*_REALS, *_WHOLES)}
        return {
            "format": np.array(FORMAT), **archive.kernel_fields(self.kernel), **numbers, "alpha": self.alpha,
            "status": np.array(self.status.name), "solver": np.array(self.solver),
            **_columns.stored(self.columns), **_columns.feature_fields(self.X),
        }  # fmt: skip

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean at every row of X; with `return_std` also the standard deviation of the function there (no noise)."""
        X = self._checked(X)
        if "decision" not in self._kept:
            self._kept["decision"] = Decision(self.X, self.alpha, self.kernel, self.function)
        mean: FloatArray = self._kept["decision"](X, self.n_threads) * self.y_scale + self.y_mean
        if not return_std:
            return mean
        return mean, np.sqrt(np.maximum(self._variances(X)[1], 0.0))

    def variance(self, X: Any, *, bounded: bool = False) -> Any:
        """``k(x, x) - k' A^-1 k`` at every row of X, without noise; `bounded`: its (lower, upper) sides instead.

        A process of a precomputed kernel does not know k(x, x) of new points and refuses.
        """
        low, value = self._variances(self._checked(X))
        return (low, value) if bounded else value

    @one_blas_thread
    def _variances(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Both sides of the variance at rows that are checked already; the upper one is what is known for sure."""
        if self.kernel.kind == KernelKind.PRECOMPUTED:
            raise InputError("the variance needs k(x, x), which a precomputed kernel does not give; pass the features")
        prior = KernelMatrix(X, self.kernel, self.function, cache_bytes=0, n_threads=1).diagonal
        system = self._system()
        sides = np.empty((2, X.shape[0]))
        for start in range(0, X.shape[0], _COLUMNS):
            B = self._cross(X[start : start + _COLUMNS]).T
            if self.solver == "cholesky":
                solved = linalg.cho_solve(self._factor(), B)
                residual = np.zeros_like(B)
            else:
                solved, residual = _many(system, np.ascontiguousarray(B), self.tol)
            low, high = bounds(B, solved, residual, self.noise)
            sides[0, start : start + _COLUMNS] = low
            sides[1, start : start + _COLUMNS] = high
        return self.y_scale**2 * (prior - sides[1]), self.y_scale**2 * (prior - sides[0])

    def _cross(self, X: Any) -> FloatArray:
        """k(test, training)."""
        if self.function is not None:
            return call_kernel(self.function, X, self.X, 0.0)
        pack = sparse_points if is_sparse(X) else dense_points
        rows = np.arange(X.shape[0])
        out = aligned((X.shape[0], padded(self.X.shape[0])))
        target = pack(self.X, np.arange(self.X.shape[0]))
        _kernels.kernel_block(self.kernel, pack(X, rows), rows, target, new_scratch(self.n_features), out)
        return np.ascontiguousarray(out[:, : self.X.shape[0]])

    def _system(self) -> _System:
        if "system" not in self._kept:
            K = KernelMatrix(self.X, self.kernel, self.function, cache_bytes=self.cache_bytes, n_threads=self.n_threads)
            self._kept["system"] = _System(K, self.noise)
        return self._kept["system"]  # type: ignore[no-any-return]

    def _factor(self) -> Any:
        if "factor" not in self._kept:
            self._kept["factor"] = linalg.cho_factor(self._system().dense(), lower=True, check_finite=False)
        return self._kept["factor"]


def _spread(y: FloatArray) -> tuple[float, float]:
    """Mean and standard deviation of the targets; a deviation of rounding size counts as 1."""
    mean = float(y.mean())
    scale = float(np.sqrt(np.mean((y - mean) ** 2)))
    return mean, scale if scale > _CONSTANT * float(np.abs(y).max(initial=0.0)) else 1.0


def _rates(solver: str, given: Any, n: int) -> Any:
    """The learning rates, checked as those of the solver that uses them."""
    if given is None:
        return None
    if solver != "widrow-hoff":
        raise InputError(f"learning_rate belongs to solver='widrow-hoff'; solver={solver!r} has none")
    solvers.check_options("adatron", {"learning_rate": given})
    solvers.check_lengths("adatron", {"learning_rate": given}, n)
    return given


def assembled(parts: dict[str, Any]) -> GPSolution:
    """The process from the arrays that `GPSolution.save` wrote."""
    kernel = archive.read_kernel(parts)
    X, alpha = _columns.stored_features(parts), parts["alpha"].astype(np.float64)
    if X.ndim != 2 or alpha.shape != (X.shape[0],) or not len(alpha):
        raise ValueError("weights and training points do not belong together")
    reals: dict[str, Any] = {name: float(parts[name]) for name in _REALS}
    wholes: dict[str, Any] = {name: int(parts[name]) for name in _WHOLES}
    status, solver = Status[str(parts["status"])], str(parts["solver"])
    if solver not in SOLVERS or not (reals["noise"] > 0.0 and reals["tol"] > 0.0 and reals["y_scale"] > 0.0):
        raise ValueError(f"it names the solver {solver!r} and noise {reals['noise']}")
    columns = _columns.read(parts, X.shape[1], kernel.kind == KernelKind.PRECOMPUTED)
    return GPSolution(
        alpha=alpha,
        status=status,
        converged=status.ok,
        solver=solver,
        kernel=kernel,
        X=X,
        columns=columns,
        **reals,
        **wholes,
    )


@checked()
def gp_regression(
    X: Any,
    y: Any,
    *,
    noise: float,
    kernel: KernelLike = "rbf",
    gamma: Gamma = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    standardize: bool = False,
    normalize_y: bool = False,
    feature_names: Any = None,
    solver: str = "cg",
    learning_rate: Any = None,
    tol: float = 1e-6,
    stopping: str = "residual",
    max_iter: int = -1,
    time_limit: float | None = None,
    cache_mb: float | None = None,
    n_threads: int | None = None,
    alpha0: Any = None,
    callback: Callback | None = None,
    verbose: int = 0,
    trace: bool = False,
) -> GPSolution:
    """Gaussian-process regression with a zero mean function: solve ``(K + noise I) alpha = y``.

    Parameters
    ----------
    X, y : n points and their targets. kernel, gamma, degree, coef0 : as in `train_svc`.
    noise : the variance of the noise, greater than 0.
    standardize, feature_names : as in `train_svc`.
    normalize_y : give the targets mean 0 and variance 1 first; `noise` is then that of the scaled targets.
    solver : "cg" (never stores K where it does not fit `cache_mb`), "cholesky" (dense, for small n) or "widrow-hoff" (one
        weight at a time; `n_iter` counts updates, and its trace has the lower bound only).
    learning_rate : of "widrow-hoff", one for all points or one for each. None: the exact step, 1 / (k(x, x) + noise).
    tol, stopping : "residual" (``|y - A alpha| <= tol |y|``) or "bounds" (relative width of the bounds on y'A^-1 y).
    alpha0 : weights to start from.
    max_iter, time_limit, cache_mb, n_threads, callback, verbose, trace : as in `train_svc`.

    Examples
    --------
    >>> import numpy as np, svmcore
    >>> X = np.linspace(0.0, 6.0, 30).reshape(-1, 1)
    >>> gp = svmcore.gp_regression(X, np.sin(X).ravel(), noise=1e-2, gamma=0.5)
    >>> bool(abs(gp.predict([[1.5]])[0] - np.sin(1.5)) < 0.05), gp.lower <= gp.upper
    (True, True)
    """
    solver = border.choice("solver", solver, SOLVERS)
    stopping = border.choice("stopping", stopping, STOPPING)
    noise = border.number("noise", noise, low=0.0, strict=True)
    tol = border.number("tol", tol, low=0.0, strict=True)
    max_iter = border.integer("max_iter", max_iter, low=-1)
    names = _columns.names_of(X, feature_names)
    X = border.gram(X) if isinstance(kernel, str) and kernel == "precomputed" else border.features(X)
    given = border.vector(y, "y", X.shape[0])
    y_mean, y_scale = _spread(given) if border.flag("normalize_y", normalize_y) else (0.0, 1.0)
    targets = (given - y_mean) / y_scale
    columns, X = _columns.fitted(X, None, standardize, names, kernel)
    rates = _rates(solver, learning_rate, X.shape[0])
    spec = border.kernel(kernel, X, gamma, degree, coef0, 0.0, None)
    start = np.zeros(X.shape[0]) if alpha0 is None else border.vector(alpha0, "alpha0", X.shape[0]).copy()
    cache, threads = border.cache_bytes(cache_mb), border.threads(n_threads)
    with new_control("gp", time_limit, callback, verbose) as control, one_blas_thread:
        K = KernelMatrix(X, spec.kernel, spec.function, cache_bytes=cache, n_threads=threads)
        system = _System(K, noise)
        run = _ConjugateRun(system, targets, tol, stopping)
        if solver == "cholesky":
            alpha = _cholesky(system, targets)
            status, n_iter = Status.CONVERGED, 1
        else:
            way = _WidrowHoff(run, rates) if solver == "widrow-hoff" else run
            alpha, status, n_iter = way.solve(start, max_iter, control, border.flag("trace", trace))
        residual = targets - (system @ alpha)
        seconds = control.seconds
    lower, upper = bounds(targets, alpha, residual, noise)
    if solver == "cholesky" and not run.met(alpha, residual):
        status = Status.PRECISION
    if not status.ok:
        warn(
            f"{status}: residual {run.relative(residual):.1e} (tol {tol:g}). Remedy: raise the limit, tol or noise.",
            ConvergenceWarning,
        )  # fmt: skip
    records = np.array(run.trace).reshape(-1, 4).T
    measured = ("residual", "lower", "upper", "n_kernel_evals")
    solution = GPSolution(
        alpha=alpha, noise=noise, residual=run.relative(residual), lower=float(lower), upper=float(upper),
        status=status, converged=status.ok, n_iter=n_iter, n_kernel_evals=K.computed[0], fit_seconds=seconds, solver=solver,
        kernel=spec.kernel, X=X, columns=columns, tol=tol, y_mean=y_mean, y_scale=y_scale, function=spec.function,
        n_threads=threads, cache_bytes=K.cache_bytes, trace=dict(zip(measured, records, strict=True)) if trace else None,
    )  # fmt: skip
    if K.function is spec.function and K.kernel == spec.kernel:
        solution._kept["system"] = system
    return solution
