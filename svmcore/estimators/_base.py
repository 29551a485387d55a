"""What all estimators share: a fit is check -> form -> solve -> store, with scikit-learn's conventions around it.

Arrays that need no conversion are checked once, by the functions that train; whatever else comes (lists, frames, other
types), and whatever they refuse, goes through scikit-learn's own checks, so that errors are in the words its users know.
"""

from __future__ import annotations

import functools
import operator
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from svmcore._errors import ConvergenceWarning, InputError, listening, warn
from svmcore._keywords import remembered
from svmcore._types import FloatArray, IntArray, Status
from svmcore.base.door import entered, reals
from svmcore.estimators import _sklearn as sk
from svmcore.estimators._fitted import Fitted, count
from svmcore.kernel.points import is_sparse
from svmcore.models.solution import Solution
from svmcore.problem import border, labelling
from svmcore.problem.advice import LARGE_GAP
from svmcore.train.classes import train_classes
from svmcore.train.functions import train_one_class, train_svc, train_svr
from svmcore.train.machines import Machines

_EVERY = 0.05  # seconds between two reports to callbacks
# Up to _FEW rows are solved to rounding: to the tolerance _SHARP, where _PATIENCE steps reach it. That is left out where
# fewer than _LEAST steps are allowed, and from the tolerance _ROUGH on, with which nobody asks for exactness.
_FEW, _SHARP = 200, 1e-11
_PATIENCE, _LEAST = 8000, 1000
_ROUGH = 0.1
_SEEDS = 2**31 - 1


class TrainingData(NamedTuple):
    """Checked training data. `y`: places among `classes`, or numbers; `w`: weights, or None."""

    X: Any
    y: Any
    w: FloatArray | None
    classes: Any = None


class Trainer(NamedTuple):
    """An estimator's problem: the function that trains it, and its words for the estimator's parameters.

    `words` maps words of the function to parameters; `fixed` are words with one value; `targets` are "classes",
    "numbers" or "none".
    """

    train: Callable[..., Any]
    words: dict[str, str]
    fixed: dict[str, Any]
    targets: str


_KERNEL_WORDS = {
    word: word
    for word in (
        "kernel",
        "gamma",
        "degree",
        "coef0",
        "tol",
        "max_iter",
        "verbose",
        "solver",
        "n_threads",
        "time_limit",
    )
}
SVC_FORM = Trainer(train_svc, _KERNEL_WORDS | {"C": "C"}, {}, "classes")
NU_SVC_FORM = Trainer(train_svc, _KERNEL_WORDS | {"nu": "nu"}, {}, "classes")
SVR_FORM = Trainer(train_svr, _KERNEL_WORDS | {"C": "C", "epsilon": "epsilon"}, {}, "numbers")
NU_SVR_FORM = Trainer(train_svr, _KERNEL_WORDS | {"C": "C", "nu": "nu"}, {}, "numbers")
QUANTILE_FORM = Trainer(train_svr, _KERNEL_WORDS | {"C": "C", "tau": "quantile"}, {"loss": "pinball"}, "numbers")
ONE_CLASS_FORM = Trainer(train_one_class, _KERNEL_WORDS | {"nu": "nu"}, {}, "none")
_LINEAR_WORDS = {word: word for word in ("loss", "tol", "verbose", "solver", "n_threads", "time_limit")}
LINEAR_SVC_FORM = Trainer(train_svc, _LINEAR_WORDS, {"kernel": "linear"}, "classes")
LINEAR_SVR_FORM = Trainer(train_svr, _LINEAR_WORDS | {"epsilon": "epsilon"}, {"kernel": "linear"}, "numbers")


def seed(random_state: Any) -> int | None:
    """A seed from whatever scikit-learn takes for one."""
    if random_state is None or isinstance(random_state, int):
        return random_state
    return int(sk.check_random_state(random_state).randint(_SEEDS))


def plain(X: Any) -> bool:
    """Whether X needs no conversion."""
    return type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.size > 0


def plain_rows(X: Any) -> bool:
    """Whether X is a sparse matrix that needs no conversion. What is in it is looked at where machines are trained."""
    return (
        getattr(X, "format", None) == "csr"
        and is_sparse(X)
        and X.dtype == np.float64
        and X.ndim == 2
        and 0 not in X.shape
    )


def come_in(values: Any, name: str) -> None:
    """Refuse what scikit-learn's checks let pass: they read dates as numbers, and look under masks."""
    if hasattr(values, "tocsr"):
        return
    try:
        entered(values, name)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise  # what else is wrong is scikit-learn's to say


