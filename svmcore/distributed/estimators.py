"""Estimators over parts, with scikit-learn's conventions and those of xgboost.dask and lightgbm.dask: `client`, collections.

They need scikit-learn and, but for files and arrays, dask.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from svmcore._errors import InputError
from svmcore._keywords import TOL
from svmcore.base.door import entered
from svmcore.cv.left_out import sigmoids
from svmcore.distributed.answer import PartsSolution, by_blocks
from svmcore.distributed.setup import setup
from svmcore.distributed.training import solved
from svmcore.estimators import _sklearn as sk
from svmcore.estimators._fitted import Fitted, Shown
from svmcore.kernel.points import is_sparse
from svmcore.models.solution import Solution
from svmcore.problem import border, formulations, labelling
from svmcore.problem.division import division
from svmcore.train.machines import Machines

_NEEDS = {
    "coef_": "needs the linear kernel",
    "feature_names_in_": "needs data frames, or files whose columns have names",
    "predict_proba": "needs calibrate(X, y) first, with rows that were not trained on",
}


@dataclass(eq=False, repr=False, kw_only=True)
class _PartsEstimator(sk.BaseEstimator):  # type: ignore[misc]
    """What the estimators share: how to run, and the machines behind them."""

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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train over the parts of X: collections of dask, files, arrays; see `svmcore.distributed.train_linear`."""
        problem = setup(X, y, sample_weight, self.losses, self.get_params(deep=False), several=True)
        labels = problem.task.labels
        several, machines = labels is not None and len(labels) > 2, [problem]
        try:
            for k, part in enumerate(division(len(labels), self.strategy).parts if several else ()):
                pair = labels[part.minus[0]] if len(part.minus) == 1 else None, labels[part.plus[0]]
                ledger = problem.ledger.of_machine(k, [None if label is None else str(label) for label in pair])
                own = problem._replace(task=problem.task._replace(classes=pair), ledger=ledger)
                machines = [*(machines if k else []), own]
            solutions = [solved(each._replace(begun=k and problem.control.seconds)) for k, each in enumerate(machines)]
        finally:
            problem.engine.close()
        for name in [name for name in vars(self) if _is_found(name)]:
            delattr(self, name)
        self.solutions_ = solutions
        self.client_ = getattr(problem.engine, "client", None)
        self.classes_ = labels
        self.n_features_in_ = problem.whole.features
        if problem.whole.names is not None:
            self.feature_names_in_ = np.array(problem.whole.names, dtype=object)
        # scikit-learn calls the first class of a pair positive where there are several pairs, and the second one here
        sign = -1.0 if several and self.strategy == "ovo" else 1.0
        self.intercept_ = sign * np.array([each.intercept for each in solutions])
        if solutions[0].coef_ is not None:
            self.coef_ = sign * np.stack([each.coef_ for each in solutions if each.coef_ is not None])
        rounds = np.array([len(each.rounds) for each in solutions])
        self.n_iter_ = rounds if isinstance(self, DaskSVC) else int(rounds.max())
        self.converged_ = all(each.converged for each in solutions)
        self.kkt_violation_ = max(each.kkt_violation for each in solutions)
        self.dual_gap_ = max(each.gap for each in solutions)
        self._machine  # noqa: B018  (is put together)
        return self

    def __getattr__(self, name: str) -> Any:
        """Why something is not here."""
        if (name in _NEEDS or _is_found(name)) and "solutions_" not in vars(self):
            raise sk.NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")
        raise AttributeError(f"{name} {_NEEDS.get(name, f'is no attribute of {type(self).__name__}')}")

    def __getstate__(self) -> dict[str, Any]:
        """Without clients, which belong to their process."""
        state = {
            name: None if name in ("client", "client_") else value for name, value in super().__getstate__().items()
        }
        return {name: value for name, value in state.items() if name != "_machine"}

    def __sklearn_clone__(self) -> Self:
        """The same parameters, and no fit: of a client there is one, and it cannot be copied."""
        params = self.get_params(deep=False)
        return type(self)(**{name: each if name == "client" else deepcopy(each) for name, each in params.items()})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def solution_(self) -> PartsSolution:
        """The machine of two classes, or of a regression, with its certificate; `solutions_` has all."""
        if len(self.solutions_) > 1:
            raise InputError(f"there are {len(self.classes_)} classes and several machines; see solutions_")
        return self.solutions_[0]

    def to_local(self) -> Solution | Machines:
        """The same machine in one place, with its support vectors: a `svmcore.Solution`; of several classes `Machines`."""
        return self._together([each.to_local() for each in self.solutions_])

    def _together(self, machines: list[Solution]) -> Solution | Machines:
        """One machine, with the sigmoids of `calibrate`."""
        if "sigmoids_" in vars(self):
            pairs = self.sigmoids_.T.tolist()
            machines = [replace(each, calibration=tuple(pair)) for each, pair in zip(machines, pairs, strict=True)]
        return machines[0] if len(machines) == 1 else Machines(self.classes_, self.strategy, tuple(machines))

    @cached_property
    def _machine(self) -> Solution | Machines:
        machines = [each.machine for each in self.solutions_]
        if "coef_" in vars(self):  # each has another vector
            machines = [replace(each, support=np.array([k])) for k, each in enumerate(machines)]
        return self._together(machines)

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


