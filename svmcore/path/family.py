"""Paths of the other formulations: regression over C and over epsilon, quantiles, one class.

Each of them is a row of the table in `path/problem`, followed by the same tracker as a classifier's path.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from svmcore._errors import InputError
from svmcore._keywords import Gamma, KernelLike, checked
from svmcore._types import FloatArray
from svmcore.path.data import grouped, keys_of, snapped, ungrouped
from svmcore.path.driver import LAMBDA_MIN, Begun, PathProgress, begin, ends_of, finished, follow_data
from svmcore.path.one_class import OneClassPath
from svmcore.path.problem import Data, Form
from svmcore.path.result import Path
from svmcore.problem import border
from svmcore.problem.columns import names_of
from svmcore.train.forms import Problem, svr_problem

Progress = Callable[[PathProgress], Any]
ONE_CLASS = "one_class"
_NEAREST = 1e-9
"""A tau is at least so far from 0 and from 1. Values that are nearer to the end of a box are at the end."""


@checked()
def svr_path(
    X: Any,
    y: Any,
    *,
    epsilon: float = 0.1,
    kernel: KernelLike = "rbf",
    gamma: Gamma = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    fit_intercept: bool | Literal["embedded"] = True,
    intercept_scaling: float | None = None,
    standardize: bool = False,
    feature_names: Any = None,
    sample_weight: Any = None,
    lambda_max: float | None = None,
    lambda_min: float = LAMBDA_MIN,
    C_min: float | None = None,
    C_max: float | None = None,
    merge_tol: float = 0.0,
    max_events: int | None = None,
    time_limit: float | None = None,
    cache_mb: float | None = None,
    n_threads: int | None = None,
    callback: Progress | None = None,
    verbose: int = 0,
) -> Path:
    """Follow the optimal support vector regression for every C, with the tube's half-width `epsilon` fixed.

    All other parameters are those of `svm_path` and `train_svr`. The machine at one C is that of
    ``train_svr(X, y, C, epsilon)`` to rounding. The answer is a `Path`. Its `predict` returns values, and `dual_coef` returns
    signed coefficients. `error_curve` is the mean absolute error as an exact function of C.

    Examples
    --------
    >>> import svmcore
    >>> path = svmcore.svr_path([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0], epsilon=0.25, kernel="linear")
    >>> path.predict([[2.0]], C=100.0).round(6).tolist()
    [1.75]
    """
    epsilon = border.number("epsilon", epsilon, low=0.0)
    ends = ends_of(lambda_max, lambda_min, C_min, C_max)
    begun = begin(ends, max_events, cache_mb, n_threads, time_limit, callback, verbose)
    return _followed(
        X, y, Form("svr", epsilon=epsilon), begun, merge_tol,
        kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, fit_intercept=fit_intercept,
        intercept_scaling=intercept_scaling, sample_weight=sample_weight, standardize=standardize,
        feature_names=feature_names,
    )  # fmt: skip


@checked()
def epsilon_path(
    X: Any,
    y: Any,
    C: float = 1.0,
    *,
    kernel: KernelLike = "rbf",
    gamma: Gamma = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    fit_intercept: bool | Literal["embedded"] = True,
    intercept_scaling: float | None = None,
    standardize: bool = False,
    feature_names: Any = None,
    sample_weight: Any = None,
    epsilon_max: float | None = None,
    epsilon_min: float = 0.0,
    merge_tol: float = 0.0,
    max_events: int | None = None,
    time_limit: float | None = None,
    cache_mb: float | None = None,
    n_threads: int | None = None,
    callback: Progress | None = None,
    verbose: int = 0,
) -> Path:
    """Follow the optimal support vector regression for every half-width epsilon of the tube, with C fixed.

    The path begins at `epsilon_max` and ends at `epsilon_min`. None for `epsilon_max` means the epsilon from which on the
    tube holds all targets and the function is constant. The path then answers for every larger epsilon, too. All other
    parameters are those of `svm_path` and `train_svr`.

    The answer is a `Path`. Its methods take epsilon where others take C, as in ``path.predict(X, 0.1)``. Its breakpoints are
    ``path.epsilons``. `error_curve` is the mean absolute error as an exact function of epsilon.

    Examples
    --------
    >>> import svmcore
    >>> path = svmcore.epsilon_path([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0], C=10.0, kernel="linear")
    >>> path.predict([[2.0]], 0.25).round(6).tolist(), round(float(path.epsilons[0]), 6)
    ([1.75], 1.0)
    """
    C = border.cost(C, "C", infinite=False)
    low = border.number("epsilon_min", epsilon_min, low=0.0)
    high = None if epsilon_max is None else border.number("epsilon_max", epsilon_max, low=low)
    begun = begin((high, low), max_events, cache_mb, n_threads, time_limit, callback, verbose)
    return _followed(
        X, y, Form("epsilon", C=C), begun, merge_tol,
        kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, fit_intercept=fit_intercept,
        intercept_scaling=intercept_scaling, sample_weight=sample_weight, standardize=standardize,
        feature_names=feature_names,
    )  # fmt: skip


@checked()
def quantile_path(
    X: Any,
    y: Any,
    tau: float = 0.5,
    *,
    kernel: KernelLike = "rbf",
    gamma: Gamma = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    fit_intercept: bool | Literal["embedded"] = True,
    intercept_scaling: float | None = None,
    standardize: bool = False,
    feature_names: Any = None,
    sample_weight: Any = None,
    lambda_max: float | None = None,
    lambda_min: float = LAMBDA_MIN,
    C_min: float | None = None,
    C_max: float | None = None,
    merge_tol: float = 0.0,
    max_events: int | None = None,
    time_limit: float | None = None,
    cache_mb: float | None = None,
    n_threads: int | None = None,
    callback: Progress | None = None,
    verbose: int = 0,
) -> Path:
    """Follow the optimal regression of the quantile `tau` for every C.

    The machine at one C minimises ``1/2 |w|^2 + C sum_i s_i p(y_i - f(x_i))`` with the pinball loss
    ``p(r) = max(tau r, (tau - 1) r)``. So a share of about `tau` of the targets lies below f. With tau = 0.5 it is the
    absolute loss. All other parameters are those of `svm_path`. The answer is a `Path`. Its `error_curve` is the mean pinball
    loss as an exact function of C.

    Examples
    --------
    >>> import svmcore
    >>> path = svmcore.quantile_path([[0.0], [1.0], [2.0]], [0.0, 1.0, 5.0], tau=0.5, kernel="linear")
    >>> path.predict([[1.0]], C=[1e-3, 10.0]).round(3).ravel().tolist()
    [1.0, 2.5]
    """
    tau = border.number("tau", tau, low=0.0, high=1.0, strict=True)
    if not tau < 1.0:
        raise InputError(f"tau={tau!r} is no quantile; give a number between 0 and 1, both excluded")
    if min(tau, 1.0 - tau) < _NEAREST:
        raise InputError(
            f"tau={tau!r} is so near to an end that rounding decides; it must be {_NEAREST:g} away from it"
        )
    ends = ends_of(lambda_max, lambda_min, C_min, C_max)
    begun = begin(ends, max_events, cache_mb, n_threads, time_limit, callback, verbose)
    return _followed(
        X, y, Form("quantile", tau=tau), begun, merge_tol,
        kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, fit_intercept=fit_intercept,
        intercept_scaling=intercept_scaling, sample_weight=sample_weight, standardize=standardize,
        feature_names=feature_names,
    )  # fmt: skip


@checked()
def one_class_path(
    X: Any,
    *,
    kernel: KernelLike = "rbf",
    gamma: Gamma = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    standardize: bool = False,
    feature_names: Any = None,
    sample_weight: Any = None,
    lambda_max: float | None = None,
    lambda_min: float = LAMBDA_MIN,
    C_min: float | None = None,
    C_max: float | None = None,
    merge_tol: float = 0.0,
    max_events: int | None = None,
    time_limit: float | None = None,
    cache_mb: float | None = None,
    n_threads: int | None = None,
    callback: Progress | None = None,
    verbose: int = 0,
) -> OneClassPath:
    """Follow the one-class machine for every nu at once.

    The machine at one C minimises ``1/2 |w|^2 + C sum_i s_i max(0, 1 - w.x_i)``. This is the C-SVC of all labels +1 without
    an intercept. Scaled, it is the machine of Schoelkopf et al. Its nu is ``sum(alpha) / (n C)``, which falls from 1 as C
    grows. ``path.nu(C)`` is this nu, and ``path.C_of(nu)`` finds the C of a nu. `decision_function` is at least 0 inside,
    where `predict` is +1. Outside `predict` is -1. `error_curve` is the share of points outside as an exact function of C.

    The sets of different nu are not nested: a point that lies outside for one nu may lie inside for a larger one.
    ``path.depth(X)`` is the largest nu at which each row is inside. The sets of depth nu or more are nested.

    All other parameters are those of `svm_path`.

    Examples
    --------
    >>> import svmcore
    >>> path = svmcore.one_class_path([[0.0], [0.1], [0.2], [3.0]], gamma=1.0)
    >>> C = path.C_of(0.5)
    >>> round(path.nu(C), 6), path.predict([[0.1], [9.0]], C).tolist()
    (0.5, [1, -1])
    """
    ends = ends_of(lambda_max, lambda_min, C_min, C_max)
    begun = begin(ends, max_events, cache_mb, n_threads, time_limit, callback, verbose)
    shape = X.shape if hasattr(X, "shape") else (len(X),) if hasattr(X, "__len__") else ()
    n = shape[0] if shape else 0
    path = _followed(
        X, np.ones(n), Form(ONE_CLASS), begun, merge_tol,
        kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, fit_intercept=False, sample_weight=sample_weight,
        standardize=standardize, feature_names=feature_names,
    )  # fmt: skip
    assert isinstance(path, OneClassPath)
    return path


def _followed(X: Any, y: Any, form: Form, begun: Begun, merge_tol: Any, **problem: Any) -> Path:
    """The path of a regression with targets y. One class has targets of 1. Warns if it is not what was asked for."""
    names = names_of(X, problem["feature_names"])
    X = snapped(X, border.number("merge_tol", merge_tol, low=0.0), problem["kernel"])
    checked_problem = svr_problem(X, y, 1.0, 0.0, **problem | {"feature_names": names})
    target = border.vector(y, "y", checked_problem.X.shape[0])
    data = data_of(checked_problem, target, form, begun.way.threads, keys_of(checked_problem))
    prepared = time.perf_counter()
    return finished(follow_data(data, begun.way, begun.control), checked_problem, prepared - begun.clock)


def data_of(problem: Problem, target: FloatArray, form: Form, threads: int, key: Any) -> Data:
    """The data of a path, from the checked regression problem of C = 1 and epsilon = 0. `key` as in `grouped`."""
    n = problem.X.shape[0]
    weights = np.zeros(n)
    half = problem.qp.point.size // 2
    weights[problem.qp.point[:half]] = problem.qp.upper[:half]
    return grouped(with_target(ungrouped(problem, np.ones(n), weights, form, threads), target), key)


def with_target(data: Data, target: FloatArray) -> Data:
    """The data of a path of numbers, or of one class, with the targets of its points."""
    form = data.form
    if form.kind == ONE_CLASS:
        return data._replace(classes=np.array([-1, 1]), form=form._replace(level=-1.0))
    if form.kind == "epsilon":
        largest = form.C * float(data.weights.max())
        if not border.SMALLEST_COST <= largest <= border.LARGEST:  # squares would overflow or underflow
            raise InputError(
                f"C times the largest weight is {largest:g}; it must be from {border.SMALLEST_COST:g} to "
                f"{border.LARGEST:g}. Scale C or the weights"
            )
    # No digits are lost where the mean of targets is large.
    level = float(np.median(target[data.weights > 0.0])) if data.equality else 0.0
    return data._replace(form=form._replace(target=target - level, level=level))
