"""The command line through `main`: output, files, exit status, and never a traceback."""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import warnings

import numpy as np
import pytest

import svmcore
from svmcore import cli
from svmcore.cli import files, output, paths
from svmcore.data import spirals

pytestmark = pytest.mark.once


@pytest.fixture
def csv(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=60) > 0, "yes", "no")
    file = tmp_path / "some.csv"
    file.write_text("a,b,y\n" + "".join(f"{r[0]:.6f},{r[1]:.6f},{label}\n" for r, label in zip(X, y, strict=True)))
    return file


# ---- what it does ----------------------------------------------------------------------------------------------------


def test_path_writes_what_it_says(run, csv, tmp_path):
    status, out, err = run(
        "path", csv, "-o", "p.npz", "--plot", "p.png", "--gamma", "0.5", "--lambda-min", "0.01", "-q"
    )
    assert (status, err) == (0, "")
    assert "60 points, 2 features, classes no (" in out
    assert re.search(r"at most \S+ % from the best possible \(the worst of 20 values .* duality gap \S+e-\d+", out)
    assert "written      p.npz, p.png" in out
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.npz", "p.png", "some.csv"]
    path = svmcore.load("p.npz")
    X, y = svmcore.load_data(csv)
    reference = svmcore.svm_path(X, y, gamma=0.5, lambda_min=0.01)
    np.testing.assert_array_equal(path.lambdas, reference.lambdas)
    assert f"{path.stats['n_events']:,} at" in out
    least = 100 * reference.error_curve().minimum
    assert f"training     least error {least:.3g} %; it says nothing about other data" in out
    assert "-C" not in out  # nothing that the training error could recommend
    assert "next         choose C by data that were not trained on" in out


@pytest.mark.parametrize("option", [["--max-events", "5"], ["--time-limit", "0"]])
def test_path_that_ends_early_is_written_and_said(run, csv, option, monkeypatch):
    monkeypatch.setattr("svmcore._control.GRACE", 600.0)  # a slow machine has begun by then, too
    status, out, err = run("path", csv, "-o", "p.npz", *option)
    assert status == 1
    assert "ended early" in out
    assert err.startswith("svmcore: warning: the path ended early")
    assert svmcore.load("p.npz").ended == option[0].strip("-").replace("-", "_")


@pytest.mark.usefixtures("ctrl_c")
def test_interrupt_keeps_what_there_is(run, csv, monkeypatch):
    monkeypatch.setattr("svmcore.path.tracker.WORK_PER_SLICE", 1)  # else all of this path is one slice
    monkeypatch.setattr(output.ProgressLine, "__call__", lambda *_: signal.raise_signal(signal.SIGINT))
    status, out, _ = run("path", csv, "-o", "p.npz", "--plot", "p.png")
    assert status == 130
    assert "ended early (interrupted)" in out
    assert "the worst of 2 values of C" in out
    assert "left out     error curve, picture (interrupted)" in out
    assert "written      p.npz\n" in out
    assert svmcore.load("p.npz").ended == "interrupted"


@pytest.mark.parametrize(("reason", "status"), [("time_limit", 1), ("interrupted", 130)])
def test_stopped_before_there_is_anything(run, csv, monkeypatch, reason, status):
    def stopped(*_, **__):
        raise svmcore.StoppedError(f"path: {reason} after 1.0 s, before there was anything to return")

    monkeypatch.setattr("svmcore.path.driver.svm_path", stopped)
    message = f"svmcore: path: {reason} after 1.0 s, before there was anything to return; nothing was written\n"
    assert run("path", csv, "-o", "p.npz") == (status, "", message)


def test_interrupt_outside_of_the_run(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "read", interrupted)
    assert run("path", "demo:monk1") == (130, "", "svmcore: interrupted; nothing was written\n")


def test_sample_limit(run):
    out, _ = run.works("path", "demo:monk1", "--sample-limit", "40", "--merge-tol", "0.1", "-k", "linear", "-q")
    assert "40 points" in out
    assert "kernel       linear\n" in out


