"""Estimators with kernels: one body for classification, regression and one class; the formulations are rows of `_base`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._keywords import Gamma, KernelLike, SolverName
from svmcore._types import FloatArray
from svmcore.estimators import _base as base
from svmcore.estimators import _sklearn as sk
from svmcore.estimators import _update as update
from svmcore.estimators._base import Data, Estimator, Form
from svmcore.estimators._fitted import Fitted, count
from svmcore.kernel.points import is_sparse
from svmcore.problem import border
from svmcore.problem.division import division

_CACHE = 200  # scikit-learn's cache_size, which stands for "not said"
_INSIDE = 1e-6  # below the largest nu, where C is not the only one any more
_ROUNDING = 1e-12
_ON_THE_EDGE = 1e-10  # of one class: values so small, relative to the constant, are zero but for rounding
_INSTEAD = (
    "use svmcore.SVCPathCV().predict_proba, which needs no further fit, or "
    "sklearn.calibration.CalibratedClassifierCV({}(), ensemble=False)"
)
_CALIBRATE = "probability=True is not there, and scikit-learn removes it in 1.11; " + _INSTEAD
_NO_PROBABILITIES = "{0} has no probabilities; " + _INSTEAD.replace("{}", "{0}")


@dataclass(kw_only=True, eq=False, repr=False)
class KernelMachine(Estimator):
    """Parameters and attributes that all machines with kernels have."""

    _form: ClassVar[Form]

    kernel: KernelLike = "rbf"
    degree: int = 3
    gamma: Gamma = "scale"
    coef0: float = 0.0
    tol: float = 1e-3
    shrinking: bool = True
    cache_size: float = _CACHE
    verbose: bool | int = False
    max_iter: int = -1
    solver: SolverName = "auto"
    n_threads: int | None = None
    time_limit: float | None = None

    @property
    def _targets(self) -> str:  # type: ignore[override]
        return self._form.targets

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags

    # ---- check -------------------------------------------------------------------------------------------------------

    def _check_points(self, X: Any, y: Any) -> tuple[Any, Any]:
        if callable(self.kernel):
            if y is not None:
                sk.check_consistent_length(X, y)
            return X, y
        if self._given and hasattr(X, "tocsr"):
            raise TypeError("Sparse precomputed kernels are not supported.")
        X, y = super()._check_points(X, y)
        if self._given and X.shape[0] != X.shape[1]:
            raise InputError(
                f"Precomputed matrix must be a square matrix. Input is a {X.shape[0]}x{X.shape[1]} matrix."
            )
        return X, y

    @property
    def _given(self) -> bool:
        """Whether X holds kernel values."""
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    # ---- form, solve, store ------------------------------------------------------------------------------------------

    def _words(self, data: Data) -> dict[str, Any]:
        """The problem in the words of the function that trains."""
        words = {word: getattr(self, name) for word, name in self._form.words.items()} | self._form.fixed
        words["cache_mb"] = None if self.cache_size == _CACHE else self.cache_size
        words["random_state"] = base.seed(getattr(self, "random_state", None))
        if not self.shrinking:
            words["shrinking"] = False
        if data.classes is not None:
            words["class_weight"] = dict(enumerate(self.class_weight_.tolist()))
        return words

    def _solve(self, data: Data, callback: Callable[[Any], Any] | None) -> None:
        if data.classes is not None:
            self.class_weight_ = self._factors(data)
        words = self._words(data) | {"callback": callback}
        points, objects = data.X, None
        if callable(self.kernel):
            objects = data.X
            points = kernel_values(self.kernel, objects, objects)
            words["kernel"] = "precomputed"
        self._store(self._find(data._replace(X=points), words), data, objects)

    def _find(self, data: Data, words: dict[str, Any]) -> Any:
        """Train on checked data."""
        return base.machines_for(self._form, data, words, self._strategy)

    def _store(self, found: Any, data: Data, objects: Any) -> None:
        """Keep what was found, with the rows for later changes."""
        codes = None if data.classes is None else data.y
        sparse = is_sparse(data.X) and objects is None
        if objects is None and isinstance(self.kernel, str) and self.kernel == "linear" and not sparse:
            objects = data.X  # whose rows linear machines may have moved to their mean
        self._fitted = Fitted(found, codes, objects, sparse)
        self._rows = data
        if data.classes is not None:
            self.classes_ = data.classes
        self.shape_fit_ = tuple(data.X.shape) if hasattr(data.X, "shape") else (count(data.X),)
        self.fit_status_ = int(not self._fitted.converged)
        n_iter = self._fitted.n_iter
        self.n_iter_ = n_iter if data.classes is not None else int(n_iter[0])

    def _factors(self, data: Data) -> FloatArray:
        raise NotImplementedError

    _strategy: ClassVar[str] = "ovo"

    # ---- values ------------------------------------------------------------------------------------------------------

    def _values(self, X: Any) -> FloatArray:
        """The values of the machines at the rows of X, one column for each."""
        known = self._known
        if callable(self.kernel):
            return known.values_of(kernel_values(self.kernel, X, known.objects))  # type: ignore[no-any-return]
        if self._given:
            return known.values_of(self._kernel_columns(X, known))  # type: ignore[no-any-return]
        X = self._new_points(X)
        if is_sparse(X) and not known.sparse:
            raise InputError(f"cannot use sparse input in {type(self).__name__!r} trained on dense data")
        try:
            return known.values(X)  # type: ignore[no-any-return]
        except InputError:
            sk.validate_data(self, X, accept_sparse=True, dtype=np.float64, reset=False)
            raise

    def _kernel_columns(self, X: Any, known: Fitted) -> FloatArray:
        """The columns of the support vectors in rows of kernel values: all columns are given, or these."""
        if not base.plain(X):
            X = sk.check_array(X, dtype=np.float64, order="C")
        if X.shape[1] == known.n:
            X = X[:, known.support]
        elif X.shape[1] != known.support.size:
            raise InputError(
                f"X.shape[1] = {X.shape[1]} should be equal to {known.n}, the number of samples at training time, or to "
                f"{known.support.size}, the number of support vectors"
            )
        if not np.isfinite(X).all():
            raise InputError("X contains NaN or infinity; a kernel has finite values")
        return np.asarray(X)

    # ---- attributes --------------------------------------------------------------------------------------------------

    @property
    def support_(self) -> Any:
        """The rows of the support vectors, sorted by class."""
        return self._known.support.astype(np.int32)

    @property
    def support_vectors_(self) -> Any:
        """The support vectors, in the order of `support_`; empty for given kernel values."""
        return self._known.support_vectors

    @property
    def n_support_(self) -> Any:
        """The number of support vectors of each class, or of all."""
        return self._known.n_support

    @property
    def dual_coef_(self) -> Any:
        """The coefficients of the support vectors."""
        return self._known.dual_coef

    @property
    def intercept_(self) -> Any:
        """The constants of the decision functions."""
        return self._known.intercept

    @property
    def coef_(self) -> Any:
        """The weights of the features, for the linear kernel; they cannot be written to."""
        if not (isinstance(self.kernel, str) and self.kernel == "linear"):
            raise AttributeError("coef_ is only available when using a linear kernel")
        return self._known.weights

    @property
    def dual_gap_(self) -> float:
        """Primal minus dual objective, recomputed from the data; of several machines the largest."""
        return float(max(machine.gap for machine in self._known.machines))

    @property
    def kkt_violation_(self) -> float:
        """The KKT violation, recomputed from the data; of several machines the largest."""
        return float(max(machine.kkt_violation for machine in self._known.machines))

    @property
    def converged_(self) -> bool:
        """Whether every machine met its tolerance."""
        return bool(self._known.converged)

    @property
    def _gamma(self) -> float:
        return float(self._known.machines[0].kernel.gamma)

    # ---- exact changes -----------------------------------------------------------------------------------------------

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Add rows: afterwards the machine is the exact one of all rows so far. The kernel's gamma stays what it was.

        Parameters
        ----------
        X, y, sample_weight : further rows, as in `fit`; the first call is a `fit`.
        """
        if "_fitted" not in self.__dict__:
            return self.fit(X, y, sample_weight) if self._targets != "none" else self.fit(X, None, sample_weight)
        return self._told(update.add(self, X, y, sample_weight))

    def forget(self, indices: Any) -> Any:
        """Remove rows: afterwards the machine is the exact one of the others.

        Parameters
        ----------
        indices : their places among all rows so far; the places of the rows that stay close up.
        """
        return self._told(update.remove(self, indices))


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(sk.ClassifierMixin, KernelMachine):  # type: ignore[misc]
    """What classifiers with kernels have beyond `KernelMachine`."""

    probability: bool | str = "deprecated"
    class_weight: Any = None
    decision_function_shape: Literal["ovr", "ovo"] = "ovr"
    break_ties: bool = False
    multi_class: Literal["ovo", "ovr"] = "ovo"
    random_state: Any = None

    @property
    def _strategy(self) -> str:  # type: ignore[override]
        return self.multi_class

    def _factors(self, data: Data) -> FloatArray:
        """One factor for each class, by scikit-learn's rule; what cannot be is refused."""
        if self.probability not in (False, "deprecated"):
            raise InputError(_CALIBRATE.format(type(self).__name__))
        border.choice("multi_class", self.multi_class, ("ovo", "ovr"))
        border.choice("decision_function_shape", self.decision_function_shape, ("ovr", "ovo"))
        if self.class_weight is None:
            return np.ones(len(data.classes))
        y = data.classes[data.y]
        return np.asarray(sk.compute_class_weight(self.class_weight, classes=data.classes, y=y), dtype=np.float64)

    def _pairs_asked(self) -> bool:
        """Whether the values of the pairs are wanted, and not a score for each class."""
        if self.decision_function_shape != "ovo" or len(self.classes_) == 2:
            return False
        if self._known.pairs:
            return True
        raise InputError(
            'decision_function_shape="ovo" shows the machines of pairs of classes, and multi_class="ovr" trains none; use '
            'decision_function_shape="ovr"'
        )

    def decision_function(self, X: Any) -> FloatArray:
        """f(x) for two classes, shape (m,); else a score for each class, or with "ovo" the value of each pair.

        Of a pair the value is positive for the first class, as in scikit-learn.
        """
        values = self._values(X)
        if self._pairs_asked():
            return -values
        return values[:, 0] if len(self.classes_) == 2 else self._known.division.scores(values)

    def predict(self, X: Any) -> Any:
        """The class of every row of X."""
        known = self._known
        if self.break_ties and self.decision_function_shape == "ovo":
            raise InputError("break_ties must be False when decision_function_shape is 'ovo'")
        values = self._values(X)
        if len(self.classes_) == 2:
            places = (values[:, 0] > 0.0).astype(np.intp)
        elif self.break_ties:
            places = np.argmax(known.division.scores(values), axis=1)
        else:
            places = known.division.choose(values)
        return self.classes_[places]

    def partial_fit(  # type: ignore[override]
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Any:
        """Add rows: afterwards the machine is the exact one of all rows so far. The kernel's gamma stays what it was.

        Parameters
        ----------
        X, y, sample_weight : further rows, as in `fit`. The first call is a `fit`, and has rows of every class.
        classes : all classes there are, to be checked.
        """
        super().partial_fit(X, y, sample_weight)
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            missing = np.setdiff1d(np.unique(classes), self.classes_).tolist()
            raise InputError(
                f"classes names {missing or 'fewer classes than y has'}; the first rows must have a row of every class"
            )
        return self

    @property
    def predict_proba(self) -> Any:
        """Not there: see `SVCPathCV`."""
        raise AttributeError(_NO_PROBABILITIES.format(type(self).__name__))


@dataclass(kw_only=True, eq=False, repr=False)
class SVC(Classifier):
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
class NuSVC(Classifier):
    """Classification by the share `nu` of points at the wrong side of their margins, in place of C.

    No machine can have a share above twice that of its smaller class in the weight. A larger nu makes C smaller than it is at
    that share, in proportion, with a warning.
    """

    _form = base.NU_SVC_FORM
    nu: float = 0.5

    def _find(self, data: Data, words: dict[str, Any]) -> Any:
        nu, most = border.share("nu", self.nu), self._largest_shares(data)
        if not (nu > most).any():
            return super()._find(data, words)
        found = super()._find(data, words | {"nu": _for_each(np.minimum(nu, (1.0 - _INSIDE) * most))})
        machines = found.machines if hasattr(found, "machines") else (found,)
        C = np.array([machine.C for machine in machines]) * np.minimum(1.0, most / nu)
        return super()._find(data, words | {"nu": None, "C": _for_each(C)})

    def _largest_shares(self, data: Data) -> FloatArray:
        """The largest nu of each machine: twice the share of its smaller class in the weight. Says where `nu` is larger."""
        weights = self.class_weight_[data.y] if data.w is None else self.class_weight_[data.y] * data.w
        mass = np.bincount(data.y, weights=weights)
        parts = division(mass.size, self.multi_class).parts
        sides = np.array([[mass[list(part.minus)].sum(), mass[list(part.plus)].sum()] for part in parts])
        most = np.asarray(2.0 * sides.min(axis=1) / sides.sum(axis=1))
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
class Regressor(sk.RegressorMixin, KernelMachine):  # type: ignore[misc]
    """What regressions with kernels have beyond `KernelMachine`."""

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
class OneClassSVM(sk.OutlierMixin, KernelMachine):  # type: ignore[misc]
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
        values[np.abs(values) <= _ON_THE_EDGE * abs(self._known.constants[0])] = 0.0
        return values

    def score_samples(self, X: Any) -> FloatArray:
        """The decision function without its constant."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> Any:
        """1 inside of the region and -1 outside."""
        return np.where(self.decision_function(X) >= 0.0, 1, -1).astype(np.intp)


def kernel_values(function: Callable[[Any, Any], Any], A: Any, B: Any) -> FloatArray:
    """A kernel function on two containers of objects, checked."""
    values = function(A, B)
    values = values.toarray() if hasattr(values, "toarray") else values
    values = np.asarray(values, dtype=np.float64)
    shape = (count(A), count(B))
    if values.shape != shape:
        raise InputError(
            f"the kernel function returned shape {values.shape} for {shape[0]} and {shape[1]} objects; it must return one "
            f"value for each pair, shape {shape}"
        )
    if not np.isfinite(values).all():
        raise InputError("the kernel function returned NaN or infinity; it must return finite numbers for all pairs")
    return values


__all__ = ["SVC", "SVR", "Classifier", "KernelMachine", "NuSVC", "NuSVR", "OneClassSVM", "QuantileSVR", "Regressor"]
