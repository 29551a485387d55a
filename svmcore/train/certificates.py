"""Certificates for anybody's answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore._keywords import checked
from svmcore._types import FloatArray
from svmcore.base.threads import one_blas_thread
from svmcore.problem import border, formulations
from svmcore.problem.certify import Certificate, Residual
from svmcore.problem.certify import certificate as _measure
from svmcore.train.forms import Problem, any_problem, svc_problem


@checked(svc_problem)
def certificate(
    X: Any,
    y: Any,
    alpha: Any,
    intercept: float | None,
    C: float = 1.0,
    *,
    epsilon: float | None = None,
    tau: float | None = None,
    n_threads: int | None = None,
    **problem: Any,
) -> Certificate:
    """Measure anybody's answer: objectives, duality gap, KKT violation, infeasibility, all from the data in float64.

    Parameters
    ----------
    X, y, C : the training problem; further keywords are those of `train_svc` that define it (kernel, gamma, degree,
        coef0, loss, fit_intercept, intercept_scaling, fixed_intercept, standardize, sample_weight, class_weight).
    alpha : the n dual variables, at least 0; for regression (``epsilon`` given, or ``loss="pinball"`` with ``tau``) the n
        signed coefficients.
    intercept : the answer's intercept; None takes the mean over its free vectors.

    Examples
    --------
    >>> import svmcore
    >>> X, y = [[0.0], [2.0]], [-1, 1]
    >>> svmcore.certificate(X, y, [0.5, 0.5], -1.0, C=1.0, kernel="linear").gap
    0.0
    """
    form = any_problem(X, y, C, epsilon, problem if tau is None else problem | {"tau": tau})
    coef = border.vector(alpha, "alpha", form.X.shape[0])
    qp = form.qp
    if form.classes is not None:
        signs = np.zeros(form.X.shape[0])
        signs[qp.point] = np.where(qp.upper > 0, 1.0, -1.0)
        coef = coef * signs
    if intercept is not None:
        intercept = border.number("intercept", intercept)
    return measured(form, coef, intercept, border.threads(n_threads))[0]


@one_blas_thread
def measured(form: Problem, coef: FloatArray, intercept: float | None, n_threads: int) -> tuple[Certificate, float]:
    """The certificate of signed coefficients, one per point of a problem, and how far its intercept is from optimal ones."""
    beta = formulations.to_beta(form.qp, coef)
    if not formulations.nearly_balanced(form.qp, beta):  # then a translation of the points does change the objective
        form = form._replace(centre=None)
    K = form.kernel_matrix(cache_bytes=0, n_threads=n_threads)
    shift = form.shift(K, beta)
    known = Residual(form.qp, K, beta)
    found = _measure(form.qp, K, beta, None if intercept is None else intercept - shift, known=known)
    top, bottom = known.bounds() if form.qp.equality else [K.kernel.offset * float(beta.sum())] * 2
    off = max(min(top, bottom) - found.intercept, found.intercept - max(top, bottom), 0.0)
    return found._replace(intercept=found.intercept + shift), off


@checked(certificate, svc_problem)
def duality_gap(X: Any, y: Any, alpha: Any, intercept: float | None, C: float = 1.0, **problem: Any) -> float:
    """Primal minus dual objective of anybody's answer; a bound on its error when its alpha is feasible. See `certificate`.

    >>> import svmcore
    >>> svmcore.duality_gap([[0.0], [2.0]], [-1, 1], [0.5, 0.5], -1.0, kernel="linear")
    0.0
    """
    return certificate(X, y, alpha, intercept, C, **problem).gap


@checked(certificate, svc_problem)
def kkt_violation(X: Any, y: Any, alpha: Any, C: float = 1.0, **problem: Any) -> float:
    """LIBSVM's measure of optimality of anybody's alpha, 0 at an optimum. See `certificate`.

    >>> import svmcore
    >>> svmcore.kkt_violation([[0.0], [2.0]], [-1, 1], [0.0, 0.0], kernel="linear")
    2.0
    """
    return certificate(X, y, alpha, None, C, **problem).kkt_violation
