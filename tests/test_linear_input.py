"""Linear machines and input that is hard or wrong: a right answer with its gap, or a sentence."""

from __future__ import annotations

import numpy as np
import oracle_linear as oracle
import pytest
from scipy import sparse
from warned import heard

import svmcore

pytestmark = pytest.mark.compiled
WORST = -1e-9  # a relative gap below this is a fault
SVC, SVR = ("hinge", "squared_hinge"), ("epsilon_insensitive", "squared_epsilon_insensitive")
WAYS = {"newton": (120, 5), "factors": (30, 45), "sweeps": (220, 260)}  # rows and features of the ways of sparse rows


def rows(way, kind, scales=0, seed=0):
    """Rows with features of many scales, an empty row, an empty column, a constant one; and targets."""
    rng = np.random.default_rng(seed)
    n, d = WAYS[way]
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < (0.8 if way == "newton" else 0.05))
    t = X @ rng.normal(size=d) + rng.normal(size=n)
    X *= 10.0 ** np.linspace(-scales, scales, d)
    X[:, 2], X[:, 3], X[7] = 3.0, 0.0, 0.0
    return (sparse.csr_matrix(X) if kind == "sparse" else X), t


@pytest.mark.parametrize("C", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("scales", [0, pytest.param(4, marks=pytest.mark.ci), 8])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("way", WAYS)
def test_any_cost_and_any_scale_ends_with_a_gap_or_a_warning(way, kind, scales, C):
    X, t = rows(way, kind, scales)
    dense = X.toarray() if kind == "sparse" else X
    for loss in SVC + SVR:
        words = {"loss": loss, "C": C, "max_iter": 200} | ({"epsilon": 0.2} if loss in SVR else {})
        y = t if loss in SVR else np.digitize(t, np.quantile(t, [0.3, 0.6]))
        with heard() as caught:
            machine = getattr(svmcore, "LinearSVR" if loss in SVR else "LinearSVC")(**words).fit(X, y)
        found = machine._fitted.machines
        assert np.isfinite(machine.coef_).all()
        assert len(found) == (1 if loss in SVR else 3)
        for row, one in enumerate(found):
            assert one.relative_gap > WORST
            assert one.relative_gap <= (1e-6 if loss.startswith("squared") else 1e-4) * (1.0 + 1e-6) or caught
            own = t if loss in SVR else y == row
            value = oracle.liblinear(machine, row, dense, own, np.full(len(t), C), loss, 1.0)
            assert value >= (one.primal_objective - one.gap) * (
                1.0 - 1e-6
            )  # the bound holds for the weights that are told
            assert value <= one.primal_objective * (1.0 + 1e-6) or caught


def made(data, indices, indptr, shape):
    """A CSR matrix of these arrays, whatever they hold."""
    X = sparse.csr_matrix(shape)
    X.data, X.indices, X.indptr = data, indices, indptr
    return X


@pytest.mark.parametrize("way", WAYS)
def test_how_sparse_rows_are_stored_does_not_matter(way):
    X, t = rows(way, "sparse")
    y = t > np.median(t)
    other = sparse.csr_matrix(X[:, ::-1])[:, ::-1].tocsr()  # unsorted, perhaps
    backwards = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(X.indptr, X.indptr[1:], strict=False)])
    unsorted = made(X.data[backwards], X.indices[backwards], X.indptr, X.shape)
    twice = made(np.repeat(X.data, 2) / 2.0, np.repeat(X.indices, 2), 2 * X.indptr, X.shape)
    long = made(X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64), X.shape)
    zeros = made(np.append(X.data, 0.0), np.append(X.indices, 3), np.append(X.indptr[:-1], X.nnz + 1), X.shape)
    same = [other, unsorted, twice, long, zeros, sparse.csc_matrix(X), sparse.coo_matrix(X), sparse.csr_array(X)]
    for loss in SVC:
        best = svmcore.LinearSVC(loss=loss, tol=1e-9).fit(X, y)
        for given in same:
            before = [
                np.array(part) for part in (given.data, getattr(given, "indices", 0), getattr(given, "indptr", 0))
            ]
            machine = svmcore.LinearSVC(loss=loss, tol=1e-9).fit(given, y)
            after = given.data, getattr(given, "indices", 0), getattr(given, "indptr", 0)
            assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
            assert machine.dual_gap_ <= 1e-6
            assert np.allclose(machine.coef_, best.coef_, rtol=1e-4, atol=1e-5)


