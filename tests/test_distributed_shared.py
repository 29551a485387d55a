"""Machines over parts on sets that others have used, and masters that are killed."""

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
