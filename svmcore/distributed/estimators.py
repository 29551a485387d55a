"""Estimators over parts, with scikit-learn's conventions and those of xgboost.dask and lightgbm.dask: `client`, collections.

They need neither scikit-learn nor, for files and arrays, dask.
"""

from __future__ import annotations

import inspect
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from svmcore._errors import InputError
from svmcore._keywords import TOL
from svmcore._types import FloatArray
from svmcore.base.door import entered
from svmcore.cv.left_out import sigmoids
from svmcore.distributed.answer import Calibrated, ManyWeights, PartsSolution, by_blocks, values_of
from svmcore.distributed.setup import Setup, Words, setup
from svmcore.distributed.training import solved
from svmcore.kernel.points import is_sparse
from svmcore.models.solution import Solution
from svmcore.problem import border, formulations
from svmcore.problem.division import division
from svmcore.train.classes import Machines

_RUN = ("engine", "client", "label", "parts", "checkpoint", "tol", "time_limit", "callback", "verbose", "n_threads")


@dataclass(eq=False, repr=False, kw_only=True)
class _PartsEstimator:
    """What the estimators share: how to run, parameters by name, and the machines behind them."""

    strategy: ClassVar[str] = "ovo"
    losses: ClassVar[tuple[str, ...]] = formulations.SVC_LOSSES
    tol: float = TOL
    client: Any = None
    engine: str | None = None
    label: Any = None
    parts: int | None = None
    checkpoint: Any = None
    time_limit: float | None = None
    callback: Any = None
    verbose: int = 0
    n_threads: int | None = None

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name."""
        for name, value in params.items():
            if name not in self._names():
                raise InputError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(self._names())}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self).__init__).parameters.items()}
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if v is not defaults[k] and v != defaults[k]]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _form(self) -> dict[str, Any]:
        form = {"epsilon": 0.0, "class_weight": None, "kernel": "linear", "gamma": 1.0, "degree": 3, "coef0": 0.0}
        return form | {"fit_intercept": True, "loss": "hinge"} | self.get_params()

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train over the parts of X: collections of dask, files, arrays; see `svmcore.distributed.train_linear`."""
        border.choice("loss", getattr(self, "loss", self.losses[0]), self.losses)
        words = Words(*(getattr(self, name, None) for name in _RUN))
        size = getattr(self, "working_set", None)
        size = None if size is None else border.integer("working_set", size, low=2)
        problem = setup(X, y, sample_weight, self._form(), words, several=True)._replace(working_set=size)
        try:
            machines = [problem]
            labels = problem.task.labels
            if labels is not None and len(labels) > 2:
                machines = _of_classes(problem, self.strategy)
            solutions = [solved(machines[0])]
            solutions += (solved(each._replace(begun=problem.control.seconds)) for each in machines[1:])
        finally:
            problem.engine.close()
        self.__dict__.pop("calibrated_", None)
        self.solutions_: list[PartsSolution] = solutions
        self.client_ = getattr(problem.engine, "client", None)
        self.classes_ = labels
        self.n_features_in_ = problem.whole.features
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Without clients, which belong to their process."""
        return {name: None if name in ("client", "client_") else value for name, value in self.__dict__.items()}

    def __sklearn_clone__(self) -> Self:
        """The same parameters, and no fit: of a client there is one, and it cannot be copied."""
        params = self.get_params()
        return type(self)(**{name: each if name == "client" else deepcopy(each) for name, each in params.items()})

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "solutions_")

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn's tools ask; nobody else does."""
        from svmcore.estimators._sklearn import tags

        return tags(classifier=self.losses == formulations.SVC_LOSSES)

    @property
    def solution_(self) -> PartsSolution:
        """The machine of two classes, or of a regression, with its certificate; `solutions_` has all."""
        self._check_fitted()
        if len(self.solutions_) > 1:
            raise InputError(f"there are {len(self.classes_)} classes and several machines; see solutions_")
        return self.solutions_[0]

    def _check_fitted(self) -> None:
        if not hasattr(self, "solutions_"):
            raise InputError(f"this {type(self).__name__} is not fitted yet; call fit first")

    @property
    def converged_(self) -> bool:
        """Whether all machines met the tolerance."""
        self._check_fitted()
        return all(solution.converged for solution in self.solutions_)

    @property
    def kkt_violation_(self) -> float:
        """The largest KKT violation."""
        self._check_fitted()
        return max(solution.kkt_violation for solution in self.solutions_)

    @property
    def dual_gap_(self) -> float:
        """The largest duality gap."""
        self._check_fitted()
        return max(solution.gap for solution in self.solutions_)

    @property
    def n_iter_(self) -> Any:
        """Rounds: of a classifier with a kernel those of every machine."""
        self._check_fitted()
        found = np.array([len(solution.rounds) for solution in self.solutions_])
        return found if isinstance(self, DaskSVC) else int(found.max())

    @property
    def feature_names_in_(self) -> Any:
        """The names of the columns, where the parts have them."""
        self._check_fitted()
        names = self.solutions_[0].feature_names
        if names is None:
            raise AttributeError("feature_names_in_ needs data frames, or files whose columns have names")
        return np.array(names, dtype=object)

    @property
    def _machine(self) -> Any:
        self._check_fitted()
        first = self.solutions_[0]
        if len(self.solutions_) == 1:
            return first._machine
        if first.coef_ is not None and self.strategy == "ovr":
            return ManyWeights(self.coef_, self.intercept_, self.classes_, first._columns)
        return self.to_local()

    @property
    def coef_(self) -> Any:
        """The weights of linear machines, one row each."""
        self._check_fitted()
        if self.solutions_[0].coef_ is None:
            raise AttributeError("coef_ needs the linear kernel")
        return self._sign * np.stack([solution.coef_ for solution in self.solutions_ if solution.coef_ is not None])

    @property
    def _sign(self) -> float:
        """scikit-learn calls the first class of a pair positive where there are several pairs, and the second one here."""
        return -1.0 if self.strategy == "ovo" and len(self.solutions_) > 1 else 1.0

    @property
    def intercept_(self) -> Any:
        """The constants of the machines."""
        self._check_fitted()
        return self._sign * np.array([solution.intercept for solution in self.solutions_])

    def to_local(self) -> Solution | Machines:
        """The same machine in one place, with its support vectors: a `svmcore.Solution`; of several classes `Machines`."""
        self._check_fitted()
        found = tuple(solution.to_local() for solution in self.solutions_)
        return found[0] if len(found) == 1 else Machines(self.classes_, self.strategy, found)

    def predict(self, X: Any) -> Any:
        """Labels, or values; lazy where X is a collection of dask: an array, or a series with the index of a data frame."""
        return by_blocks(X, self._machine, "predict")

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of right labels, or R squared of a regression; `sample_weight`: how much each row counts."""
        predicted, y = (entered(values, "y") for values in (self.predict(X), y))
        y = y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y
        if y.shape != predicted.shape:
            raise InputError(f"y has shape {y.shape} and X has {len(predicted)} rows; give one label a row")
        w = np.ones(len(y)) if sample_weight is None else border.vector(sample_weight, "sample_weight", len(y))
        if self.classes_ is not None:
            return float(np.average(predicted == y, weights=w))
        return float(1.0 - w @ (y - predicted) ** 2 / (w @ (y - np.average(y, weights=w)) ** 2))


@dataclass(eq=False, repr=False, kw_only=True)
class _PartsClassifier(_PartsEstimator):
    """Those that tell classes apart."""

    def decision_function(self, X: Any) -> Any:
        """Decision values; lazy where X is a collection of dask: an array, or a series or frame for a data frame."""
        return by_blocks(X, self._machine, "decision_function")

    def calibrate(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn probabilities from rows that the machines were not trained on: afterwards there is `predict_proba`.

        A sigmoid for each machine (Platt); of several classes those of the pairs are coupled. The values of all rows
        come to this process: some 10,000 rows are enough.
        """
        machine, y = self._machine, border.label_array(entered(y, "y"), "y").reshape(-1)
        values = entered(by_blocks(X, _Values(machine), "decision_function"), "X")
        if len(y) != len(values):
            raise InputError(f"X has {len(values)} rows and y {len(y)}; give one label a row")
        w = np.ones(len(y)) if sample_weight is None else border.vector(sample_weight, "sample_weight", len(y))
        missing = [str(label) for label in self.classes_ if not ((y == label) & (w > 0.0)).any()]
        strange = np.flatnonzero(~np.isin(y, self.classes_))
        if missing or len(strange):
            what = (
                f"holds {y[strange].tolist()[0]!r} at row {strange[0]}"
                if len(strange)
                else f"lacks {', '.join(missing)}"
            )
            raise InputError(f"y {what}; calibrate needs rows of all classes that were trained, and of no others")
        which = division(len(self.classes_), self.strategy)
        found = sigmoids(values, np.searchsorted(self.classes_, y), w, which, self.tol)
        self.calibrated_ = Calibrated(machine, found, which)
        return self

    def predict_proba(self, X: Any) -> Any:
        """The probability of every class (columns, as `classes_`), after `calibrate`; lazy as `predict` is."""
        self._check_fitted()
        if "calibrated_" not in self.__dict__:
            raise AttributeError("predict_proba needs calibrate(X, y) first, with rows that were not trained on")
        return by_blocks(X, self.calibrated_, "predict_proba")


