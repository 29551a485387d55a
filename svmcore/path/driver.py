"""`svm_path`: the solution of the C-SVC for every C, followed exactly, with a certificate.

check -> merge duplicates (`path/data`) -> start at the largest lambda (`path/start`) -> track (`path/window` over
`path/tracker`, or `path/published`) -> `Path` -> measure (`path/measure`).

Lambda = 1 / C. In the hat variables beta = lambda y alpha the boxes [0, y weight] do not move, and everything is piecewise
linear in lambda (Hastie et al. 2004). Ong, Shao and Yang take steps of several dimensions, which serve any data.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from svmcore._control import Control, new_control
from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._keywords import Gamma, KernelLike, checked
from svmcore._types import FloatArray, IntArray, Kernel, KernelKind
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.rows import RowStore
from svmcore.kernel.table import facts_of
from svmcore.path.data import Twins, budget_of, kernel_from, kernel_of, keys_of, merged, oracle_of, snapped
from svmcore.path.elbow_jit import LOST
from svmcore.path.headway import STALLED
from svmcore.path.measure import check_path, lost_share, null_dim_is_zero
from svmcore.path.middle import centred
from svmcore.path.one_class import OneClassPath
from svmcore.path.problem import BoxPath, Data, unit_of, variables_of
from svmcore.path.record import Followed
from svmcore.path.result import Path
from svmcore.path.start import Smo, Top, at_rest, limit_of, limit_point, limit_solution, put_at_top
from svmcore.path.tracker import Tracker
from svmcore.path.window import Inverse
from svmcore.problem import border
from svmcore.problem.columns import names_of
from svmcore.problem.scales import warn_of_scales
from svmcore.solvers import small
from svmcore.train.forms import svc_problem

if TYPE_CHECKING:  # the published algorithm, and the linear programs it solves, are loaded where it runs
    from svmcore.path.options import PublishedOptions

FACTORIZATIONS = ("auto", "svd", "qr", "update")
_WARN_GAP = 1e-6
"""A path with a larger relative gap warns that it is not exact."""
_ROUNDING = 1e-15
"""The tolerance of SMO in the published modes is at least this, relative to the kernel's scale."""
_SMO_STEPS = 20.0
"""SMO of the published modes takes at most so many steps per point. The fast tracker removes what is left."""
_SOLVED = 1e-9
"""The tolerance of SMO where the fast tracker asks for help, relative to the size of the linear term."""
_MEASURED = (2, 8, 64)
"""A path of the fast tracker is measured at so many stretches: at least, at most, and one in so many."""
_FEW = 16
"""A path of at most so many knots is measured at all of them."""
_OTHER_DATA = (
    "Remedy: standardize=True, merge_tol for near-duplicates, or a positive semi-definite kernel of values near 1"
)
LAMBDA_MIN = 1e-3
_FOR_ROWS = 0.5
"""If the whole kernel matrix would take more than this share of a time limit, rows are computed on demand."""


