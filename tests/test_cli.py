"""The command line, through `main` and as a user meets it: output, files, exit status, and never a traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import svmcore
from svmcore import cli

pytestmark = pytest.mark.compiled

ROOT = Path(__file__).parents[1]
INTERACTIVE = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """`run("path", ...)` -> (status, output, messages), in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> tuple[int, str, str]:
        status = cli.main([str(word) for word in argv])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return status, out, err

    return run


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
    assert re.search(r"duality gap at most \S+e-\d+", out)
    assert "written      p.npz, p.png" in out
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.npz", "p.png", "some.csv"]
    path = svmcore.load("p.npz")
    X, y = svmcore.load_data(csv)
    reference = svmcore.svm_path(X, y, gamma=0.5, lambda_min=0.01)
    np.testing.assert_array_equal(path.lambdas, reference.lambdas)
    assert f"{path.stats['n_events']:,} at" in out
    command = re.search(r"next +svmcore (predict p.npz) DATA (-C \S+)", out)
    assert command is not None
    status, out, err = run(*command[1].split(), csv, *command[2].split())
    assert status == 0
    assert set(out.split()) == {"yes", "no"}
    wrong = 100 * (1 - reference.error_curve().minimum)
    assert f"labels agree ({wrong:.4g} %)" in err


@pytest.mark.parametrize("option", [["--max-events", "5"], ["--time-limit", "0"]])
def test_path_that_ends_early_is_written_and_said(run, csv, option):
    status, out, err = run("path", csv, "-o", "p.npz", *option)
    assert status == 1
    assert "ended early" in out
    assert err.startswith("svmcore: warning: the path ended early")
    assert svmcore.load("p.npz").ended == option[0].strip("-").replace("-", "_")


def test_interrupt_keeps_what_there_is(run, csv, monkeypatch):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(cli.output.Progress, "__call__", lambda *_: signal.raise_signal(signal.SIGINT))
    status, out, _ = run("path", csv, "-o", "p.npz", "--plot", "p.png")
    assert status == 130
    assert "ended early (interrupted)" in out
    assert svmcore.load("p.npz").ended == "interrupted"


