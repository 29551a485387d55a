"""`svm_path`: the solution of the C-SVC for every C, followed exactly, with a certificate.

check -> merge duplicates -> start at the largest lambda -> track (`_follow` or `_path_paper`) -> `Path`.

Lambda = 1 / C. In the hat variables beta = lambda y alpha the boxes [0, y weight] do not move and everything is
piecewise linear in lambda (Hastie et al. 2004; Ong, Shao and Yang: multi-dimensional steps for any data).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from svmcore import _check, solvers
from svmcore._columns import names_of
from svmcore._control import Control, Part, new_control
from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._follow import GAP, Record, Tracker
from svmcore._keywords import Gamma, KernelLike, checked
from svmcore._path_measure import check_path
from svmcore._path_paper import PaperTracker, PublishedOptions
from svmcore._rows import RowStore
from svmcore._scales import warn_of_scales
from svmcore._threads import one_blas_thread
from svmcore._types import DualQP, FloatArray, IntArray, Kernel, KernelKind
from svmcore._window import WindowTracker
from svmcore.gram import KernelMatrix, is_sparse
from svmcore.path_result import Data, Groups, Path, Track
from svmcore.solve import svc_problem

FACTORIZATIONS = ("auto", "svd", "qr", "update")
_CACHE_SHARE = 0.4  # of the free memory, for kernel rows
_CACHE_LIMIT = 4e9
_SMALL = 1 << 25
"""Bytes of a kernel matrix for which nobody asks how much memory is free."""
_WARN_GAP = 1e-6
_ROUNDING = 1e-15
"""SMO of the published modes is asked for no more than this, relative to the kernel's scale."""
_MEASURED = (2, 12, 64)
"""Stretches of a path by the fast tracker at which it is measured: at least, at most, one in so many."""
_SMO_STEPS = 20.0
"""Steps per point that it may take; the fast tracker removes what is left."""
_LAMBDA_MIN = 1e-3
_FOR_ROWS = 0.5
"""Share of a time limit beyond which the whole kernel matrix is given up for rows on demand."""
_ROUGH = 1e-6
"""The fast tracker's start by SMO, relative to the kernel's scale: the tracker does the rest faster than SMO."""


class PathProgress(NamedTuple):
    """What a callback receives. Return True (or any true value) from the callback to end the path here."""

    lambda_: float
    n_events: int
    elbow: int
    done: float
    """Share of the way, in log lambda."""
    seconds: float