def test_other_data_choose_C(run, csv, tmp_path):
    lines = csv.read_text().splitlines()
    (tmp_path / "train.csv").write_text("\n".join(lines[:40]) + "\n")
    (tmp_path / "test.csv").write_text("\n".join(lines[:1] + lines[40:]) + "\n")
    out, _ = run.works(
        "path", "train.csv", "--test", "test.csv", "--standardize", "-k", "linear", "--plot", "p.svg", "-q"
    )
    X, y = svmcore.load_data("train.csv")
    Z, z = svmcore.load_data("test.csv")
    mean, spread = X.mean(axis=0), X.std(axis=0)
    curve = svmcore.svm_path((X - mean) / spread, y, kernel="linear").error_curve((Z - mean) / spread, z)
    assert re.search(rf"held out +least error {100 * curve.minimum:.3g} % for C (from|up to)", out)
    assert f"svmcore train train.csv -C {curve.best_C:.6g} -k linear --standardize -o model.npz" in out
    (tmp_path / "strange.csv").write_text("a,b,y\n1,2,maybe\n")
    message = "svmcore: error: strange.csv holds the label 'maybe', which train.csv does not\n"
    assert run("path", "train.csv", "--test", "strange.csv") == (2, "", message)
    assert "test.csv has 2 features; demo:monk1 has 6 features" in run("path", "demo:monk1", "--test", "test.csv")[2]


def test_demo(run, tmp_path):
    out, err = run.works("demo")
    progress = r"(spirals|monk1|picture): (starting; a first run compiles for up to a minute, later ones do not|.* s)\n"
    assert not re.sub(progress, "", err)  # where that compiles, progress is shown, too
    X, y = svmcore.load_data("demo:spirals")
    cv = svmcore.cv_path(X, y, gamma=0.15, C_max=100.0)
    low, high = cv.best_interval
    Z, z = spirals(seed=1)
    wrong = (cv.refit(tol=1e-6).predict(Z) != z).mean()
    shown = rf"spirals +600 +{100 * cv.best_error:.3g} % +C from {low:.3g} to {high:.3g} +{100 * wrong:.3g} % "
    assert re.search(shown, out), out
    assert re.search(r"monk1 +216 +0 % +C from \S+ to 100 +\S+ % +(\de-\d+|0\.000\d) % +\d+\.\d+\n", out), out
    assert (tmp_path / paths.DEMO_PICTURE).read_bytes().startswith(b"\x89PNG")
    command = re.search(r"next: svmcore (cv \S+ --plot \S+),", out)
    assert command is not None
    assert run(*command[1].split())[0] == 0


