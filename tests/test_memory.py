"""What stays in memory after a fit, and that equal rows are told apart by their values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import svmcore
from svmcore import path as path_module
from svmcore import tiles


def train(n=500):
    X = np.random.default_rng(0).normal(size=(n, 30))
    return svmcore.train_svc(X, X[:, 0] * X[:, 1] > 0, solver="block")


def test_a_fit_leaves_one_buffer_behind_that_can_be_given_back():
    first = train()
    assert tiles._spare._buffer is not None
    freed = svmcore.release_memory()
    assert 4 * 500 * 500 <= freed <= 4 * tiles._KEPT_VALUES
    assert tiles._spare._buffer is None
    assert svmcore.release_memory() == 0
    assert np.array_equal(train().alpha, first.alpha)
    assert svmcore.release_memory() == freed


def test_a_large_buffer_is_not_kept(monkeypatch):
    svmcore.release_memory()
    monkeypatch.setattr(tiles, "_KEPT_VALUES", 1000)
    train()
    assert svmcore.release_memory() == 0


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_rows_are_merged_by_their_values_and_never_by_a_hash(layout, monkeypatch):
    monkeypatch.setattr(path_module, "hash", lambda _: 7, raising=False)  # every row collides
    X = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 1.0], [-0.0, 1.0], [3.0, 0.0], [0.0, 2.0]])
    y = np.array([1, 1, 1, -1, -1, -1])
    path = svmcore.svm_path(layout(X), y, gamma=1.0, lambda_min=0.1)
    assert path._data.groups.of.tolist() == [0, 1, 0, 2, 3, 4]


def test_stored_zeros_and_any_order_of_entries_are_no_difference():
    rows = sparse.csr_matrix(([1.0, 2.0, 2.0, 1.0, 0.0, 5.0], [0, 1, 1, 0, 2, 0], [0, 2, 5, 6]), shape=(3, 3))
    path = svmcore.svm_path(rows, [1, 1, -1], gamma=1.0, lambda_min=0.1)
    assert path._data.groups.of.tolist() == [0, 0, 1]
