"""``svmcore gp``: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import svmcore

pytestmark = pytest.mark.once


@pytest.fixture
def run(run):
    """Beside houses.csv and sold.csv, and new.csv: columns in another order, and no targets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 2)) * [1.0, 100.0]
    y = 200.0 + 30.0 * np.sin(X[:, 0]) + X[:, 1] / 50.0
    rows = [f"{a!r},{b!r},{c!r}\n" for (a, b), c in zip(X.tolist(), y.tolist(), strict=True)]
    Path("houses.csv").write_text("rooms,area,price\n" + "".join(rows[:50]))
    Path("sold.csv").write_text("rooms,area,price\n" + "".join(rows[50:]))
    Path("new.csv").write_text("area,rooms\n" + "".join(f"{b!r},{a!r}\n" for a, b in X[50:].tolist()))
    return run


USUAL = ("gp", "houses.csv", "--noise", "0.05", "--standardize", "--normalize-y", "--gamma", "0.3", "-q")


def by_hand():
    table = svmcore.load_data("houses.csv")
    process = svmcore.gp_regression(*table[:2], noise=0.05, gamma=0.3, standardize=True, normalize_y=True)
    return process, svmcore.load_data("sold.csv")


def test_means_and_deviations_are_written(run):
    out, _ = run.works(*USUAL, "--test", "sold.csv", "-o", "means.txt")
    process, (X, y) = by_hand()
    mean, std = process.predict(X, return_std=True)
    np.testing.assert_allclose(np.loadtxt("means.txt"), np.column_stack([mean, std]), rtol=1e-12)
    assert "of targets with mean 0 and variance 1" in out
    assert f"off by       {np.sqrt(np.mean((mean - y) ** 2)):.4g} over 20 rows of sold.csv" in out
    out, _ = run.works(*USUAL, "--test", "new.csv", "-o", "again.txt", "--json")
    np.testing.assert_allclose(np.loadtxt("again.txt"), np.loadtxt("means.txt"), rtol=1e-12)
    found = json.loads(out)
    assert found["test"] == {"file": "new.csv", "points": 20}
    assert found["certificate"]["lower"] == pytest.approx(process.lower)
    assert found["certificate"]["residual"] <= 1e-6
    assert found["written"] == ["again.txt"]


@pytest.mark.parametrize("solver", ["cholesky", "widrow-hoff"])
def test_solvers_agree(run, solver):
    more = ("--tol", "1e-7", "--test", "sold.csv", "--json")
    errors = [json.loads(run(*USUAL, *more, "--solver", name)[1])["test"]["rmse"] for name in ("cg", solver)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-5)


def test_a_process_that_ends_early_is_told(run):
    status, out, err = run(*USUAL, "--time-limit", "0")
    assert status == 1
    assert "stopped at time_limit" in err
    assert "nothing" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("houses.csv",), "arguments are required: --noise"),
        (("houses.csv", "--noise", "-1"), "noise"),
        (("houses.csv", "--noise", "1", "-o", "x.txt"), "name the data to be predicted with --test"),
        (("houses.csv", "--noise", "1", "--test", "houses.csv", "-o", "houses.csv"), "would be lost"),
    ],
)
def test_complaints(run, argv, message):
    err = run.refused("gp", *argv)
    assert message in err
    assert err.count("\n") == 1