def refuse_other_arrays(X: Any) -> None:
    """Say in words that arrays of other libraries are not computed with where they are."""
    if isinstance(X, np.ndarray) or not hasattr(X, "__array_namespace__"):
        return
    if sk.get_config().get("array_api_dispatch"):
        raise InputError(
            f"X is an array of {type(X).__module__.partition('.')[0]}, and svmcore computes with numpy arrays on the CPU; "
            "convert it with numpy.asarray (or X.cpu().numpy()), or switch array_api_dispatch off"
        )


class as_it_was:
    """All or nothing: where something fails, the estimator keeps every attribute that it had."""

    def __init__(self, estimator: Any) -> None:
        self.now = vars(estimator)
        self.before = self.now.copy()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            self.now.clear()
            self.now.update(self.before)


@functools.cache
def _names(kind: type, without: str = "") -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The names of the parameters of a class of estimators, and what takes their values."""
    names = tuple(field.name for field in fields(kind) if field.name != without)
    return names, operator.attrgetter(*names)


def words_of(estimator: Any) -> dict[str, Any]:
    """What an estimator says of its parameters alone in the words of its function; that of plain parameters is kept.

    Weights of classes are left out, which labels belong to.
    """
    kind = estimator.__class__
    return dict(remembered(_words_of, (kind,), *_names(kind, "class_weight")[1](estimator)))


def _words_of(kinds: tuple[Any, ...], *values: Any) -> dict[str, Any]:
    one = object.__new__(kinds[0])
    vars(one).update(zip(_names(kinds[0], "class_weight")[0], values, strict=True))
    return one._plain_words()  # type: ignore[no-any-return]


@functools.cache
def _parameters(kind: type) -> list[str]:
    """What scikit-learn reads from the signature again for every copy."""
    return sk.BaseEstimator._get_param_names.__func__(kind)  # type: ignore[no-any-return]


def values_of(estimator: Any) -> tuple[Any, ...]:
    """The values of the parameters; what can be written to in their place is copied."""
    told = _names(estimator.__class__)[1](estimator)
    if dict in map(type, told):
        told = tuple(value.copy() if isinstance(value, dict) else value for value in told)
    return told


def asked(estimator: Any) -> dict[str, Any]:
    """What the parameters were when it was fitted, by name."""
    return dict(zip(_names(estimator.__class__)[0], estimator._asked, strict=True))


def weights_of(sample_weight: Any, n: int) -> FloatArray:
    """A weight for each row, from one for all or one for each; none is negative."""
    weights = reals(sample_weight, "sample_weight")
    weights = np.full(n, weights) if weights.ndim == 0 else weights
    if weights.ndim != 1:
        raise InputError(f"Sample weights must be 1D array or scalar, got {weights.ndim}D array")
    return np.maximum(border.vector(weights, "sample_weight", n), 0.0)


@dataclass(kw_only=True, eq=False, repr=False)
class Estimator(sk.CallbackSupportMixin, sk.BaseEstimator):  # type: ignore[misc]
    """check -> form -> solve -> store; the kinds of estimators say what each of them is."""

    _targets: ClassVar[str] = "numbers"

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return _parameters(cls)  # type: ignore[arg-type]

    # ---- check -------------------------------------------------------------------------------------------------------

    def _check(self, X: Any, y: Any, sample_weight: Any) -> TrainingData:
        """Training data as arrays, and what they tell: `n_features_in_`, `classes_`."""
        targets = self._targets
        if targets != "none" and not (type(y) is np.ndarray and y.dtype.kind in "biufU"):
            come_in(y, "y")
        X, y = self._check_points(X, y)
        n, classes = count(X), None
        if targets == "classes":
            y, classes = self._check_labels(y, n)
        elif targets == "numbers":
            if type(y) is not np.ndarray or y.ndim != 1:
                y = sk.column_or_1d(y, warn=True)
            y = border.vector(y, "y", n)
        weights = None if sample_weight is None else self._check_weights(sample_weight, n, y, classes)
        return TrainingData(X, y, weights, classes)

    def _check_points(self, X: Any, y: Any) -> tuple[Any, Any]:
        """X as a matrix, and y."""
        labelled = self._targets != "none"
        if (plain(X) or plain_rows(X)) and (not labelled or np.shape(y)[:1] == X.shape[:1]):
            self.__dict__.pop("feature_names_in_", None)
            self.n_features_in_ = X.shape[1]
            return X, y
        come_in(X, "X")
        how = {"accept_sparse": "csr", "dtype": np.float64, "order": "C"}
        if not labelled:
            return sk.validate_data(self, X, **how), y
        if self._targets == "numbers":
            X, y = sk.validate_data(self, X, y, **how, y_numeric=True)
        else:
            X, y = sk.validate_data(self, X, y, **how)
        return X, y

    def _check_labels(self, y: Any, n: int) -> tuple[IntArray, Any]:
        """Labels as places among the sorted classes."""
        if type(y) is not np.ndarray or y.ndim != 1:
            y = sk.column_or_1d(y, warn=True)
        if y.dtype.kind not in "biufU":
            sk.check_classification_targets(y)
        if y.dtype.kind == "O":
            classes, codes = np.unique(y, return_inverse=True)
        else:
            codes, classes = labelling.label_codes(y, n)
            if y.dtype.kind == "f" and (classes != np.round(classes)).any():
                sk.check_classification_targets(y)
        if len(classes) > n // 2:  # scikit-learn warns that they may be numbers
            sk.check_classification_targets(y)
        if len(classes) < 2:
            raise InputError(f"The number of classes has to be greater than one; got {len(classes)} class")
        return codes, classes

    def _check_weights(self, sample_weight: Any, n: int, y: Any, classes: Any) -> FloatArray:
        """Weights; a negative one takes its row away, as in LIBSVM."""
        weights = weights_of(sample_weight, n)
        if not weights.any():
            raise InputError(
                "Invalid input - all samples have zero or negative weights. sample_weight is zero everywhere; at least one "
                "sample needs a positive weight"
            )
        if classes is not None and np.ptp(y[weights > 0]) == 0:
            raise InputError(
                "Invalid input - all samples with positive weights belong to the same class; a classifier needs two classes"
            )
        return weights

    # ---- fit ---------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train, and certify the answer.

        Parameters
        ----------
        X : array or sparse matrix of n rows; for ``kernel="precomputed"`` n x n kernel values; for a kernel function any
            container that it takes.
        y : n labels or numbers.
        sample_weight : n weights; a row whose weight is not positive does not count.

        Returns
        -------
        self
        """
        return self._told(self._run(X, y, sample_weight))

    def _told(self, told: list[tuple[str, type[Warning]]]) -> Any:
        """Say what the functions below have to say, in one warning each of which scikit-learn's filters apply."""
        for message, kind in told:
            if kind is ConvergenceWarning:
                limit = getattr(self, "max_iter", -1)
                if getattr(self, "fit_status_", 0) and message.find(Status.MAX_ITER.value) >= 0:
                    message = self._limit_sentence.format(limit) + "  " + message
                warn(message, sk.FitWarning)
            else:
                warn(message, kind)
        return self

    _limit_sentence: ClassVar[str] = (
        "Solver terminated early (max_iter={}).  Consider pre-processing your data with StandardScaler or MinMaxScaler."
    )

    def _run(self, X: Any, y: Any, sample_weight: Any) -> list[tuple[str, type[Warning]]]:
        """`fit`, with scikit-learn's callbacks around it where there are some; what is to be said when it is over."""
        refuse_other_arrays(X)
        watched = "_skl_callbacks" in self.__dict__ or "_parent_callback_ctx" in self.__dict__
        return self._watched(X, y, sample_weight) if watched else self._unwatched(X, y, sample_weight, None)

    @sk.with_callbacks  # type: ignore[untyped-decorator]
    def _watched(self, X: Any, y: Any, sample_weight: Any) -> list[tuple[str, type[Warning]]]:
        """`_run` with callbacks."""
        context = self._init_callback_context(max_subtasks=None)
        metadata = {} if sample_weight is None else {"sample_weight": sample_weight}
        context.call_on_fit_task_begin(estimator=self, X=X, y=y, metadata=metadata)
        told = self._unwatched(X, y, sample_weight, self._hook(context))
        context.call_on_fit_task_end(
            estimator=self, X=X, y=y, metadata=metadata, reconstruction_attributes=lambda: dict(vars(self))
        )
        return told

    def _unwatched(self, X: Any, y: Any, sample_weight: Any, callback: Any) -> list[tuple[str, type[Warning]]]:
        """Check, solve, store."""
        with as_it_was(self), listening() as told:
            try:
                self._solve(self._check(X, y, sample_weight), callback)
            except InputError:
                self._in_their_words(X, y)
                raise
            self._asked = values_of(self)
        return told

    def _in_their_words(self, X: Any, y: Any) -> None:
        """Raise what scikit-learn's checks say about X and y, if they find something. Objects are no business of theirs."""
        if callable(getattr(self, "kernel", None)):
            return
        sk.validate_data(
            self, X, y if self._targets != "none" else "no_validation", accept_sparse=True, dtype=np.float64
        )

    def _solve(self, data: TrainingData, callback: Callable[[Any], Any] | None) -> None:
        raise NotImplementedError

    def _hook(self, context: Any) -> Callable[[Any], bool] | None:
        """A callback of ours that makes a task of scikit-learn's of each report, now and then."""
        if "_skl_callbacks" not in self.__dict__:
            return None
        last = time.perf_counter()

        def report(_progress: Any) -> bool:
            nonlocal last
            now = time.perf_counter()
            if now - last < _EVERY:
                return False
            last = now
            task = context.subcontext(task_name="progress")
            task.call_on_fit_task_begin(estimator=self)
            return bool(task.call_on_fit_task_end(estimator=self))

        return report

    def __sklearn_is_fitted__(self) -> bool:
        return "_fitted" in self.__dict__

    @property
    def _known(self) -> Any:
        """What has been found; AttributeError, which is also scikit-learn's error, where nothing has."""
        try:
            return self.__dict__["_fitted"]
        except KeyError:
            raise sk.NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate arguments before using "
                "this estimator."
            ) from None

    def __getstate__(self) -> Any:
        """Without the training data, and machines as arrays: who loads them trusts no class but that of the estimator."""
        state = dict(super().__getstate__())
        for name in ("_rows", "_asked"):
            state.pop(name, None)
        return self._flat(state)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """From this version's state, or from that of 0.2.0, which held the objects."""
        super().__setstate__(self._revived(dict(state)))

    def _flat(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state with arrays, numbers and strings in place of what was found."""
        if isinstance(state.get("_fitted"), Fitted):
            state["_fitted"] = state["_fitted"].plain()
        return state

    def _revived(self, state: dict[str, Any]) -> dict[str, Any]:
        """The contrary."""
        if isinstance(state.get("_fitted"), dict):
            state["_fitted"] = Fitted.from_plain(state["_fitted"])
        return state

    # ---- predict -----------------------------------------------------------------------------------------------------

    def _new_points(self, X: Any) -> Any:
        """Rows to predict, checked as far as nobody below does."""
        if plain(X) and "feature_names_in_" not in self.__dict__ and X.shape[1] == self.n_features_in_:
            return X
        come_in(X, "X")
        refuse_other_arrays(X)
        return sk.validate_data(self, X, accept_sparse="csr", dtype=np.float64, order="C", reset=False)


def machines_for(form: Trainer, data: TrainingData, words: dict[str, Any], strategy: Any) -> Solution | Machines:
    """Train what the form says, on checked data.

    Few rows without a limit are solved to rounding, whatever the tolerance: a weight of two is then exactly a row twice.
    """
    tol = border.number("tol", words["tol"], low=0.0, strict=True)
    limit = border.integer("max_iter", words["max_iter"], low=-1)
    steps = _PATIENCE if limit == -1 else min(_PATIENCE, limit)
    rows = count(data.X) if data.w is None else np.count_nonzero(data.w)
    if rows <= _FEW and steps >= _LEAST and words["time_limit"] is None and tol < _ROUGH:
        with listening() as told:
            found = _trained(form, data, words | {"tol": min(tol, _SHARP), "max_iter": steps}, strategy)
        answer = found if found.converged else _as_asked(found, tol)
        if answer is not None:
            ends = () if found is answer else {machine.status for machine in getattr(found, "machines", (found,))}
            for message, kind in told:  # but for what a sharp tolerance alone is the reason of
                sharp = any(end.value in message or f"{end.name.lower()} while" in message for end in ends)
                if kind is not ConvergenceWarning or not sharp:
                    warn(message, kind)
            return answer
    return _trained(form, data, words, strategy)


def _as_asked(found: Solution | Machines, tol: float) -> Any:
    """A sharp answer as one at the tolerance that was asked for; None where it is none."""
    if found.converged:
        return found
    if isinstance(found, Machines):
        each = [_as_asked(machine, tol) for machine in found.machines]
        return None if None in each else replace(found, machines=tuple(each))
    rounding = found.status in (Status.PRECISION, Status.MAX_ITER, Status.LIMITED)
    if not rounding or found.kkt_violation > tol or abs(found.relative_gap) > LARGE_GAP:
        return None
    return replace(found, status=Status.CONVERGED, converged=True)


def _trained(form: Trainer, data: TrainingData, words: dict[str, Any], strategy: Any) -> Solution | Machines:
    """One call of the function."""
    if form.targets == "none":
        return form.train(data.X, sample_weight=data.w, **words)  # type: ignore[no-any-return]
    if data.classes is None:
        return form.train(data.X, data.y, sample_weight=data.w, **words)  # type: ignore[no-any-return]
    y = labelling.Coded(data.y, np.arange(len(data.classes)))
    if len(data.classes) > 2:
        return train_classes(data.X, y, sample_weight=data.w, strategy=strategy, **words)
    return form.train(data.X, y, sample_weight=data.w, **words)  # type: ignore[no-any-return]
