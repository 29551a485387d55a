"""The error curve against every knot of its path: chords, stages and blocks of rows change nothing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kept import packed, parts_of
from scipy import sparse
from test_path import random_problem, two_clouds

from svmcore import ConvergenceWarning, InputError, StoppedError, WorkProgress, load, svm_path, svr_path
from svmcore.path import error_curve as _error_curve
from svmcore.path import follower as _follower
from svmcore.path.cross import Cross
from svmcore.path.values import vectors


def every_knot(path, X):
    """lambda f at all knots (rows of X x knots), from the recorded variables alone."""
    track = path._track
    V = np.stack(list(vectors(path, np.arange(track.knot.shape[0]))))
    cross = Cross(path._data, X)
    K = cross.block(np.arange(cross.n), cross.columns(np.arange(V.shape[1])))
    offset = 0.0 if path._data.equality else path._data.spec.kernel.offset
    return K @ V.T + offset * V.sum(axis=1) + track.knot[:, 1]


def assert_exact(path, curve, X, positive, weight):
    """The curve is right between all changes that the knots tell of; where rounding decides it is not asked."""
    track, F = path._track, every_knot(path, X)
    at = track.knot[:, 0]
    top = 1.0 / at[0] if path.C_min > 0.0 else 1e-3 / at[0]
    edges = np.unique(np.clip(np.concatenate([curve.breakpoints, 1.0 / at, [top]]), top, 1.0 / at[-1]))
    scale = 1e-9 * (np.abs(F).max() + at[0])
    for C in np.sqrt(edges[1:] * edges[:-1]):
        lam = 1.0 / C
        k = int(np.clip(np.searchsorted(-at, -lam), 1, at.size - 1)) if lam <= at[0] and at.size > 1 else 0
        if k:
            share = (at[k - 1] - lam) / (at[k - 1] - at[k])
            f = F[:, k - 1] + share * (F[:, k] - F[:, k - 1])
        else:
            f = F[:, 0] + track.bias_slope * (lam - at[0])
        unsure = (np.abs(f) <= scale) @ weight / weight.sum()
        wrong = ((f > 0) != positive) @ weight / weight.sum()
        assert abs(curve(C) - wrong) <= unsure + 1e-12


@pytest.fixture(scope="module")
def small_pieces():
    """Everything so small that each mechanism is at work on tiny problems."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_follower, "_AT_ONCE", 100)
        patch.setattr(_follower, "_MOST", 20)
        patch.setattr(_follower, "_MOVES", 60)
        patch.setattr(_follower, "_BLOCK", 64)
        patch.setattr(_follower, "_PIECE", 64)
        patch.setattr(_error_curve, "_ROOM", 2)
        yield


@given(st.integers(0, 10**9))
def test_equals_every_knot(small_pieces, seed):
    X, y, kernel, weight, rng = random_problem(seed)
    path = svm_path(X, y, sample_weight=weight, fit_intercept=bool(rng.random() < 0.8), **kernel)
    weight = np.ones(len(y)) if weight is None else weight
    assert_exact(path, path.error_curve(), X, y > 0, weight)
    Z, z = np.vstack([rng.normal(size=(30, X.shape[1])), X[::2]]), rng.choice([-1, 1], 30 + len(X[::2]))
    share = rng.integers(0, 3, len(z)).astype(float)
    share[0] = 1.0
    assert_exact(path, path.error_curve(Z, z, share), Z, z > 0, share)


@pytest.mark.parametrize("score", ["error", "loss"])
def test_sparse_passes_and_products_say_the_same(score, monkeypatch):
    X, y = two_clouds(120)
    target = y if score == "error" else X[:, 0] + X[:, 1]
    path = (svm_path if score == "error" else svr_path)(X, target, gamma=0.5, lambda_min=0.05)
    found = []
    for sparse_below in (0, 10**9):  # always sparse, never sparse
        monkeypatch.setattr(_follower, "_SPARSE", sparse_below)
        found.append(path.error_curve(X[::-1] + 0.1, target[::-1]))
    values = [found[k](np.geomspace(1e-3, 20.0, 500)) for k in range(2)]
    np.testing.assert_allclose(*values, rtol=1e-9)


@pytest.mark.compiled
@pytest.mark.parametrize(
    "kernel", ["rbf", "linear", *(pytest.param(k, marks=pytest.mark.ci) for k in ("embedded", "poly", "laplacian"))]
)
def test_chords_keep_nearly_all_rows_from_being_looked_at(kernel, monkeypatch):
    rows = 600
    X, y = two_clouds(400)
    options = {"kernel": "rbf" if kernel == "embedded" else kernel, "gamma": 0.5, "coef0": 1.0, "lambda_min": 0.05}
    if kernel == "embedded":
        options |= {"fit_intercept": False, "intercept_scaling": 2.0}
    path = svm_path(X, y, **options)
    rng = np.random.default_rng(0)
    Z, z = rng.normal(size=(rows, 3)), rng.choice([-1, 1], rows)
    followers = []
    start = _error_curve.SignFollower.start

    def seen(self, control):
        followers.append(self)
        start(self, control)

    monkeypatch.setattr(_error_curve.SignFollower, "start", seen)
    assert_exact(path, path.error_curve(Z, z), Z, z > 0, np.ones(rows))
    n_knots = path._track.knot.shape[0]
    (follower,) = followers
    if kernel == "linear":  # an elbow of four: steps, which tell nothing of chords
        assert follower.ends.size == n_knots
        assert follower.looked_at == 0
    else:
        in_windows = path.stats["n_window_events"]
        assert in_windows > 0.2 * n_knots
        assert n_knots - follower.ends.size > 0.7 * in_windows
        assert 0 < follower.looked_at < 0.1 * rows * follower.ends.size


