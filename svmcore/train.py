"""What people train with: two classes, numbers, one class, many columns. Check -> form -> solve, each by one call below."""

from __future__ import annotations

from typing import Any, Unpack

from svmcore._control import Callback
from svmcore._errors import ScaleWarning, warn
from svmcore._keywords import Gamma, KernelLike, SolverName, SolverOptions, Stopping, SVCLoss, SVRLoss, checked
from svmcore.models.solution import Solution
from svmcore.problem import advice
from svmcore.solve import Training, _check_run, _control, _fit, svc_problem, svr_problem


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
    fit_intercept: bool = True,
    intercept_scaling: float | None = None,
    standardize: bool = False,
    feature_names: Any = None,
    sample_weight: Any = None,
    class_weight: Any = None,
    solver: SolverName = "auto",
    tol: float = 1e-3,
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
    fit_intercept, intercept_scaling : without an intercept there is no equality row; ``intercept_scaling=tau`` then
        stands for a regularised one, through the kernel K + tau^2.
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
    cache_mb : memory for kernel rows (512 by default). n_threads : processors for kernel products (all by default).
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
    problem = svc_problem(
        X, y, C, kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, loss=loss, fit_intercept=fit_intercept,
        intercept_scaling=intercept_scaling, sample_weight=sample_weight, class_weight=class_weight,
        standardize=standardize, feature_names=feature_names,
    )  # fmt: skip
    run = _check_run(
        solver, tol, stopping, max_iter, cache_mb, n_threads, alpha0, trace, random_state, {**solver_options}
    )
    form = {
        "C": C, "kernel": kernel, "gamma": problem.spec.kernel.gamma, "degree": degree, "coef0": coef0, "loss": loss,
        "fit_intercept": fit_intercept, "intercept_scaling": intercept_scaling, "sample_weight": sample_weight,
        "class_weight": class_weight,
    }  # fmt: skip
    training = Training(problem.X, y, form, run.tol, problem.columns)
    return _fit(problem, run, _control(time_limit, callback, verbose), training)


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
    fit_intercept: bool = True,
    intercept_scaling: float | None = None,
    standardize: bool = False,
    feature_names: Any = None,
    sample_weight: Any = None,
    solver: SolverName = "auto",
    tol: float = 1e-3,
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
    (``loss="squared_epsilon_insensitive"``). All other parameters are those of `train_svc`; `alpha0` are signed
    coefficients here.

    Examples
    --------
    >>> import numpy as np, svmcore
    >>> X = np.linspace(0.0, 1.0, 20).reshape(-1, 1)
    >>> solution = svmcore.train_svr(X, 2.0 * X.ravel(), C=100.0, epsilon=0.01, kernel="linear")
    >>> bool(abs(solution.predict([[0.25]])[0] - 0.5) < 0.02)
    True
    """
    problem = svr_problem(
        X, y, C, epsilon, kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, loss=loss, fit_intercept=fit_intercept,
        intercept_scaling=intercept_scaling, sample_weight=sample_weight, standardize=standardize,
        feature_names=feature_names,
    )  # fmt: skip
    run = _check_run(
        solver, tol, stopping, max_iter, cache_mb, n_threads, alpha0, trace, random_state, {**solver_options}
    )
    form = {
        "C": C, "epsilon": epsilon, "kernel": kernel, "gamma": problem.spec.kernel.gamma, "degree": degree, "coef0": coef0,
        "loss": loss, "fit_intercept": fit_intercept, "intercept_scaling": intercept_scaling,
        "sample_weight": sample_weight,
    }  # fmt: skip
    training = Training(problem.X, y, form, run.tol, problem.columns)
    solution = _fit(problem, run, _control(time_limit, callback, verbose), training)
    flat = advice.nearly_constant(solution, problem.qp, problem.X)
    if flat is not None:
        warn(
            f"the function is nearly constant, with a spread of {flat[0]:.2g} where y spreads {flat[1]:.2g}: C={C:g} is "
            f"small for such targets. Remedy: scale y to spread 1, or raise C, to {flat[1]:.0g} say.",
            ScaleWarning,
        )
    return solution