def test_interrupt_outside_of_the_run(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("svmcore.data.load_data", interrupted)
    assert run("path", "demo:monk1") == (130, "", "svmcore: interrupted; nothing was written\n")


def test_sample_limit(run):
    status, out, _ = run("path", "demo:monk1", "--sample-limit", "40", "--merge-tol", "0.1", "-k", "linear", "-q")
    assert status == 0
    assert "40 points" in out
    assert "kernel       linear\n" in out


def test_other_data_choose_C(run, csv, tmp_path):
    lines = csv.read_text().splitlines()
    (tmp_path / "train.csv").write_text("\n".join(lines[:40]) + "\n")
    (tmp_path / "test.csv").write_text("\n".join(lines[:1] + lines[40:]) + "\n")
    status, out, _ = run(
        "path", "train.csv", "--test", "test.csv", "--standardize", "-k", "linear", "--plot", "p.svg", "-q"
    )
    assert status == 0
    X, y = svmcore.load_data("train.csv")
    Z, z = svmcore.load_data("test.csv")
    mean, spread = X.mean(axis=0), X.std(axis=0)
    curve = svmcore.svm_path((X - mean) / spread, y, kernel="linear").error_curve((Z - mean) / spread, z)
    assert re.search(rf"held out +least error {100 * curve.minimum:.3g} % for C from", out)
    (tmp_path / "strange.csv").write_text("a,b,y\n1,2,maybe\n")
    message = "svmcore: error: strange.csv holds the label 'maybe', which train.csv does not\n"
    assert run("path", "train.csv", "--test", "strange.csv") == (2, "", message)
    assert "test.csv has 2 features, demo:monk1 has 6" in run("path", "demo:monk1", "--test", "test.csv")[2]


@pytest.mark.parametrize("sparse", [False, True])
def test_standardize(sparse):
    rng = np.random.default_rng(0)
    X, Z = rng.normal(3, 5, (50, 4)), rng.normal(size=(5, 4))
    X[:, 2] = 0.0
    if sparse:
        from scipy.sparse import csr_matrix

        A, B = cli.files.standardized(csr_matrix(X), csr_matrix(Z))
        np.testing.assert_allclose(np.mean(A.toarray() ** 2, axis=0), [1, 1, 0, 1])
        np.testing.assert_allclose(
            B.toarray()[:, [0, 1, 3]] / Z[:, [0, 1, 3]], (A.toarray() / np.where(X, X, 1))[:5, [0, 1, 3]]
        )
        return
    A, B = cli.files.standardized(X, Z)
    np.testing.assert_allclose(A.std(axis=0), [1, 1, 0, 1])
    np.testing.assert_allclose(A.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(B[:, 0], (Z[:, 0] - X[:, 0].mean()) / X[:, 0].std())


def test_demo(run, tmp_path):
    status, out, err = run("demo")
    assert status == 0
    progress = r"spirals: (starting; a first run compiles for up to a minute, later ones do not|lambda .* s)\n"
    assert not re.sub(progress, "", err)  # where that compiles, progress is shown, too
    for pattern in (r"spirals +600 +1,9\d\d +0 % +6\d +\de-\d+ +\d+\.\d+", r"monk1 +432 +\d+ +0 % +16[78] "):
        assert re.search(pattern, out), out
    assert "next: svmcore path" in out
    assert (tmp_path / cli.paths.DEMO_PICTURE).read_bytes().startswith(b"\x89PNG")
    command = re.search(r"next: svmcore (path \S+ --plot \S+),", out)
    assert command is not None
    assert run(*command[1].split())[0] == 0


def test_demo_without_matplotlib(run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(cli.paths.importlib.util, "find_spec", lambda name: None)
    status, out, _ = run("demo")
    assert status == 0
    assert 'pip install "svmcore[plot]"' in out
    assert not list(tmp_path.iterdir())
    status, _, err = run("path", "demo:monk1", "--plot", "x.png")
    assert (status, err) == (2, 'svmcore: error: pictures need matplotlib: pip install "svmcore[plot]"\n')


def test_train_predict_info(run, csv, tmp_path):
    status, out, err = run("train", csv, "-o", "m.npz", "-C", "10", "--gamma", "0.5", "--tol", "1e-6")
    assert (status, err) == (0, "")
    assert "status       converged" in out
    X, y = svmcore.load_data(csv)
    machine = svmcore.train_svc(X, y, 10.0, gamma=0.5, tol=1e-6)
    assert run("predict", "m.npz", csv, "-o", "labels.txt")[:2] == (0, "")
    assert (tmp_path / "labels.txt").read_text().split() == machine.predict(X).tolist()
    status, out, _ = run("predict", "m.npz", csv, "--values")
    np.testing.assert_allclose([float(v) for v in out.split()], machine.decision_function(X), atol=1e-4)
    status, out, _ = run("info", "m.npz")
    assert status == 0
    assert "a model of 2 features, classes no and yes" in out
    status, _, err = run("train", csv, "-o", "m.npz", "-C", "1e6", "--time-limit", "0")
    assert status == 1
    assert "warning" in err


def test_predict_fills_features_that_sparse_text_left_out(run, tmp_path):
    (tmp_path / "train.svm").write_text("1 1:1 3:2\n-1 2:1\n1 3:1\n-1 1:-1\n")
    (tmp_path / "test.svm").write_text("1 1:1\n-1 2:1\n")
    assert run("train", "train.svm", "-o", "m.npz", "-k", "linear")[0] == 0
    status, out, _ = run("predict", "m.npz", "test.svm")
    assert status == 0
    assert len(out.split()) == 2


# ---- complaints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "arguments are required: COMMAND"),
        (("pth",), "invalid choice: 'pth'"),
        (("path",), "required: DATA"),
        (("path", "none.csv"), "none.csv: No such file or directory"),
        (("path", "."), "Is a directory"),
        (("path", "bad.csv"), "bad.csv, line 3, column 1: 'x' is not a finite number (column 'a')"),
        (("path", "three.csv"), "y holds 3 classes"),
        (("path", "one.csv"), "y holds one class only"),
        (("path", "demo:monk9"), "no built-in set 'demo:monk9'"),
        (("path", "demo:monk1", "--gamma", "-1"), "gamma=-1.0 is out of range"),
        (("path", "demo:monk1", "--gamma", "wide"), "invalid gamma value: 'wide'"),
        (("path", "demo:monk1", "--kernel", "spline"), "invalid choice: 'spline'"),
        (("path", "demo:monk1", "--lambda-min", "0"), "lambda_min=0.0 is out of range"),
        (("path", "demo:monk1", "--sample-limit", "1"), "--sample-limit 1"),
        (("path", "demo:monk1", "-o", "none/p.npz"), "there is no directory"),
        (("path", "demo:monk1", "--plot", "p.xyz"), "'p.xyz' is no picture file"),
        (("path", "bad.csv", "--label", "z"), "bad.csv has no column 'z'; its header names 'a', 'y'"),
        (("info", "bad.csv"), "bad.csv is not a file that svmcore wrote"),
        (("info", "none.npz"), "none.npz: No such file"),
        (("predict", "bad.csv", "demo:monk1"), "is not a file that svmcore wrote"),
        (("path", "bad\0name"), "not a possible file name"),
        (("path", "demo:monk1", "-o", "a\0b"), "is no file name"),
    ],
)
def test_complaint_is_one_line(run, tmp_path, argv, message):
    (tmp_path / "bad.csv").write_text("a,y\n1,0\nx,1\n")
    (tmp_path / "three.csv").write_text("a,y\n1,0\n2,1\n3,2\n")
    (tmp_path / "one.csv").write_text("a,y\n1,0\n2,0\n")
    before = sorted(tmp_path.iterdir())
    status, out, err = run(*argv)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_predict_needs_a_C_for_a_path_only(run, csv):
    run("path", csv, "-o", "p.npz", "-q")
    run("train", csv, "-o", "m.npz", "-q")
    assert "say at which C with -C" in run("predict", "p.npz", csv)[2]
    assert "lies outside the path" in run("predict", "p.npz", csv, "-C", "1e9")[2]
    assert "leave -C out" in run("predict", "m.npz", csv, "-C", "1")[2]
    assert "2 features a row" in run("predict", "m.npz", "demo:monk1")[2].replace("6 features", "2 features")


def test_output_that_cannot_be_written_is_refused_first(run, csv, tmp_path, monkeypatch):
    monkeypatch.setattr("svmcore.path.svm_path", None)
    (tmp_path / "folder").mkdir()
    assert run("path", csv, "-o", "folder")[::2] == (2, "svmcore: error: folder is a directory; give a file name\n")
    monkeypatch.setattr(cli.files.os, "access", lambda *_: False)
    assert "permission denied" in run("path", csv, "-o", "p.npz")[2]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    old = tmp_path / "p.npz"
    old.write_bytes(b"old")

    def save(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        cli.files.write(str(old), save)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]


def test_user_warnings_are_back_afterwards(run, csv):
    run("path", csv, "--max-events", "3")
    with pytest.warns(UserWarning, match="hello"):
        warnings.warn("hello", UserWarning, stacklevel=1)


def test_help(run):
    for words in ([], ["path"], ["train"], ["predict"], ["info"], ["demo"]):
        status, out, _ = run(*words, "--help")
        assert status == 0
        assert out.startswith("usage: svmcore")
    assert run("--version")[1] == f"svmcore {svmcore.__version__}\n"


# ---- as processes ----------------------------------------------------------------------------------------------------


def start(*argv: str, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "svmcore", *map(str, argv)],
        env=os.environ | INTERACTIVE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def test_help_and_complaints_load_neither_numpy_nor_the_compiler(tmp_path):
    program = (
        "import sys; from svmcore.cli import main; main(sys.argv[1:]);"
        "print(*sorted({'numpy', 'numba', 'scipy', 'matplotlib', 'highspy'} & set(sys.modules)), file=sys.stderr)"
    )

    def loaded(*argv: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", program, *argv],
            env=os.environ | INTERACTIVE,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return set(done.stderr.splitlines()[-1].split())

    (tmp_path / "bad.csv").write_text("1,2\n3,x,4\n")
    assert loaded("--help") == set()
    assert loaded("path", "--gamma", "x") == set()
    assert loaded("path", "bad.csv") == {"numpy"}


@pytest.mark.compiled
def test_interrupted_process_writes_what_it_has(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "noise.npz", X=rng.normal(size=(3000, 5)), y=rng.integers(0, 2, 3000))
    process = start("path", "noise.npz", "--gamma", "1", "-o", "p.npz", cwd=tmp_path, start_new_session=True)
    assert process.stderr is not None
    lines = []
    while "events" not in (line := process.stderr.readline()):
        lines.append(line)
        assert line, lines
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, (out, err)
    assert "Traceback" not in err
    assert "interrupted" in out
    path = svmcore.load(tmp_path / "p.npz")
    assert path.ended == "interrupted"
    assert path.certify().relative_gap < 1e-8


def test_interrupt_at_the_start(tmp_path):
    process = start("path", "-", cwd=tmp_path, stdin=subprocess.PIPE, start_new_session=True)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)
    assert process.returncode == -signal.SIGINT or err == "svmcore: interrupted; nothing was written\n"


def test_standard_input_and_closed_output():
    process = start("path", "-", "-k", "linear", "-q", stdin=subprocess.PIPE)
    out, err = process.communicate("1,0\n2,0\n4,1\n5,1\n", timeout=300)
    assert (process.returncode, err) == (0, "")
    assert "-: 4 points" in out
    process = start("path", "-", "-k", "linear", "-q", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.write("1,0\n2,0\n4,1\n5,1\n")
    process.stdin.close()
    assert process.wait(timeout=300) == 1
    assert process.stderr.read() == ""
    process.stderr.close()
