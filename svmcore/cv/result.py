"""`PathCV`: the answer of `cv_path`, exact curves of the cross-validated score over every C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError
from svmcore._types import FloatArray
from svmcore.base.door import reals
from svmcore.base.frames import frame
from svmcore.base.html import html_table
from svmcore.base.threads import one_blas_thread
from svmcore.cv.folds import Fold
from svmcore.cv.goals import HINGE
from svmcore.cv.means import SAME, Curves, Mean, inside
from svmcore.cv.members import Study, features_of
from svmcore.cv.scores import Score
from svmcore.models.loss_curve import LossCurve
from svmcore.models.step_curve import OUTSIDE
from svmcore.problem import border

if TYPE_CHECKING:
    from svmcore.cv.calibration import Calibrator, ClassCalibrator

_ONE_CLASS_TOL = 1e-6
"""KKT violation of a refit of one class, for C = 1: decision values are of size 1 / C, and 1e-3 leaves most of them open."""
_COLUMNS = 100  # folds that have a column each in a table


def refit_other(study: Study, C: float, gamma: float | None, options: dict[str, Any]) -> Any:
    """The machine of all rows of a regression, or of one class."""
    from svmcore.path.family import one_class_path
    from svmcore.train.functions import train_one_class, train_svr

    goal = study.goal
    form = {**study.form} if gamma is None else {**study.form, "gamma": gamma}
    form |= {"sample_weight": study.weights, "feature_names": study.names}
    if goal.target is not None:
        return train_svr(study.X, goal.target, C, **{**goal.words, **form, **options})
    own = np.flatnonzero(study.division.parts[0].holds(study.codes))
    X = features_of(study, own)
    form = {name: value for name, value in form.items() if name not in ("fit_intercept", "intercept_scaling")}
    form["sample_weight"] = None if study.weights is None else study.weights[own]
    nu = one_class_path(X, C_min=C, C_max=C, **form).nu(C)
    return train_one_class(X, nu, **{**form, "tol": _ONE_CLASS_TOL / max(1.0, C), **options})


class PathCV:
    """The cross-validated score for every C of an interval, exactly. Made by `cv_path`; see there for an example.

    The score of a fold is that of the exact machine of its training rows on its validation rows; `error` is the mean over
    the folds. Where several gammas were tried, everything is about `best_gamma`, unless `gamma=` says which.

    Attributes
    ----------
    folds : list of (train, test), index arrays.
    classes : the labels; None where machines fit numbers. loss, score : their names.
    gammas : the values tried, increasing (empty for a kernel without gamma).
    ended : "done", or why folds are missing ("time_limit", "interrupted", "callback").
    stats : seconds, paths, events and the like.
    """

    def __init__(self, study: Study, score: Score, curves: list[Curves], stats: dict[str, Any], ended: str) -> None:
        self._study = study
        self._score = score
        self.stats = stats
        self.ended = ended
        ends = [each.C_range for each in curves]
        self._range = (max(low for low, _ in ends), min(high for _, high in ends))
        self._means = [Mean(each, self._range) for each in curves]
        self._best, self._members = next((k, each.members) for k, each in enumerate(curves) if each.members is not None)

    # ---- what was tried --------------------------------------------------------------------------------------------

    @property
    def folds(self) -> list[Fold]:
        """Pairs (train, test) of index arrays."""
        return [Fold(member.train, member.test) for member in self._members]

    @property
    def classes(self) -> NDArray[Any] | None:
        """The labels, sorted; None where machines fit numbers."""
        return self._study.classes if self._study.goal.target is None else None

    @property
    def loss(self) -> str:
        """The name of the loss that machines are trained with."""
        return self._study.goal.loss

    @property
    def score(self) -> str:
        """The name of the score."""
        return self._score.name

    @property
    def gammas(self) -> FloatArray:
        """The values of gamma that were tried."""
        return np.array([mean.curves.gamma for mean in self._means if mean.curves.gamma is not None])

    @property
    def gamma_errors(self) -> FloatArray:
        """The least score of each gamma."""
        return np.array([mean.curve.minimum for mean in self._means])

    @property
    def C_range(self) -> tuple[float, float]:
        """The range of C. It begins at 0 where the folds' machines are known for every small C, too."""
        return self._range

    def _repr_html_(self) -> str:
        """The table that notebooks show."""
        low, high = self.best_interval
        form = self._study.form
        rows = {
            f"least {self.score.replace('_', ' ')}": self._least("±"),
            "best C": f"{self.best_C:.6g} (as good: {low:.6g} to {high:.6g})",
            "simplest C within one standard error": f"{self.one_se_C:.6g}",
            **({} if self.best_gamma is None else {"best gamma": self.best_gamma}),
            "kernel": form["kernel"] if isinstance(form["kernel"], str) else "callable",
            "loss": self.loss,
            **({} if self.classes is None else {"classes": ", ".join(str(label) for label in self.classes.tolist())}),
            "points": f"{self._study.n:,}",
            "folds": f"{len(self._members):,}",
            "C": f"from {self._range[0]:.6g} to {self._range[1]:.6g}",
            "ended": self.ended,
        }
        return html_table("PathCV", rows)

    def __repr__(self) -> str:
        low, high = self.best_interval
        gamma = "" if self.best_gamma is None else f"gamma {self.best_gamma:.4g}, "
        return (
            f"<PathCV: {self.score} {self._least('+-')} at C = {self.best_C:.4g} (as good: {low:.4g} to {high:.4g}), {gamma}"
            f"{len(self._members)} folds, every C from {self._range[0]:.3g} to {self._range[1]:.3g}"
            f"{'' if self.ended == 'done' else ', ' + self.ended}>"
        )

    def _least(self, sign: str) -> str:
        """The least mean score and its standard error, which one fold has not."""
        factor, unit, digits = (100.0, " %", 3) if self._score.in_percent else (1.0, "", 4)
        spread = float(self.standard_error(self.best_C))
        shown = f"{factor * self.best_error:.{digits}g}{unit}"
        return shown if np.isnan(spread) else f"{shown} {sign} {factor * spread:.2g}{unit}"

    def _mean(self, gamma: Any) -> Mean:
        if gamma is None:
            return self._means[self._best]
        for mean in self._means:
            if mean.curves.gamma is not None and np.isclose(mean.curves.gamma, gamma, rtol=SAME, atol=0.0):
                return mean
        tried = ", ".join(f"{value:.6g}" for value in self.gammas) or "none, for this kernel has no gamma"
        raise InputError(f"gamma={gamma!r} was not tried; tried were {tried}")

    def _Cs(self, C: Any) -> tuple[FloatArray, bool]:
        values = reals(C, "C")
        if values.ndim > 1:
            raise InputError(f"C has {values.ndim} dimensions; give one number or a one-dimensional array")
        flat = np.atleast_1d(values)
        low, high = self._range
        bad = ~(flat > 0) | (flat < low * (1 - OUTSIDE)) | (flat > high * (1 + OUTSIDE))
        if bad.any():
            raise InputError(
                f"C={flat[bad][0]:g} lies outside of what was cross-validated, {low:.6g} to {high:.6g}; use a larger C_max "
                "(or a smaller C_min)"
            )
        return flat, values.ndim == 0

    # ---- the curve -------------------------------------------------------------------------------------------------

    @property
    def breakpoints(self) -> FloatArray:
        """The values of C, increasing, at which `error` changes."""
        return self._mean(None).curve.edges[1:-1]

    @property
    def values(self) -> FloatArray:
        """The error between the breakpoints: ``values[k]`` holds from ``breakpoints[k - 1]`` to ``breakpoints[k]``.

        The hinge loss and the scores of regressions are continuous: linear between breakpoints, the squared error
        quadratic. For them ``values[k]`` is the score at ``breakpoints[k]``.
        """
        curve = self._mean(None).curve
        return curve.values[1:-1] if isinstance(curve, LossCurve) else curve.values

    def error(self, C: Any, gamma: Any = None) -> Any:
        """The mean score over the folds at C (a number or an array), exactly."""
        flat, scalar = self._Cs(C)
        out = self._mean(gamma).curve(flat)
        return float(out[0]) if scalar else out

    def fold_errors(self, C: Any, gamma: Any = None) -> FloatArray:
        """The score of every fold at C; for an array one row per fold."""
        flat, scalar = self._Cs(C)
        out = self._mean(gamma).folds(flat)
        return out[:, 0] if scalar else out

    def standard_error(self, C: Any, gamma: Any = None) -> Any:
        """The standard error of `error`: the standard deviation over the k folds divided by the square root of k.

        NaN where there is one fold only.
        """
        flat, scalar = self._Cs(C)
        out = self._mean(gamma).spread(flat)
        return float(out[0]) if scalar else out

    def n_support(self, C: Any, gamma: Any = None) -> Any:
        """The mean number of support vectors of the folds' machines."""
        flat, scalar = self._Cs(C)
        out = self._mean(gamma).support(flat)
        return float(out[0]) if scalar else out

    # ---- the choice ------------------------------------------------------------------------------------------------

    @property
    def best_error(self) -> float:
        """The least mean score."""
        return self._mean(None).curve.minimum

    @property
    def best_interval(self) -> tuple[float, float]:
        """Every C between these two attains the least mean score; the widest such interval in log C."""
        return self._mean(None).curve.best_interval

    @property
    def best_C(self) -> float:
        """The geometric middle of the best interval."""
        return self._mean(None).best_C

    @property
    def best_gamma(self) -> float | None:
        """The gamma with the least score, of equals the one in the middle; None for a kernel without gamma."""
        return self._mean(None).curves.gamma

    @property
    def one_se_C(self) -> float:
        """The most regularised choice (smallest C) whose score is within one standard error of the best."""
        return self._mean(None).one_se_C

    @property
    def smallest_C(self) -> float:
        """The choice with fewest support vectors whose score is within one standard error of the best."""
        return self._mean(None).smallest_C

    # ---- machines --------------------------------------------------------------------------------------------------

    @one_blas_thread
    def decision_scores(self, C: Any = None) -> FloatArray:
        """Out-of-fold decision values: f(x) of every row by the machine that was not trained on it (default: `best_C`).

        NaN for rows that no fold validates, the mean for rows that several do. For several classes one score per class, as
        `Machines.decision_function` has.
        """
        flat, scalar = self._Cs(self.best_C if C is None else C)
        division, n = self._study.division, self._study.n
        shape = (flat.size, n) if division.single else (flat.size, n, division.n_classes)
        out = np.zeros(shape)
        count = np.zeros(n)
        for member in self._members:
            count[member.test] += 1
            values = member.values(self._study, flat)
            out[:, member.test] += np.stack([division.scores(each) for each in values])
        count = count.reshape(1, n, *(1 for _ in shape[2:]))
        with np.errstate(invalid="ignore"):
            out = np.where(count > 0, out / count, np.nan)
        return out[0] if scalar else out

    def refit(self, C: float | None = None, gamma: Any = None, **options: Any) -> Any:
        """The machine of all rows at C (default: `best_C`) and gamma (default: `best_gamma`), by `train_svc`.

        For several classes the `Machines` of `train_classes`; of a regression the machine of `train_svr`; of one class that
        of `train_one_class` at the nu that belongs to C. `options` are further keywords, for example ``tol=1e-6``.
        """
        C = self.best_C if C is None else border.cost(C)
        gamma = self._mean(gamma).curves.gamma
        if self.loss != HINGE:
            return refit_other(self._study, C, gamma, options)
        study = self._study
        y = study.classes[study.codes]
        weight = study.class_weight
        if weight is not None and not isinstance(weight, str):
            weight = dict(zip(study.classes.tolist(), weight.tolist(), strict=True))
        form = {**study.form} if gamma is None else {**study.form, "gamma": gamma}
        form |= {"sample_weight": study.weights, "class_weight": weight, "feature_names": study.names}
        if study.division.single:
            from svmcore.train.functions import train_svc

            return train_svc(study.X, y, C, **{**form, **options})
        from svmcore.train.classes import train_classes

        return train_classes(study.X, y, C, **{"strategy": study.division.strategy, **form, **options})

    def plot(self, what: str = "curve", ax: Any = None, **options: Any) -> Any:
        """Draw one view and return its Axes.

        "curve": the mean score over C with its standard error, the best interval, and the number of support vectors on
        top (option `gamma`); "map": the score over C and gamma. Needs matplotlib: ``pip install "svmcore[plot]"``.
        """
        from svmcore.plots.cv import plot_cv

        return plot_cv(self, what, ax=ax, **options)

    def calibrate(
        self, method: str = "sigmoid", C: float | None = None, machine: Any = None
    ) -> Calibrator | ClassCalibrator:
        """Probabilities for the machine at C (default: `best_C`), from its out-of-fold scores: no further fit but `refit`.

        `machine` is that machine, where it is there already.

        "sigmoid" is Platt's, with two parameters and for few rows; "isotonic" any non-decreasing function, for some hundred
        rows and more; "venn-abers" has an interval for every probability. Of several classes each is calibrated against the
        rest, and the probabilities are divided by their sum.
        """
        from svmcore.cv.calibration import METHODS, calibrator, class_calibrator

        border.choice("method", method, METHODS)
        if self.loss != HINGE:
            raise InputError(f"calibrate is about probabilities of classes; loss={self.loss!r} has none")
        study = self._study
        C = self.best_C if C is None else C
        weight = np.ones(study.n) if self._score.weights is None else self._score.weights
        scores = self.decision_scores(C)
        if study.division.n_classes > 2:
            return class_calibrator(method, machine or self.refit(C), study.classes, scores, study.codes, weight)
        return calibrator(method, machine or self.refit(C), study.classes, scores, study.codes == 1, weight)

    # ---- out -------------------------------------------------------------------------------------------------------

    def table(self) -> dict[str, FloatArray]:
        """The columns of `to_frame` as a dict of arrays."""
        parts = []
        for mean in self._means:
            curve = mean.curve
            edges = curve.edges
            at = inside(edges)
            part = {
                "C_from": edges[:-1], "C_to": edges[1:], "error": curve(at), "standard_error": mean.spread(at),
                "n_support": mean.support(at),
            }  # fmt: skip
            if mean.curves.gamma is not None:
                part = {"gamma": np.full(at.size, mean.curves.gamma), **part}
            if len(mean.curves.scores) <= _COLUMNS:
                part |= {f"fold_{k}": row for k, row in enumerate(mean.folds(at))}
            parts.append(part)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def to_frame(self) -> Any:
        """A pandas DataFrame: one row per stretch of C, for every gamma."""
        return frame(self.table())

    def save(self, file: Any) -> None:
        """Write everything to an .npz file that `svmcore.load` reads, training data included. Nothing is pickled."""
        from svmcore.cv.files import save_cv

        save_cv(self, file)


__all__ = ["PathCV"]