@checked()
def svm_path(
    X: Any,
    y: Any,
    *,
    kernel: KernelLike = "rbf",
    gamma: Gamma = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    loss: Literal["hinge"] = "hinge",
    fit_intercept: bool = True,
    intercept_scaling: float | None = None,
    standardize: bool = False,
    feature_names: Any = None,
    sample_weight: Any = None,
    class_weight: Any = None,
    lambda_max: float | None = None,
    lambda_min: float = _LAMBDA_MIN,
    C_min: float | None = None,
    C_max: float | None = None,
    factorization: Literal["auto", "svd", "qr", "update"] = "auto",
    published: PublishedOptions | None = None,
    merge_tol: float = 0.0,
    max_events: int | None = None,
    time_limit: float | None = None,
    cache_mb: float | None = None,
    n_threads: int | None = None,
    callback: Callable[[PathProgress], Any] | None = None,
    verbose: int = 0,
) -> Path:
    """Follow the optimal C-SVC for every C from 1 / lambda_max to 1 / lambda_min.

    Parameters
    ----------
    X, y, kernel, gamma, degree, coef0, fit_intercept, intercept_scaling, standardize, feature_names, sample_weight,
        class_weight : as in `train_svc`. The loss is the hinge: the squared hinge's path is not piecewise linear.
    lambda_max, lambda_min : the ends, lambda = 1 / C. None: the largest lambda at which anything happens; the path
        then answers for every smaller C too. C_min, C_max : the same ends in terms of C, in their place.
    factorization : "auto", the fast tracker; or the algorithm of Ong, Shao and Yang as published, with the rank of the
        system from its SVD ("svd"), from QR with column pivoting ("qr"), or from updated QR where it is known ("update").
    published : tolerances and switches of the published algorithm, a `PublishedOptions`; "auto" takes none.
    merge_tol : points of which no feature differs by more than this are made equal first (0: only exact duplicates
        are merged, which changes nothing).
    max_events, time_limit, callback : limits. Whatever ends a run, Ctrl-C included, the path is valid down to there.
    cache_mb : memory for kernel rows (default: the whole kernel matrix when it fits into 40 % of the free memory).
    n_threads, verbose : threads for kernel products; progress lines on stderr.

    Returns
    -------
    Path

    Examples
    --------
    >>> import svmcore
    >>> path = svmcore.svm_path([[0.0], [1.0], [4.0], [5.0]], [-1, -1, 1, 1], kernel="linear", lambda_min=0.1)
    >>> [round(float(v), 6) for v in path.lambdas]
    [20.0, 7.5, 6.0, 4.5, 0.1]
    >>> path.alpha(1.0).round(6).tolist()
    [0.0, 0.222222, 0.222222, 0.0]
    """
    if loss == "squared_hinge":  # type: ignore[comparison-overlap]
        raise InputError(
            'loss="squared_hinge" has no piecewise linear path, since K + lambda I moves; use the hinge, or train_svc'
        )
    _check.choice("loss", loss, ("hinge",))
    begin = time.perf_counter()
    mode = _check.choice("factorization", factorization, FACTORIZATIONS)
    options = _published_options(published, mode)
    high, low = _ends(lambda_max, lambda_min, C_min, C_max)
    threads = _check.threads(n_threads)
    if max_events is not None:
        max_events = _check.integer("max_events", max_events, low=0)
    control = new_control("path", time_limit, callback, verbose)
    names = names_of(X, feature_names)
    X = _snapped(X, _check.number("merge_tol", merge_tol, low=0.0), kernel)
    problem = svc_problem(
        X, y, 1.0, kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, fit_intercept=fit_intercept,
        intercept_scaling=intercept_scaling, sample_weight=sample_weight, class_weight=class_weight,
        standardize=standardize, feature_names=names,
    )  # fmt: skip
    prepared = time.perf_counter()
    path = follow(problem, Way(high, low, mode, max_events, cache_mb, threads), control, options)
    path.stats["seconds"]["check"] += prepared - begin
    path.stats["seconds"]["total"] += prepared - begin
    _speak(path)
    warn_of_scales(problem.X, problem.spec.kernel, problem.by_scale, names=problem.columns.names)
    return path


class Way(NamedTuple):
    """How to follow a path, checked: its ends in lambda, its tracker, its limits."""

    high: float | None
    low: float
    mode: str = "auto"
    max_events: int | None = None
    cache_mb: float | None = None
    threads: int = 1


def follow(
    problem: Any, way: Way, control: Control, options: PublishedOptions | None = None, gram: FloatArray | None = None
) -> Path:
    """The path of a checked problem, without a word about how it ended.

    `options` are those of a published algorithm; `gram`: the kernel among all points without offset, where somebody has it.
    """
    begin = time.perf_counter()
    if gram is not None:
        problem = problem._replace(centre=None)
    data = _merge(problem, way.threads, together=way.mode == "auto")
    watch = _Watch(control, way.low)
    with control, one_blas_thread:
        K = _kernel(data, way.cache_mb) if gram is None else _kernel_from(gram, data)
        prepared = time.perf_counter()
        if options is None:
            record, top, store = _auto(data, K, way, watch)
        else:
            record, top, store = _paper(data, K, way, watch, options)
        path = _assemble(data, record, top)
        path.stats |= {"factorization": way.mode, "n_kernel_evals": K.n_evals if gram is None else 0}
        tracked = time.perf_counter()
        path.stats |= _checked(path, store, way.mode, control)
        path.stats["seconds"]["measure"] = time.perf_counter() - tracked
    path.stats["seconds"] |= {"check": prepared - begin, "total": time.perf_counter() - begin}
    return path