def test_demo_without_matplotlib(run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(paths.importlib.util, "find_spec", lambda name: None)
    out, _ = run.works("demo")
    assert 'picture: none, matplotlib is not installed: pip install "svmcore[plot]"' in out
    assert not list(tmp_path.iterdir())
    status, _, err = run("path", "demo:monk1", "--plot", "x.png")
    assert (status, err) == (2, 'svmcore: error: pictures need matplotlib: pip install "svmcore[plot]"\n')


def test_predict_fills_features_that_sparse_text_left_out(run, tmp_path):
    (tmp_path / "train.svm").write_text("1 1:1 3:2\n-1 2:1\n1 3:1\n-1 1:-1\n")
    (tmp_path / "test.svm").write_text("1 1:1\n-1 2:1\n")
    assert run("train", "train.svm", "-o", "m.npz", "-k", "linear")[0] == 0
    out, _ = run.works("predict", "m.npz", "test.svm")
    assert len(out.split()) == 2


def test_cross_validation_chooses_C(run, csv, tmp_path):
    X, y = svmcore.load_data(csv)
    cv = svmcore.cv_path(X, y, cv=4, gamma=0.5, C_max=100.0, standardize=True, random_state=3)
    low, high = cv.best_interval
    options = ("--gamma", "0.5", "--C-max", "100", "--standardize", "-q")
    status, out, err = run(
        "cv", csv, "--cv", "4", "--seed", "3", "-o", "m.npz", "--plot", "p.png", "--test", csv, *options
    )
    assert (status, err) == (0, "")
    least, spread = 100 * cv.best_error, 100 * cv.standard_error(cv.best_C)
    shown = f"error {least:.3g} % for C from {low:.3g} to {high:.3g}"
    expected = f"{shown} (mean of 4 folds, exact; standard error {spread:.3g} %)"
    assert f"validation   {expected}\n" in out
    assert f"choice       C = {cv.best_C:.3g}; C = {cv.one_se_C:.3g} is the smallest within one standard error\n" in out
    assert "written      m.npz, p.png\n" in out
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    machine = svmcore.load("m.npz")
    assert cv.best_C == machine.C
    assert f"wrong        {100 * (machine.predict(X) != y).mean():.3g} % of 60 rows of {csv}" in out
    command = re.search(r"next +svmcore (predict m.npz) DATA\n", out)
    assert command is not None
    assert run(*command[1].split(), csv)[1].split() == machine.predict(X).tolist()

    status, out, _ = run("cv", csv, "--cv", "4", "--seed", "3", "--score", "balanced_error", "--json", *options)
    found = json.loads(out)["validation"]
    balanced = svmcore.cv_path(
        X, y, cv=4, gamma=0.5, C_max=100.0, standardize=True, random_state=3, score="balanced_error"
    )
    assert (found["error"], found["best_C"]) == (balanced.best_error, balanced.best_C)


@pytest.mark.parametrize("gamma", ["0.1,0.5,2", "search"])
def test_cross_validation_chooses_gamma_too(run, csv, gamma):
    X, y = svmcore.load_data(csv)
    wanted = gamma if gamma == "search" else [float(value) for value in gamma.split(",")]
    cv = svmcore.cv_path(X, y, gamma=wanted, C_max=10.0)
    out, _ = run.works("cv", csv, "--gamma", gamma, "--C-max", "10", "-q")
    assert f"for C {'up to' if cv.best_interval[0] == 0 else 'from'} " in out
    assert f" and gamma {cv.best_gamma:.6g} (mean of 5 folds" in out
    command = re.search(r"next +svmcore (train .* -C \S+ -g \S+ -o model.npz)\n", out)
    assert command is not None, out
    assert run(*command[1].split(), "-q")[0] == 0
    assert svmcore.load("model.npz").gamma == pytest.approx(cv.best_gamma, rel=1e-5)
    assert pytest.approx(cv.best_C, rel=1e-5) == svmcore.load("model.npz").C


def test_path_with_cross_validation_recommends_its_C(run, csv):
    X, y = svmcore.load_data(csv)
    cv = svmcore.cv_path(X, y, cv=3, C_max=50.0)
    out, _ = run.works("path", csv, "--cv", "3", "--C-max", "50", "-o", "p.npz", "--plot", "p.png", "-q")
    assert f"validation   error {100 * cv.best_error:.3g} % for C from " in out
    assert f"svmcore predict p.npz DATA -C {cv.best_C:.6g}\n" in out
    out, _ = run.works("path", csv, "--cv", "3", "--C-max", "50", "--gamma", "0.7", "--class-weight", "yes=2", "-q")
    command = re.search(r"next +svmcore (train .* -C \S+ -g 0.7 --class-weight yes=2 -o model.npz)\n", out)
    assert command is not None, out
    assert run(*command[1].split(), "-q")[0] == 0
    weighted = svmcore.cv_path(X, y, cv=3, C_max=50.0, gamma=0.7, class_weight={"yes": 2.0})
    assert float(command[1].split()[3]) == pytest.approx(weighted.best_C, rel=1e-5)


def test_next_command_reads_alike(run, csv, tmp_path):
    rows = csv.read_text().splitlines()
    (tmp_path / "more.csv").write_text("".join(f"{k or 'id'},{row},note\n" for k, row in enumerate(rows)))
    out, _ = run.works("train", "more.csv", "--drop", "id,note", "--label", "y", "-o", "m.npz", "-q")
    command = re.search(r"next +svmcore (predict m.npz) DATA (.*)\n", out)
    assert command is not None, out
    out, _ = run.works(*command[1].split(), "more.csv", *command[2].split())
    run("train", csv, "-o", "n.npz", "-q")
    assert out == run("predict", "n.npz", csv)[1]


def test_quality_is_more_than_accuracy(run, csv):
    status, out, _ = run("train", csv, "--gamma", "0.5", "-q")
    X, y = svmcore.load_data(csv)
    found = svmcore.train_svc(X, y, gamma=0.5).predict(X)
    assert status == 0
    wrong = [(found[y == name] != name).mean() for name in ("no", "yes")]
    assert f"wrong        {100 * (found != y).mean():.3g} % on the training set; mean over the classes " in out
    assert f"mean over the classes {50 * sum(wrong):.3g} %\n" in out
    count = {(a, b): ((y == a) & (found == b)).sum() for a in ("no", "yes") for b in ("no", "yes")}
    for a in ("no", "yes"):
        assert f"{a}: {count[a, 'no']} as no, {count[a, 'yes']} as yes" in out
    assert "written      nothing\n" in out


@pytest.mark.parametrize("weights", ["balanced", "yes=5", "yes=5,no=0.5"])
def test_class_weight(run, csv, weights):
    assert run("train", csv, "-o", "m.npz", "--class-weight", weights, "-q", "--tol", "1e-9")[0] == 0
    X, y = svmcore.load_data(csv)
    mapping = {"yes=5": {"yes": 5.0}, "yes=5,no=0.5": {"yes": 5.0, "no": 0.5}}.get(weights, weights)
    expected = svmcore.train_svc(X, y, class_weight=mapping, tol=1e-9)
    np.testing.assert_allclose(svmcore.load("m.npz").dual_coef, expected.dual_coef, atol=1e-6)
    assert expected.dual_coef.max() != svmcore.train_svc(X, y).dual_coef.max()


def test_regression(run, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2)) * [1, 1000]
    y = X[:, 0] + X[:, 1] / 1000
    rows = [f"{a:.8g},{b:.8g},{c:.8g}\n" for (a, b), c in zip(X, y, strict=True)]
    (tmp_path / "r.csv").write_text("a,b,y\n" + "".join(rows))
    options = ("--svr", "--epsilon", "0.01", "-k", "linear", "--standardize", "-C", "100", "--solver", "smo")
    out, _ = run.works("train", "r.csv", *options, "--loss", "squared_epsilon_insensitive", "-o", "r.npz", "-q")
    assert "targets from" in out
    machine = svmcore.load("r.npz")
    assert (machine.loss, machine.epsilon, machine.solver) == ("squared_epsilon_insensitive", 0.01, "smo")
    out, err = run.works("predict", "r.npz", "r.csv")
    np.testing.assert_allclose([float(word) for word in out.split()], y, atol=0.05)
    assert re.fullmatch(r"svmcore: off by: 0\.0\d+ over 80 rows \(root mean square\), R2 (1|0\.999\d*)\n", err), err
    assert "--epsilon belongs to regression" in run("train", "r.csv", "--epsilon", "1")[2]
    assert "--class-weight belongs to classification" in run("train", "r.csv", "--svr", "--class-weight", "balanced")[2]


