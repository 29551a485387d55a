"""Estimators over parts, with scikit-learn's conventions and those of xgboost.dask and lightgbm.dask: `client`, collections.

They need neither scikit-learn nor, for files and arrays, dask.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from svmcore._door import entered
from svmcore._errors import InputError
from svmcore._types import KernelKind
from svmcore.classes import Machines
from svmcore.distributed.answer import ManyWeights, PartsSolution, by_blocks
from svmcore.distributed.setup import Setup, Words, setup
from svmcore.distributed.training import MOST_FEATURES, fit_kernel, fit_linear
from svmcore.models.solution import Solution
from svmcore.problem import border, formulations
from svmcore.problem.division import division

_RUN = ("engine", "client", "label", "parts", "checkpoint", "tol", "time_limit", "callback", "verbose", "n_threads")


@dataclass(eq=False, repr=False, kw_only=True)
class _Estimator:
    """What the estimators share: how to run, parameters by name, and the machines behind them."""

    strategy: ClassVar[str] = "ovo"
    losses: ClassVar[tuple[str, ...]] = formulations.SVC_LOSSES
    tol: float = 1e-3
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
        problem = setup(X, y, sample_weight, self._form(), words, several=True)
        try:
            machines = [problem]
            labels = problem.task.labels
            if labels is not None and len(labels) > 2:
                machines = _of_classes(problem, self.strategy)
            solutions = [self._solved(machines[0])]
            solutions += (self._solved(each._replace(begun=problem.control.seconds)) for each in machines[1:])
        finally:
            problem.engine.close()
        self.solutions_: list[PartsSolution] = solutions
        self.client_ = getattr(problem.engine, "client", None)
        self.classes_ = labels
        self.n_features_in_ = problem.whole.features
        return self

    def _solved(self, problem: Setup) -> PartsSolution:
        if problem.task.kernel.kind == KernelKind.LINEAR and problem.task.n_features <= MOST_FEATURES:
            return fit_linear(problem)
        size = getattr(self, "working_set", None)
        return fit_kernel(problem, None if size is None else border.integer("working_set", size, low=2), False)

    def __getstate__(self) -> dict[str, Any]:
        """Without clients, which belong to their process."""
        return {name: None if name in ("client", "client_") else value for name, value in self.__dict__.items()}

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
        return np.stack([solution.coef_ for solution in self.solutions_ if solution.coef_ is not None])

    @property
    def intercept_(self) -> Any:
        """The constants of the machines."""
        self._check_fitted()
        return np.array([solution.intercept for solution in self.solutions_])

    def to_local(self) -> Solution | Machines:
        """The same machine in one place, with its support vectors: a `svmcore.Solution`; of several classes `Machines`."""
        self._check_fitted()
        found = tuple(solution.to_local() for solution in self.solutions_)
        return found[0] if len(found) == 1 else Machines(self.classes_, self.strategy, found)

    def predict(self, X: Any) -> Any:
        """Labels, or values; a lazy dask array where X is a collection of dask."""
        return by_blocks(X, self._machine, labels=True)

    def decision_function(self, X: Any) -> Any:
        """Decision values; a lazy dask array where X is a collection of dask."""
        return by_blocks(X, self._machine, labels=False)

    def score(self, X: Any, y: Any) -> float:
        """The share of right labels, or R squared of a regression."""
        predicted, y = (entered(values, "y") for values in (self.predict(X), y))
        y = y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y
        if y.shape != predicted.shape:
            raise InputError(f"y has shape {y.shape} and X has {len(predicted)} rows; give one label a row")
        if self.classes_ is not None:
            return float(np.mean(predicted == y))
        return float(1.0 - np.sum((y - predicted) ** 2) / np.sum((y - y.mean()) ** 2))


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
class DaskSVC(_Estimator):
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
class DaskSVR(_Estimator):
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
class DaskLinearSVC(_Estimator):
    """Linear classifier over parts, two classes or more (each against the rest); parameters as `train_linear`.

    The intercept is not regularised and the loss is the hinge, unlike those of scikit-learn's `LinearSVC`.
    """

    strategy: ClassVar[str] = "ovr"
    C: float = 1.0
    loss: str = field(default="hinge", kw_only=True)
    fit_intercept: bool = field(default=True, kw_only=True)
    class_weight: Any = field(default=None, kw_only=True)