def _published_options(published: Any, mode: str) -> PublishedOptions | None:
    """The options of a published mode; None for the fast tracker."""
    if published is None:
        return None if mode == "auto" else PublishedOptions()
    if not isinstance(published, PublishedOptions):
        raise InputError(
            f"published={published!r} is no PublishedOptions; give svmcore.PublishedOptions(check=False, ...)"
        )
    if mode == "auto":
        raise InputError('published= is for factorization="svd", "qr" or "update"; "auto" takes none of its options')
    for name in ("rank_tol", "start_tol", "backup_tol", "kkt_tol", "rate_tol", "step_tol"):
        _check.number(name, getattr(published, name), low=0.0, strict=True)
    _check.number("back", published.back, low=0.0, high=0.9, strict=True)
    _check.integer("most_blocked", published.most_blocked, low=1)
    return published


def _ends(lambda_max: Any, lambda_min: Any, C_min: Any, C_max: Any) -> tuple[float | None, float]:
    """Both ends in lambda, the larger one or None first, whichever way they were given."""
    for C, C_name, value, name in (
        (C_max, "C_max", lambda_min if lambda_min != _LAMBDA_MIN else None, "lambda_min"),
        (C_min, "C_min", lambda_max, "lambda_max"),
    ):
        if C is not None and value is not None:
            raise InputError(
                f"{C_name}={C!r} and {name}={value!r} say the same, since C = 1 / lambda; give one of them"
            )
    if C_max is None:
        low = _check.number("lambda_min", lambda_min, low=0.0, strict=True)
    else:
        low = 1.0 / _check.cost(C_max, "C_max", infinite=False)
    if C_min is None:
        return None if lambda_max is None else _check.number("lambda_max", lambda_max, low=low), low
    high = 1.0 / _check.cost(C_min, "C_min", infinite=False)
    if high < low:
        raise InputError(f"C_min={C_min!r} lies above the other end, C = {1.0 / low:g}; give a larger C_max")
    return high, low


# ---- the data --------------------------------------------------------------------------------------------------------


def _snapped(X: Any, tol: float, kernel: Any) -> Any:
    """X with near-duplicates made equal: points that round to the same multiples of `tol` take the first one's values."""
    if tol == 0.0:
        return X
    if isinstance(kernel, str) and kernel == "precomputed":
        raise InputError('merge_tol compares features; with kernel="precomputed" merge the points before')
    X = _check.features(X)
    if is_sparse(X):
        raise InputError("merge_tol needs a dense X; convert with X.toarray()")
    _, first, of = np.unique(np.round(X / tol) + 0.0, axis=0, return_index=True, return_inverse=True)
    return X[first[np.reshape(of, -1)]]


def _row_keys(X: Any, signs: FloatArray) -> Any:
    """One comparable key per row: equal keys are equal rows of equal label."""
    if is_sparse(X):
        X = X.copy()
        X.sort_indices()
        X.eliminate_zeros()
        numbers: dict[tuple[bytes, bytes, float], int] = {}  # rows of one hash are compared, value by value
        ends = zip(X.indptr[:-1], X.indptr[1:], signs.tolist(), strict=True)
        keys = ((X.indices[a:b].tobytes(), X.data[a:b].tobytes(), sign) for a, b, sign in ends)
        return np.array([numbers.setdefault(key, len(numbers)) for key in keys])
    rows = np.empty((X.shape[0], X.shape[1] + 1))
    rows[:, :-1] = X
    rows[:, -1] = signs
    rows += 0.0  # -0.0 equals 0.0
    return rows.view(np.dtype((np.void, rows.shape[1] * 8))).ravel()