@pytest.mark.parametrize("kind", ["train", "path"])
def test_standardize_is_part_of_the_file(run, tmp_path, kind):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 3)) * [1e4, 10, 1] + [4e4, 50, 0]
    y = np.where(X[:, 0] / 1e4 + X[:, 1] / 10 + 0.3 * rng.normal(size=120) > 9, "sick", "healthy")
    lines = [f"{a:.2f},{b:.3f},{c:.4f},{label}" for (a, b, c), label in zip(X, y, strict=True)]
    (tmp_path / "p.csv").write_text("income,age,x,state\n" + "\n".join(lines) + "\n")
    turned = [f"{label},{c:.4f},{a:.2f},{b:.3f}" for (a, b, c), label in zip(X, y, strict=True)]
    (tmp_path / "turned.csv").write_text("state,x,income,age\n" + "\n".join(turned) + "\n")
    bare = [f"{c:.4f},{a:.2f},{b:.3f}" for a, b, c in X]
    (tmp_path / "bare.csv").write_text("x,income,age\n" + "\n".join(bare) + "\n")
    (tmp_path / "plain.csv").write_text("\n".join(lines) + "\n")
    at = ["-C", "10"] if kind == "train" else []
    assert run(kind, "p.csv", "--standardize", *at, "-o", "m.npz", "-q")[0] == 0
    assert "of standardised features" in run("info", "m.npz")[1]
    at = ["-C", "10"] if kind == "path" else []
    out, err = run.works("predict", "m.npz", "p.csv", *at)
    assert (np.array(out.split()) == y).mean() > 0.9
    assert re.search(r"wrong: \S+ % of 120 rows", err)
    for other in ("turned.csv", "plain.csv"):
        assert run("predict", "m.npz", other, *at) == (0, out, err)
    assert run("predict", "m.npz", "bare.csv", *at) == (0, out, "")
    (tmp_path / "strange.csv").write_text("x,wages,age,state\n1,2,3,sick\n")
    assert (
        "strange.csv has no column 'income', which the machine was trained with"
        in run("predict", "m.npz", "strange.csv", *at)[2]
    )


