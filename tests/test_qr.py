"""QR with column pivoting and its updates, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from repeats import seeds

from svmcore.path import qr_jit as qr
from svmcore.path.bordered import packed_qr, unpacked

pytestmark = pytest.mark.home


def symmetric(n, rank, seed):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(n, rank))
    return B @ np.diag(rng.choice([-1.0, 1.0], rank)) @ B.T


def pivoted_qr(A):
    return unpacked(*packed_qr(A))


def check(A, Qt, R, order, tol=1e-11):
    scale = max(1.0, float(np.abs(A).max()))
    assert Qt.T @ Qt == pytest.approx(np.eye(len(A)), abs=tol)
    assert pytest.approx(A[:, order], abs=tol * scale) == Qt.T @ R
    assert np.tril(R, -1) == pytest.approx(0.0, abs=tol * scale)
    assert sorted(order.tolist()) == list(range(len(A)))


@pytest.mark.parametrize(("n", "rank"), [(1, 1), (2, 2), (7, 7), (12, 5), (60, 60), (40, 1), (5, 0)])
def test_pivoted_qr_finds_rank_and_null_space(n, rank):
    A = symmetric(n, rank, n + rank)
    Qt, R, order = pivoted_qr(A)
    check(A, Qt, R, order)
    size = np.abs(np.diag(R))
    assert (size[1:] <= size[:-1] * (1 + 1e-10) + 1e-12).all()
    threshold = n * 1e-14 * max(1.0, float(size[0]))
    assert int((size >= threshold).sum()) == rank
    assert pytest.approx(0.0, abs=1e-10) == A @ Qt[rank:].T
    b = A @ np.arange(1.0, n + 1.0)
    x = qr.basic_solution(Qt, R, order, rank, b)
    assert A @ x == pytest.approx(b, abs=1e-9 * max(1.0, float(np.abs(b).max())))
    assert (np.abs(x) > 0).sum() <= rank


@seeds(6)
def test_updates_follow_growing_and_shrinking_matrices(seed):
    rng = np.random.default_rng(seed)
    whole = symmetric(40, 40, seed)
    index = list(rng.permutation(40)[:10])
    A = whole[np.ix_(index, index)]
    factors = pivoted_qr(A)
    unused = [i for i in range(40) if i not in index]
    for _ in range(60):
        if unused and (len(index) < 3 or rng.random() < 0.55):
            i = unused.pop()
            factors = qr.insert_last(*factors, np.ascontiguousarray(whole[index, i]), whole[i, i])
            index.append(i)
        else:
            k = int(rng.integers(len(index)))
            factors = qr.remove_at(*factors, k)
            unused.append(index.pop(k))
        A = whole[np.ix_(index, index)]
        check(A, *factors, tol=1e-10)
    b = rng.normal(size=len(index))
    assert qr.basic_solution(*factors, len(index), b) == pytest.approx(np.linalg.solve(A, b), rel=1e-6, abs=1e-8)


def test_denormal_remainders_are_zero():
    A = np.zeros((6, 6))
    A[0, 0] = 1.0
    A[1:, 1:] = 1e-162
    Qt, R, order = pivoted_qr(A)
    assert np.isfinite(Qt).all()
    assert np.isfinite(R).all()
    check(A, Qt, R, order)
