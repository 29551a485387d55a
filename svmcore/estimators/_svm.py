"""SVC, NuSVC, SVR, NuSVR, QuantileSVR and OneClassSVM: a solver's parameters, and a form each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from svmcore._errors import ConvergenceWarning, warn
from svmcore._keywords import TOL, SolverName
from svmcore._types import FloatArray
from svmcore.estimators import _base as base
from svmcore.estimators import _sklearn as sk
from svmcore.estimators._base import TrainingData
from svmcore.estimators._kernel import NO_PROBABILITIES, Classifier, KernelMachine
from svmcore.problem import border
from svmcore.problem.division import division

_DEPRECATED = (
    "the `probability` parameter is deprecated, as in scikit-learn 1.9, which removes it in 1.11; leave it out, and for "
    "probabilities use svmcore.SVCPathCV() or sklearn.calibration.CalibratedClassifierCV({}(), ensemble=False)"
)
_CACHE = 200  # scikit-learn's cache_size, which stands for "not said"
_INSIDE = 1e-6  # a nu is kept this far below the largest one, relatively: at the largest one many C have the same nu
_ROUNDING = 1e-12  # a nu this close to the largest possible one, relatively, is the largest one


@dataclass(kw_only=True, eq=False, repr=False)
class Solved(KernelMachine):
    """The parameters of the solvers."""

    _renamed: ClassVar[dict[str, str]] = {"cache_mb": "cache_size"}

    tol: float = TOL
    shrinking: bool = True
    cache_size: float = _CACHE
    verbose: bool | int = False
    max_iter: int = -1
    solver: SolverName = "auto"
    n_threads: int | None = None
    time_limit: float | None = None

    def _plain_words(self) -> dict[str, Any]:
        words = super()._plain_words() | {"cache_mb": None if self.cache_size == _CACHE else self.cache_size}
        return words if border.flag("shrinking", self.shrinking) else words | {"shrinking": False}


@dataclass(kw_only=True, eq=False, repr=False)
class SolvedClassifier(Classifier, Solved):
    """What SVC and NuSVC share."""

    probability: bool | str = "deprecated"
    multi_class: Literal["ovo", "ovr"] = "ovo"
    random_state: Any = None

    @property
    def _strategy(self) -> str:  # type: ignore[override]
        return self.multi_class

    def _factors(self, data: TrainingData) -> FloatArray:
        if self.probability != "deprecated":
            warn(_DEPRECATED.format(type(self).__name__), FutureWarning)
        return super()._factors(data)

    def _plain_words(self) -> dict[str, Any]:
        if self.probability != "deprecated":
            border.flag("probability", self.probability)
        border.choice("multi_class", self.multi_class, ("ovo", "ovr"))
        return super()._plain_words()

    def _store(self, found: Any, data: TrainingData) -> None:
        super()._store(found, data)
        self.__dict__.pop("_sigmoids", None)
        if self._wants_probabilities():
            from svmcore.estimators._proba import sigmoids

            self._sigmoids = sigmoids(self, found, data)

    # ---- probabilities -----------------------------------------------------------------------------------------------

    def _wants_probabilities(self) -> bool:
        return self.probability != "deprecated" and bool(self.probability)

    @property
    def predict_proba(self) -> Any:
        """The probability of every class for every row of X. Near the boundary `predict` may name a less probable class."""
        return self._if_wanted(self._probabilities)

    @property
    def predict_log_proba(self) -> Any:
        """The logarithm of `predict_proba`."""
        return self._if_wanted(lambda X: np.log(self._probabilities(X)))

    def _if_wanted(self, method: Any) -> Any:
        if not self._wants_probabilities():
            raise AttributeError(NO_PROBABILITIES.format(type(self).__name__))
        return method

    def _probabilities(self, X: Any) -> FloatArray:
        from svmcore.models.sigmoid import probabilities

        known = self._known
        if "_sigmoids" not in self.__dict__:
            raise sk.NotFittedError("predict_proba is not available when fitted with probability=False; fit again")
        return probabilities(self._sigmoids, self._values(X), known.division or division(2, self._strategy))

    @property
    def probA_(self) -> FloatArray:
        """The slopes of the sigmoids, as LIBSVM has them; empty without `probability=True`."""
        return self._sigmoid("probA_", 0)

    @property
    def probB_(self) -> FloatArray:
        """The constants of the sigmoids, as LIBSVM has them; empty without `probability=True`."""
        return self._sigmoid("probB_", 1)

    def _sigmoid(self, name: str, row: int) -> FloatArray:
        """Of a pair LIBSVM gives the probability of the first class, by a value that is positive for it."""
        self._known  # noqa: B018  (an estimator without a fit says so)
        warn(f"Attribute `{name}` was deprecated with `probability`, as in scikit-learn 1.9", FutureWarning)
        return self._libsvm_sigmoids[row]  # type: ignore[no-any-return]

    @property
    def _libsvm_sigmoids(self) -> FloatArray:
        """Rows A and B."""
        known = self.__dict__.get("_sigmoids", np.empty((2, 0)))
        return np.asarray(np.array([[1.0], [-1.0]]) * known)


@dataclass(kw_only=True, eq=False, repr=False)
class SVC(SolvedClassifier):
    """Support vector classification, with scikit-learn's parameters and attributes.

    Examples
    --------
    >>> from svmcore import SVC
    >>> machine = SVC(kernel="linear").fit([[0.0], [1.0], [4.0], [5.0]], ["low", "low", "high", "high"])
    >>> [str(label) for label in machine.predict([[0.5], [4.5]])]
    ['low', 'high']
    """

    _form = base.SVC_FORM
    C: float = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class NuSVC(SolvedClassifier):
    """Classification by the share `nu` of points at the wrong side of their margins, in place of C.

    No machine can have a share above twice that of its smaller class in the weight. A larger nu makes C smaller than it is at
    that share, in proportion, with a warning.
    """

    _form = base.NU_SVC_FORM
    nu: float = 0.5

    def _find(self, data: TrainingData, words: dict[str, Any]) -> Any:
        nu, most = border.share("nu", self.nu), self._largest_shares(data)
        if not (nu > most).any():
            return super()._find(data, words)
        found = super()._find(data, words | {"nu": _for_each(np.minimum(nu, (1.0 - _INSIDE) * most))})
        machines = found.machines if hasattr(found, "machines") else (found,)
        C = np.array([machine.C for machine in machines]) * np.minimum(1.0, most / nu)
        return super()._find(data, words | {"nu": None, "C": _for_each(C)})

    def _largest_shares(self, data: TrainingData) -> FloatArray:
        """The largest nu of each machine: twice the share of its smaller class in the weight. Says where `nu` is larger."""
        weights = self.class_weight_[data.y] if data.w is None else self.class_weight_[data.y] * data.w
        mass = np.bincount(data.y, weights=weights).tolist()
        parts = division(len(mass), self.multi_class).parts
        sides = [[sum(mass[c] for c in side) for side in (part.minus, part.plus)] for part in parts]
        most = np.array([2.0 * min(both) / sum(both) for both in sides])
        if self.nu > most.min() * (1.0 + _ROUNDING):
            part = parts[int(np.argmin(most))]
            warn(
                f"specified nu is infeasible: nu={self.nu:g}, and for {part.name(data.classes)} it can be at most "
                f"{most.min():.6g}, twice the share of the smaller class in the weight. The C of that share, times "
                f"{most.min() / self.nu:.3g}, is taken. Remedy: a smaller nu, or class_weight='balanced'.",
                ConvergenceWarning,
            )
        return np.where(np.abs(self.nu - most) <= _ROUNDING * most, self.nu, most)


def _for_each(values: FloatArray) -> Any:
    """A word with a value for each machine, where there are several."""
    return values if values.size > 1 else float(values[0])


@dataclass(kw_only=True, eq=False, repr=False)
class Regressor(sk.RegressorMixin, Solved):  # type: ignore[misc]
    """What regressions share."""

    C: float = 1.0

    def predict(self, X: Any) -> FloatArray:
        """The value at every row of X."""
        return self._values(X)[:, 0]


@dataclass(kw_only=True, eq=False, repr=False)
class SVR(Regressor):
    """Support vector regression with a tube of half-width `epsilon`."""

    _form = base.SVR_FORM
    epsilon: float = 0.1


@dataclass(kw_only=True, eq=False, repr=False)
class NuSVR(Regressor):
    """Support vector regression by the share `nu` of points outside of the tube, in place of epsilon."""

    _form = base.NU_SVR_FORM
    nu: float = 0.5


@dataclass(kw_only=True, eq=False, repr=False)
class QuantileSVR(Regressor):
    """The `quantile` of the targets as a function of the features, by the pinball loss."""

    _form = base.QUANTILE_FORM
    quantile: float = 0.5


@dataclass(kw_only=True, eq=False, repr=False)
class OneClassSVM(sk.OutlierMixin, Solved):  # type: ignore[misc]
    """The region that holds all but about the share `nu` of the points."""

    _form = base.ONE_CLASS_FORM
    nu: float = 0.5

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Train on the rows of X; y is not looked at."""
        return self._told(self._run(X, None, sample_weight))

    @property
    def offset_(self) -> FloatArray:
        """What `score_samples` exceeds `decision_function` by: minus `intercept_`."""
        return -self.intercept_  # type: ignore[no-any-return]

    def decision_function(self, X: Any) -> FloatArray:
        """At least 0 inside of the region, below 0 outside."""
        values = self._values(X)[:, 0]
        values[np.abs(values) <= self._known.edge] = 0.0  # on the edge, but for rounding
        return values

    def score_samples(self, X: Any) -> FloatArray:
        """The decision function without its constant."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> Any:
        """1 inside of the region and -1 outside."""
        return np.where(self.decision_function(X) >= 0.0, 1, -1).astype(np.intp)
