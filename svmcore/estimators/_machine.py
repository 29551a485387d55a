"""Estimators that are made of machines: how a form is solved and kept, certificates, exact changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray
from svmcore.estimators import _base as base
from svmcore.estimators import _convert as convert
from svmcore.estimators import _sklearn as sk
from svmcore.estimators import _update as update
from svmcore.estimators._base import Estimator, Trainer, TrainingData
from svmcore.estimators._fitted import Fitted, own
from svmcore.kernel.points import is_sparse
from svmcore.problem import labelling
from svmcore.problem.division import Sides


@dataclass(kw_only=True, eq=False, repr=False)
class Machine(Estimator):
    """What machines with one kernel, or none to choose, have in common."""

    _form: ClassVar[Trainer]
    if TYPE_CHECKING:
        kernel: Any
    _renamed: ClassVar[dict[str, str]] = {}  # words of functions for parameters, beyond those of the form
    _strategy: ClassVar[str] = "ovo"
    _linear: ClassVar[bool] = False
    _movable: ClassVar[bool] = True  # rows added and removed may move the machine, and need not train it
    _free_intercept: ClassVar[bool] = True  # one that is found, and costs nothing

    @property
    def _targets(self) -> str:  # type: ignore[override]
        return self._form.targets

    @property
    def _given(self) -> bool:
        """Whether X holds kernel values."""
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    # ---- form, solve, store ------------------------------------------------------------------------------------------

    def _words(self, data: TrainingData) -> dict[str, Any]:
        """The problem in the words of the function that trains."""
        words = base.words_of(self)
        words["random_state"] = base.seed(getattr(self, "random_state", None))
        if data.classes is not None and getattr(self, "class_weight", None) is not None:
            words["class_weight"] = dict(enumerate(self.class_weight_.tolist()))
        return words

    def _plain_words(self) -> dict[str, Any]:
        """Those that depend on the parameters alone."""
        return {word: getattr(self, name) for word, name in self._form.words.items()} | self._form.fixed

    def _solve(self, data: TrainingData, callback: Callable[[Any], Any] | None) -> None:
        if data.classes is not None:
            self.class_weight_ = self._factors(data)
        try:
            words = self._words(data) | {"callback": callback}
            self._store(self._find(data, words), data)
        except InputError as error:
            said = self._by_our_names(str(error))
            if said == str(error):
                raise
            raise InputError(said) from None

    def _by_our_names(self, message: str) -> str:
        """What a function says of its words, said of the parameters that these came from."""
        for word, name in (self._form.words | self._renamed).items():
            if word != name:
                message = re.sub(rf"(?<![\w.]){word}(?==)", name, message)
        return message

    def _find(self, data: TrainingData, words: dict[str, Any]) -> Any:
        """Train on checked data."""
        return base.machines_for(self._form, *self._outside(data, words), self._strategy)

    def _outside(self, data: TrainingData, words: dict[str, Any]) -> tuple[TrainingData, dict[str, Any]]:
        """Data and words as functions take them."""
        return data, words

    def _store(self, found: Any, data: TrainingData) -> None:
        """Keep what was found, with the rows for later changes."""
        sparse = is_sparse(data.X) and not callable(self.kernel)
        moved = isinstance(self.kernel, str) and self.kernel == "linear" and not (sparse or self._linear)
        self._rows = self._kept(found, data)
        # Linear machines may have moved theirs to their mean. Objects of a kernel function may have no copy.
        objects = data.X if callable(self.kernel) else self._rows.X if moved else None
        self._fitted = Fitted(found, None if data.classes is None else data.y, objects, sparse)
        if callable(self.kernel):
            self._fitted.objects  # noqa: B018  (takes them now)
        if data.classes is not None:
            self.classes_ = data.classes

    def _kept(self, found: Any, data: TrainingData) -> TrainingData:
        """The rows in memory that is nobody else's: later changes of the array that `fit` got do not count."""
        training = getattr(found, "training", None)  # of one machine, which has its own rows already
        X = own(data.X) if training is None or callable(self.kernel) else training.X
        return data._replace(X=X, y=np.array(data.y) if self._targets == "numbers" else data.y)

    def _factors(self, data: TrainingData) -> FloatArray:
        raise NotImplementedError

    def _factors_of(self, codes: IntArray, part: Sides) -> FloatArray:
        """What `class_weight` multiplies the weights of rows by, in the machine of one part of several classes."""
        return np.asarray(self.class_weight_[codes])

    def _looked_at(self, function: Callable[[Any], Any], X: Any) -> Any:
        """A function of new rows; what it refuses is said in scikit-learn's words, if these have some."""
        X = self._new_points(X)
        try:
            return function(X)
        except InputError:
            sk.validate_data(self, X, accept_sparse=True, dtype=np.float64, reset=False)
            raise

    # ---- certificates ------------------------------------------------------------------------------------------------

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

    # ---- to and from scikit-learn ------------------------------------------------------------------------------------

    @classmethod
    def from_sklearn(cls, fitted: Any) -> Any:
        """An estimator of this class that predicts as a fitted one of scikit-learn. It has no certificate."""
        return convert.from_sklearn(cls, fitted)

    def to_sklearn(self) -> Any:
        """A fitted estimator of scikit-learn that predicts as this one."""
        return convert.to_sklearn(self)

    # ---- exact changes -----------------------------------------------------------------------------------------------

    def _adds(self) -> bool:
        """Whether rows can be added; a given kernel has no values for them."""
        if not self._given:
            return True
        raise AttributeError("rows cannot be added to a precomputed kernel; fit with the larger matrix of all rows")

    @sk.available_if(_adds)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Add rows: afterwards the machine is the exact one of all rows so far. The kernel's gamma stays what it was.

        Parameters
        ----------
        X, y, sample_weight : further rows, as in `fit`; the first call is a `fit`.
        """
        return self._grow(X, y, sample_weight)

    def _grow(self, X: Any, y: Any, sample_weight: Any) -> Any:
        """A first fit, or rows added."""
        if "_fitted" not in self.__dict__:
            return self.fit(X, y, sample_weight)
        return self._told(update.add(self, X, y, sample_weight))

    def forget(self, indices: Any) -> Any:
        """Remove rows: afterwards the machine is the exact one of the others.

        Parameters
        ----------
        indices : their places among all rows so far; the places of the rows that stay close up.
        """
        return self._told(update.remove(self, indices))


class Labelled(Machine):
    """Machines that tell classes apart."""

    class_weight: Any

    def _factors(self, data: TrainingData) -> FloatArray:
        """One factor for each class, by scikit-learn's rule."""
        if self.class_weight is None:
            return np.array([1.0] * len(data.classes))
        y = data.classes[data.y]
        factors = sk.compute_class_weight(self.class_weight, classes=data.classes, y=y)
        return np.asarray(factors, dtype=np.float64)

    @sk.available_if(Machine._adds)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Any:
        """Add rows: afterwards the machine is the exact one of all rows so far. The kernel's gamma stays what it was.

        Parameters
        ----------
        X, y, sample_weight : further rows, as in `fit`. The first call is a `fit`, and has rows of every class.
        classes : all classes there are, to be checked.
        """
        if classes is not None and (y is not None or "_fitted" in self.__dict__):
            known = self.classes_ if "_fitted" in self.__dict__ else labelling.label_codes(np.ravel(y), np.size(y))[1]
            if not np.array_equal(np.unique(classes), known):
                missing = np.setdiff1d(np.unique(classes), known).tolist()
                raise InputError(
                    f"classes names {missing or 'fewer classes than y has'}; the first rows must have a row of every class"
                )
        return self._grow(X, y, sample_weight)