def broken():
    """What is given, and what is said of it: X, y, sample_weight, words."""
    D, t = rows("factors", "dense")
    S, y = sparse.csr_matrix(D), (t > np.median(t)).astype(int)
    falls = S.indptr.copy()
    falls[5] = falls[3] - 1
    for X, what in [
        (np.where(D == 3.0, np.nan, D), "NaN"), (np.where(D == 3.0, -np.inf, D), "infinity"),
        (made(np.where(S.data == 3.0, np.nan, S.data), S.indices, S.indptr, S.shape), "NaN"),
        (made(np.where(S.data == 3.0, np.inf, S.data), S.indices, S.indptr, S.shape), "infinity"),
        (made(S.data, S.indices + np.int32(20), S.indptr, S.shape), "45 columns, and one has the number 64"),
        (made(S.data, S.indices - np.int32(5), S.indptr, S.shape), "45 columns, and one has the number -5"),
        (made(S.data, S.indices.astype(np.int64) + 2**31, S.indptr, S.shape), "45 columns, and one has"),
        (made(S.data, S.indices, S.indptr[:-1], S.shape), "its rows do not follow each other"),
        (made(S.data, S.indices, falls, S.shape), "its rows do not follow each other"),
        (made(S.data[:-9], S.indices, S.indptr, S.shape), "its rows do not follow each other"),
        (made(S.data, S.indices[:-1], S.indptr, S.shape), "values and .* column numbers"),
        (sparse.csr_matrix((30, 0)), "0 feature"), (D[:, :0], "0 feature"), (D[:0], "0 sample"), (D * 1e200, "scale it down"),
        (S * 1e200, "scale it down"), (D[0], "1D array"), (D.astype(complex), "Complex data"),
    ]:  # fmt: skip
        yield X, None, None, {}, what
    csc = S.tocsc()
    csc.indices = csc.indices + np.int32(1)
    yield csc, None, None, {}, "30 rows, and one has the number 30"
    for weights, what in [
        (np.full(30, np.nan), "nan at row 0"),
        (np.zeros(30), "zero everywhere"),
        (np.ones(29), "shape"),
    ]:
        yield S, None, weights, {}, what
    for C, what in [(0.0, "greater than 0"), (-1.0, "greater than 0"), (np.nan, "not finite"), (1e-200, "at least"),
                    (1e200, "at most 1e.150, or infinite")]:  # fmt: skip
        yield S, None, None, {"C": C}, what
    yield S, np.zeros(30), None, {}, "one class"
    yield S[:1], y[:1], None, {}, "one class"
    yield S, y, (y == 1) * 1.0, {}, "same class"
    yield S, np.where(y == 1, np.nan, 0.0), None, {}, "NaN"
    yield S, y[:-1], None, {}, "inconsistent numbers"
    yield S, np.where(y == 1, np.inf, t), None, {"loss": SVR[0]}, "infinity"
    yield S, 1e200 * t, None, {"loss": SVR[1]}, "at most 1e.150"


@pytest.mark.parametrize("case", range(len(list(broken()))))
def test_what_cannot_be_trained_is_said(case):
    X, y, weights, words, what = list(broken())[case]
    n = X.shape[0]
    for kind in ["LinearSVC", "LinearSVR"]:
        given = np.resize([0, 1, 1], n) if y is None else y
        if y is None or (kind == "LinearSVR") == (words.get("loss") in SVR):
            with pytest.raises(ValueError, match=what):
                getattr(svmcore, kind)(**words).fit(X, given, weights)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("loss", SVR)
def test_one_row_has_a_regression(loss, kind):
    X, _ = rows("factors", kind)
    machine = svmcore.LinearSVR(loss=loss, C=10.0).fit(X[:1], [2.0])
    assert machine.dual_gap_ <= 1e-6
    assert machine.predict(X[:1])[0] == pytest.approx(2.0, abs=0.01 if loss.startswith("squared") else 1e-6)
