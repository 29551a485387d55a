"""Rounds over a band around the margin: how few passes they take, when they give way, on sets that others have used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import svmcore
from svmcore.distributed import band, train_linear, train_svc

pytestmark = pytest.mark.compiled


def noisy(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ rng.normal(size=d) + 2.0 * rng.normal(size=n) > 0.5


@pytest.fixture
def thin(monkeypatch):
    """Bands of a twentieth of the rows."""
    monkeypatch.setattr(band, "LEAST", 600)
    monkeypatch.setattr(band, "SPREAD", 0.0)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
def test_few_passes_to_the_optimum(C):
    X, y = noisy(60_000, 8)
    ours = train_linear(X.astype(np.float32), y, C=C, parts=5)
    ref = svmcore.train_svc(X.astype(np.float32), y, C=C, kernel="linear", tol=1e-7)
    assert ours.stats["method"] == "band"
    assert ours.stats["passes"] <= 4
    assert 0.0 <= ours.relative_gap < 1e-8
    assert abs(ours.objective - ref.objective) < 1e-8 * abs(ref.objective)
    assert ours.stats["rows_up"] < 60_000
    assert ours.stats["bytes_up"] < 8 * 60_000 * 14


def test_a_sample_stands_for_a_band_that_is_too_full(thin, monkeypatch):
    """Three samples, each of a thinner band, and then bands that are whole."""
    monkeypatch.setattr(band, "MOST_NUMBERS", 8 * 600)
    X, y = noisy(30_000, 8)
    ours = train_linear(X, y, parts=5)
    ref = svmcore.train_svc(X, y, kernel="linear", tol=1e-8)
    sampled = [np.isnan(at.dual) for at in ours.rounds]
    assert sampled == sorted(sampled, reverse=True)
    assert sum(sampled) >= 3
    assert ours.stats["method"] == "band"
    assert ours.stats["passes"] <= 12
    assert abs(ours.objective - ref.objective) < 1e-8 * abs(ref.objective)


def test_every_exact_round_bounds_the_optimum(thin):
    X, y = noisy(12_000, 20)
    ours = train_linear(X, y, parts=3, C=0.1, tol=1e-5)
    ref = svmcore.train_svc(X, y, C=0.1, kernel="linear", tol=1e-8)
    exact = [at for at in ours.rounds if not np.isnan(at.dual)]
    slack = 1e-9 * abs(ref.objective)
    assert len(exact) > 1
    assert all(at.dual <= -ref.objective + slack for at in exact)
    assert all(at.dual + at.gap >= -ref.objective - slack for at in exact)


def _grid(rng, n):
    X = rng.integers(-1, 2, (n, 3)).astype(float)
    return X, X[:, 0] + 0.5 * rng.normal(size=n) > 0


def _opposites(rng, n):
    X = rng.normal(size=(n // 2, 4))
    return np.r_[X, X], np.arange(2 * len(X)) < len(X)


@pytest.mark.parametrize("rows", [_grid, _opposites])
def test_rows_on_few_points_take_the_rounds_of_kernel_machines(rows, monkeypatch):
    monkeypatch.setattr(band, "LEAST", 64)
    monkeypatch.setattr(band, "SPREAD", 0.0)
    monkeypatch.setattr(band, "MOST_NUMBERS", 64 * 4)
    X, y = rows(np.random.default_rng(0), 3000)
    ours = train_linear(X, y, parts=3, tol=1e-6)
    ref = svmcore.train_svc(X, y, kernel="linear", tol=1e-8)
    assert ours.converged
    assert ours.stats["method"] == "rounds"
    assert "band" in ours.stats["reason"]
    assert abs(ours.objective - ref.objective) <= 1e-8 * abs(ref.objective)


def test_many_features_take_the_rounds_of_kernel_machines(thin, monkeypatch):
    monkeypatch.setattr(band, "MOST_NUMBERS", 60 * 300)
    X, y = noisy(1000, 60)
    ours = train_linear(X, y, parts=3, tol=1e-6)
    assert ours.stats["reason"] == "a sample of 300 rows says little of 60 features"
    assert len(ours.rounds) == 1  # all rows are the first working set
    ref = svmcore.train_svc(X, y, kernel="linear", tol=1e-8)
    assert abs(ours.objective - ref.objective) <= 1e-8 * abs(ref.objective)


def test_a_rare_class_is_in_every_sample(thin):
    X, _ = noisy(20_000, 5)
    score = X @ np.arange(5.0) + np.random.default_rng(1).normal(size=len(X))
    y = score > np.sort(score)[-8]  # seven rows
    ours = train_linear(X, y, C=10.0, parts=4, tol=1e-6)
    ref = svmcore.train_svc(X, y, C=10.0, kernel="linear", tol=1e-8)
    assert ours.stats["method"] == "band"
    assert abs(ours.objective - ref.objective) <= 1e-8 * abs(ref.objective)


@pytest.mark.parametrize("margin", [0.0, 0.2])
def test_separable_rows_and_large_costs(thin, margin):
    X, _ = noisy(12_000, 6)
    far = X @ np.arange(1.0, 7.0) / np.linalg.norm(np.arange(1.0, 7.0))
    X, y = X[np.abs(far) > margin], far[np.abs(far) > margin] > 0
    ours = train_linear(X, y, C=1e5, parts=3, tol=1e-5)
    ref = svmcore.train_svc(X, y, C=1e5, kernel="linear", tol=1e-8)
    assert ours.converged
    assert ours.stats["passes"] <= 20
    assert abs(ours.objective - ref.objective) <= 1e-7 * abs(ref.objective)


def test_a_callback_that_stops_keeps_a_point_that_is_allowed(thin):
    X, y = noisy(12_000, 20)
    with pytest.warns(svmcore.ConvergenceWarning, match="callback"):
        cut = train_linear(X, y, C=0.1, parts=3, callback=lambda report: report.n_iter >= 2)
    alpha = np.concatenate(cut.alpha)
    found = svmcore.certificate(X, y, alpha, cut.intercept, C=0.1, kernel="linear")
    assert found.infeasibility < 1e-9
    assert abs(found.objective - cut.objective) <= 1e-9 * max(1.0, abs(found.objective))
    assert found.gap == pytest.approx(cut.gap, rel=1e-6)


@pytest.mark.parametrize("loss", ["squared_hinge", "squared_epsilon_insensitive"])
def test_squared_losses_take_a_sample_and_newton_s_steps(thin, loss):
    X, y = noisy(12_000, 8)
    y = X @ np.arange(8.0) + y if "epsilon" in loss else y
    ours = train_linear(X, y, loss=loss, parts=3, tol=1e-8)
    train = svmcore.train_svr if "epsilon" in loss else svmcore.train_svc
    ref = train(X, y, loss=loss, kernel="linear", tol=1e-9)
    assert ours.stats["method"] == "band"
    assert ours.stats["passes"] <= 12
    assert abs(ours.objective - ref.objective) <= 1e-9 * abs(ref.objective)


# ---- sets that others have used, and masters that are killed ---------------------------------------------------------


SETS = [
    "svmguide1",
    "raetsch_titanic",
    "german",
    "a1a",
]  # scaled by hand, three columns of few values, integers, sparse
ROOT = Path(svmcore.__file__).parents[1]


def _few(X, y):
    """At most 2,000 rows, of the same scale in all columns."""
    X = X[:: 1 + X.shape[0] // 2001]
    y = y[:: 1 + len(y) // 2001]
    return (X if hasattr(X, "tocsr") else (X - X.mean(axis=0)) / X.std(axis=0)), y


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("name", SETS)
def test_shared_sets_in_any_number_of_parts(data_set, name, kernel, monkeypatch):
    monkeypatch.setattr(band, "LEAST", 200)
    monkeypatch.setattr(band, "SPREAD", 0.0)
    X, y = _few(*data_set(name))
    ref = svmcore.train_svc(X, y, kernel=kernel, tol=1e-8)
    for parts in (1, 2, 7, 16):
        cut = [(X[a], y[a]) for a in np.array_split(np.arange(len(y)), parts)]
        ours = train_svc(cut, kernel=kernel, tol=1e-6) if kernel == "rbf" else train_linear(cut, tol=1e-6)
        assert ours.converged
        assert ours.kkt_violation <= 1e-6
        assert len(ours.rows) == parts
        assert abs(ours.objective - ref.objective) <= 1e-8 * abs(ref.objective)


@pytest.mark.parametrize("rows", [1500, 5000])
@pytest.mark.parametrize(
    ("form", "objectives", "intercepts"),
    [
        ({"kernel": "linear"}, 1e-14, 1e-11),
        ({"kernel": "linear", "loss": "squared_hinge"}, 1e-14, 1e-11),
        ({"working_set": 400}, 2e-8, 2e-4),
        ({"working_set": 400, "tol": 1e-5}, 1e-11, 2e-6),
    ],
)
def test_other_cuts_give_the_same_optimum_and_not_the_same_bits(form, objectives, intercepts, rows, monkeypatch):
    monkeypatch.setattr(band, "LEAST", 200)  # a sample is the same rows, however they are cut
    monkeypatch.setattr(band, "SPREAD", 0.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 4))
    y = np.sign(np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.7 * rng.normal(size=rows))
    first, *others = (train_svc(X, y, parts=parts, **form) for parts in (1, 2, 7, 16))
    for other in others:
        assert abs(other.objective - first.objective) <= objectives * abs(first.objective)
        assert abs(other.intercept - first.intercept) <= intercepts
        if first.coef_ is not None:
            assert np.allclose(other.coef_, first.coef_, rtol=0.0, atol=1e-11)


PROGRAM = """
import sys, numpy as np
from svmcore.distributed import train_svc
rng = np.random.default_rng(0)
X = rng.normal(size=(1500, 4))
y = np.sign(np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.7 * rng.normal(size=1500))
print(train_svc(X, y, parts=4, C=10.0, tol=1e-5, working_set=150, checkpoint=sys.argv[1], verbose=1).objective)
"""


@pytest.mark.slow
def test_a_master_that_is_killed_goes_on_from_its_checkpoint(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run.npz")]
    whole = subprocess.run(
        [*command[:3], str(tmp_path / "whole.npz")], cwd=ROOT, capture_output=True, text=True, check=True
    )
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as master:
        while not (tmp_path / "run.npz").exists() and master.poll() is None:
            time.sleep(0.001)
        os.kill(master.pid, signal.SIGKILL)
    rest = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "round 0," in whole.stderr
    assert "round 0," not in rest.stderr  # it sets out from the round that was written
    assert float(rest.stdout) == pytest.approx(float(whole.stdout), rel=1e-8)