@pytest.mark.parametrize("command", ["train", "path", "cv"])
def test_features_of_very_different_scales_are_said(run, csv, tmp_path, command):
    rows = [line.split(",") for line in csv.read_text().splitlines()[1:]]
    (tmp_path / "wide.csv").write_text("a,b,y\n" + "".join(f"{float(a) * 2e4},{b},{y}\n" for a, b, y in rows))
    err = run(command, "wide.csv", "-q")[2]
    assert re.match(
        r"svmcore: warning: feature 'a' spreads over 10,000 times wider than feature 'b', .*: --standardize", err
    )
    assert err.count("wider") == 1
    assert run(command, "wide.csv", "-q", "--standardize")[2] == ""
    assert run(command, csv, "-q")[2] == ""


def test_data_without_labels(run, csv, tmp_path):
    run("train", csv, "-o", "m.npz", "-q")
    expected = run("predict", "m.npz", csv)[1]
    rows = [line.rsplit(",", 1)[0] for line in csv.read_text().splitlines()]
    (tmp_path / "bare.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "bare2.csv").write_text("\n".join(rows[1:]) + "\n")
    (tmp_path / "question.csv").write_text("\n".join([rows[0] + ",y", *(row + ",?" for row in rows[1:])]) + "\n")
    (tmp_path / "empty.csv").write_text("\n".join([rows[0] + ",y", *(row + "," for row in rows[1:])]) + "\n")
    for name in ("bare.csv", "bare2.csv", "question.csv", "empty.csv"):
        assert run("predict", "m.npz", name) == (0, expected, ""), name
    assert run("predict", "m.npz", "bare2.csv", "--no-label") == (0, expected, "")
    some = [row + (",?" if k % 2 else ",yes") for k, row in enumerate(rows[1:])]
    (tmp_path / "some.csv").write_text("\n".join([rows[0] + ",y", *some]) + "\n")
    status, out, err = run("predict", "m.npz", "some.csv")
    assert (status, out) == (0, expected)
    assert "labels: 30 of 60 rows have one" in err
    (tmp_path / "other.csv").write_text("\n".join([rows[0] + ",y", *(row + ",0" for row in rows[1:])]) + "\n")
    assert run("predict", "m.npz", "other.csv") == (
        0, expected, "svmcore: labels: none of them is no or yes; nothing to compare with\n",
    )  # fmt: skip


def test_json(run, csv):
    def read(*argv: str) -> dict:
        out, _ = run.works(*argv, "--json")
        assert out.count("\n") == 1
        return json.loads(out, parse_constant=pytest.fail)

    trained = read("train", csv, "-o", "m.npz", "-q")
    machine = svmcore.load("m.npz")
    assert trained["certificate"]["relative_gap"] == machine.relative_gap
    assert trained["data"]["classes"] == {"no": 33, "yes": 27}
    assert trained["written"] == ["m.npz"]
    found = read("predict", "m.npz", csv)
    assert found["predictions"] == run("predict", "m.npz", csv)[1].split()
    assert "predictions" not in read("predict", "m.npz", csv, "-o", "p.txt")
    assert found["error"]["share"] == trained["error"]["share"]
    path = read("path", csv, "--C-max", "10", "--C-min", "0.1", "-o", "p.npz", "-q")
    assert (path["path"]["C_min"], path["path"]["C_max"]) == (0.1, 10.0)
    assert path["certificate"]["relative_gap"] < 1e-9
    assert read("info", "p.npz")["path"] == path["path"]
    assert read("info", "m.npz")["columns"] == ["a", "b"]


def test_path_that_is_not_exact_says_so(run, csv, monkeypatch):
    monkeypatch.setattr(paths, "_LARGEST_GAP", -1.0)
    status, _, err = run("path", csv, "-q")
    assert status == 1
    assert re.match(r"svmcore: warning: the path is not exact: its answers are only at most \S+ % from", err)


def test_time_limit_is_for_all_phases(run, csv, monkeypatch):
    clock = {"now": 0.0}
    monkeypatch.setattr(output.time, "perf_counter", lambda: clock["now"])
    limits = []

    def certify(path, Cs, control):
        limits.append(control.time_limit)
        clock["now"] += 100.0
        return svmcore.path.result.PathCertificate(0.0, 0.0, 20)

    monkeypatch.setattr("svmcore.path.solution.certify_path", certify)
    status, out, _ = run("path", csv, "--time-limit", "50", "--plot", "p.png", "-q")
    assert (status, limits) == (1, [50.0])
    assert "seconds      100" in out
    assert "left out     error curve, picture (the time limit of 50 s is over)" in out


@pytest.mark.usefixtures("ctrl_c")
def test_interrupt_in_a_later_phase(run, csv, monkeypatch):
    call = output.ProgressLine.__call__

    def interrupt(self, report):
        call(self, report)
        if self.name == "certificate":
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(output.ProgressLine, "__call__", interrupt)
    status, out, err = run("path", csv, "-o", "p.npz", "--plot", "p.png", "-q")
    assert status == 130
    assert re.search(r"the worst of 1?\d values of C", out)
    assert "left out     error curve, picture (interrupted)" in out
    assert "certify ended early (interrupted)" in err
    assert svmcore.load("p.npz").ended == "done"


def test_progress_of_a_fit_leaves_out_what_nobody_knows(capsys):
    from svmcore._control import ProgressReport

    with output.ProgressLine("train", quiet=False) as progress:
        progress.last = -10.0
        progress(ProgressReport(12345, float("nan"), float("nan"), 2.0))
        progress.last = -10.0
        progress.pause = 1.0
        progress(ProgressReport(23456, 0.5, -3.0, 4.0))
    _, err = capsys.readouterr()
    lines = ["train: iteration 12,345, 2 s", "train: iteration 23,456, violation 5.00e-01, objective -3, 4 s"]
    assert err.splitlines() == lines


# ---- complaints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "arguments are required: COMMAND"),
        ("pth", "invalid choice: 'pth': did you mean path?"),
        ("trainn demo:monk1", "invalid choice: 'trainn': did you mean train?"),
        ("zzz", "invalid choice: 'zzz': choose from path, cv, train"),
        ("path", "required: DATA"),
        ("path none.csv", "none.csv: No such file or directory"),
        ("path .", "Is a directory"),
        ("path bad.csv", "bad.csv, line 3, column 1: 'x' is not a finite number (column 'a')"),
        ("path three.csv", "y holds 3 classes"),
        ("path one.csv", "y holds one class only"),
        ("cv houses.csv", "houses.csv: the labels are 3 different numbers, from 1.5 to 3; classes are needed here"),
        ("train houses.csv", "numbers are fitted by svmcore train --svr"),
        ("path demo:monk9", "no built-in set 'demo:monk9'"),
        ("path demo:monk1 --gamma -1", "gamma=-1.0 is out of range"),
        ("path demo:monk1 --gamma wide", "invalid gamma value: 'wide'"),
        ("path demo:monk1 --kernel spline", "invalid choice: 'spline'"),
        ("path demo:monk1 --lambda-min 0", "lambda_min=0.0 is out of range"),
        ("path demo:monk1 --sample-limit 1", "--sample-limit 1"),
        ("path demo:monk1 -o none/p.npz", "there is no directory"),
        ("path demo:monk1 --plot p.xyz", "'p.xyz' is no picture file"),
        ("path bad.csv --label z", "bad.csv has no column 'z'; its header names 'a', 'y'"),
        ("info bad.csv", "bad.csv is not a file that svmcore wrote"),
        ("info none.npz", "none.npz: No such file"),
        ("predict bad.csv demo:monk1", "is not a file that svmcore wrote"),
        ('path bad\x00name', "not a possible file name"),
        ("predict m demo:monk1 -c 10",
         "svmcore predict: error: unknown option -c: did you mean -C 10? (see svmcore predict --help)"),
        ("cv demo:monk1 -t 0", "unknown option -t: did you mean -k linear?"),
        ("cv demo:monk1 -t2", "unknown option -t2: did you mean -k rbf?"),
        ("cv demo:monk1 -w1 5", "unknown option -w1: did you mean --class-weight 1=5?"),
        ("cv demo:monk1 -w-1 5", "unknown option -w-1: did you mean --class-weight -1=5?"),
        ("train demo:monk1 --standardise", "unknown option --standardise: did you mean --standardize?"),
        ("train demo:monk1 --class-weights=balanced", "unknown option --class-weights: did you mean --class-weight?"),
        ("train demo:monk1 --stand", "unknown option --stand: did you mean --standardize?"),
        ("predict m demo:monk1 -t 1", "svmcore predict: error: unknown option -t (see svmcore predict --help)"),
        ("train demo:monk1 m.npz more", "one argument too many: more"),
        ("train demo:monk1 --class-weight 3", "--class-weight 3: '3' is no LABEL=WEIGHT; give balanced, or yes=5,no=1"),
        ("train demo:monk1 --class-weight 7=3", "the data hold no label '7'; they hold -1, 1"),
        ("train demo:monk1 --class-weight 1=x", "'x' is no number"),
        ("train demo:monk1 --svr --loss hinge", "loss='hinge' is not known"),
        ("cv demo:monk1 -v 7", "svmcore cv: error: unknown option -v: did you mean --cv 7? (see svmcore cv --help)"),
        ("cv demo:monk1 --cv few", "invalid number of folds value: 'few'"),
        ("cv demo:monk1 --cv 1", "cv=1"),
        ("path demo:monk1 --C-max 0", "--C-max 0 is out of range; it must be a positive number"),
        ("path demo:monk1 --C-max 1 --C-min 2", "--C-min 2 is larger than the largest C, 1"),
        ("path demo:monk1 --C-max 1 --lambda-min 1", "not allowed with argument"),
        ("path demo:monk1 --time-limit -1", "--time-limit -1 is out of range"),
        ("path demo:monk1 -o a.png --plot a.png", "a.png cannot hold both the result and the picture"),
        ("path bad.csv -o bad.csv", "bad.csv is what this command reads, and would be lost"),
        ("path bad.csv --plot ./bad.csv",
         "./bad.csv is what this command reads (bad.csv, the same file), and would be lost"),
        ("train bad.csv -o link.csv", "link.csv is what this command reads (bad.csv, the same file)"),
        ("train bad.csv -o hard.csv", "hard.csv is what this command reads (bad.csv, the same file)"),
        ("predict one.csv bad.csv -o one.csv", "one.csv is what this command reads, and would be lost"),
        ("train index.csv", "the first column has no name, like the index of a data frame; leave it out with --drop 1"),
        ("train counted.csv", "the numbers 0, 1 can be names of columns, or data; say which: --header or --no-header"),
        ("train words.csv", "leave the column out: --drop sex"),
        ('path demo:monk1 -o a\x00b', "is no file name"),
    ],
)  # fmt: skip
def test_complaint_is_one_line(run, tmp_path, line, message):
    (tmp_path / "bad.csv").write_text("a,y\n1,0\nx,1\n")
    (tmp_path / "three.csv").write_text("a,y\n1,0\n2,1\n3,2\n")
    (tmp_path / "one.csv").write_text("a,y\n1,0\n2,0\n")
    (tmp_path / "houses.csv").write_text("a,y\n1,1.5\n2,2\n3,3\n")
    (tmp_path / "index.csv").write_text(",a,y\n0,1,0\n1,2,1\n")
    (tmp_path / "counted.csv").write_text("0,1,2\n5,6,0\n7,8,1\n")
    (tmp_path / "words.csv").write_text("age,sex,y\n5,F,0\n7,M,1\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "bad.csv")
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "bad.csv")
    before = sorted(tmp_path.iterdir())
    err = run.refused(*line.split())
    assert message in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_predict_needs_a_C_for_a_path_only(run, csv):
    run("path", csv, "-o", "p.npz", "-q")
    run("train", csv, "-o", "m.npz", "-q")
    assert "say at which C with -C" in run("predict", "p.npz", csv)[2]
    assert "lies outside the path" in run("predict", "p.npz", csv, "-C", "1e9")[2]
    assert "leave -C out" in run("predict", "m.npz", csv, "-C", "1")[2]
    assert (
        run("predict", "m.npz", "demo:monk1")[2] == "svmcore: error: demo:monk1 has 6 features; m.npz has 2 features\n"
    )