class PathProgress(NamedTuple):
    """What a callback receives. A callback that returns a true value ends the path here."""

    lambda_: float
    n_events: int
    elbow: int
    done: float
    """The share of the way that is done, in log lambda."""
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
    fit_intercept: bool | Literal["embedded"] = True,
    intercept_scaling: float | Literal["auto"] | None = None,
    standardize: bool = False,
    feature_names: Any = None,
    sample_weight: Any = None,
    class_weight: Any = None,
    lambda_max: float | None = None,
    lambda_min: float = LAMBDA_MIN,
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
    lambda_max, lambda_min : the ends, lambda = 1 / C. None for lambda_max means the largest lambda at which anything
        happens. The path then answers for every smaller C, too. C_min, C_max : the same ends in terms of C, in their place.
    factorization : "auto", the fast tracker; or the algorithm of Ong, Shao and Yang as published, with the rank of the
        system from its SVD ("svd"), from QR with column pivoting ("qr"), or from updated QR where it is known ("update").
    published : tolerances and switches of the published algorithm, a `PublishedOptions`. "auto" takes none.
    merge_tol : points of which no feature differs by more than this are made equal first. With 0 only exact duplicates are
        merged, which changes nothing.
    max_events, time_limit, callback : limits. Whatever ends a run, Ctrl-C included, the path is valid down to there.
    cache_mb : memory for kernel rows (default: the whole kernel matrix when it fits into 40 % of the free memory).
    n_threads, verbose : the threads for kernel products, and whether there are lines of progress on stderr.

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
    border.choice("loss", loss, ("hinge",))
    mode = border.choice("factorization", factorization, FACTORIZATIONS)
    options = None
    if published is not None or mode != "auto":
        from svmcore.path.options import checked_options

        options = checked_options(published, mode)
    ends = ends_of(lambda_max, lambda_min, C_min, C_max)
    begun = begin(ends, max_events, cache_mb, n_threads, time_limit, callback, verbose)
    names = names_of(X, feature_names)
    X = snapped(X, border.number("merge_tol", merge_tol, low=0.0), kernel)
    problem = svc_problem(
        X, y, 1.0, kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, fit_intercept=fit_intercept,
        intercept_scaling=intercept_scaling, sample_weight=sample_weight, class_weight=class_weight,
        standardize=standardize, feature_names=names,
    )  # fmt: skip
    prepared = time.perf_counter()
    path = follow(problem, begun.way._replace(mode=mode), begun.control, options)
    return finished(path, problem, prepared - begun.clock)


def finished(path: Path, problem: Any, seconds: float) -> Path:
    """The path of a checked problem, with the seconds of the checks. Warns if it is not what was asked for."""
    path.stats["seconds"]["check"] += seconds
    path.stats["seconds"]["total"] += seconds
    speak(path)
    names, look = problem.columns.names, problem.look
    warn_of_scales(problem.X, problem.spec.kernel, problem.by_scale, names=names, look=look)
    return path


class Way(NamedTuple):
    """How to follow a path: its ends in lambda, its tracker, its limits.

    Where `again` is not set, the finished path is not measured once more: its gap is the largest that the tracker has
    measured, at the end and wherever lambda had halved. Between two looks at limits there are at least `breath` seconds.
    """

    high: float | None
    low: float
    mode: str = "auto"
    max_events: int | None = None
    cache_mb: float | None = None
    threads: int = 1
    again: bool = True
    breath: float = 0.0


class Begun(NamedTuple):
    """The checked limits of a path, and when this began."""

    way: Way
    control: Control
    clock: float


def begin(
    ends: tuple[float | None, float], max_events: Any, cache_mb: Any, n_threads: Any, time_limit: Any, callback: Any,
    verbose: Any,
) -> Begun:  # fmt: skip
    """Check the limits of a path."""
    clock, threads = time.perf_counter(), border.threads(n_threads)
    most = None if max_events is None else border.integer("max_events", max_events, low=0)
    way = Way(*ends, max_events=most, cache_mb=cache_mb, threads=threads)
    return Begun(way, new_control("path", time_limit, callback, verbose), clock)


def follow(
    problem: Any, way: Way, control: Control, options: PublishedOptions | None = None, gram: FloatArray | None = None
) -> Path:
    """The path of a checked problem. It does not warn about how the path has ended.

    `options` are those of the published algorithm. `gram` is the kernel among all points without offset, if somebody has it.
    """
    if gram is not None:
        problem = problem._replace(centre=None)
    key = (
        keys_of(problem) if way.mode == "auto" else None
    )  # the published algorithm keeps duplicates apart, as its tables do
    return follow_data(merged(problem, way.threads, key), way, control, options, gram)


