"""Problems: the words of a training function become checked points, a kernel and a dual."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError
from svmcore._keywords import remembered
from svmcore._types import DualQP, FloatArray, KernelKind
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import is_sparse
from svmcore.models.solution import ONE_CLASS, Terms
from svmcore.problem import border, formulations, labelling
from svmcore.problem import columns as _columns
from svmcore.problem.border import KernelSpec, KernelWords
from svmcore.problem.columns import Columns
from svmcore.problem.intercept import Intercept, settled, wanted
from svmcore.problem.scales import Look

_FAR_APART = 1e-2  # squared distance of two points, as a share of the squared norm, that rules this out:
_OFF_CENTRE = 1e-3  # share of the squared norms that is left when the points are moved to their mean


class Problem(NamedTuple):
    """A checked problem: the dual, its kernel, the data behind it, scaled, and the two classes of a classifier.

    `centre` is what `points` have been moved by, where that changes nothing but the rounding; `by_scale`: gamma="scale";
    `fixed` is an intercept that is given and not found, which the dual holds as a shift of its targets; `look` is what is
    known of X.
    """

    qp: DualQP
    spec: KernelSpec
    X: Any
    classes: NDArray[Any] | None
    columns: Columns
    terms: Terms
    centre: FloatArray | None = None
    by_scale: bool = False
    fixed: float = 0.0
    look: Look | None = None

    @property
    def points(self) -> Any:
        """The points as solvers and certificates see them."""
        return self.X if self.centre is None else self.X - self.centre

    def kernel_matrix(self, *, cache_bytes: int, n_threads: int) -> KernelMatrix:
        """The kernel matrix over the points."""
        spec = self.spec
        with nullcontext() if spec.function is None else one_blas_thread:
            return KernelMatrix(self.points, spec.kernel, spec.function, cache_bytes=cache_bytes, n_threads=n_threads)

    def shift(self, K: KernelMatrix, beta: FloatArray) -> float:
        """What the dual's intercept lacks: the fixed one, or what the centre of the points adds to give that of X."""
        if self.centre is None:
            return self.fixed
        return float(-formulations.to_coef(self.qp, beta, K.n) @ (K.X @ self.centre))


class Training(NamedTuple):
    """What a machine was trained on, for `Solution.add` and `Solution.remove`; `form` are keywords of the problem.

    X is scaled already, by `columns`. `kept` is theirs: a holder of the active set behind the answer.
    """

    X: Any
    y: Any
    form: dict[str, Any]
    tol: float
    columns: Columns
    kept: Any = None


def _worked_out(problem: Problem, form: dict[str, Any]) -> dict[str, Any]:
    """The words of a problem that depend on its points, as later changes of the machine keep them."""
    kernel = problem.spec.kernel
    return {"gamma": kernel.gamma} | settled(form, kernel)


def checked_points(X: Any, kernel: Any) -> tuple[Any, Look | None]:
    """Features, or a given kernel matrix, checked; what is known of features."""
    if isinstance(kernel, str) and kernel == "precomputed":
        return border.gram(X), None
    try:
        X, look = border.looked_at(X)
    except InputError as error:
        if not callable(kernel):
            raise
        raise InputError(f"{error}; machines like svmcore.SVC take any objects with a kernel function") from None
    if look is not None and X.nbytes > border.SMALL:
        border.memory(8.0 * X.size, f"packing {X.shape[0]} x {X.shape[1]} features", "train on fewer rows or features")
    return X, look


def centre_of(X: Any, spec: KernelSpec, centred: bool) -> FloatArray | None:
    """The mean of the points, where it is all they have in common with large numbers (time stamps, say).

    With the linear kernel and an intercept a translation changes nothing: its terms cancel, and so do the digits.
    """
    if spec.kernel.kind != KernelKind.LINEAR or not centred or is_sparse(X):
        return None
    step = X[0] - X[-1]
    if float(step @ step) > _FAR_APART * float(X[0] @ X[0]):
        return None  # most data ends here
    mean = np.asarray(X.mean(axis=0), dtype=np.float64)
    energy = float(np.vdot(X, X))
    return mean if energy - X.shape[0] * float(mean @ mean) < _OFF_CENTRE * energy else None


