"""Options of the command line that are made from the library's tables, what else Python can, too, and benchmarks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest

import svmcore
from svmcore import cli, solvers
from svmcore._keywords import SolverOptions
from svmcore.cli import bench as benchmarks
from svmcore.cli import main
from svmcore.cli.options import of_published_path, of_solvers

pytestmark = pytest.mark.once


@pytest.fixture
def run(run):
    """`run("train", ...)` -> (status, what it said)."""

    def call(*words: str) -> tuple[int, str]:
        status, out, err = run(*words, "-q")
        return status, out + err

    return call


RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.where(X[:, 0] + 0.5 * RNG.normal(size=60) > 0, 1, -1)


def test_quantiles(run):
    y = X[:, 0] + RNG.normal(size=60)
    svmcore.save_data("r.txt", X, y)
    words = ("r.txt", "--svr", "--loss", "pinball", "--tau", "0.9", "-g", "1")
    assert run("train", *words, "--tol", "1e-9", "-o", "q.npz")[0] == 0
    machine = svmcore.load("q.npz")
    assert (machine.loss, machine.tau) == ("pinball", 0.9)
    reference = svmcore.train_svr(X, y, loss="pinball", tau=0.9, gamma=1.0, tol=1e-9)
    np.testing.assert_allclose(machine.alpha, reference.alpha, atol=1e-6)
    status, _ = run("cv", *words, "--C-max", "10", "-o", "cv.npz")
    assert status == 0
    chosen = svmcore.load("cv.npz")
    found = svmcore.cv_path(X, y, loss="pinball", tau=0.9, gamma=1.0, C_max=10.0, random_state=0)
    assert (chosen.loss, chosen.tau, chosen.C) == ("pinball", 0.9, pytest.approx(found.best_C))
    assert "svmcore train r.txt --svr --loss pinball --tau 0.9 -C" in run("cv", *words, "--C-max", "10")[1]


def default(hint):
    """A word and the value it stands for, for an option of this type."""
    return {"int": ("3", 3), "float": ("0.25", 0.25), "Any": ("0.25", 0.25)}[getattr(hint, "__name__", str(hint))]


def test_options_of_solvers_are_those_of_their_table():
    """Every option of every solver can be typed, and arrives as Python would give it."""
    for name in solvers.names():
        for key, parameter in solvers.options(name).items():
            flag = "--" + key.replace("_", "-")
            values = getattr(solvers.load(name), "OPTION_VALUES", {}).get(key)
            if isinstance(values, tuple):
                typed = [([flag, word], word) for word in values if word is not None]
            elif parameter.annotation.startswith("bool"):
                typed = [([flag], True), ([flag.replace("--", "--no-")], False)]
            elif parameter.annotation.startswith("tuple"):
                typed = [([flag, "3", "5"], (3, 5))]
            else:
                word, value = default(get_type_hints(SolverOptions)[key])
                typed = [([flag, word], value)]
            for words, value in typed:
                given = of_solvers(cli.parsed(["train", "demo:monk1", *words]))
                assert given == {key: value}
                assert isinstance(given[key], type(value))
    assert of_solvers(cli.parsed(["train", "demo:monk1"])) == {}


def test_options_of_the_published_path_are_those_of_their_table():
    for key, usual in svmcore.PublishedOptions._field_defaults.items():
        flag = "--" + key.replace("_", "-")
        if isinstance(usual, bool):
            words, value = [flag if not usual else flag.replace("--", "--no-")], not usual
        else:
            choices = get_args(get_type_hints(svmcore.PublishedOptions)[key])
            words, value = ([flag, choices[-1]], choices[-1]) if choices else ([flag, "3"], type(usual)(3))
        found = of_published_path(cli.parsed(["path", "demo:monk1", "--factorization", "qr", *words]))
        assert found == svmcore.PublishedOptions(**{key: value})
    assert of_published_path(cli.parsed(["path", "demo:monk1", "--factorization", "qr"])) is None


def test_a_solver_and_its_options_from_the_command_line(run):
    svmcore.save_data("some.txt", X, Y)
    words = ("--solver", "adatron", "--intercept", "embedded", "--order", "random", "--omega", "1.4", "--seed", "3")
    assert run("train", "some.txt", *words, "--stopping", "gap", "--tol", "1e-6", "-g", "1", "-o", "m.npz")[0] == 0
    options = {"solver": "adatron", "fit_intercept": "embedded", "order": "random", "omega": 1.4, "random_state": 3}
    reference = svmcore.train_svc(X, Y, gamma=1.0, stopping="gap", tol=1e-6, **options)
    machine = svmcore.load("m.npz")
    assert (machine.solver, machine.n_iter) == ("adatron", reference.n_iter)
    np.testing.assert_allclose(machine.alpha, reference.alpha, rtol=1e-12)
    status, said = run("train", "some.txt", "--solver", "rosen", "--ends", "multipliers", "-C", "10")
    assert status == 1
    assert "stopped by the published rule, which was asked for" in said
    status, said = run("train", "some.txt", "--solver", "smo", "--max-iter", "1")
    assert status == 1
    assert "stopped at max_iter" in said


def test_a_published_path_and_its_options_from_the_command_line(run):
    svmcore.save_data("some.txt", X, Y)
    words = ("--factorization", "svd", "--no-check", "--back", "0.02", "--intercept", "no", "--C-max", "10")
    assert run("path", "some.txt", *words, "-g", "0.5", "-o", "p.npz")[0] == 0
    published = svmcore.PublishedOptions(check=False, back=0.02)
    options = {"gamma": 0.5, "fit_intercept": False, "lambda_min": 0.1}
    reference = svmcore.svm_path(X, Y, factorization="svd", published=published, **options)
    np.testing.assert_allclose(svmcore.load("p.npz").lambdas, reference.lambdas, rtol=1e-9)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train demo:monk1 --loss pinball", "--loss pinball fits a quantile of numbers; add --svr"),
        ("train demo:monk1 --svr --tau 0.9", "--tau belongs to --loss pinball; add it, or leave --tau out"),
        ("train demo:monk1 --svr --loss pinball --epsilon 1",
         "--loss pinball has no --epsilon; leave it out, or the loss"),
        ("cv demo:monk1 --tau 0.9", "--tau belongs to regression; add --svr, or leave it out"),
        ("train demo:monk1 --one-class --intercept no", "--intercept belongs to classification and"),
        ("train demo:monk1 --order random", "solver 'auto' has no option 'order'"),
        ("train demo:monk1 --rule best", "invalid choice: 'best'"),
        ("train demo:monk1 --solver decomposition --q 3", "q=3 cannot be used by solver 'decomposition'"),
        ("path demo:monk1 --back 0.02", "--back is for --factorization svd, qr or update; add one, or leave"),
        ("path demo:monk1 --factorization qr --back 2", "back=2.0 is out of range"),
    ],
)  # fmt: skip
def test_words_that_do_not_go_together_are_refused(run, line, message):
    status, said = run(*line.split())
    assert status == 2
    assert message in said
    assert said.count("\n") == 1


# ---- benchmarks ------------------------------------------------------------------------------------------------------


def test_benchmarks_are_listed_and_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert cli.main(["bench"]) == 0
    out, err = capsys.readouterr()
    assert "smoke" in out
    assert "SVMCORE_DATA=FOLDER names a folder of data" in err
    words = ["bench", "solvers", "--problems", "two_spirals", "--only", "newton", "--minutes", "0.01"]
    assert cli.main([*words, "--out", "mine.jsonl"]) == 0
    assert "what was left out says why" in capsys.readouterr().err
    kinds = [json.loads(line)["kind"] for line in Path("mine.jsonl").read_text(encoding="utf-8").splitlines()]
    assert kinds[0] == "environment"
    assert kinds[-1] == "suite"
    assert sys.path == before
    assert cli.main(["bench", "none"]) == 2
    assert "no suite 'none'; there are smoke" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["checkout", "wheel", "nowhere", "somebody's"])
def test_where_benchmarks_are(place, tmp_path, monkeypatch):
    """Beside the library in a checkout, inside of it in a wheel. A package of that name beside another is not ours."""
    library = tmp_path / "svmcore"
    library.mkdir()
    home = {"wheel": library / "_bench"}.get(place, tmp_path)
    if place != "nowhere":
        (home / "bench" / "suites").mkdir(parents=True)
    if place == "checkout":
        (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.setattr(benchmarks, "_LIBRARY", library)
    if place in ("checkout", "wheel"):
        assert benchmarks.folder() == home
    else:
        with pytest.raises(svmcore.InputError, match="this installation holds no benchmarks; run them from a checkout"):
            benchmarks.folder()


# ---- the command permute ---------------------------------------------------------------------------------------------


@pytest.fixture
def permuted(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = (X[:, 0] + rng.normal(size=40) > 0).astype(int)
    file = tmp_path / "data.csv"
    np.savetxt(file, np.column_stack([X, y]), delimiter=",", fmt=["%.17g"] * 3 + ["%d"])
    return str(file), X, y


@pytest.mark.compiled
def test_it_says_what_the_function_says(permuted, tmp_path, capsys):
    file, X, y = permuted
    out = tmp_path / "scores.txt"
    words = ["--permutations", "60", "-C", "0.5", "5", "--seed", "3", "--score", "roc_auc", "-o", str(out)]
    assert main(["permute", file, *words, "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    test = svmcore.permutation_test(X, y, n_permutations=60, C=[0.5, 5.0], random_state=3, score="roc_auc")
    assert found["p"] == test.pvalue
    assert found["score"] == {"score": test.score, "scoring": "roc_auc", "C": test.C}
    assert found["chance"]["n_reached"] == test.n_reached
    np.testing.assert_array_equal(np.loadtxt(out), test.permutation_scores)


@pytest.mark.compiled
def test_regression_a_picture_and_an_early_end(permuted, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    file, _, _ = permuted
    picture = tmp_path / "null.png"
    words = ["--svr", "--epsilon", "0.2", "--permutations", "500", "--exceed", "5", "--plot", str(picture), "-q"]
    assert main(["permute", file, *words]) == 0
    said = capsys.readouterr().out
    assert "r2" in said
    assert "permutations reach it" in said
    assert picture.stat().st_size > 1000
    assert main(["permute", file, "--permutations", "100000000", "--time-limit", "0.2", "-q"]) == 1
    assert "ended early (time limit)" in capsys.readouterr().out


@pytest.mark.compiled
def test_bad_words(permuted, capsys):
    file, _, _ = permuted
    assert main(["permute", file, "--score", "r2", "-q"]) == 2
    assert "it is for targets" in capsys.readouterr().err