def follow_data(
    data: Data, way: Way, control: Control, options: PublishedOptions | None = None, gram: FloatArray | None = None
) -> Path:
    """The path of data that are ready."""
    begin = time.perf_counter()
    problem = variables_of(data)
    unit = unit_of(problem)
    watch = PathWatch(control, way, problem.level, unit)
    # Values at the ends of float64 may overflow. The gap says so.
    with control, one_blas_thread, np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        K = kernel_of(data, budget_of(data, way.cache_mb)) if gram is None else kernel_from(gram, data)
        prepared = time.perf_counter()
        if options is None:
            smooth = facts_of(data.spec.kernel).exponential
            record, top, store = track(problem, oracle_of(data, K), way, watch, smooth)
        else:
            record, top, store = _paper(problem, K, way, watch, options)
        followed = record.track._replace(open_top=top.open_top, found_top=top.found, bias_slope=top.bias_slope)
        counts = {"null_dim_max": 0, "n_lp": 0, "n_special": 0, "n_backup": 0} | record.stats
        kind = OneClassPath if data.form.kind == "one_class" else Path
        path = kind(data, followed, counts, record.ended, problem)
        path._track = centred(path, store.products)
        path.stats |= {"factorization": way.mode, "n_kernel_evals": K.computed[0] if gram is None else 0}
        if path.ended == STALLED:
            path.stats["kernel_scale"] = float(np.max(np.abs(store.diagonal)))
        tracked = time.perf_counter()
        if way.again:
            path.stats["n_distinct"] = int(path._distinct.size)
            path.stats |= _checked(path, store, way, control)
        store.release()
        path.stats["seconds"]["measure"] = time.perf_counter() - tracked
    path.stats["seconds"] |= {"check": prepared - begin, "total": time.perf_counter() - begin}
    return path


def ends_of(lambda_max: Any, lambda_min: Any, C_min: Any, C_max: Any) -> tuple[float | None, float]:
    """Both ends in lambda, in whichever way they were given. The larger one, or None, comes first."""
    for C, C_name, value, name in (
        (C_max, "C_max", lambda_min if lambda_min != LAMBDA_MIN else None, "lambda_min"),
        (C_min, "C_min", lambda_max, "lambda_max"),
    ):
        if C is not None and value is not None:
            raise InputError(
                f"{C_name}={C!r} and {name}={value!r} say the same, since C = 1 / lambda; give one of them"
            )
    if C_max is None:
        low = border.number("lambda_min", lambda_min, low=0.0, strict=True)
    else:
        low = 1.0 / border.cost(C_max, "C_max", infinite=False)
    if C_min is None:
        return None if lambda_max is None else border.number("lambda_max", lambda_max, low=low), low
    high = 1.0 / border.cost(C_min, "C_min", infinite=False)
    if high < low:
        raise InputError(f"C_min={C_min!r} lies above the other end, C = {1.0 / low:g}; give a larger C_max")
    return high, low


# ---- the two ways to follow it -----------------------------------------------------------------------------------------


class PathWatch:
    """Limits, progress and callback, looked at between slices of work."""

    def __init__(self, control: Control, way: Way, level: float = 0.0, unit: float = 1.0) -> None:
        self.control, self.breath = control, way.breath
        self.level, self.unit = level, unit
        self.last = level + way.low
        self.first: float | None = None
        self.looked = time.perf_counter()

    def __call__(self, tracker: Any) -> str | None:
        if self.breath:
            now = time.perf_counter()
            if now < self.looked + self.breath:
                return None
            self.looked = now
        lam = tracker.lam / self.unit
        size = self.level + lam
        if self.first is None:
            self.first = size
        way = math.log(self.first) - math.log(self.last) if self.first > self.last > 0.0 else 0.0
        done = min(1.0, (math.log(self.first) - math.log(size)) / way) if size > 0.0 and way > 0.0 else 1.0
        status = self.control.poll(
            PathProgress(lam, tracker.n_events, tracker.m, done, self.control.seconds),
            lambda: (
                f"{'epsilon' if self.level else 'lambda'} {lam:.3e} ({100 * done:3.0f} % of the way), "
                f"{tracker.n_events} events, {tracker.m} on the margin"
            ),
        )
        return None if status is None else status.name.lower()


