"""`Path`: the answer of `svm_path`, for every C at once.

Two things are stored: the events (which point changed sides, where and why), and the values of the points on the elbow at
each knot. Everything else is a view of that. Between two knots ``beta-hat = lambda * y * alpha`` and ``bias-hat = lambda *
intercept`` are linear in lambda. All other points are at a bound, and the events say at which. So a solution at one C costs
a replay of the events, which takes microseconds, and one pass over the points.

The dual objective needs no kernel. Let phi(lambda) be the minimum of 1/2 b'Kb - lambda c'b. Then phi' = -c'b(lambda) is
piecewise linear. So phi is integrated exactly, upwards from its value at the smallest lambda.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from svmcore._control import Callback, new_control
from svmcore._errors import InputError
from svmcore._types import FloatArray, KernelKind
from svmcore.base.door import reals
from svmcore.base.frames import frame
from svmcore.base.html import html_table
from svmcore.base.threads import one_blas_thread
from svmcore.models.loss_curve import LossCurve
from svmcore.models.step_curve import OUTSIDE, StepCurve
from svmcore.path.cross import Cross
from svmcore.path.elbow_jit import CAUSES
from svmcore.path.problem import BoxPath, Data, variables_of
from svmcore.path.record import Track
from svmcore.path.values import clipped, decisions, hat, hats, vectors
from svmcore.problem import border
from svmcore.problem.columns import Columns, OfColumns

if TYPE_CHECKING:
    from svmcore.models.solution import Solution

_SAME = 1e-10  # events that are closer than this, relative to the size of the linear term, are one breakpoint
_END = 1e-12  # an event that is so close to an end of the path, relatively, is at the end


class PathCertificate(NamedTuple):
    """The largest KKT violation, as LIBSVM measures it, and the largest relative duality gap, over `n_values` values of C."""

    kkt_violation: float
    relative_gap: float
    n_values: int


class Path(OfColumns):
    """The exact solution for every C of an interval. `svm_path` makes it: see there for an example.

    Paths of regressions, quantiles and one class (`svr_path`, `quantile_path`, `one_class_path`) have the same methods.
    `epsilon_path` makes one over epsilon: its methods take epsilon where C is written here.

    Attributes
    ----------
    parameter : what the path is over, "C" or "epsilon".
    lambdas, Cs : the breakpoints, lambda decreasing, C = 1 / lambda. The first and the last are the ends of the path.
    epsilons : the breakpoints of a path over epsilon, decreasing; it has no lambdas and Cs.
    events : structured array (lambda, index, from, to, cause). Sides are the paper's: "L" (alpha = C), "R" (alpha = 0),
        "E" (on the margin). The index of a merged group is its first point. For a quantile "L" is the upper end of the
        box (the target lies above the function) and "R" the lower one.
    stats : n_events, n_distinct, elbow_max, null_dim_max, n_lp, n_special, n_backup, seconds by part, and more. Where
        "null_dim_exact" is False, "null_dim_max" is a lower bound until the method `null_dim_max` has been called.
    ended : "done", or why the path stops early ("max_events", "time_limit", "interrupted", "callback"; "stalled" where
        events repeat and lambda falls no more).
    """

    def __init__(
        self, data: Data, track: Track, stats: dict[str, Any], ended: str, problem: BoxPath | None = None
    ) -> None:
        self._data = data
        self._track = track
        self.ended = ended
        self._problem = variables_of(data) if problem is None else problem
        self.stats = stats
        stats["n_events"] = int(track.event_lambda.size)
        self._sum_c: FloatArray | None = None

    def __repr__(self) -> str:
        low, high = self._range
        return (
            f"<Path: {self.parameter} from {low:.3g} to {high:.3g}, {self.stats['n_events']} events at "
            f"{self._distinct.size} values, at most {self.stats['elbow_max']} points on the margin, {self.ended}>"
        )

    def _repr_html_(self) -> str:
        """The table that notebooks show."""
        low, high = self._range
        classes = self._data.classes
        rows = {
            self.parameter: f"from {low:.6g} to {high:.6g}",
            **self.params,
            **({} if classes is None else {"classes": ", ".join(str(label) for label in classes.tolist())}),
            "points": f"{self._data.X.shape[0]:,}",
            "features": f"{self._data.X.shape[1]:,}",
            "events": f"{self.stats['n_events']:,} at {self._distinct.size:,} values of {self.parameter}",
            "points on the margin": f"at most {self.stats['elbow_max']:,}",
            "ended": self.ended,
        }
        return html_table("Path", rows)

    # ---- what was recorded ---------------------------------------------------------------------------------------

    @property
    def parameter(self) -> str:
        """What the path is over: "C" or "epsilon"."""
        return self._data.form.parameter

    def _only_over(self, parameter: str, name: str) -> None:
        if self.parameter != parameter:
            raise AttributeError(f"this path is over {self.parameter}; {name} belongs to a path over {parameter}")

    @property
    def lambdas(self) -> FloatArray:
        """The breakpoints, lambda = 1 / C, decreasing."""
        self._only_over("C", "lambdas")
        return self._breaks

    @cached_property
    def Cs(self) -> FloatArray:
        """The breakpoints, increasing."""
        self._only_over("C", "Cs")
        return 1.0 / self._breaks

    @property
    def epsilons(self) -> FloatArray:
        """The breakpoints of a path over epsilon, decreasing."""
        self._only_over("epsilon", "epsilons")
        return self._breaks

    @property
    def _values(self) -> FloatArray:
        """The breakpoints in the users' parameter."""
        return self._breaks if self.parameter == "epsilon" else self.Cs

    def _value_of(self, t: float) -> float:
        """The users' parameter at one place of the path."""
        return t if self.parameter == "epsilon" else 1.0 / t

    @property
    def _range(self) -> tuple[float, float]:
        """The interval of the users' parameter that the path covers."""
        first, last, is_open = float(self._track.knot[0, 0]), float(self._track.knot[-1, 0]), self._track.open_top
        if self.parameter == "epsilon":
            return last, np.inf if is_open else first
        return 0.0 if is_open else self._value_of(first), self._value_of(last)

    @property
    def C_range(self) -> tuple[float, float]:
        """The interval of C that the path covers. Its lower end is 0 when nothing happens below the first breakpoint."""
        self._only_over("C", "C_range")
        return self._range

    @property
    def epsilon_range(self) -> tuple[float, float]:
        """The interval that a path over epsilon covers. Its upper end is infinite when nothing happens above."""
        self._only_over("epsilon", "epsilon_range")
        return self._range

    @property
    def C_min(self) -> float:
        """The lower end of `C_range`."""
        return self.C_range[0]

    @property
    def C_max(self) -> float:
        """The upper end of `C_range`."""
        return self.C_range[1]

    @property
    def events(self) -> NDArray[Any]:
        """All changes of side, in order."""
        track = self._track
        kinds = [(self._t_name, "f8"), ("index", "i8"), ("from", "U1"), ("to", "U1"), ("cause", "U8")]
        out = np.empty(track.event_lambda.size, dtype=kinds)
        out[self._t_name] = track.event_lambda
        out["index"] = self._data.groups.first[track.event_index]
        names = np.array([["R", "L", "E"], ["L", "R", "E"]])  # a negative point at its lower end has alpha = C
        row = (self._problem.upper[track.event_index] <= 0.0).astype(int)
        out["from"] = names[row, track.event_move[:, 0]]
        out["to"] = names[row, track.event_move[:, 1]]
        out["cause"] = np.array(CAUSES)[track.event_move[:, 2]]
        return out

    @property
    def _t_name(self) -> str:
        """The name of what falls along the path."""
        return "epsilon" if self.parameter == "epsilon" else "lambda"

    @cached_property
    def _distinct(self) -> FloatArray:
        """The places of events; those that differ by rounding are one."""
        lam = self._track.event_lambda
        apart = lam[1:] < lam[:-1] * (1.0 - _SAME) - _SAME * self._problem.level
        return lam[np.append(True, apart)] if lam.size else lam

    @cached_property
    def _breaks(self) -> FloatArray:
        lam = self._distinct
        ends = self._track.knot[[0, -1], 0]
        level = self._problem.level
        above, below = ends[0] * (1.0 - _END) - _END * level, ends[1] * (1.0 + _END) + _END * level
        lam = lam[(lam < above) & (lam > below)]
        if self._track.found_top and lam.size:  # recorded from somewhat above the first event
            ends = np.array([lam[0], ends[1]])
            lam = lam[1:]
        return np.concatenate([ends[:1], lam, ends[1:]]) if ends[1] < ends[0] else ends[:1]

    def _lambdas_of(self, C: Any) -> tuple[FloatArray, FloatArray, bool]:
        """Lambda and C as arrays, and whether C was one number.

        On a path over epsilon these are epsilon and ones, because b is the dual variables themselves.
        """
        name, track, values = self.parameter, self._track, reals(C, self.parameter)
        if values.ndim > 1:
            raise InputError(f"{name} has {values.ndim} dimensions; give one number or a one-dimensional array")
        flat, (low, high) = np.atleast_1d(values), self._range
        if name == "epsilon":
            room, more = OUTSIDE * self._problem.level, "epsilon_min"
            bad = ~(flat >= low - room) | ~(flat <= high + room) | (flat < 0.0) | np.isinf(flat)
        else:
            more = "lambda_min or a larger lambda_max"
            bad = ~(flat > 0) | (flat < low * (1 - OUTSIDE)) | (flat > high * (1 + OUTSIDE))
        if bad.any():
            raise InputError(
                f"{name}={flat[bad][0]:g} lies outside the path, which covers {low:.6g} to {high:.6g}; "
                f"compute it with a smaller {more}"
            )
        if name == "epsilon":
            return np.clip(flat, low, high), np.ones(flat.size), values.ndim == 0
        return clipped(track, 1.0 / flat), flat, values.ndim == 0

    # ---- views ---------------------------------------------------------------------------------------------------

    def dual_coef(self, C: Any) -> FloatArray:
        """y_i alpha_i of all n training points. With an array of C: one row per C."""
        lam, C, scalar = self._lambdas_of(C)
        beta, _ = hat(self, lam)
        data, problem, groups = self._data, self._problem, self._data.groups
        lower, upper = problem.lower, problem.upper
        if data.form.twins:  # at most one of a point's two variables is not zero
            beta = beta[:, : data.n_groups] + beta[:, data.n_groups :]
            lower, upper = lower[data.n_groups :], upper[: data.n_groups]
        real = np.flatnonzero(groups.of >= 0)
        part, at = beta[:, groups.of[real]], groups.of[real]
        out = np.zeros((lam.size, groups.of.size))
        out[:, real] = part * groups.share[real] * C[:, None]
        low, high = data.form.shares  # at a bound it is exactly C times the weight
        size = C[:, None] * (data.signs * data.weights)[real]
        for bound, share in ((lower, low), (upper, high)):
            share = share if data.form.kind != "svc" else 1.0
            full = (part == bound[at]) & (bound[at] != 0.0)
            out[:, real] = np.where(full, share * size, out[:, real])
        return out[0] if scalar else out

    def alpha(self, C: Any) -> FloatArray:
        """The dual variables alpha of all n training points. With an array of C: one row per C."""
        return np.abs(self.dual_coef(C))

    @overload
    def intercept(self, C: float) -> float: ...
    @overload
    def intercept(self, C: Sequence[float] | NDArray[Any]) -> FloatArray: ...
    def intercept(self, C: Any) -> Any:
        """The intercept. With an array of C it is an array."""
        centre = self._data.columns.centre
        out = self._bias(C) - (0.0 if centre is None else self.coef(C) @ centre) + self._data.form.level
        return float(out) if np.ndim(out) == 0 else out

    def _bias(self, C: Any) -> Any:
        """The intercept for the points and targets as the path sees them, which is after they were moved to their middle."""
        lam, _, _ = self._lambdas_of(C)
        bias, divisor = hats(self, lam)[1], self._divisor(lam)
        return bias / divisor if np.ndim(C) else float(bias[0] / divisor[0])

    @overload
    def objective(self, C: float) -> float: ...
    @overload
    def objective(self, C: Sequence[float] | NDArray[Any]) -> FloatArray: ...
    def objective(self, C: Any) -> Any:
        """The dual objective in minimised form, ``1/2 alpha'Q alpha - sum alpha``, integrated exactly along the path."""
        lam, _, scalar = self._lambdas_of(C)
        at, total, phi = self._potential()
        right = np.clip(np.searchsorted(-at, -lam, side="left"), 0, at.size - 1)
        left = np.maximum(right - 1, 0)
        width = at[left] - at[right]
        mu = np.divide(lam - at[right], width, out=np.zeros_like(lam), where=width > 0)
        here = total[right] + mu * (total[left] - total[right])
        out = phi[right] - 0.5 * (here + total[right]) * (lam - at[right])
        above = lam > at[0]
        out[above] = phi[0] - total[0] * (lam[above] - at[0])
        out /= self._divisor(lam) ** 2
        return float(out[0]) if scalar else out

    def _divisor(self, lam: FloatArray) -> FloatArray:
        """What the recorded values are divided by: lambda, or one where they are the dual variables themselves."""
        return np.ones_like(lam) if self.parameter == "epsilon" else lam

    def _potential(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """lambda, slope'b and phi at every knot."""
        track = self._track
        at = track.knot[:, 0]
        if self._sum_c is None:
            knots = np.arange(at.size)
            self._sum_c = np.array([float(self._problem.slope @ v) for v in vectors(self, knots)])
        total = self._sum_c
        pieces = 0.5 * (total[1:] + total[:-1]) * (at[:-1] - at[1:])
        phi = track.phi_end - np.concatenate([np.cumsum(pieces[::-1])[::-1], [0.0]])
        return at, total, phi

    def support_counts(self) -> NDArray[Any]:
        """Structured array (lambda, E, L, R): points on the margin, at C and at 0, just after each breakpoint.

        For a quantile L and R are the points below and above which the function lies.
        """
        track = self._track
        count = self._data.groups.count
        negative = self._problem.upper <= 0.0
        tally = np.zeros((track.event_lambda.size + 1, 3))

        def column(side: Any, index: Any) -> Any:  # 0: E, 1: L, 2: R
            return np.where(side == 2, 0, np.where((side == 1) != negative[index], 1, 2))

        first = column(track.side0, np.arange(count.size))
        tally[0] = np.bincount(first, weights=count, minlength=3)
        rows = np.arange(1, tally.shape[0])
        weight = count[track.event_index]
        np.add.at(tally, (rows, column(track.event_move[:, 1], track.event_index)), weight)
        np.add.at(tally, (rows, column(track.event_move[:, 0], track.event_index)), -weight)
        tally = np.cumsum(tally, axis=0)
        if self._data.form.twins:  # the other variable of every point is at zero
            tally[:, 2] -= 0.5 * count.sum()
        reached = self._breaks * (1.0 - _SAME) - _SAME * self._problem.level
        upto = np.searchsorted(-track.event_lambda, -reached, side="right")
        out = np.empty(self._breaks.size, dtype=[(self._t_name, "f8"), ("E", "i8"), ("L", "i8"), ("R", "i8")])
        out[self._t_name] = self._breaks
        for k, name in enumerate("ELR"):
            out[name] = tally[upto, k]
        return out

    def coef(self, C: Any) -> FloatArray:
        """The weights of a linear machine for features as users give them, shape (d,). With an array of C: one row per C.

        ``f(x) = coef(C) @ x + f(0)``. `intercept(C)` is f(0) unless the path standardises its features.
        """
        data = self._data
        if data.spec.kernel.kind != KernelKind.LINEAR:
            raise InputError(f"coef needs the linear kernel; this path has kernel={data.spec.name!r}")
        dual = self.dual_coef(C)
        weights = np.asarray((data.X.T @ dual.T).T)
        if data.columns.centre is not None:  # rounding leaves their sum not quite zero, and users' points lie far out
            weights = weights + np.multiply.outer(dual.sum(axis=-1), data.columns.centre)
        return data.columns.weights(weights, 0.0)[0]

    # ---- predictions -----------------------------------------------------------------------------------------------

    @property
    def params(self) -> dict[str, Any]:
        """The training problem in the words of `svm_path`: whatever applies."""
        spec = self._data.spec
        form = self._data.form.params
        return {
            **form,
            **border.kernel_params(spec.kernel, spec.function),
            "standardize": self.standardized is not None,
        }

    @property
    def columns(self) -> Columns:
        """What the path knows of the columns of its features."""
        return self._data.columns

    def decision_function(self, X: Any, C: Any) -> FloatArray:
        """f(x) for every row of X. With an array of C: one row of the result per C."""
        out = decisions(self, C, Cross(self._data, self._data.columns.apply(X)))
        return out[0] if np.ndim(C) == 0 else out

    def predict(self, X: Any, C: Any) -> NDArray[Any]:
        """The class of every row of X, or the value for regression. With an array of C: one row of the result per C."""
        if self._data.classes is None:
            return self.decision_function(X, C)
        return np.asarray(self._data.classes[(self.decision_function(X, C) > 0).astype(int)])

    @one_blas_thread
    def error_curve(
        self,
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        *,
        time_limit: float | None = None,
        callback: Callback | None = None,
        verbose: int = 0,
    ) -> StepCurve | LossCurve:
        """The error on X, y as an exact function of C (default: on the training set).

        For a classifier it is the share of rows that are classified wrongly, a `StepCurve`. For one class it is the share of
        rows that lie outside. If labels +1 and -1 are given, it is the share of rows on the wrong side. For a regression it
        is the mean of |y - f(x)|, and for a quantile the mean pinball loss. These are continuous, piecewise linear functions,
        each a `LossCurve`.

        Rows count by their weight, and a row of weight zero does not count at all. The training set has the weights that it
        was trained with, class weights included. `sample_weight` is for other data. The curve covers `C_range`. When
        `time_limit`, Ctrl-C or `callback` (a function of one `WorkProgress`) ends the work, the curve covers the part that is
        done, from the smallest C on. A ConvergenceWarning says so.
        """
        from svmcore.path.error_curve import curve_of

        with new_control("error curve", time_limit, callback, verbose) as control:
            return curve_of(self, X, y, sample_weight, control)

    # ---- out of the path -----------------------------------------------------------------------------------------

    def to_frame(self, what: str = "breakpoints") -> Any:
        """A pandas DataFrame: "breakpoints" (lambda, C, E, L, R, objective) or "events"."""
        return frame(self.table(what))

    def table(self, what: str = "breakpoints") -> dict[str, NDArray[Any]]:
        """The columns of `to_frame` as a dict of arrays."""
        if border.choice("what", what, ("breakpoints", "events")) == "events":
            events = self.events
            return {name: events[name] for name in events.dtype.names or ()}
        counts = self.support_counts()
        values = {} if self.parameter == "epsilon" else {"C": self.Cs}
        sets = {name: counts[name] for name in "ELR"}
        return {self._t_name: self._breaks, **values, **sets, "objective": self.objective(self._values)}

    def at(self, C: float) -> Solution:
        """The solution at one C, with its own certificate recomputed from the data."""
        from svmcore.path.solution import solution_at

        return solution_at(self, C)

    def solution_set(self, C: float) -> Any:
        """All solutions at one C as a `SolutionSet`: the null space in which they differ, and its bounds."""
        from svmcore.path.solution_set import solution_set_at

        if self._data.form.kind != "svc":
            raise InputError("solution_set is about the path of a classifier; this path has no labels")
        return solution_set_at(self, C)

    @one_blas_thread
    def null_dim_max(self, *, time_limit: float | None = None) -> int:
        """The largest null dimension of the system of all points on the margin. It is 0 where every solution is unique.

        Unless the answer is known, all stretches of the path are looked at. For most paths this takes half to five times as
        long as the path itself. `svm_path` looks at a few stretches for ``stats["null_dim_max"]``, which now becomes this
        number. When `time_limit` or Ctrl-C ends the work, it is the largest number so far, and a ConvergenceWarning says so.
        """
        from svmcore.path.solution import null_dim_of

        return null_dim_of(self, new_control("null dimension", time_limit, None, 0))

    @one_blas_thread
    def certify(
        self,
        Cs: Any = None,
        *,
        time_limit: float | None = None,
        callback: Callback | None = None,
        verbose: int = 0,
    ) -> PathCertificate:
        """The largest KKT violation and relative gap, recomputed from the data at `Cs` (default: 20 over the range).

        When `time_limit`, Ctrl-C or `callback` (a function of one `WorkProgress`) ends the work, the certificate is
        about the values of C that were reached, and a ConvergenceWarning says so.
        """
        from svmcore.path.solution import certify_path

        return certify_path(self, Cs, new_control("certificate", time_limit, callback, verbose))

    def plot(self, what: str = "alphas", ax: Any = None, **options: Any) -> Any:
        """Draw one view over log C and return its Axes. "overview" draws all views and returns a dict of their Axes.

        "alphas" (weights of points; option `max_lines`), "sets" (points on the margin, within and beyond), "objective",
        "error" (options `test=(X, y)`, the error on other data, and `cv`, a cross-validated StepCurve), "boundary" (two
        features; option `C`, default 1), "overview" (`test`, `cv`, `C`, `title`). A best C is marked, and taken for the
        overview's boundary, only where it comes from other data or from cross-validation. Needs matplotlib:
        ``pip install "svmcore[plot]"``.
        """
        from svmcore.plots import paths as plots

        return plots.plot_path(self, what, ax=ax, **options)

    def save(self, file: Any) -> None:
        """Write the path to an .npz file that `svmcore.load` reads. Nothing is pickled."""
        from svmcore.path.solution import save_path

        save_path(self, file)


__all__ = ["Path", "PathCertificate", "StepCurve"]