def test_output_that_cannot_be_written_is_refused_first(run, csv, tmp_path, monkeypatch):
    monkeypatch.setattr("svmcore.path.driver.svm_path", None)
    (tmp_path / "folder").mkdir()
    assert run("path", csv, "-o", "folder")[::2] == (2, "svmcore: error: folder is a directory; give a file name\n")
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    assert "permission denied" in run("path", csv, "-o", "p.npz")[2]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    old = tmp_path / "p.npz"
    old.write_bytes(b"old")
    report = output.Report(argparse.Namespace(command="path", json=False))

    def save(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        report.write(str(old), save)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]


def test_user_warnings_are_back_afterwards(run, csv):
    run("path", csv, "--max-events", "3")
    with pytest.warns(UserWarning, match="hello"):
        warnings.warn("hello", UserWarning, stacklevel=1)


def test_help(run):
    for words in ([], ["path"], ["cv"], ["train"], ["predict"], ["gp"], ["verify"], ["convert"], ["info"], ["demo"]):
        out, _ = run.works(*words, "--help")
        assert out.startswith("usage: svmcore")
        for example in re.findall(r"^  (svmcore .*)", out.partition("examples:")[2], re.MULTILINE):
            cli.parsed(re.sub(" > .*", "", example).split()[1:])
    assert run("--version")[1] == f"svmcore {svmcore.__version__}\n"


