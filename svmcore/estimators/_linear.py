"""LinearSVC and LinearSVR: linear machines as LIBLINEAR has them, with an intercept that is regularised.

LIBLINEAR adds a feature with the value `intercept_scaling` to every row; here it is the kernel x'z + intercept_scaling^2,
which is the same problem. Its squared losses are not halved: C here is 2 C there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from svmcore._control import new_control
from svmcore._errors import InputError
from svmcore._keywords import SolverName
from svmcore._types import FloatArray, IntArray
from svmcore.estimators import _base as base
from svmcore.estimators import _sklearn as sk
from svmcore.estimators._base import TrainingData
from svmcore.estimators._fitted import own
from svmcore.estimators._machine import Labelled, Machine
from svmcore.kernel.points import is_sparse
from svmcore.models.solution import Terms
from svmcore.problem import border, formulations, labelling
from svmcore.problem.columns import plain
from svmcore.problem.division import Sides, division
from svmcore.train import heads
from svmcore.train.forms import Training
from svmcore.train.heads import Aim, Head, Selection
from svmcore.train.machines import Machines

# LIBLINEAR's tolerance is one of a gradient. With its default it comes to a relative gap of 1e-6, mostly.
_GAP = 0.01  # share of the tolerance that the relative gap may be
# Up to _FEW rows, and with a tolerance below _ROUGH, the gap _SHARP is tried: a weight of two is then exactly a row twice.
_FEW, _ROUGH, _SHARP = 200, 0.1, 1e-19
_UNLIMITED = " (-1: no limit)"  # what the functions below say of their max_iter


def _values(X: Any) -> Any:
    """The memory of the values of a dense or sparse matrix."""
    return X.data if is_sparse(X) else X


@dataclass(kw_only=True, eq=False, repr=False)
class LinearMachine(Machine):
    """What linear classification and regression share."""

    C: float = 1.0
    tol: float = 1e-4
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    dual: bool | Literal["auto"] = "auto"
    max_iter: int = 1000
    verbose: bool | int = 0
    random_state: Any = None
    solver: SolverName = "auto"
    n_threads: int | None = None
    time_limit: float | None = None

    kernel = "linear"
    _losses: ClassVar[tuple[str, ...]]
    _linear: ClassVar[bool] = True
    _free_intercept: ClassVar[bool] = False
    _form_words = (
        "C", "kernel", "loss", "fit_intercept", "intercept_scaling", "class_weight", "epsilon",
    )  # fmt: skip
    _limit_sentence: ClassVar[str] = (
        "Stopped at max_iter={} passes over the rows.  Scale the features, as StandardScaler does, or lower C."
    )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _plain_words(self) -> dict[str, Any]:
        border.choice("loss", self.loss, self._losses)
        self._check_set(getattr(self, "penalty", "l2"))
        words = super()._plain_words()
        squared = words["loss"].startswith("squared")
        words["C"] = border.cost(self.C) * (2.0 if squared else 1.0)
        if border.LARGEST < words["C"] < np.inf:
            raise InputError(f"C={self.C!r} is out of range; it must be at most {border.LARGEST:g}, or infinite")
        words["fit_intercept"] = self._free_intercept
        if border.flag("fit_intercept", self.fit_intercept):
            words["intercept_scaling"] = border.number(
                "intercept_scaling", self.intercept_scaling, low=0.0, strict=True
            )
        return words | {"max_iter": border.integer("max_iter", self.max_iter, low=0)}

    def _words(self, data: TrainingData) -> dict[str, Any]:
        words = super()._words(data)
        return words | {"max_iter": words["max_iter"] * data.X.shape[0]}

    def _told(self, told: list[tuple[str, type[Warning]]]) -> Any:
        """Without the advice to set `max_iter` to -1, which these machines refuse, as scikit-learn's do."""
        return super()._told([(message.replace(_UNLIMITED, ""), kind) for message, kind in told])

    def _heads(self, data: TrainingData, words: dict[str, Any]) -> list[Head]:
        """The machines, as dual problems."""
        raise NotImplementedError

    def _find(self, data: TrainingData, words: dict[str, Any]) -> Any:
        found = self._at_once(data, words)
        return self._one_by_one(data, words) if found is None else found

    def _one_by_one(self, data: TrainingData, words: dict[str, Any]) -> Any:
        """The machines by the functions that train."""
        return super()._find(data, words)

    def _at_once(self, data: TrainingData, words: dict[str, Any]) -> Any:
        """All machines over the rows as they are, where these have few features and nobody looks on; else None."""
        watched = words["callback"] is not None or border.verbosity(words["verbose"])
        if words["solver"] != "auto" or watched or not np.isfinite(words["C"]):
            return None
        given = data.X
        X = border.features(given, ordered=False)
        shared = X is given or np.may_share_memory(_values(X), _values(given))
        mine = own(X) if shared else X
        if shared and is_sparse(X):
            mine.has_canonical_format = X.has_canonical_format  # which copies forget
        data = TrainingData(mine, data.y, data.w, data.classes)
        tol = border.number("tol", self.tol, low=0.0, strict=True)
        few = len(data.y) <= _FEW and tol < _ROUGH
        goal = Aim(_GAP * tol, min(_SHARP, _GAP * tol) if few else _GAP * tol, self.max_iter)
        n_threads = border.threads(self.n_threads)
        wanted = self._heads(data, words)
        training = None
        if len(wanted) == 1:
            form = {name: words[name] for name in self._form_words if name in words} | {"sample_weight": data.w}
            training = Training(data.X, np.array(data.y), form, tol, plain(data.X.shape[1]))
        found = heads.solved(
            data.X, wanted, tau=words.get("intercept_scaling", 0.0), goal=goal, n_threads=n_threads,
            training=training, control=new_control("fit", self.time_limit, None, 0),
        )  # fmt: skip
        if found is None:
            return None
        machines, self._weights = found
        self._own_rows = data.X
        return machines[0] if training else Machines(np.arange(len(machines)), self._strategy, tuple(machines))

    def _check_set(self, penalty: str) -> None:
        """Refuse what LIBLINEAR does not have, in its words."""
        loss, dual = self.loss, self.dual
        said = None
        if penalty not in ("l1", "l2"):
            said = f"The penalty {penalty!r} is not known"
        elif (not loss.startswith("squared") and (dual is False or penalty == "l1")) or (
            penalty == "l1" and dual is True
        ):
            said = f"The combination of penalty={penalty!r} and loss={loss!r} are not supported when dual={dual}"
        if said is not None:
            raise InputError(
                f"Unsupported set of arguments: {said}, Parameters: penalty={penalty!r}, loss={loss!r}, dual={dual!r}"
            )

    def _store(self, found: Any, data: TrainingData) -> None:
        super()._store(found, data)
        machines = self._fitted.machines
        known = self.__dict__.pop("_weights", None)
        self.coef_ = np.stack([machine.coef_ for machine in machines]) if known is None else known
        self.intercept_ = np.array([machine.intercept for machine in machines]) if self.fit_intercept else 0.0
        each = 1 if known is not None else data.X.shape[0]  # steps that look at all rows, or at one
        self.n_iter_ = max(1, -(-max(machine.n_iter for machine in machines) // each))
        self.fit_status_ = int(not self._fitted.converged)

    def _kept(self, found: Any, data: TrainingData) -> TrainingData:
        rows = self.__dict__.pop("_own_rows", None)
        return super()._kept(found, data) if rows is None else data._replace(X=rows, y=np.array(data.y))

    def _of_coef(self, X: Any) -> FloatArray:
        """X coef' + intercept."""
        self._known  # noqa: B018  (an estimator without a fit says so)

        def values(X: Any) -> FloatArray:
            product = border.features(X) @ self.coef_.T
            return np.asarray(product.toarray() if hasattr(product, "toarray") else product) + self.intercept_

        return self._looked_at(values, X)  # type: ignore[no-any-return]


@dataclass(kw_only=True, eq=False, repr=False)
class LinearSVC(sk.LinearClassifierMixin, sk.SparseCoefMixin, Labelled, LinearMachine):  # type: ignore[misc]
    """Linear support vector classification; several classes one against the rest.

    Examples
    --------
    >>> from svmcore import LinearSVC
    >>> machine = LinearSVC(C=10.0).fit([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1])
    >>> machine.predict([[0.5], [4.5]]).tolist()
    [0, 1]
    """

    _form = base.LINEAR_SVC_FORM
    _losses = ("hinge", "squared_hinge")
    _strategy: ClassVar[str] = "ovr"

    penalty: str = field(default="l2", kw_only=False)
    loss: Literal["hinge", "squared_hinge"] = field(default="squared_hinge", kw_only=False)
    multi_class: Literal["ovr", "crammer_singer"] = "ovr"
    class_weight: Any = None

    def _factors(self, data: TrainingData) -> FloatArray:
        if self.multi_class == "crammer_singer":
            raise InputError(
                "multi_class='crammer_singer' makes one problem of all classes, which svmcore does not solve; use "
                "multi_class='ovr', or sklearn.svm.LinearSVC"
            )
        border.choice("multi_class", self.multi_class, ("ovr",))
        if data.w is not None and isinstance(self.class_weight, str):  # by weight, as LIBLINEAR's wrapper counts
            return labelling.class_factors(self.class_weight, data.classes, data.y, data.w)
        return super()._factors(data)

    @property
    def _movable(self) -> bool:  # type: ignore[override]
        """Weights that may be zero are none of rows, so all of them are found anew."""
        return self.penalty != "l1"

    def _heads(self, data: TrainingData, words: dict[str, Any]) -> list[Head]:
        return [
            Head(formulations.svc(one.signs, one.costs, self.loss, False), one.classes, one.terms)
            for one in self._labelled(data, words)
        ]

    def _labelled(self, data: TrainingData, words: dict[str, Any]) -> list[Selection]:
        """The labels and the costs of each machine."""
        made = []
        which, labels = division(len(data.classes), self._strategy), np.array([False, True])
        pair = which.single
        plain = self.class_weight is None and data.w is None
        for part in which.parts:
            costs = words["C"]
            if not plain:
                factors = self.class_weight_[data.y] if pair else self._factors_of(data.y, part)
                costs = costs * (factors if data.w is None else factors * data.w)
            signs = part.signs(len(data.classes)).take(data.y)
            terms = Terms(words["C"], self.loss, factors=tuple(self.class_weight_.tolist()) if pair else None)
            made.append(Selection(signs, costs, np.array([0, 1]) if pair else labels, terms))
        return made

    def _find(self, data: TrainingData, words: dict[str, Any]) -> Any:
        return self._selected(data, words) if self.penalty == "l1" else super()._find(data, words)

    def _selected(self, data: TrainingData, words: dict[str, Any]) -> Any:
        """Machines with weights of exactly zero."""
        if not np.isfinite(words["C"]):
            raise InputError(f"C={self.C!r} with penalty='l1' has no dual certificate; give a finite C, say 1e4")
        if words["solver"] != "auto":
            raise InputError(f"solver={words['solver']!r} cannot find weights with penalty='l1'; use solver='auto'")
        border.threads(self.n_threads)
        verbose = border.verbosity(words["verbose"])
        tol = border.number("tol", self.tol, low=0.0, strict=True)
        found, self._weights = heads.selected(
            border.features(data.X), self._labelled(data, words), tau=words.get("intercept_scaling", 0.0),
            goal=Aim(_GAP * tol, _GAP * tol, self.max_iter),
            control=new_control("fit", self.time_limit, words["callback"], verbose),
        )  # fmt: skip
        return found[0] if len(found) == 1 else Machines(np.arange(len(found)), self._strategy, tuple(found))

    def _one_by_one(self, data: TrainingData, words: dict[str, Any]) -> Any:
        k = len(data.classes)
        if k == 2 or (self.class_weight_ == 1.0).all():
            return super()._one_by_one(data, words)
        factors = self.class_weight_  # as in LIBLINEAR, of the class alone: the rest keeps its weight
        each = [data._replace(y=data.y == code, classes=np.array([False, True])) for code in range(k)]
        machines = [
            super(LinearSVC, self)._one_by_one(one, words | {"class_weight": {1: f}})
            for one, f in zip(each, factors, strict=True)
        ]
        return Machines(np.arange(k), self._strategy, tuple(replace(machine, training=None) for machine in machines))

    def _factors_of(self, codes: IntArray, part: Sides) -> FloatArray:
        own = part.plus[0]
        return np.where(codes == own, self.class_weight_[own], 1.0)

    def decision_function(self, X: Any) -> FloatArray:
        """f(x) for two classes, shape (m,); else the value of each class, shape (m, k)."""
        values = self._of_coef(X)
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: Any) -> Any:
        """The class of every row of X."""
        values = self.decision_function(X)
        return self.classes_[(values > 0.0).astype(np.intp) if values.ndim == 1 else np.argmax(values, axis=1)]


@dataclass(kw_only=True, eq=False, repr=False)
class LinearSVR(sk.RegressorMixin, LinearMachine):  # type: ignore[misc]
    """Linear support vector regression."""

    _form = base.LINEAR_SVR_FORM
    _losses = ("epsilon_insensitive", "squared_epsilon_insensitive")

    epsilon: float = 0.0
    loss: Literal["epsilon_insensitive", "squared_epsilon_insensitive"] = "epsilon_insensitive"

    def _heads(self, data: TrainingData, words: dict[str, Any]) -> list[Head]:
        epsilon = border.number("epsilon", self.epsilon, low=0.0)
        costs = words["C"] if data.w is None else words["C"] * data.w
        qp = formulations.svr(data.y, costs, epsilon, self.loss, False)
        return [Head(qp, None, Terms(words["C"], self.loss, epsilon))]

    def _store(self, found: Any, data: TrainingData) -> None:
        super()._store(found, data)
        self.coef_ = self.coef_[0]

    def predict(self, X: Any) -> FloatArray:
        """The value at every row of X."""
        return self._of_coef(X)
