"""Missing values on the command line: what fills them is kept with the machine, or their rows have no prediction."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from kept import parts_of

import svmcore

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
N = 80
A, B = RNG.normal(40.0, 10.0, N).round(1), RNG.normal(size=N).round(3)
TOWN = np.array(["Oslo", "Paris", "Rome"])[RNG.integers(0, 3, N)]
Y = np.where((A > 40.0) ^ (TOWN == "Oslo"), "yes", "no")
GAP = RNG.random((N, 3)) < 0.1
SIGNS = ("", "NA", "?")


def lines(rows):
    out = ["age,income,town,buys"]
    for k in rows:
        cells = [SIGNS[j] if GAP[k, j] else str(column[k]) for j, column in enumerate((A, B, TOWN))]
        out.append(",".join([*cells, Y[k]]))
    return "\n".join(out) + "\n"


@pytest.fixture
def run(run):
    Path("people.csv").write_text(lines(range(60)))
    Path("new.csv").write_text(lines(range(60, N)))
    return run


def matrix(rows):
    columns = np.stack([A, B, TOWN == "Oslo", TOWN == "Paris", TOWN == "Rome"], axis=1)[rows]
    gaps = GAP[rows][:, [0, 1, 2, 2, 2]]
    return np.where(gaps, np.nan, columns)


@pytest.mark.parametrize("how", ["mean", "median"])
def test_what_fills_missing_values_is_kept_with_the_machine(run, how):
    words = ("--categorical", "town", "--impute", how, "--standardize", "-o", "m.npz")
    _, err = run.works("train", "people.csv", *words)
    rows = GAP[:60].any(axis=1).sum()
    assert f"{rows} of 60 rows have missing values, which the {how} of their column fills in" in err
    train, new = matrix(np.arange(60)), matrix(np.arange(60, N))
    fill = {"mean": np.nanmean, "median": np.nanmedian}[how](train, axis=0)
    found = svmcore.load("m.npz")
    np.testing.assert_allclose(found.columns.fill, fill, rtol=1e-15)
    direct = svmcore.train_svc(np.where(np.isnan(train), fill, train), Y[:60], standardize=True)
    out, err = run.works("predict", "m.npz", "new.csv")
    assert out.split() == direct.predict(np.where(np.isnan(new), fill, new)).tolist()
    assert "missing" not in err
    assert f"missing values  are filled in: age {fill[0]:.6g}, income" in run("info", "m.npz")[1]
    out, _ = run.works("verify", "m.npz", "people.csv")
    assert "verified" in out


def test_a_machine_is_tuned_from_words_and_missing_values(run):
    words = ("--categorical", "words", "--impute", "median", "--standardize", "--gamma", "search", "--C-max", "100")
    out, _ = run.works("cv", "people.csv", *words, "--test", "new.csv", "-o", "m.npz", "-q", "--json")
    assert json.loads(out)["error"]["points"] == N - 60
    assert run("predict", "m.npz", "new.csv", "-q")[0] == 0
    out, _ = run.works("cv", "people.csv", *words, "-q")
    assert "--impute median" in out.splitlines()[-1]  # what to type next


def test_rows_that_cannot_be_predicted_have_empty_lines(run):
    whole = [k for k in range(60) if not GAP[k].any()]
    Path("clean.csv").write_text(lines(whole))
    assert run("train", "clean.csv", "--categorical", "town", "-o", "m.npz")[0] == 0
    status, out, err = run("predict", "m.npz", "new.csv")
    gaps = GAP[60:].any(axis=1)
    assert status == 0
    assert [line == "" for line in out.split("\n")[:-1]] == gaps.tolist()
    assert f"{gaps.sum()} of {N - 60} rows have missing values: their lines are empty" in err
    found = svmcore.load("m.npz").predict(matrix(np.arange(60, N))[~gaps])
    assert [line for line in out.split("\n") if line] == found.tolist()
    assert f"of {(~gaps).sum()} rows" in err  # errors are counted where there are predictions
    status, out, _ = run("predict", "m.npz", "new.csv", "--json", "--values")
    assert [value is None for value in json.loads(out)["predictions"]] == gaps.tolist()
    only = int(np.flatnonzero(gaps)[0]) + 60
    Path("one.csv").write_text(lines([only]))
    assert run("predict", "m.npz", "one.csv", "-q")[:2] == (0, "\n")


def test_rows_without_labels_and_without_values(run):
    Path("clean.csv").write_text(lines(k for k in range(60) if not GAP[k].any()))
    assert run("train", "clean.csv", "--categorical", "town", "-o", "m.npz")[0] == 0
    Path("new.csv").write_text("age,income,town,buys\n50,,Oslo,no\n50,0.1,Oslo,\n30,0.1,Oslo,yes\n")
    status, out, err = run("predict", "m.npz", "new.csv")
    assert (status, out.split("\n")[0], len(out.split("\n"))) == (0, "", 4)
    assert "of 2 rows have one" in err


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_other_formats_have_missing_values(run, kind):
    X = np.where(GAP[:, :2], np.nan, np.stack([A, B], axis=1))
    if kind == "npz":
        np.savez("d.npz", X=X, y=Y)
    else:
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "buys": Y})
        frame["b"] = frame["b"].round().astype("Int64")
        frame.to_parquet("d.parquet", index=False)
    assert "fill such values in: --impute mean, or median; or remove the row" in run.refused("train", f"d.{kind}")
    run.works("train", f"d.{kind}", "--impute", "mean", "-o", "m.npz")
    assert run("predict", "m.npz", f"d.{kind}", "-q")[1].split().__len__() == N
    fill = svmcore.load("m.npz").columns.fill
    np.testing.assert_allclose(fill[0], np.nanmean(X[:, 0]))


def test_what_cannot_be_filled_is_said(run):
    err = run.refused("train", "people.csv", "--categorical", "words")
    assert "a missing value" in err
    assert "--impute mean, or median" in err
    Path("empty.csv").write_text("a,b,y\n1,,0\n2,,1\n3,,1\n")
    assert "feature 'b' has no value in any row; leave it out with --drop" in run.refused(
        "train", "empty.csv", "--impute", "mean"
    )
    assert "column 'b' holds no value" in run.refused("train", "empty.csv", "--impute", "mean", "--categorical", "b")
    assert "remove or impute missing values first" in run.refused(
        "convert", "people.csv", "people.svm", "--categorical", "town"
    )
    Path("gap.csv").write_text("a,b,y\n1,,0\n2,5,1\n3,4,1\n4,4,0\n")
    _, err = run.works("train", "gap.csv", "--impute", "mean", "-o", "m.model", "-q")
    assert "no place for what missing values are filled with" in err
    assert svmcore.load("m.model").columns.fill is not None


def test_a_damaged_fill_is_refused(run):
    assert run("train", "people.csv", "--categorical", "town", "--impute", "mean", "-o", "m.npz", "-q")[0] == 0
    np.savez("bad.npz", **parts_of("m.npz") | {"feature_fill": np.array([np.nan])})
    with pytest.raises(svmcore.InputError, match="what missing values are filled with does not belong"):
        svmcore.load("bad.npz")