def _is_found(name: str) -> bool:
    """Whether it is the name of something that a fit finds."""
    return name == "_machine" or (name.endswith("_") and not name.startswith("_"))


@dataclass(eq=False, repr=False, kw_only=True)
class _PartsClassifier(sk.ClassifierMixin, _PartsEstimator):  # type: ignore[misc]
    """Those that tell classes apart."""

    score = _PartsEstimator.score

    def decision_function(self, X: Any) -> Any:
        """Decision values; lazy where X is a collection of dask: an array, or a series or frame for a data frame."""
        return by_blocks(X, self._machine, "decision_function")

    def calibrate(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn probabilities from rows that the machines were not trained on: afterwards there is `predict_proba`.

        A sigmoid for each machine (Platt); of several classes those of the pairs are coupled. The values of all rows
        come to this process: some 10,000 rows are enough.
        """
        y = labelling.label_array(entered(y, "y"), "y").reshape(-1)
        values = np.stack([entered(each.decision_function(X), "X") for each in self.solutions_], axis=1)
        if len(y) != len(values):
            raise InputError(f"X has {len(values)} rows and y {len(y)}; give one label a row")
        w = np.ones(len(y)) if sample_weight is None else border.vector(sample_weight, "sample_weight", len(y))
        missing = [str(label) for label in self.classes_ if not ((y == label) & (w > 0.0)).any()]
        strange = np.flatnonzero(~np.isin(y, self.classes_))
        if missing or len(strange):
            what = f"lacks {', '.join(missing)}"
            what = f"holds {y[strange].tolist()[0]!r} at row {strange[0]}" if len(strange) else what
            raise InputError(f"y {what}; calibrate needs rows of all classes that were trained, and of no others")
        which = division(len(self.classes_), self.strategy)
        self.sigmoids_ = sigmoids(values, np.searchsorted(self.classes_, y), w, which, self.tol)
        self.__dict__.pop("_machine", None)
        self._machine  # noqa: B018  (is put together)
        return self

    @sk.available_if(lambda self: "sigmoids_" in vars(self))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:  # where it is not, `__getattr__` says why
        """The probability of every class (columns, as `classes_`), after `calibrate`; lazy as `predict` is."""
        return by_blocks(X, self._machine, "predict_proba")


@dataclass(eq=False, repr=False, kw_only=True)
class _PartsVectors(Shown, _PartsEstimator):
    """The kernel's parameters, and what scikit-learn shows of its machines, put together when somebody asks."""

    kernel: str = "rbf"
    gamma: Any = "scale"
    degree: int = 3
    coef0: float = 0.0
    fit_intercept: bool = True
    working_set: int | None = None

    @property
    def _known(self) -> Fitted:
        found: Any = self.to_local()
        codes = None
        if self.classes_ is not None:
            codes = np.zeros(found.n_points, np.int64)
            machines = found.machines if isinstance(found, Machines) else (found,)
            for machine, part in zip(machines, division(len(self.classes_), self.strategy).parts, strict=True):
                codes[machine.support] = np.where(machine.dual_coef > 0.0, part.plus[0], part.minus[0])
        return Fitted(found, codes, sparse=is_sparse(found.support_vectors))

    @property
    def support_(self) -> Any:
        """The rows of the support vectors, by class; rows of all parts are counted one after the other."""
        return self._known.support


@dataclass(eq=False, repr=False, kw_only=True)
class DaskSVC(_PartsClassifier, _PartsVectors):
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

    C: float = field(default=1.0, kw_only=False)
    loss: str = "hinge"
    class_weight: Any = None


@dataclass(eq=False, repr=False, kw_only=True)
class DaskSVR(sk.RegressorMixin, _PartsVectors):  # type: ignore[misc]
    """Kernel regression over parts; parameters as `svmcore.distributed.train_svr`."""

    score = _PartsEstimator.score
    losses: ClassVar[tuple[str, ...]] = formulations.SVR_LOSSES[:2]
    C: float = field(default=1.0, kw_only=False)
    epsilon: float = field(default=0.1, kw_only=False)
    loss: str = "epsilon_insensitive"


@dataclass(eq=False, repr=False, kw_only=True)
class DaskLinearSVC(_PartsClassifier):
    """Linear classifier over parts, two classes or more (each against the rest); parameters as `train_linear`.

    The intercept is not regularised and the loss is the hinge, unlike those of scikit-learn's `LinearSVC`.
    """

    strategy: ClassVar[str] = "ovr"
    C: float = field(default=1.0, kw_only=False)
    loss: str = "hinge"
    fit_intercept: bool = True
    class_weight: Any = None