def _merge(problem: Any, n_threads: int, together: bool) -> Data:
    """Duplicates of equal label become one variable whose box is the sum of theirs: the same problem, smaller.

    The published algorithm keeps them apart (`together` is False), as its tables do.
    """
    qp: DualQP = problem.qp
    n = problem.X.shape[0]
    weights = np.zeros(n)
    signs = np.ones(n)
    weights[qp.point] = qp.upper - qp.lower
    signs[qp.point] = qp.c
    key = _row_keys(problem.X, signs) if together else np.arange(n)
    kept = qp.point
    _, first, of = np.unique(key[kept], return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")  # variables in order of first appearance
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    group = np.full(n, -1, dtype=np.int64)
    group[kept] = rank[np.reshape(of, -1)]
    total = np.bincount(group[kept], weights=weights[kept], minlength=order.size)
    share = np.zeros(n)
    share[kept] = weights[kept] / total[group[kept]]
    groups = Groups(group, share, kept[first[order]], np.bincount(group[kept], minlength=order.size))
    columns = replace(problem.columns, centre=problem.centre)
    return Data(problem.points, signs, weights, problem.spec, problem.classes, qp.equality, groups, n_threads, columns)


def _kernel(data: Data, cache_mb: float | None) -> KernelMatrix:
    """The kernel of the variables."""
    first = data.groups.first
    if cache_mb is None and 8 * first.size**2 <= _SMALL:
        budget = float(_SMALL)
    elif cache_mb is None:
        budget = min(_CACHE_SHARE * _check.available_bytes(), _CACHE_LIMIT)
    else:
        budget = 1e6 * _check.number("cache_mb", cache_mb, low=0.0, strict=True)
    X = data.X
    if data.spec.kernel.kind == KernelKind.PRECOMPUTED:
        X = np.ascontiguousarray(X[np.ix_(first, first)])
    elif first.size < X.shape[0]:
        X = X[first]
    return KernelMatrix(X, data.spec.kernel, data.spec.function, cache_bytes=int(budget), n_threads=data.n_threads)


def _kernel_from(gram: FloatArray, data: Data) -> KernelMatrix:
    """The kernel of the variables out of that of all points."""
    first = data.groups.first
    if first.size < gram.shape[0]:
        gram = gram[np.ix_(first, first)]
    kernel = Kernel(int(KernelKind.PRECOMPUTED), 1.0, 0.0, 1, data.spec.kernel.offset)
    return KernelMatrix(gram, kernel, cache_bytes=gram.nbytes, n_threads=data.n_threads)


class Variables(NamedTuple):
    """The tracker's problem: slope, boxes, and whether their sum is zero."""

    c: FloatArray
    lower: FloatArray
    upper: FloatArray
    equality: bool


def _variables(data: Data) -> Variables:
    groups = data.groups
    real = groups.of >= 0
    size = np.bincount(groups.of[real], weights=data.weights[real], minlength=groups.first.size)
    c = data.signs[groups.first]
    return Variables(c, np.where(c > 0, 0.0, -size), np.where(c > 0, size, 0.0), data.equality)


# ---- the start -------------------------------------------------------------------------------------------------------


class Top(NamedTuple):
    """Where the path begins. `open_top`: above it nothing happens, and the bias grows by `bias_slope` per unit lambda.

    `found`: the first event, somewhat below, is what the user wants to see as the first breakpoint.
    """

    lam: float
    open_top: bool
    bias_slope: float
    found: bool = False


class _Smo(NamedTuple):
    """SMO on the path's problem, with other linear terms and boxes, for at most `most` steps per variable."""

    K: KernelMatrix
    v: Variables
    control: Control
    most: float = 200.0

    def solve(self, c: FloatArray, lower: FloatArray, upper: FloatArray, start: FloatArray, tol: float) -> FloatArray:
        """The solution; the point that was reached when the control stops it."""
        qp = DualQP(c, lower, upper, np.zeros(c.size), np.arange(c.size), self.v.equality)
        raw = solvers.load("smo").run(
            qp, self.K, control=Part(self.control, "looking for the start"), tol=tol, stopping="kkt",
            max_iter=int(self.most * (c.size + 500)), start=start, seed=0, trace=False,
        )  # fmt: skip
        return np.asarray(raw.beta)

    def at(self, lam: float, start: FloatArray, tol: float) -> FloatArray:
        """The solution at one lambda."""
        v = self.v
        return self.solve(lam * v.c, v.lower, v.upper, np.clip(start, v.lower, v.upper), tol)


def _excess(v: Variables) -> float:
    """By how much the positive class outweighs the other; zero when they balance, or need not."""
    excess = float(np.where(v.c > 0, v.upper, v.lower).sum()) if v.equality else 0.0
    return excess if abs(excess) > 1e-14 * float(np.sum(v.upper - v.lower)) else 0.0


def _majority_at_zero(v: Variables) -> FloatArray:
    """The start (55): every value at its label's bound, and the first points of the heavier class at zero to balance."""
    beta = np.where(v.c > 0, v.upper, v.lower)
    excess = float(beta.sum())
    if not v.equality or excess == 0.0:
        return beta
    heavy = np.flatnonzero(v.c == np.sign(excess))
    size = np.abs(beta[heavy])
    taken = np.minimum(size, np.maximum(abs(excess) - (np.cumsum(size) - size), 0.0))
    beta[heavy] -= np.sign(excess) * taken
    return beta


def _limit_solution(smo: _Smo, tol: float) -> tuple[FloatArray, Top]:
    """The solution for every large lambda, to a relative `tol`, and the lambda down to which it holds.

    For large lambda the lighter class sits at its bounds, and the heavier one minimises 1/2 b'Kb under its share of
    the sum: the linear term is constant on it.
    """
    K, v = smo.K, smo.v
    beta = _majority_at_zero(v)
    s = float(np.sign(_excess(v)))
    heavy = v.c == s
    if s != 0.0:
        lower, upper = np.where(heavy, v.lower, beta), np.where(heavy, v.upper, beta)
        scale = float(np.max(K.diagonal, initial=0.0)) * float(np.sum(v.upper - v.lower))
        beta = smo.solve(np.zeros(v.c.size), lower, upper, beta, max(tol * scale, 1e-300))
        smo.control.demand()
    index = np.flatnonzero(beta)
    f = np.array(K.product(index, beta[index]))
    if not v.equality:
        return beta, Top(float(np.max(v.c * f)), True, 0.0)
    plus, minus = v.c > 0, v.c < 0
    if s == 0.0:
        return beta, Top(0.5 * float(f[plus].max() - f[minus].min()), True, 0.0)
    width = v.upper - v.lower
    inside = heavy & (beta > v.lower + 1e-9 * width) & (beta < v.upper - 1e-9 * width)
    if inside.any():
        level = float(f[inside].mean())
    else:  # the heavier class at a vertex: its level lies between the two sides
        at_bound = heavy & (np.abs(beta) > 0.5 * width)
        at_zero = heavy & ~at_bound
        ends = [float((s * f)[at_bound].max(initial=-np.inf)), float((s * f)[at_zero].min(initial=np.inf))]
        level = s * float(np.mean([e for e in ends if np.isfinite(e)]))
    return beta, Top(float(np.max(0.5 * s * (level - f[~heavy]))), True, s)


def _begin(tracker: Tracker, smo: _Smo, high: float | None, low: float) -> Top:
    """Put the tracker at the top of the path: at `high`, or (None) safely above the first event."""
    K, v = smo.K, smo.v
    if high is not None:
        scale = float(np.max(K.diagonal, initial=0.0)) * float(np.sum(v.upper - v.lower))
        tol = max(1e-8 * high, min(1e-6 * high, _ROUGH * scale))
        _settle(tracker, high, smo.at(high, _majority_at_zero(v), tol), smo.control)
        slope = float(np.sign(_excess(v)))
        is_open = _at_rest(tracker.S.beta, v, slope)
        return Top(high, is_open, slope if is_open else 0.0)
    beta, top = _limit_solution(smo, _ROUGH)
    lam = 2.0 * max(top.lam, low)
    for attempt in range(8):
        _settle(tracker, lam, beta, smo.control)
        is_open = _at_rest(tracker.S.beta, v, top.bias_slope)
        if is_open or attempt == 7:
            break
        lam *= 2.0  # the first event was misjudged: the limit solution is only as good as its solver
    return Top(lam, is_open, top.bias_slope if is_open else 0.0, is_open)


def _settle(tracker: Tracker, lam: float, beta: FloatArray, control: Control) -> None:
    control.demand()
    gap = tracker.settle(lam, beta)
    if not gap <= GAP:
        tracker.improve(gap)
    control.demand()


def _at_rest(beta: FloatArray, v: Variables, slope: float) -> bool:
    """Whether nothing changes for larger lambda: all points outside the heavier class are at their labels' bounds."""
    light = v.c != slope
    return bool(np.array_equal(beta[light], np.where(v.c > 0, v.upper, v.lower)[light]))


# ---- the two ways to follow it -----------------------------------------------------------------------------------------


class _Watch:
    """Limits, progress and callback, looked at between slices of work."""

    def __init__(self, control: Control, lam_end: float) -> None:
        self.control = control
        self.lam_end = lam_end
        self.lam_start: float | None = None

    def __call__(self, tracker: Any) -> str | None:
        lam = tracker.lam
        if self.lam_start is None:
            self.lam_start = lam
        way = np.log(self.lam_start / self.lam_end) if self.lam_start > self.lam_end else 1.0
        done = float(min(1.0, np.log(self.lam_start / lam) / way)) if lam > 0 else 1.0
        status = self.control.poll(
            PathProgress(lam, tracker.n_events, tracker.m, done, self.control.seconds),
            lambda: (
                f"lambda {lam:.3e} ({100 * done:3.0f} % of the way in log lambda), {tracker.n_events} events, "
                f"{tracker.m} on the margin"
            ),
        )
        return None if status is None else status.name.lower()


def _auto(data: Data, K: KernelMatrix, way: Way, watch: _Watch) -> tuple[Record, Top, RowStore]:
    """The fast tracker."""
    v, control = _variables(data), watch.control
    clock = time.perf_counter()
    kind = data.spec.kernel.kind
    smooth = kind in (KernelKind.RBF, KernelKind.LAPLACIAN)
    tracker = WindowTracker(
        K, v.c, v.lower, v.upper, equality=v.equality, budget=float(K.cache_bytes), batch=smooth,
        solver=lambda lam, beta: smo.at(lam, beta, 1e-9 * lam), go_on=lambda: control.reason() is None,
        rows_while=_while_worth(control),
    )  # fmt: skip
    smo: _Smo = _Smo(_stored(tracker.store, K), v, control)
    seconds = {"kernel": time.perf_counter() - clock}
    clock = time.perf_counter()
    with control.beginning():
        top = _begin(tracker, smo, way.high, way.low)
    seconds["start"] = time.perf_counter() - clock
    clock = time.perf_counter()
    tracker.start_record()
    ended = tracker.run(way.low, watch, way.max_events) if top.lam > way.low else "done"
    seconds["track"] = time.perf_counter() - clock
    record = tracker.record(ended)
    record.stats["seconds"] = seconds
    return record, top, tracker.store


def _while_worth(control: Control) -> Callable[[float], bool]:
    """Whether the whole kernel matrix is still worth computing, given the share that is done and the time limit."""
    begin = time.perf_counter()

    def worth(done: float) -> bool:
        takes = (time.perf_counter() - begin) / done if done > 0.0 else 0.0
        return control.reason() is None and (control.time_limit is None or takes <= _FOR_ROWS * control.time_limit)

    return worth


def _stored(store: RowStore, K: KernelMatrix) -> KernelMatrix:
    """The kernel as an oracle that reads the tracker's rows, when it has them all."""
    if not store.whole:
        return K
    kernel = Kernel(int(KernelKind.PRECOMPUTED), 1.0, 0.0, 1, 0.0)
    return KernelMatrix(store.rows, kernel, cache_bytes=K.cache_bytes, n_threads=K.n_threads)


def _paper(
    data: Data, K: KernelMatrix, way: Way, watch: _Watch, options: PublishedOptions
) -> tuple[Record, Top, RowStore]:
    """The published algorithm: IR by SMO at lambda_max from (55), then its own loop.

    Without a lambda_max it starts at the solution for every large lambda, which tells where the first event is.
    """
    v = _variables(data)
    scale = float(np.max(K.diagonal, initial=0.0)) * float(np.sum(v.upper - v.lower))

    def by_smo(lam: float, beta: FloatArray, tol: float) -> FloatArray:
        return smo._replace(most=_SMO_STEPS).at(lam, beta, max(tol * lam, _ROUNDING * scale))

    clock = time.perf_counter()
    control = watch.control
    tracker = PaperTracker(
        K, v.c, v.lower, v.upper, equality=v.equality, mode=way.mode, budget=float(K.cache_bytes), solver=by_smo,
        options=options, go_on=lambda: control.reason() is None, rows_while=_while_worth(control),
    )  # fmt: skip
    smo = _Smo(_stored(tracker.store, K), v, control)
    seconds = {"kernel": time.perf_counter() - clock}
    clock = time.perf_counter()
    with control.beginning():
        if way.high is None:
            beta, top = _limit_solution(smo, max(options.start_tol, _ROUNDING))
            slope = top.bias_slope
            lam = 2.0 * max(top.lam, way.low)
        else:
            beta, lam, slope = _majority_at_zero(v), way.high, float(np.sign(_excess(v)))
        tracker.begin(lam, beta)
        control.demand()
    is_open = _at_rest(tracker.S.beta, v, slope)
    seconds["start"] = time.perf_counter() - clock
    clock = time.perf_counter()
    ended = tracker.run(way.low, watch, way.max_events)
    seconds["track"] = time.perf_counter() - clock
    record = tracker.record(ended)
    record.stats["seconds"] = seconds
    return record, Top(lam, is_open, slope if is_open else 0.0, way.high is None and is_open), tracker.store


# ---- the answer ------------------------------------------------------------------------------------------------------


def _assemble(data: Data, record: Record, top: Top) -> Path:
    offset = np.concatenate([[0], np.cumsum(record.knot_at[:, 1])]).astype(np.int64)
    stats = record.stats
    track = Track(
        side0=record.side0, event_lambda=record.event_t, event_index=record.event_index, event_move=record.event_move,
        knot=record.knot, knot_events=np.ascontiguousarray(record.knot_at[:, 0]), offset=offset, index=record.index,
        value=record.value, open_top=top.open_top, found_top=top.found,
        bias_slope=top.bias_slope, phi_end=float(stats.pop("phi_end")),
    )  # fmt: skip
    stats.setdefault("null_dim_max", 0)
    stats.setdefault("n_lp", 0)
    stats.setdefault("n_special", 0)
    stats.setdefault("n_backup", 0)
    return Path(data, track, stats, record.ended)


def _checked(path: Path, store: RowStore, mode: str, control: Control) -> dict[str, Any]:
    """What is measured on the finished path: its largest gap, and of the fast tracker the null dimension.

    A published path is measured everywhere, the fast tracker's at some places and by the tracker itself. When somebody has
    stopped them, the one is measured at a few places and the other at none, so that nobody waits.
    """

    def go_on() -> bool:
        return control.reason() is None

    if mode != "auto":
        return {"max_gap": check_path(path, store, go_on, null=0, sure=True).relative_gap}
    least, most, one_in = _MEASURED
    with control.beginning():
        some = min(max(path._track.knot.shape[0] // one_in, least), most)
        found = check_path(path, store, go_on, most=some, null=1)
    return {"max_gap": max(path.stats["max_gap"], found.relative_gap), "null_dim_max": found.null_dim}


def _speak(path: Path) -> None:
    """Say when the path is shorter or less exact than was asked for."""
    if path.ended != "done":
        warn(
            f"the path ended early ({path.ended}) at C={path.C_range[1]:.6g}, where lambda={path.lambdas[-1]:.3g}; it is "
            "exact down to there. Remedy: a larger limit, or lambda_max=1/C to go on from here.",
            ConvergenceWarning,
        )
    gap = path.stats.get("max_gap", 0.0)
    if not gap <= _WARN_GAP:
        warn(
            f"the path's largest relative duality gap is {gap:.1e}: points that are nearly equal, or a kernel matrix that "
            "is not positive semi-definite. Remedy: merge_tol for near-duplicates, scaled features, or a positive "
            "semi-definite kernel.",
            ConvergenceWarning,
        )


__all__ = ["IntArray", "Path", "PathProgress", "svm_path"]
