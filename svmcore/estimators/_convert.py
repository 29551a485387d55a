"""Machines to scikit-learn's estimators, and from them: either way predictions are equal but for rounding.

A machine that comes from there has no certificate, since it does not carry its training data: `dual_gap_` and
`kkt_violation_` are NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray, Kernel, KernelKind, Status
from svmcore.estimators import _sklearn as sk
from svmcore.estimators._fitted import Fitted
from svmcore.kernel.points import is_sparse
from svmcore.models.solution import ONE_CLASS, Solution, Terms
from svmcore.problem.certify import Certificate
from svmcore.problem.columns import Columns
from svmcore.problem.division import division
from svmcore.train.machines import Machines

if TYPE_CHECKING:
    from svmcore.estimators._machine import Machine

_THEIRS = {"SVCPath": "SVC", "SVCPathCV": "SVC", "SVRPathCV": "SVR", "QuantileSVR": "SVR"}
_SHARED = ("classes_", "class_weight_", "fit_status_", "n_iter_", "shape_fit_", "n_features_in_", "feature_names_in_")
_UNKNOWN = float("nan")
_NOTHING = Certificate(_UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN)


def to_sklearn(machine: Machine) -> Any:
    """An estimator of `sklearn.svm` that predicts the same."""
    known = machine._known
    name = type(machine).__name__
    made = sk.svm_class(_THEIRS.get(name, name))()
    own, theirs = machine.get_params(), made.get_params()
    made.set_params(**{word: value for word, value in own.items() if word in theirs and not _is_left_out(value)})
    for attribute in _SHARED:
        if hasattr(machine, attribute) and attribute in machine.__dict__:
            setattr(made, attribute, getattr(machine, attribute))
    if machine._linear:
        made.coef_, made.intercept_ = machine.coef_, machine.intercept_
        return made
    _refuse_what_is_not_there(machine, known)
    if hasattr(machine, "best_C_"):
        made.set_params(C=machine.best_C_)
    if "gamma" in own and not callable(machine.kernel) and not machine._given and machine.kernel != "linear":
        made.set_params(gamma=machine._gamma)
    made._gamma = 0.0 if callable(machine.kernel) or machine._given else machine._gamma
    made._sparse, made._effective_probability = known.sparse, "_sigmoids" in machine.__dict__
    made.support_, made._n_support = machine.support_, _counts(known)
    made.support_vectors_ = np.empty((0, 0)) if callable(machine.kernel) else machine.support_vectors_
    made.dual_coef_, made.intercept_ = machine.dual_coef_, machine.intercept_.copy()
    turned = (
        -1.0 if known.support_codes is not None and not known.pairs else 1.0
    )  # LIBSVM's first class is its positive one
    made._dual_coef_, made._intercept_ = turned * made.dual_coef_, turned * made.intercept_
    made._probA, made._probB = getattr(machine, "_libsvm_sigmoids", np.empty((2, 0)))
    made._num_iter = np.atleast_1d(known.n_iter)
    if callable(machine.kernel):
        made._BaseLibSVM__Xfit = machine._rows.X
    if hasattr(machine, "offset_"):
        made.offset_ = machine.offset_
    return made


def _is_left_out(value: Any) -> bool:
    """Whether a parameter has the value that says so; scikit-learn's versions differ in which have it."""
    return isinstance(value, str) and value == "deprecated"


def _refuse_what_is_not_there(machine: Machine, known: Fitted) -> None:
    """Say what scikit-learn's machines cannot hold."""
    if known.division is not None and not known.pairs:
        raise InputError(
            'scikit-learn\'s machines have pairs of classes, and multi_class="ovr" has none; fit with multi_class="ovo"'
        )
    if machine.kernel == "laplacian":
        raise InputError("scikit-learn's machines have no kernel 'laplacian'; use a kernel function")
    if callable(machine.kernel) and "_rows" not in machine.__dict__:
        raise InputError("scikit-learn's machines need all training objects for a kernel function; fit again")


def _counts(known: Fitted) -> IntArray:
    """Support vectors of each class; of a regression LIBSVM has two numbers."""
    counts = known.n_support
    return counts if known.support_codes is not None else np.array([counts[0], counts[0]], dtype=np.int32)


