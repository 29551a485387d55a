"""Estimators that know every C: SVCPath, where C is chosen after the fit, and the two that choose it by cross-validation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from svmcore._errors import InputError, warn
from svmcore._keywords import TOL
from svmcore._types import FloatArray, IntArray
from svmcore.cv import PathCV, cv_path
from svmcore.cv.calibration import Calibrator, ClassCalibrator
from svmcore.cv.files import assembled as assembled_cv
from svmcore.cv.files import cv_fields
from svmcore.estimators import _base as base
from svmcore.estimators import _sklearn as sk
from svmcore.estimators._base import Trainer, TrainingData
from svmcore.estimators._fitted import Fitted, count, own
from svmcore.estimators._kernel import NO_PROBABILITIES, Classifier, KernelMachine
from svmcore.kernel.points import is_sparse
from svmcore.path.driver import svm_path
from svmcore.path.result import Path
from svmcore.path.solution import assembled as assembled_path
from svmcore.path.solution import file_fields
from svmcore.problem import border
from svmcore.train.functions import train_svc, train_svr

_PATH_WORDS = {word: word for word in ("kernel", "gamma", "degree", "coef0", "C_max", "verbose", "time_limit")}
_CV_WORDS = _PATH_WORDS | {"cv": "cv", "n_jobs": "n_jobs", "score": "scoring"}
_ROUNDING = 1e-9  # the largest C of a path is known to this share of itself
_RULES = ("min", "1se")
_CALIBRATIONS = ("sigmoid", "isotonic", "venn-abers")


class _AtC:
    """A path, and its machine at the C that was asked for last."""

    def __init__(self, path: Path, codes: IntArray, points: Any, sparse: bool) -> None:
        self.path, self.codes, self.points, self.sparse = path, codes, points, sparse
        self._last: tuple[float, Fitted] | None = None

    def plain(self) -> dict[str, Any]:
        """All of it as arrays, numbers and strings, but for the objects of a kernel function."""
        path, threads = file_fields(self.path), self.path._data.n_threads
        return {"path": path, "threads": threads, "codes": self.codes, "points": self.points, "sparse": self.sparse}

    @classmethod
    def from_plain(cls, state: dict[str, Any]) -> _AtC:
        """What `plain` wrote."""
        path = assembled_path(state["path"])
        path._data = path._data._replace(n_threads=state["threads"])
        return cls(path, state["codes"], state["points"], state["sparse"])

    def at(self, C: Any) -> Fitted:
        """The machine at one C."""
        last = self._last
        if last is None or last[0] != C:
            C, most = border.cost(C), self.path.C_range[1]
            if most * (1.0 + _ROUNDING) < C:
                raise InputError(
                    f"C={C:g} lies above {most:g}, up to which the machines are known; fit again with C_max={C:g} or more"
                )
            found = Fitted(self.path.at(C), self.codes, self.points, self.sparse)
            self._last = last = (float(C), found)
        return last[1]


@dataclass(kw_only=True, eq=False, repr=False)
class SVCPath(Classifier):
    """Two classes, for every C up to `C_max` by one fit: `set_params(C=...)` afterwards needs no other.

    Examples
    --------
    >>> from svmcore import SVCPath
    >>> machine = SVCPath(kernel="linear").fit([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1])
    >>> machine.predict([[2.0]]).tolist(), machine.set_params(C=0.01).predict([[2.0]]).tolist()
    ([0], [0])
    """

    _form = Trainer(svm_path, _PATH_WORDS | {"n_threads": "n_threads"}, {}, "classes")
    _movable: ClassVar[bool] = False

    C: float = 1.0
    C_max: float = 1000.0
    n_threads: int | None = None
    time_limit: float | None = None
    verbose: bool | int = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _check_labels(self, y: Any, n: int) -> tuple[IntArray, Any]:
        codes, classes = super()._check_labels(y, n)
        if len(classes) > 2:
            raise InputError(
                f"Only binary classification is supported. The type of the target is multiclass, with {len(classes)} "
                "classes; SVCPathCV takes several"
            )
        return codes, classes

    def _find(self, data: TrainingData, words: dict[str, Any]) -> Path:
        del words["random_state"]
        data, words = self._outside(data, words)
        return svm_path(own(data.X), data.y, sample_weight=data.w, **words)

    def _store(self, found: Path, data: TrainingData) -> None:
        self.path_ = found
        kept = is_sparse(data.X) and not callable(self.kernel)
        points = data.X if callable(self.kernel) or (self.kernel == "linear" and not kept) else None
        self._fitted: Any = _AtC(found, data.y, points, kept)
        self._rows = self._kept(found, data)
        self.classes_ = data.classes
        self.shape_fit_ = tuple(data.X.shape) if hasattr(data.X, "shape") else (count(data.X),)
        self.fit_status_ = int(found.ended != "done")
        self.n_iter_ = np.array([found.stats["n_events"]])

    @property
    def predict_proba(self) -> Any:
        """Not there: see `SVCPathCV`."""
        raise AttributeError(NO_PROBABILITIES.format(type(self).__name__))

    @property
    def _known(self) -> Fitted:
        return super()._known.at(self.C)  # type: ignore[no-any-return]

    def _flat(self, state: dict[str, Any]) -> dict[str, Any]:
        if isinstance(state.get("_fitted"), _AtC):
            state["_fitted"] = state["_fitted"].plain()
            state.pop("path_", None)
        return state

    def _revived(self, state: dict[str, Any]) -> dict[str, Any]:
        if isinstance(state.get("_fitted"), dict):
            state["_fitted"] = _AtC.from_plain(state["_fitted"])
            state["path_"] = state["_fitted"].path
        return state


@dataclass(kw_only=True, eq=False, repr=False)
class Chosen(KernelMachine):
    """C by the exact curve of the cross-validated score: `cv_`. `gamma` may be a list, or "search"."""

    _movable: ClassVar[bool] = False

    cv: Any = 5
    rule: Literal["min", "1se"] = "min"
    scoring: str | None = None
    C_max: float = 1000.0
    tol: float = TOL
    n_jobs: int | None = None
    n_threads: int | None = None
    time_limit: float | None = None
    random_state: Any = None
    verbose: bool | int = False

    _refit: ClassVar[Trainer]

    def _find(self, data: TrainingData, words: dict[str, Any]) -> Any:
        """The curve, C by the rule, and the machine of all rows at that C."""
        border.choice("rule", self.rule, _RULES)
        words |= {"cv": self._folds(data)}
        data, words = self._outside(data, words)
        self.cv_: PathCV = cv_path(data.X, data.y, sample_weight=data.w, **words)
        self.best_C_ = float(self.cv_.best_C if self.rule == "min" else self.cv_.one_se_C)
        self.best_gamma_ = self.cv_.best_gamma
        shared = ("kernel", "gamma", "degree", "coef0", "class_weight")
        form: dict[str, Any] = {word: words[word] for word in shared if word in words}
        form |= {name: getattr(self, name) for name in ("tol", "n_threads", "time_limit", "verbose")}
        if self.best_gamma_ is not None:
            form["gamma"] = self.best_gamma_
        form |= self._refit.fixed | {word: getattr(self, name) for word, name in self._refit.words.items()}
        return base.machines_for(self._refit, data, form | {"C": self.best_C_, "max_iter": -1}, self._strategy)

    def _flat(self, state: dict[str, Any]) -> dict[str, Any]:
        if isinstance(state.get("cv_"), PathCV):
            state["cv_"] = cv_fields(state["cv_"])
        return super()._flat(state)

    def _revived(self, state: dict[str, Any]) -> dict[str, Any]:
        if isinstance(state.get("cv_"), dict):
            state["cv_"] = assembled_cv(state["cv_"])
        return super()._revived(state)

    def _folds(self, data: TrainingData) -> Any:
        """`cv`; a number of folds is not above the number of rows of any class, as far as there are two."""
        n = count(data.X)
        if n < 2:
            raise InputError(f"X has {n} sample; cross-validation needs at least 2")
        least = n if data.classes is None else int(np.bincount(data.y).min())
        if not isinstance(self.cv, int) or isinstance(self.cv, bool) or not 2 <= least < self.cv:
            return self.cv
        warn(
            f"cv={self.cv} folds need as many rows of every class, and y holds {least} of one; cv={least} is used",
            UserWarning,
        )
        return least


class _Probabilities:
    """The calibrator of a machine, made when it is first asked for: many users want no probabilities."""

    def __init__(self, cv: PathCV, method: str, C: float, machine: Any) -> None:
        self._of = cv, method, C, machine

    @cached_property
    def _made(self) -> Any:
        cv, *rest = self._of
        return cv.calibrate(*rest)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._made, name)


@dataclass(kw_only=True, eq=False, repr=False)
class SVCPathCV(Classifier, Chosen):
    """Classification at the best C by exact cross-validation, with probabilities from the out-of-fold scores.

    Examples
    --------
    >>> import numpy as np
    >>> from svmcore import SVCPathCV
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> machine = SVCPathCV(cv=3).fit(X, X[:, 0] > 0)
    >>> machine.predict_proba(X[:1]).shape
    (1, 2)
    """

    _form = Trainer(cv_path, _CV_WORDS | {"classes": "multi_class"}, {}, "classes")
    _refit = Trainer(train_svc, {}, {}, "classes")

    multi_class: Literal["ovo", "ovr"] = "ovo"
    calibration: Literal["sigmoid", "isotonic", "venn-abers"] = "sigmoid"

    @property
    def _strategy(self) -> str:  # type: ignore[override]
        return self.multi_class

    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of every class for every row of X. Near the boundary `predict` may name a less probable class."""
        known = self._known
        values = self._values(X)
        scores = values[:, 0] if len(self.classes_) == 2 else known.division.scores(values)
        return np.asarray(self._calibrator.from_scores(scores))

    def predict_log_proba(self, X: Any) -> FloatArray:
        """The logarithm of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def _flat(self, state: dict[str, Any]) -> dict[str, Any]:
        if hasattr(state.get("_calibrator"), "plain"):
            state["_calibrator"] = state["_calibrator"].plain()
        return super()._flat(state)

    def _revived(self, state: dict[str, Any]) -> dict[str, Any]:
        state = super()._revived(state)
        if isinstance(state.get("_calibrator"), dict):
            kind = ClassCalibrator if "parts" in state["_calibrator"] else Calibrator
            state["_calibrator"] = kind.from_plain(state["_calibrator"], state["_fitted"].found)
        return state

    def _find(self, data: TrainingData, words: dict[str, Any]) -> Any:
        border.choice("calibration", self.calibration, _CALIBRATIONS)
        return super()._find(data, words)

    def _store(self, found: Any, data: TrainingData) -> None:
        super()._store(found, data)
        self._calibrator = _Probabilities(self.cv_, self.calibration, self.best_C_, found)


@dataclass(kw_only=True, eq=False, repr=False)
class SVRPathCV(sk.RegressorMixin, Chosen):  # type: ignore[misc]
    """Regression, or with ``loss="pinball"`` a quantile of the targets, at the best C by exact cross-validation."""

    loss: Literal["epsilon_insensitive", "pinball"] = "epsilon_insensitive"
    epsilon: float = 0.1
    quantile: float = 0.5
    C_max: float | None = None  # type: ignore[assignment]

    _form = Trainer(cv_path, _CV_WORDS | {"loss": "loss"}, {}, "numbers")
    _renamed: ClassVar[dict[str, str]] = {"tau": "quantile"}

    @property
    def _refit(self) -> Trainer:  # type: ignore[override]
        words = {"loss": "loss"} | ({"tau": "quantile"} if self.loss == "pinball" else {"epsilon": "epsilon"})
        return Trainer(train_svr, words, {}, "numbers")

    def _words(self, data: TrainingData) -> dict[str, Any]:
        border.choice("loss", self.loss, ("epsilon_insensitive", "pinball"))
        own = {"tau": self.quantile} if self.loss == "pinball" else {"epsilon": self.epsilon}
        return super()._words(data) | own

    def predict(self, X: Any) -> FloatArray:
        """The value at every row of X."""
        return self._values(X)[:, 0]
