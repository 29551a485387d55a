"""The kernel among all points at once, for those who use it many times."""

from __future__ import annotations

import numpy as np

from svmcore._check import KernelSpec
from svmcore._types import FloatArray
from svmcore.gram import KernelMatrix, call_kernel
from svmcore.tiles import exact_gram, has_gram

_ROWS = 512


def whole_kernel(X: object, spec: KernelSpec, n_threads: int) -> FloatArray:
    """k(x_i, x_j) for all pairs, without the kernel's offset."""
    n: int = X.shape[0]  # type: ignore[attr-defined]
    starts = range(0, n, _ROWS)
    if spec.function is not None:
        return np.concatenate([call_kernel(spec.function, X[k : k + _ROWS], X, 0.0) for k in starts])  # type: ignore[index]
    K = KernelMatrix(X, spec.kernel._replace(offset=0.0), cache_bytes=0, n_threads=n_threads)
    whole = exact_gram(K, lambda _: True) if has_gram(K) else None
    if whole is None:
        whole = np.concatenate([K.rows(np.arange(k, min(k + _ROWS, n))) for k in starts])
    return whole[:, :n]


__all__ = ["whole_kernel"]