class _Values(NamedTuple):
    """A machine whose decision values are those of all its machines, one column for each."""

    machine: Any

    @property
    def columns(self) -> Any:
        """As the machine's."""
        return self.machine.columns

    @property
    def classes(self) -> Any:
        """Names of the columns."""
        return None

    def decision_function(self, X: Any) -> FloatArray:
        """The values."""
        return values_of(self.machine, X)


class _PartsVectors:
    """What scikit-learn shows of machines with a kernel, in its layout; they are put together when asked for."""

    @property
    def _shown(self: Any) -> Any:
        from svmcore.estimators._fitted import Fitted

        self._check_fitted()
        found, codes = self.to_local(), None
        if self.classes_ is not None:
            codes = np.zeros(found.n_points, np.int64)
            machines = found.machines if isinstance(found, Machines) else (found,)
            for machine, part in zip(machines, division(len(self.classes_), self.strategy).parts, strict=True):
                codes[machine.support] = np.where(machine.dual_coef > 0.0, part.plus[0], part.minus[0])
        return Fitted(found, codes, sparse=is_sparse(found.support_vectors))

    @property
    def support_(self) -> Any:
        """The rows of the support vectors, by class; rows of all parts are counted one after the other."""
        return self._shown.support

    @property
    def support_vectors_(self) -> Any:
        """The support vectors, in the order of `support_`."""
        return self._shown.support_vectors

    @property
    def n_support_(self) -> Any:
        """Support vectors of each class."""
        return self._shown.n_support

    @property
    def dual_coef_(self) -> Any:
        """Their coefficients, as scikit-learn's `SVC` orders them."""
        return self._shown.dual_coef


