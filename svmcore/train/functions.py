"""What people train with: two classes, numbers, one class, many columns. Check -> form -> solve, each by one call below."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np

from svmcore._control import Callback
from svmcore._errors import InputError, ScaleWarning, warn
from svmcore._keywords import TOL, Gamma, KernelLike, SolverName, SolverOptions, Stopping, SVCLoss, SVRLoss, checked
from svmcore.models.solution import Solution
from svmcore.problem import advice, border, labelling
from svmcore.train.forms import Problem, Training, _worked_out, one_class_problem, svc_problem, svr_problem
from svmcore.train.nu import nu_fit
from svmcore.train.solve import Run, checked_run, control_of, fit


@checked(options=SolverOptions.__annotations__)
def train_svc(
    X: Any,
    y: Any,
    C: float = 1.0,
    *,
    kernel: KernelLike = "rbf",
    gamma: Gamma = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    loss: SVCLoss = "hinge",
    nu: float | None = None,
    fit_intercept: bool | Literal["embedded"] = True,
    intercept_scaling: float | Literal["auto"] | None = None,
    fixed_intercept: float | None = None,
    standardize: bool = False,
    feature_names: Any = None,
    sample_weight: Any = None,
    class_weight: Any = None,
    solver: SolverName = "auto",
    tol: float = TOL,
    stopping: Stopping = "kkt",
    max_iter: int = -1,
    time_limit: float | None = None,
    cache_mb: float | None = None,
    n_threads: int | None = None,
    alpha0: Any = None,
    callback: Callback | None = None,
    verbose: int = 0,
    trace: bool = False,
    random_state: int | None = None,
    **solver_options: Unpack[SolverOptions],
) -> Solution:
    """Train a two-class support vector machine and certify the answer.

    Minimises ``1/2 |w|^2 + C sum_i s_i xi_i`` (hinge) or ``+ C/2 sum_i s_i xi_i^2`` (squared hinge), with s_i = sample
    weight times class weight. ``C=numpy.inf`` is the hard margin.

    Parameters
    ----------
    X : array or scipy sparse matrix, shape (n, d). With ``kernel="precomputed"``: the n x n kernel matrix.
    y : n labels of any type with two values; the second in sorted order is the positive class.
    C : penalty, greater than 0, or infinity.
    kernel : "linear", "rbf", "poly", "sigmoid", "laplacian", "precomputed", or a function ``K = kernel(X, Z)``.
    gamma : "scale" (1 / (d * variance)), "auto" (1 / d) or a number. rbf: ``exp(-gamma |x - z|^2)``.
    degree, coef0 : poly: ``(gamma x'z + coef0)^degree``; sigmoid: ``tanh(gamma x'z + coef0)``.
    loss : "hinge" or "squared_hinge".
    nu : in place of C: the C is found at which the sum of alpha is the share nu of n C. At most the share nu of the points is
        on the wrong side of its margin, and at least that share is a support vector. ``Solution.C`` says what was found.
    fit_intercept, intercept_scaling : False: no intercept. "embedded": a regularised one, through the kernel K + tau^2; by
        default tau = R, the largest norm of a point in feature space; ``intercept_scaling=tau`` gives another. Neither has an
        equality row. ``fit_intercept=False, intercept_scaling=tau`` or ``"auto"`` embeds it, too.
    fixed_intercept : without a fitted intercept: the intercept, or what a regularised one is counted from; default 0.
    standardize : give every feature mean 0 and standard deviation 1 over the training rows, weighted by `sample_weight`
        (sparse X: deviation 1 only, so that zeros stay zeros). The machine keeps the numbers and takes raw data later.
    feature_names : names of the columns; by default those of a data frame. A machine that knows them accepts a data frame
        with the columns in any order, and refuses other columns. Arrays are taken by position.
    sample_weight, class_weight : weights of points (zero removes a point) and of classes (mapping, or "balanced").
    solver : "auto", or a name from ``svmcore.solvers()``; its own options follow as keywords. "auto" hands an option to
        those of its solvers that have it.
    tol, stopping : "kkt" (KKT violation <= tol), "gap" ((primal - dual) / (|primal| + 1) <= tol) or "objective"
        (relative growth of the dual between checks <= tol; simple and unreliable).
    max_iter, time_limit, callback : limits; a callback receives a progress report and stops the run by returning True.
    cache_mb : memory for kernel rows (512 by default; more for costly ones where the machine has it to spare).
    n_threads : processors for kernel products (all by default).
    alpha0 : dual variables to start from.
    verbose, trace : progress lines on stderr; per-iteration records in ``Solution.trace``.
    random_state : seed of the rules that choose at random.

    Returns
    -------
    Solution

    Examples
    --------
    >>> import numpy as np, svmcore
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]])
    >>> solution = svmcore.train_svc(X, ["low", "low", "high", "high"], C=10.0, kernel="linear")
    >>> [str(label) for label in solution.predict([[0.5, 0.5], [4.0, 4.0]])]
    ['low', 'high']
    >>> solution.relative_gap < 1e-2
    True
    """
    form = {
        "C": _place(nu, "C", C, 1.0, loss), "kernel": kernel, "gamma": gamma, "degree": degree, "coef0": coef0,
        "loss": loss, "fit_intercept": fit_intercept, "intercept_scaling": intercept_scaling,
        "fixed_intercept": fixed_intercept, "sample_weight": sample_weight, "class_weight": class_weight,
    }  # fmt: skip
    problem = svc_problem(X, y, **form, standardize=standardize, feature_names=feature_names)
    run = checked_run(
        solver, tol, stopping, max_iter, cache_mb, n_threads, alpha0, trace, random_state, {**solver_options}
    )
    return _trained(problem, nu, run, control_of(time_limit, callback, verbose), X, y, form)


@checked(options=SolverOptions.__annotations__)
def train_svr(
    X: Any,
    y: Any,
    C: float = 1.0,
    epsilon: float = 0.1,
    *,
    kernel: KernelLike = "rbf",
    gamma: Gamma = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    loss: SVRLoss = "epsilon_insensitive",
    tau: float = 0.5,
    nu: float | None = None,
    fit_intercept: bool | Literal["embedded"] = True,
    intercept_scaling: float | Literal["auto"] | None = None,
    fixed_intercept: float | None = None,
    standardize: bool = False,
    feature_names: Any = None,
    sample_weight: Any = None,
    solver: SolverName = "auto",
    tol: float = TOL,
    stopping: Stopping = "kkt",
    max_iter: int = -1,
    time_limit: float | None = None,
    cache_mb: float | None = None,
    n_threads: int | None = None,
    alpha0: Any = None,
    callback: Callback | None = None,
    verbose: int = 0,
    trace: bool = False,
    random_state: int | None = None,
    **solver_options: Unpack[SolverOptions],
) -> Solution:
    """Train a support vector regression and certify the answer.

    Minimises ``1/2 |w|^2 + C sum_i s_i max(0, |y_i - f(x_i)| - epsilon)``, or half its squares
    (``loss="squared_epsilon_insensitive"``). With ``loss="pinball"`` it is the `tau`-quantile of the targets that is fitted:
    ``C sum_i s_i (tau max(0, r_i) + (1 - tau) max(0, -r_i))``, r = y - f(x), without an epsilon. With `nu`, in place of
    epsilon, the epsilon is found at which sum |alpha| is the share nu of n C: about that share of the points is outside of
    the tube.
    All other parameters are those of `train_svc`; `alpha0` are signed coefficients here.

    Examples
    --------
    >>> import numpy as np, svmcore
    >>> X = np.linspace(0.0, 1.0, 20).reshape(-1, 1)
    >>> solution = svmcore.train_svr(X, 2.0 * X.ravel(), C=100.0, epsilon=0.01, kernel="linear")
    >>> bool(abs(solution.predict([[0.25]])[0] - 0.5) < 0.02)
    True
    """
    form = {
        "C": C, "epsilon": _place(nu, "epsilon", epsilon, 0.1, loss), "kernel": kernel, "gamma": gamma, "degree": degree,
        "coef0": coef0, "loss": loss, "tau": tau, "fit_intercept": fit_intercept, "intercept_scaling": intercept_scaling,
        "fixed_intercept": fixed_intercept, "sample_weight": sample_weight,
    }  # fmt: skip
    problem = svr_problem(X, y, **form, standardize=standardize, feature_names=feature_names)
    run = checked_run(
        solver, tol, stopping, max_iter, cache_mb, n_threads, alpha0, trace, random_state, {**solver_options}
    )
    solution = _trained(problem, nu, run, control_of(time_limit, callback, verbose), X, y, form)
    flat = advice.nearly_constant(solution, problem.qp, problem.X)
    if flat is not None:
        warn(
            f"the function is nearly constant, with a spread of {flat[0]:.2g} where y spreads {flat[1]:.2g}: C={C:g} is "
            f"small for such targets. Remedy: scale y to spread 1, or raise C, to {flat[1]:.0g} say.",
            ScaleWarning,
        )
    return solution


@checked(options=SolverOptions.__annotations__)
def train_one_class(
    X: Any,
    nu: float = 0.5,
    *,
    kernel: KernelLike = "rbf",
    gamma: Gamma = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    standardize: bool = False,
    feature_names: Any = None,
    sample_weight: Any = None,
    solver: SolverName = "auto",
    tol: float = TOL,
    stopping: Stopping = "kkt",
    max_iter: int = -1,
    time_limit: float | None = None,
    cache_mb: float | None = None,
    n_threads: int | None = None,
    alpha0: Any = None,
    callback: Callback | None = None,
    verbose: int = 0,
    trace: bool = False,
    random_state: int | None = None,
    **solver_options: Unpack[SolverOptions],
) -> Solution:
    """Train a machine of one class: a region that holds all but about the share `nu` of the points, and certify the answer.

    Minimises ``1/2 |w|^2 - nu n rho + sum_i s_i max(0, rho - w'phi(x_i))``. ``decision_function`` is ``w'phi(x) - rho``: at
    least 0 inside, where ``predict`` says 1; below 0 outside, where it says -1. ``intercept`` is -rho. The scale is that of
    scikit-learn's `OneClassSVM`: each alpha is at most s_i, and they sum to nu sum(s).

    Parameters
    ----------
    nu : above 0 and at most 1. At most this share of the weight is outside, and at least this share is in support vectors.
    sample_weight : the weights s_i; zero removes a point.

    All other parameters are those of `train_svc`.

    Examples
    --------
    >>> import numpy as np, svmcore
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> solution = svmcore.train_one_class(X, nu=0.1)
    >>> solution.predict([[0.0, 0.0], [6.0, 6.0]]).tolist()
    [1, -1]
    >>> bool(np.mean(solution.decision_function(X) < -1e-3) <= 0.1)
    True
    """
    form = {
        "nu": nu, "kernel": kernel, "gamma": gamma, "degree": degree, "coef0": coef0, "sample_weight": sample_weight,
    }  # fmt: skip
    problem = one_class_problem(X, **form, standardize=standardize, feature_names=feature_names)
    run = checked_run(
        solver, tol, stopping, max_iter, cache_mb, n_threads, alpha0, trace, random_state, {**solver_options}
    )
    y = np.ones(problem.X.shape[0], dtype=np.int64)
    return _trained(problem, None, run, control_of(time_limit, callback, verbose), X, y, form)


_WITH_NU = ("hinge", "epsilon_insensitive")


def _place(nu: Any, name: str, value: Any, default: float, loss: Any) -> Any:
    """The value of the parameter that nu takes the place of: C = 1, or epsilon = 0, to start with."""
    if nu is None:
        return value
    if value != default:
        raise InputError(
            f"nu={nu!r} takes the place of {name}, and {name}={value!r} is given, too; leave one of them out"
        )
    if loss not in _WITH_NU:
        raise InputError(f"nu={nu!r} cannot be used with loss={loss!r}; it needs {' or '.join(map(repr, _WITH_NU))}")
    return 1.0 if name == "C" else 0.0


def _own(points: Any, given: Any) -> Any:
    """Checked points in memory that is nobody else's, whatever becomes of the array that was given."""
    return points if points is not given and isinstance(points, np.ndarray) and points.flags.owndata else points.copy()


def _trained(problem: Problem, nu: Any, run: Run, control: Any, X: Any, y: Any, form: dict[str, Any]) -> Solution:
    """Solve a problem, or the one of its family that has this nu."""
    weights = form["sample_weight"]
    form = form | {"sample_weight": None if weights is None else np.array(weights)} | _worked_out(problem, form)
    y = y.codes if type(y) is labelling.Coded else y
    training = Training(_own(problem.X, X), np.array(y), form, run.tol, problem.columns)
    if nu is None:
        return fit(problem, run, control, training)
    return nu_fit(problem, border.share("nu", nu), run, control, training)