def svc_problem(
    X: Any, y: Any, C: Any, *, kernel: Any = "rbf", gamma: Any = "scale", degree: Any = 3, coef0: Any = 0.0,
    loss: Any = "hinge", fit_intercept: Any = True, intercept_scaling: Any = None, fixed_intercept: Any = None,
    sample_weight: Any = None, class_weight: Any = None, standardize: Any = False, feature_names: Any = None,
    like: Problem | None = None,
) -> Problem:  # fmt: skip
    """Check a classification problem and form its dual. The points and the kernel may be those of another one, `like`."""
    C, loss, _, _, bias, kernel, by_scale = remembered(
        _words, formulations.SVC_LOSSES, C, loss, 0.0, 0.5, fit_intercept, intercept_scaling, fixed_intercept,
        kernel, gamma, degree, coef0,
    )  # fmt: skip
    X, columns, spec, weights, look = points_of(X, kernel, bias, sample_weight, standardize, feature_names, like)
    signs, classes = labelling.labels(y, X.shape[0], None if weights is None else weights > 0)
    share = None if class_weight is None else labelling.class_weights(class_weight, classes, signs, weights)
    costs = _costs(C, share, weights)
    if isinstance(costs, np.ndarray):
        demand_costs(costs, signs > 0.0, signs < 0.0)
    qp = formulations.with_intercept(formulations.svc(signs, costs, loss, bias.found), bias.fixed)
    terms = Terms(C, loss, fixed_intercept=bias.fixed or None)
    if class_weight is not None:
        codes = (signs > 0).astype(np.int64)
        terms = terms._replace(factors=tuple(labelling.class_factors(class_weight, classes, codes, weights).tolist()))
    centre = centre_of(X, spec, qp.centred) if like is None else like.centre
    return Problem(qp, spec, X, classes, columns, terms, centre, by_scale, bias.fixed, look)


class _ProblemWords(NamedTuple):
    """The words of a problem that do not depend on its points, checked. `by_scale`: gamma="scale"."""

    C: float
    loss: str
    epsilon: float
    tau: float
    bias: Intercept
    kernel: KernelWords
    by_scale: bool


def _words(
    losses: tuple[str, ...], C: Any, loss: Any, epsilon: Any, tau: Any, fit_intercept: Any, intercept_scaling: Any,
    fixed_intercept: Any, kernel: Any, gamma: Any, degree: Any, coef0: Any,
) -> _ProblemWords:  # fmt: skip
    C, epsilon = border.cost(C), border.number("epsilon", epsilon, low=0.0)
    loss = border.choice("loss", loss, losses)
    tau = _tau(tau, loss, C)
    bias = wanted(fit_intercept, intercept_scaling, fixed_intercept)
    spec = border.kernel_words(kernel, gamma, degree, coef0)
    return _ProblemWords(C, loss, epsilon, tau, bias, spec, isinstance(gamma, str) and gamma == "scale")


def points_of(
    X: Any, kernel: KernelWords, bias: Intercept, sample_weight: Any, standardize: Any, feature_names: Any,
    like: Problem | None = None,
) -> tuple[Any, Columns, KernelSpec, FloatArray | None, Look | None]:  # fmt: skip
    """The checked points, scaled; how; the kernel; the weights; and what is known of the points."""
    if like is not None:
        return like.X, like.columns, like.spec, border.sample_weights(sample_weight, like.X.shape[0]), like.look
    name = kernel.spec.name if kernel.spec.function is None else kernel.spec.function
    names = _columns.names_of(X, feature_names)
    given, look = checked_points(X, name)
    weights = None if sample_weight is None else border.sample_weights(sample_weight, given.shape[0])
    columns, X = _columns.fitted(given, weights, standardize, names, name)
    look = look if X is given else None
    spec = bias.embedded(kernel.on(X, weights, look), X, weights)
    return X, columns, spec, weights, look