def from_sklearn(kind: type[Machine], fitted: Any) -> Any:
    """An estimator of the class `kind` that predicts as a fitted one of `sklearn.svm`."""
    theirs = sk.svm_class(kind.__name__) if kind.__name__ not in _THEIRS else None
    if theirs is None or not isinstance(fitted, theirs):
        raise InputError(
            f"{kind.__name__}.from_sklearn takes a fitted sklearn.svm.{kind.__name__}, and got {type(fitted).__name__}"
            if theirs is not None
            else f"scikit-learn has no {kind.__name__}"
        )
    if not hasattr(fitted, "coef_" if kind._linear else "support_"):
        raise sk.NotFittedError(
            f"{kind.__name__}.from_sklearn takes a fitted machine, and this {kind.__name__} is not fitted yet; fit it first"
        )
    own = kind._get_param_names()
    params = {word: value for word, value in fitted.get_params().items() if word in own}
    made = kind(**params)
    for attribute in _SHARED:
        if hasattr(fitted, attribute):
            setattr(made, attribute, getattr(fitted, attribute))
    if kind._linear:
        made.coef_, made.intercept_ = fitted.coef_.copy(), fitted.intercept_
        made._fitted = _of_weights(made)
        return made
    made._fitted = _of_support(made, fitted)
    if len(getattr(fitted, "_probA", ())) and hasattr(fitted, "classes_"):
        made._sigmoids = np.stack([fitted._probA, -fitted._probB])  # LIBSVM's are of the first class of a pair
    return made


def _of_weights(made: Any) -> Fitted:
    """Linear machines with one support vector each, which is their weights."""
    rows, constants = np.atleast_2d(made.coef_), np.ravel(made.intercept_)
    kernel = Kernel(int(KernelKind.LINEAR), 1.0, 0.0, 1, 0.0)
    each = [
        _solution(1, np.array([0]), np.ones(1), float(constants[k % constants.size]), kernel, row[None, :], made, k)
        for k, row in enumerate(rows)
    ]
    found = each[0] if len(each) == 1 else Machines(np.arange(len(each)), "ovr", tuple(each))
    return Fitted(found)


def _of_support(made: Any, fitted: Any) -> Fitted:
    """Machines from LIBSVM's layout."""
    support, dual = fitted.support_.astype(np.int64), fitted.dual_coef_
    dual = dual.toarray() if is_sparse(dual) else dual
    function = fitted.kernel if callable(fitted.kernel) else None
    name = "precomputed" if function is not None else fitted.kernel
    kind = KernelKind[name.upper()]
    degree = int(fitted.degree) if kind is KernelKind.POLY else 1
    kernel = Kernel(int(kind), float(fitted._gamma) or 1.0, float(fitted.coef0), degree, 0.0)
    vectors, n = fitted.support_vectors_, fitted.shape_fit_[0]
    codes = None
    if hasattr(fitted, "classes_"):
        codes = np.zeros(n, dtype=np.int64)
        codes[support] = np.repeat(np.arange(len(fitted.classes_)), fitted.n_support_)
    of = None if codes is None else codes[support]
    k = 0 if codes is None else len(fitted.classes_)
    each = []
    for row, (chosen, coef, constant) in enumerate(_machines(dual, np.ravel(fitted.intercept_), of, k)):
        chosen = chosen[np.argsort(support[chosen])]
        own = np.empty((0, 0)) if kind is KernelKind.PRECOMPUTED else vectors[chosen]
        each.append(_solution(n, support[chosen], coef[chosen], constant, kernel, own, made, row))
    found = each[0] if k <= 2 else Machines(np.arange(k), "ovo", tuple(each))
    points = None if function is None else fitted._BaseLibSVM__Xfit
    return Fitted(found, codes, points, bool(fitted._sparse))


def _machines(dual: FloatArray, constants: FloatArray, of: IntArray | None, k: int) -> Any:
    """For every machine the places of its support vectors, coefficients of all of them, and its constant, in our signs."""
    if of is None or k == 2:
        yield np.arange(dual.shape[1]), dual[0], float(constants[0])
        return
    for part, constant in zip(division(k, "ovo").parts, constants, strict=True):
        (first,), (second,) = part.minus, part.plus
        coef = -np.where(of == first, dual[second - 1], np.where(of == second, dual[first], 0.0))
        yield np.flatnonzero(coef), coef, -float(constant)


def _solution(
    n: int, support: IntArray, coef: FloatArray, constant: float, kernel: Kernel, vectors: Any, made: Any, k: int
) -> Solution:
    """A machine without a certificate."""
    n_iter = np.ravel(getattr(made, "n_iter_", 0))
    status = Status.CONVERGED if not getattr(made, "fit_status_", 0) else Status.MAX_ITER
    targets = made._form.targets
    loss = {"none": ONE_CLASS, "classes": "hinge", "numbers": "epsilon_insensitive"}[targets]
    classes = {"none": np.array([-1, 1]), "classes": np.array([0, 1]), "numbers": None}[targets]
    given = kernel.kind == KernelKind.PRECOMPUTED
    return Solution(
        n_points=n, intercept=constant, support=support, dual_coef=coef, kkt_violation=_UNKNOWN,
        measured=_NOTHING._replace(intercept=constant), status=status, converged=status.ok,
        n_iter=int(n_iter[k % n_iter.size]), n_kernel_evals=0, fit_seconds=0.0, solver="scikit-learn", classes=classes,
        kernel=kernel, support_vectors=vectors, columns=Columns(n if given else int(vectors.shape[1])),
        terms=Terms(getattr(made, "C", None), loss),
    )  # fmt: skip
