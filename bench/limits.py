"""Physical limits: what no solver of this kind can beat, measured on this machine.

`kernel_block`: every support vector's kernel row has to be computed once; so many seconds does our fused tile take for
the |SV| x n block times a vector. `stream`: the same block, stored as doubles, read once from memory.
"""

from __future__ import annotations

import functools

import numpy as np

from bench.clock import once
from bench.problems import Problem

_MOST_ROWS = 4096  # beyond, the rate is extrapolated
_STREAM_BYTES = 256 << 20


@functools.lru_cache(maxsize=64)
def kernel_block(problem: Problem, n_sv: int) -> float:
    """CPU seconds of one |SV| x n kernel block times a vector by our fused tile, one thread."""
    from svmcore._types import LANES
    from svmcore.kernel.matrix import KernelMatrix
    from svmcore.kernel.tiles import DenseTiles, OracleTiles, make_tiles
    from svmcore.train.forms import svc_problem, svr_problem

    if problem.epsilon is not None:
        form = svr_problem(problem.X, problem.y, problem.C, problem.epsilon, **problem.keywords())
    else:
        form = svc_problem(problem.X, problem.y, problem.C, **problem.keywords())
    K = KernelMatrix(form.X, form.spec.kernel, form.spec.function, cache_bytes=0, n_threads=1)
    tiles = make_tiles(K, centred=problem.fit_intercept)
    assert not isinstance(tiles, OracleTiles)
    if isinstance(tiles, DenseTiles):
        tiles.form = None  # from values, though their sum may be a polynomial
    rows = min(max(n_sv, 1), _MOST_ROWS, problem.n)
    index = np.sort(np.random.default_rng(0).choice(problem.n, rows, replace=False))
    field, coef = np.zeros(-(-K.n // LANES) * LANES), np.ones(rows)

    def block() -> None:
        tiles.add_values(index, coef, field, single=True)

    block()
    best = min(once(block)[2] for _ in range(3))
    return best * n_sv / rows


@functools.cache
def bandwidth() -> float:
    """Bytes a second of one pass over memory, one thread."""
    values = np.ones(_STREAM_BYTES // 8)
    values.sum()
    return _STREAM_BYTES / min(once(values.sum)[2] for _ in range(5))


def stream(problem: Problem, n_sv: int) -> float:
    """Seconds to read a stored |SV| x n block of doubles once."""
    return 8.0 * n_sv * problem.n / bandwidth()
