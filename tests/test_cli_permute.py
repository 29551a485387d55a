"""The command `permute` says what the function says."""

from __future__ import annotations

import json

import numpy as np
import pytest

import svmcore
from svmcore.cli import main

pytestmark = pytest.mark.compiled


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = (X[:, 0] + rng.normal(size=40) > 0).astype(int)
    file = tmp_path / "data.csv"
    np.savetxt(file, np.column_stack([X, y]), delimiter=",", fmt=["%.17g"] * 3 + ["%d"])
    return str(file), X, y


def test_it_says_what_the_function_says(table, tmp_path, capsys):
    file, X, y = table
    out = tmp_path / "scores.txt"
    words = ["--permutations", "60", "-C", "0.5", "5", "--seed", "3", "--score", "roc_auc", "-o", str(out)]
    assert main(["permute", file, *words, "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    test = svmcore.permutation_test(X, y, n_permutations=60, C=[0.5, 5.0], random_state=3, score="roc_auc")
    assert found["p"] == test.pvalue
    assert found["score"] == {"score": test.score, "scoring": "roc_auc", "C": test.C}
    assert found["chance"]["n_reached"] == test.n_reached
    np.testing.assert_array_equal(np.loadtxt(out), test.permutation_scores)


def test_regression_a_picture_and_an_early_end(table, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    file, _, _ = table
    picture = tmp_path / "null.png"
    words = ["--svr", "--epsilon", "0.2", "--permutations", "500", "--exceed", "5", "--plot", str(picture), "-q"]
    assert main(["permute", file, *words]) == 0
    said = capsys.readouterr().out
    assert "r2" in said
    assert "permutations reach it" in said
    assert picture.stat().st_size > 1000
    assert main(["permute", file, "--permutations", "100000000", "--time-limit", "0.2", "-q"]) == 1
    assert "ended early (time limit)" in capsys.readouterr().out


def test_bad_words(table, capsys):
    file, _, _ = table
    assert main(["permute", file, "--score", "r2", "-q"]) == 2
    assert "it is for targets" in capsys.readouterr().err