def _of_classes(problem: Setup, strategy: str) -> list[Setup]:
    """A problem for every pair of classes, or for every class against the rest."""
    labels = problem.task.labels
    found: list[Setup] = []
    for part in division(len(labels), strategy).parts:
        minus = labels[part.minus[0]] if len(part.minus) == 1 else None
        pair = minus, labels[part.plus[0]]
        ledger = problem.ledger.of_machine(len(found), [None if label is None else str(label) for label in pair])
        found.append(problem._replace(task=problem.task._replace(classes=pair), ledger=ledger))
    return found


@dataclass(eq=False, repr=False)
class DaskSVC(_PartsVectors, _PartsClassifier):
    """Kernel classifier over parts, two classes or more (one against one); parameters as `svmcore.distributed.train_svc`.

    Examples
    --------
    >>> import numpy as np
    >>> from svmcore.distributed import DaskSVC
    >>> X = np.random.default_rng(0).normal(size=(900, 2))
    >>> y = np.floor(2.0 * np.abs(X[:, 0])).clip(0, 2)
    >>> model = DaskSVC(C=10.0, engine="serial", parts=3).fit(X, y)
    >>> len(model.classes_), model.converged_, model.score(X, y) > 0.9
    (3, True, True)
    """

    C: float = 1.0
    kernel: str = field(default="rbf", kw_only=True)
    gamma: Any = field(default="scale", kw_only=True)
    degree: int = field(default=3, kw_only=True)
    coef0: float = field(default=0.0, kw_only=True)
    loss: str = field(default="hinge", kw_only=True)
    fit_intercept: bool = field(default=True, kw_only=True)
    class_weight: Any = field(default=None, kw_only=True)
    working_set: int | None = field(default=None, kw_only=True)


@dataclass(eq=False, repr=False)
class DaskSVR(_PartsVectors, _PartsEstimator):
    """Kernel regression over parts; parameters as `svmcore.distributed.train_svr`."""

    losses: ClassVar[tuple[str, ...]] = formulations.SVR_LOSSES[:2]
    C: float = 1.0
    epsilon: float = 0.1
    kernel: str = field(default="rbf", kw_only=True)
    gamma: Any = field(default="scale", kw_only=True)
    degree: int = field(default=3, kw_only=True)
    coef0: float = field(default=0.0, kw_only=True)
    loss: str = field(default="epsilon_insensitive", kw_only=True)
    fit_intercept: bool = field(default=True, kw_only=True)
    working_set: int | None = field(default=None, kw_only=True)


@dataclass(eq=False, repr=False)
class DaskLinearSVC(_PartsClassifier):
    """Linear classifier over parts, two classes or more (each against the rest); parameters as `train_linear`.

    The intercept is not regularised and the loss is the hinge, unlike those of scikit-learn's `LinearSVC`.
    """

    strategy: ClassVar[str] = "ovr"
    C: float = 1.0
    loss: str = field(default="hinge", kw_only=True)
    fit_intercept: bool = field(default=True, kw_only=True)
    class_weight: Any = field(default=None, kw_only=True)