# ---- several classes -------------------------------------------------------------------------------------------------


@pytest.fixture
def species(tmp_path):
    rng = np.random.default_rng(0)
    code = np.arange(90) % 3
    X = 2.0 * np.stack([np.cos(2.1 * code), np.sin(2.1 * code)], axis=1) + rng.normal(size=(90, 2))
    lines = [f"{a:.4f},{b:.4f},{['ash', 'birch', 'cedar'][c]}" for (a, b), c in zip(X, code, strict=True)]
    (tmp_path / "trees.csv").write_text("width,height,tree\n" + "\n".join(lines) + "\n")
    return "trees.csv"


@pytest.mark.parametrize("way", ["ovo", "ovr"])
def test_cv_of_three_classes_writes_machines_that_predict(run, species, way):
    status, out, err = run(
        "cv", species, "--classes", way, "--C-max", "20", "--standardize", "-o", "trees.npz", "--quiet"
    )
    assert (status, err) == (0, "")
    assert "ash (30), birch (30), cedar (30)" in out
    assert ("every pair of classes (ovo)" if way == "ovo" else "every class against the rest (ovr)") in out
    machines = svmcore.load("trees.npz")
    assert isinstance(machines, svmcore.Machines)
    assert machines.strategy == way

    out, err = run.works("predict", "trees.npz", species)
    assert set(out.split()) == {"ash", "birch", "cedar"}
    assert "of 90 rows" in err
    status, out, _ = run("predict", "trees.npz", species, "--values", "--quiet")
    assert [len(line.split()) for line in out.splitlines()] == [3] * 90
    status, out, _ = run("info", "trees.npz")
    assert "classes ash, birch and cedar" in out
    assert "machines     3, one for every" in out


def test_train_of_three_classes_and_its_picture_of_cv(run, species, tmp_path):
    out, _ = run.works("train", species, "--classes", "ovr", "-C", "5", "-o", "trees.npz")
    assert "every class against the rest (ovr)" in out
    assert svmcore.load("trees.npz").C == 5.0
    pytest.importorskip("matplotlib")
    run.works("cv", species, "--C-max", "5", "--plot", "trees.png")
    assert (tmp_path / "trees.png").stat().st_size > 10_000
    assert "--classes belongs to classification" in run.refused("train", species, "--svr", "--classes", "ovo")
    assert "this function separates two; train_classes and cv_path take several" in run.refused("path", species)