def track(problem: BoxPath, K: Any, way: Way, watch: PathWatch, smooth: bool = False) -> tuple[Followed, Top, RowStore]:
    """Follow the path by the fast tracker.

    With `smooth` few points depend on others. So points that are tied may join the margin at once.
    """
    control, unit = watch.control, watch.unit
    problem = problem.scaled(unit)
    low, high = way.low * unit, None if way.high is None else way.high * unit
    clock = time.perf_counter()
    tracker: Tracker = Tracker(
        K, problem, budget=float(K.cache_bytes), batch=smooth,
        solver=lambda t, beta: smo.at(t, beta, _SOLVED * tracker.size(t)), go_on=lambda: control.reason() is None,
        rows_while=_while_worth(control), windows=Inverse,
    )  # fmt: skip
    stored = _stored(tracker.store, K)
    smo: Smo = Smo(stored, problem, control, quick=small.serves(stored.base if isinstance(stored, Twins) else stored))
    seconds = {"kernel": time.perf_counter() - clock}
    clock = time.perf_counter()
    with control.beginning():
        top = put_at_top(tracker, smo, high, low)
    seconds["start"] = time.perf_counter() - clock
    clock = time.perf_counter()
    tracker.start_record()
    ended = tracker.run(low, watch, way.max_events) if top.lam > low else "done"
    seconds["track"] = time.perf_counter() - clock
    followed = tracker.record(ended)
    followed.stats["seconds"] = seconds
    top = top._replace(lam=top.lam / unit, bias_slope=top.bias_slope * unit)
    return followed._replace(track=followed.track.in_units_of(unit)), top, tracker.store


def _while_worth(control: Control) -> Callable[[float], bool]:
    """A function of the share that is done. It says whether the whole kernel matrix is still worth computing."""
    begin = time.perf_counter()

    def worth(done: float) -> bool:
        takes = (time.perf_counter() - begin) / done if done > 0.0 else 0.0
        return control.reason() is None and (control.time_limit is None or takes <= _FOR_ROWS * control.time_limit)

    return worth


def _stored(store: RowStore, K: Any) -> Any:
    """The kernel as an oracle. It reads the rows of the tracker if the tracker has all of them."""
    if not store.whole or not isinstance(K, KernelMatrix):
        return K
    kernel = Kernel(int(KernelKind.PRECOMPUTED), 1.0, 0.0, 1, 0.0)
    return KernelMatrix(store.rows, kernel, cache_bytes=K.cache_bytes, n_threads=K.n_threads)


def _paper(
    problem: BoxPath, K: KernelMatrix, way: Way, watch: PathWatch, options: PublishedOptions
) -> tuple[Followed, Top, RowStore]:
    """Follow the path by the published algorithm: IR by SMO at lambda_max from (55), and then its own loop.

    Without a lambda_max it starts at the solution for every large lambda, which says where the first event is.
    """
    from svmcore.path.published import PaperTracker

    def by_smo(lam: float, beta: FloatArray, tol: float) -> FloatArray:
        return smo._replace(most=_SMO_STEPS).at(lam, beta, max(tol * lam, _ROUNDING * smo.scale))

    clock = time.perf_counter()
    control = watch.control
    tracker = PaperTracker(
        K, problem.slope, problem.lower, problem.upper, equality=problem.equality, mode=way.mode,
        budget=float(K.cache_bytes), solver=by_smo,
        options=options, go_on=lambda: control.reason() is None, rows_while=_while_worth(control),
    )  # fmt: skip
    smo = Smo(_stored(tracker.store, K), problem, control)
    seconds = {"kernel": time.perf_counter() - clock}
    clock = time.perf_counter()
    limit = limit_of(problem)
    with control.beginning():
        if way.high is None:
            beta, top = limit_solution(
                smo, limit, max(options.start_tol, _ROUNDING),
                lambda b: np.array(smo.K.product(np.flatnonzero(b), b[np.flatnonzero(b)])),
            )  # fmt: skip
            slope = top.bias_slope
            lam = 2.0 * max(top.lam, way.low)
        else:
            beta, lam, slope = limit_point(problem, limit), way.high, limit.level
        tracker.begin(lam, beta)
        control.demand()
    is_open = at_rest(tracker.state.beta, problem, limit)
    seconds["start"] = time.perf_counter() - clock
    clock = time.perf_counter()
    ended = tracker.run(way.low, watch, way.max_events)
    seconds["track"] = time.perf_counter() - clock
    followed = tracker.record(ended)
    followed.stats["seconds"] = seconds
    return followed, Top(lam, is_open, slope if is_open else 0.0, way.high is None and is_open), tracker.store