def svr_problem(
    X: Any, y: Any, C: Any, epsilon: Any, *, kernel: Any = "rbf", gamma: Any = "scale", degree: Any = 3,
    coef0: Any = 0.0, loss: Any = "epsilon_insensitive", tau: Any = 0.5, fit_intercept: Any = True,
    intercept_scaling: Any = None, fixed_intercept: Any = None, sample_weight: Any = None, standardize: Any = False,
    feature_names: Any = None, like: Problem | None = None,
) -> Problem:  # fmt: skip
    """Check a regression problem and form its dual; `like` as in `svc_problem`."""
    C, loss, epsilon, tau, bias, kernel, by_scale = remembered(
        _words, formulations.SVR_LOSSES, C, loss, epsilon, tau, fit_intercept, intercept_scaling, fixed_intercept,
        kernel, gamma, degree, coef0,
    )  # fmt: skip
    X, columns, spec, weights, look = points_of(X, kernel, bias, sample_weight, standardize, feature_names, like)
    targets = border.vector(y, "y", X.shape[0])
    costs = _costs(C, weights)
    if isinstance(costs, np.ndarray):
        demand_costs(costs, slice(None))
    if loss == formulations.PINBALL:
        qp, terms = formulations.quantile(targets, costs, tau, bias.found), Terms(C, loss, tau=tau)
    else:
        qp, terms = formulations.svr(targets, costs, epsilon, loss, bias.found), Terms(C, loss, epsilon)
    qp, terms = formulations.with_intercept(qp, bias.fixed), terms._replace(fixed_intercept=bias.fixed or None)
    centre = centre_of(X, spec, qp.centred) if like is None else like.centre
    return Problem(qp, spec, X, None, columns, terms, centre, by_scale, bias.fixed, look)


def _costs(C: float, *factors: FloatArray | None) -> FloatArray | float:
    """What each point costs: C times the factors that there are. A point without weight costs nothing, whatever C is."""
    given = [factor for factor in factors if factor is not None]
    if not given:
        return C
    share = math.prod(given, start=1.0)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(share > 0, C * share, 0.0)


def demand_costs(costs: FloatArray, *sides: Any) -> None:
    """Refuse costs that vanish for all points, or for all points of a class."""
    if len(costs) and costs.min() > formulations.NEGLIGIBLE:
        return
    for side in sides:
        largest = float(np.max(costs[side], initial=0.0))
        if not largest > formulations.NEGLIGIBLE:
            raise InputError(
                f"C times the weights is at most {largest:g} for all samples{' of a class' if len(sides) > 1 else ''}, "
                "which counts as zero; give a larger C or larger weights"
            )


def _tau(tau: Any, loss: str, C: float) -> float:
    """A quantile, where the loss has one."""
    tau = float(border.number("tau", tau, low=0.0, high=1.0))
    if loss != formulations.PINBALL:
        if tau != 0.5:
            raise InputError(f"tau={tau:g} belongs to loss='pinball'; add it, or leave tau out")
    elif not 0.0 < tau < 1.0:
        raise InputError(f"tau={tau:g} is out of range; it must be between 0 and 1, both excluded")
    elif math.isinf(C):
        raise InputError("C=inf with loss='pinball' asks for a function through all targets; give a finite C")
    return float(tau)


def one_class_problem(
    X: Any, nu: Any = 0.5, *, kernel: Any = "rbf", gamma: Any = "scale", degree: Any = 3, coef0: Any = 0.0,
    sample_weight: Any = None, standardize: Any = False, feature_names: Any = None,
) -> Problem:  # fmt: skip
    """Check a problem of one class and form its dual."""
    nu = border.share("nu", nu)
    words = remembered(_words, (ONE_CLASS,), 1.0, ONE_CLASS, 0.0, 0.5, True, None, None, kernel, gamma, degree, coef0)
    X, columns, spec, weights, look = points_of(X, words.kernel, words.bias, sample_weight, standardize, feature_names)
    qp = formulations.one_class(X.shape[0] if weights is None else weights, nu)
    classes, terms = np.array([-1, 1]), Terms(None, ONE_CLASS, nu=nu)
    return Problem(qp, spec, X, classes, columns, terms, None, words.by_scale, 0.0, look)


def any_problem(X: Any, y: Any, C: Any, epsilon: Any, problem: dict[str, Any]) -> Problem:
    """A classification problem, or with `epsilon` or a loss of regression such a problem, from further keywords."""
    if epsilon is None and problem.get("loss") == formulations.PINBALL:
        epsilon = 0.0
    if epsilon is None:
        return svc_problem(X, y, C, **problem)
    if problem.pop("class_weight", None) is not None:
        raise InputError(
            "class_weight belongs to classification; with epsilon, which asks for regression, use sample_weight"
        )
    return svr_problem(X, y, C, epsilon, **problem)
