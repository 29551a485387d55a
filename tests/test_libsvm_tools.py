"""svm-train and svm-predict themselves (Debian's libsvm-tools) against the same command lines of ours."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import svmcore
from svmcore import cli

pytestmark = pytest.mark.once
if shutil.which("svm-train") is None or shutil.which("svm-predict") is None:
    pytest.skip("svm-train is not installed: Debian's package libsvm-tools has it", allow_module_level=True)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4)).round(3)
TWO = np.where(X[:, 0] * X[:, 1] + 0.4 * RNG.normal(size=120) > 0, 1, -1)
DATA = {
    "two": TWO,
    "named": np.where(TWO > 0, 7, 3),
    "four": 2 * (X[:, 2] > 0.3).astype(int) + (X[:, 0] + 0.5 * RNG.normal(size=120) > 0),
    "numbers": X[:, 0] - 2.0 * X[:, 2] + 0.3 * RNG.normal(size=120),
}
OPTIONS = [
    ("two", "-t 0"), ("two", "-t 1 -d 2 -g 0.5 -r 1"), ("named", "-t 2 -g 0.5 -c 10"), ("two", "-t 3 -g 0.02 -r -0.1"),
    ("two", "-s 1 -n 0.3"), ("two", "-w1 3 -w-1 0.5 -c 2"), ("four", "-c 5 -g 0.3"), ("four", "-s 1 -n 0.2"),
    ("two", "-s 2 -n 0.2 -g 0.5"), ("numbers", "-s 3 -p 0.2 -c 5"), ("numbers", "-s 4 -n 0.4 -t 0"),
    ("named", "-b 1 -c 2"), ("four", "-b 1 -c 2 -g 0.2"), ("two", "-s 1 -n 0.4 -b 1"), ("numbers", "-s 3 -b 1 -c 3"),
]  # fmt: skip
# svm-predict 3.24 solves for the probabilities of classes by iterations, which end where none is off by more than 0.005 / k.
COUPLED = 0.005


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, y in DATA.items():
        svmcore.save_data(f"{name}.txt", X[:90], y[:90])
        svmcore.save_data(f"{name}-new.txt", X[90:], y[90:])
    return tmp_path


def theirs(tool, *words):
    subprocess.run([f"svm-{tool}", *words], check=True, capture_output=True)


def ours(tool, *words):
    assert cli.main([tool, *words, "-q"]) == 0


def table(name):
    lines = Path(name).read_text().splitlines()
    head = lines.pop(0).split() if lines[0].startswith("labels") else None
    return head, np.array([line.split() for line in lines], dtype=float)


@pytest.mark.parametrize(("data", "options"), OPTIONS)
def test_the_same_command_lines_have_the_same_answers(folder, capsys, data, options):
    words = [*options.split(), "-e", "1e-7", f"{data}.txt"]
    theirs("train", *words, "their.model")
    ours("train", *words, "our.model")
    chances = ["-b", "1"] if "-b 1" in options else []
    found = {}
    for model in ("their.model", "our.model"):
        for name, predict in (("svm-predict", theirs), ("ours", ours)):
            predict("predict", *chances, f"{data}-new.txt", model, "out")
            found[model, name] = table("out")
        (head, a), (same, b) = found[model, "svm-predict"], found[model, "ours"]
        assert head == same
        if data == "numbers":
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)  # svm-predict writes six digits
        else:
            np.testing.assert_array_equal(a[:, 0], b[:, 0])
            np.testing.assert_allclose(a[:, 1:], b[:, 1:], atol=COUPLED if data == "four" else 2e-6)
    (head, a), (same, b) = found["their.model", "svm-predict"], found["our.model", "ours"]
    assert head == same
    if data == "numbers":
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    elif not chances:  # their folds are drawn by rand()
        np.testing.assert_array_equal(a, b)


def test_the_model_files_say_the_same(folder, capsys):
    for data in ("named", "four", "two"):
        theirs("train", "-b", "1", "-e", "1e-8", f"{data}.txt", "their.model")
        ours("train", "-b", "1", "-e", "1e-8", f"{data}.txt", "our.model")
        heads = []
        for name in ("their.model", "our.model"):
            lines = Path(name).read_text().partition("SV\n")[0].splitlines()
            heads.append({line.split()[0]: line.split()[1:] for line in lines})
        assert list(heads[0]) == list(heads[1])
        for key in ("svm_type", "kernel_type", "nr_class", "label", "total_sv", "nr_sv"):
            assert heads[0][key] == heads[1][key]
        rho, slopes = ([np.array(head[key], dtype=float) for head in heads] for key in ("rho", "probA"))
        np.testing.assert_allclose(*rho, atol=1e-6)
        assert all((slope < 0.0).all() for slope in slopes)  # a large value speaks for the first class
        assert [slope.shape for slope in slopes] == [rho[0].shape, rho[0].shape]