@pytest.mark.compiled
@given(st.integers(0, 10**9))
def test_knots_are_as_near_to_their_chords_as_the_path_says(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 160))
    X, y = two_clouds(n, seed=seed % 1000)
    if rng.random() < 0.3:
        X = np.round(X, 1)  # ties
    embedded = bool(rng.random() < 0.3)
    options = {"fit_intercept": False, "intercept_scaling": 2.0} if embedded else {}
    path = svm_path(
        X, y, gamma=float(rng.choice([0.2, 1.0, 5.0])), lambda_min=float(rng.choice([0.01, 1.0])), **options
    )
    Z = np.vstack([rng.normal(size=(20, X.shape[1])), X[:5]])
    track, lam_f = path._track, every_knot(path, Z)
    at, chord = track.knot[:, 0], track.chord
    assert (chord[[0, -1], 0] == 0.0).all()
    ends = np.flatnonzero(chord[:, 0] == 0.0)
    root = np.sqrt(1.0 + (4.0 if embedded else 0.0))
    for first, last in pairwise(ends):
        for k in range(first + 1, last):
            share = (at[first] - at[k]) / (at[first] - at[last])
            straight = lam_f[:, first] + share * (lam_f[:, last] - lam_f[:, first])
            stray = np.abs(lam_f[:, k] - straight).max()
            assert stray <= root * chord[k, 0] + chord[k, 1] + 1e-10 * (at[0] + np.abs(lam_f).max())


@pytest.mark.filterwarnings("ignore:the path's largest relative:svmcore.ConvergenceWarning")
@pytest.mark.parametrize("kernel", ["sigmoid", "precomputed", "callable", "sparse"])
def test_without_an_inner_product_every_knot_is_looked_at(kernel):
    X, y = two_clouds(60)
    Z, z = two_clouds(45, seed=1)
    if kernel == "precomputed":
        path = svm_path(X @ X.T, y, kernel="precomputed", lambda_min=0.1)
        Z = Z @ X.T
    elif kernel == "callable":
        path = svm_path(X, y, kernel=lambda A, B: np.tanh(0.1 * A @ B.T), lambda_min=0.1)
    elif kernel == "sparse":
        path = svm_path(sparse.csr_matrix(X), y, gamma=0.5)
    else:
        path = svm_path(X, y, kernel="sigmoid", gamma=0.05, lambda_min=0.1)
    assert (Cross(path._data, Z).roots() is None) == (kernel != "sparse")
    assert_exact(path, path.error_curve(Z, z), Z, z > 0, np.ones(45))


def test_a_stopped_curve_is_exact_up_to_where_it_came(small_pieces, monkeypatch):
    monkeypatch.setattr("svmcore._control.GRACE", 600.0)  # on a slow machine, too, there is a beginning
    X, y = two_clouds(60)
    path = svm_path(X, y, gamma=0.5)
    whole = path.error_curve()
    seen = []

    def callback(report):
        seen.append(report)
        return report.done > 0.4

    with pytest.warns(ConvergenceWarning, match=r"ended early \(callback\); it is exact up to C=.* of 1000"):
        part = path.error_curve(callback=callback)
    assert isinstance(seen[-1], WorkProgress)
    assert [r.done for r in seen] == sorted(r.done for r in seen)
    assert 0.0 == part.C_min < part.C_max < whole.C_max
    assert part.values.tolist() == whole.values[: part.values.size].tolist()
    np.testing.assert_allclose(part.breakpoints, whole.breakpoints[: part.breakpoints.size], rtol=1e-12)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        assert path.error_curve(time_limit=0.0).C_max == pytest.approx(1.0 / path._track.knot[0, 0])


def test_a_limit_before_the_first_value_is_an_error(monkeypatch):
    X, y = two_clouds(60)
    path = svm_path(X, y, gamma=0.5)
    monkeypatch.setattr("svmcore._control.GRACE", 0.0)
    with pytest.raises(StoppedError, match=r"error curve: time_limit after .* remedy: a larger time_limit"):
        path.error_curve(time_limit=0.0)


def test_progress_is_shown(monkeypatch, capsys, small_pieces):
    X, y = two_clouds(60)
    monkeypatch.setattr("svmcore._control.EVERY", 0.0)
    svm_path(X, y, gamma=0.5).error_curve(verbose=1)
    shown = capsys.readouterr().err.splitlines()
    assert shown[0].startswith("error curve: ")
    assert shown[-1].endswith("% done")


@pytest.mark.compiled
def test_a_file_from_before_chords_has_the_same_curve():
    X, y = two_clouds(200)
    path = svm_path(X, y, gamma=0.5, lambda_min=0.05)
    assert (path._track.chord[:, 0] > 0.0).any()
    fields = parts_of(path)
    assert np.array_equal(fields.pop("track_chord"), path._track.chord)
    old = load(packed(**fields))
    assert not old._track.chord.any()
    Z, z = two_clouds(90, seed=1)
    wanted, found = path.error_curve(Z, z), old.error_curve(Z, z)
    assert found.values.tolist() == wanted.values.tolist()
    np.testing.assert_allclose(found.breakpoints, wanted.breakpoints, rtol=1e-9)
    fields["track_chord"] = path._track.chord[1:]
    with pytest.raises(InputError, match="do not belong together"):
        load(packed(**fields))