# ---- the answer ------------------------------------------------------------------------------------------------------


def _checked(path: Path, store: RowStore, way: Way, control: Control) -> dict[str, Any]:
    """Measure the finished path: its largest gap and, for the fast tracker, a lower bound of the null dimension.

    A published path is measured everywhere. One by the fast tracker is measured at some places here, and was measured by the
    tracker itself. Nobody should wait when the run was stopped. Then a published path is measured at a few places, and the
    other one at none.
    """

    def go_on() -> bool:
        return control.reason() is None

    if way.mode != "auto":
        return {"max_gap": check_path(path, store, go_on, null=0, sure=True).relative_gap}
    least, most, one_in = _MEASURED
    n_knots, zero = path._track.knot.shape[0], null_dim_is_zero(path)
    some = None if n_knots <= _FEW else min(max(n_knots // one_in, least), most)
    margins = 0 if zero else None if some is None else 1
    with control.beginning():
        found = check_path(path, store, go_on, most=some, null=margins)
    share = lost_share(path)  # where it is more than rounding, the gap does not see it
    gap = max(path.stats["max_gap"], found.relative_gap, share if share > LOST else 0.0)
    return {"max_gap": gap, "null_dim_max": found.null_dim, "null_dim_exact": zero or found.complete}


def _where(path: Path) -> str:
    """The end of a path in words."""
    end = float(path._track.knot[-1, 0])
    return f"epsilon={end:.3g}" if path.parameter == "epsilon" else f"C={1.0 / end:.6g}, where lambda={end:.3g}"


def speak(path: Path) -> None:
    """Say when the path is shorter or less exact than was asked for."""
    gap = path.stats.get("max_gap", 0.0)
    if path.ended == STALLED:
        warn(
            f"the path ended early (stalled) at {_where(path)}: {why_stalled(path)}. What was reached holds down to there, "
            f"with a relative duality gap of at most {gap:.1e}. {_OTHER_DATA}.",
            ConvergenceWarning,
        )
        return
    if path.ended != "done":
        warn(
            f"the path ended early ({path.ended}) at {_where(path)}; it is exact down to there. "
            f"Remedy: a larger limit{'' if path.parameter == 'epsilon' else ', or lambda_max=1/C to go on from here'}.",
            ConvergenceWarning,
        )
    if not gap <= _WARN_GAP:
        warn(
            f"the path's largest relative duality gap is {gap:.1e}. Rounding does that to features of very different size, "
            f"to points that are nearly equal, and to a kernel matrix that is not positive semi-definite. {_OTHER_DATA}.",
            ConvergenceWarning,
        )


def why_stalled(path: Path) -> str:
    """What has ended a path that made no more way."""
    return (
        f"events repeat there, and {'epsilon' if path.parameter == 'epsilon' else 'lambda'} falls no more. A kernel matrix "
        "that is not positive semi-definite does that, and so do points that are nearly equal, and values so large or so "
        f"small that rounding hides the rest: k(x, x) is up to {path.stats['kernel_scale']:.1e}"
    )


__all__ = ["IntArray", "Path", "PathProgress", "svm_path"]
