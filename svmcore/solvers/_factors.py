"""Features whose inner products are a kernel matrix: its factors, by Cholesky with pivots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack, solve_triangular

from svmcore._types import FloatArray, KernelKind
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import is_sparse

# The factors of a kernel matrix. BLOCK pivots are taken at a time. Those below the share SMALLEST_PIVOT of the largest wait.
# Afterwards PROBED rows of K are compared with the factors. A positive kernel may miss them by the share INDEFINITE of the
# largest k(x, x).
BLOCK = 64
SMALLEST_PIVOT = 1e-2
PROBED = 256
INDEFINITE = 1e-9


def features(K: KernelMatrix, poll: Callable[[], bool], *, wide: bool) -> tuple[Any, float] | None:
    """Rows whose inner products are K, together with those of a constant, and that constant; None where K is not positive.

    They are the points themselves, if the kernel is linear and there are no more features than points, or `wide` says that
    this does not matter. Else they are factors of K.
    """
    linear = K.function is None and K.kernel.kind == KernelKind.LINEAR
    if linear and (wide or K.n_features <= K.n):
        return K.X, float(np.sqrt(K.kernel.offset))
    Z = factorised(K, poll)
    return None if Z is None else (Z, 0.0)


def factorised(K: KernelMatrix, poll: Callable[[], bool]) -> FloatArray | None:
    """Z with Z Z' = K to rounding, by Cholesky with pivots in blocks.

    A block holds the points of largest residual diagonal. Pivots in it that are far below the largest wait for a later
    block. None where K is not positive, or somebody asks to stop.
    """
    n, diagonal = K.n, K.diagonal.copy()
    scale = float(diagonal.max(initial=0.0))
    least = n * float(np.finfo(np.float64).eps) * scale
    Z = np.empty((n, 0))
    while Z.shape[1] < n and (largest := float(diagonal.max(initial=0.0))) > least:
        if diagonal.min() < -INDEFINITE * scale or poll():
            return None
        block = np.argsort(-diagonal, kind="stable")[:BLOCK]
        rest = K.rows(block) - Z[block] @ Z.T
        factor, order, rank, _ = lapack.dpstrf(rest[:, block], tol=max(least, SMALLEST_PIVOT * largest), lower=1)
        if not rank:  # what seemed to be left was rounding
            break
        chosen = order[:rank] - 1
        new = solve_triangular(factor[:rank, :rank], rest[chosen], lower=True, check_finite=False)
        Z = np.hstack([Z, new.T])
        diagonal -= np.square(new).sum(axis=0)
        diagonal[block[chosen]] = 0.0
    rng = np.random.default_rng(0)
    sample, probe = rng.permutation(n)[:PROBED], rng.normal(size=n)
    error = np.abs(K.product_at(sample, np.arange(n), probe) - Z[sample] @ (Z.T @ probe)).max(initial=0.0)
    if error > INDEFINITE * scale * n:
        return None
    return Z if Z.shape[1] else np.zeros((n, 1))


def gram_factor(X: Any, tau: float) -> FloatArray:
    """Z with Z Z' = X X' + tau^2, of as many columns as that has rank, to rounding. X is dense or CSR."""
    products = X @ X.T
    gram = (products.toarray() if is_sparse(X) else products) + tau * tau
    factor, order, rank, _ = lapack.dpstrf(gram, lower=1)
    Z = np.empty((len(gram), max(rank, 1)))
    Z[order - 1] = np.tril(factor)[:, :rank] if rank else 0.0
    return Z
