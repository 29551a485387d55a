"""The command line as a user meets it: processes that are interrupted, piped and closed, and what they load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkouts import ran

import svmcore

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
INTERACTIVE = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts processes, none of which outlives its test: what is left behind is said in another test."""
    started = []

    def starts(*argv: str, **options: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "svmcore", *map(str, argv)],
            env=os.environ | INTERACTIVE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
        )  # fmt: skip
        started.append(process)
        return process

    yield starts
    for process in started:
        with process:
            process.kill()


def test_help_and_complaints_load_neither_numpy_nor_the_compiler(tmp_path):
    program = (
        "import sys; from svmcore.cli import main; main(sys.argv[1:]);"
        "print(*sorted({'numpy', 'numba', 'scipy', 'matplotlib', 'highspy'} & set(sys.modules)), file=sys.stderr)"
    )

    def loaded(*argv: str) -> set[str]:
        return set(ran(program, *argv, folder=tmp_path, **INTERACTIVE)[1].splitlines()[-1].split())

    (tmp_path / "bad.csv").write_text("1,2\n3,x,4\n")
    assert loaded("--help") == set()
    assert loaded("path", "--gamma", "x") == set()
    assert loaded("path", "bad.csv") == {"numpy"}


def test_interrupted_process_writes_what_it_has(tmp_path, start):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "noise.npz", X=rng.normal(size=(5000, 5)), y=rng.integers(0, 2, 5000))
    process = start("path", "noise.npz", "--gamma", "1", "-o", "p.npz", cwd=tmp_path, start_new_session=True)
    assert process.stderr is not None
    lines = []
    while "on the margin" not in (line := process.stderr.readline()):
        lines.append(line)
        assert line, lines
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=1800)
    assert process.returncode == 130, (out, err)
    assert "Traceback" not in err
    assert "interrupted" in out
    path = svmcore.load(tmp_path / "p.npz")
    assert path.ended == "interrupted"
    assert path.certify().relative_gap < 1e-8


def test_interrupt_at_the_start(tmp_path, start):
    process = start("path", "-", cwd=tmp_path, stdin=subprocess.PIPE, start_new_session=True)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=1800)
    assert process.returncode in (130, -signal.SIGINT)
    assert process.returncode == -signal.SIGINT or err == "svmcore: interrupted; nothing was written\n"


def test_standard_input_and_closed_output(start):
    process = start("path", "-", "-k", "linear", "-q", stdin=subprocess.PIPE)
    out, err = process.communicate("1,0\n2,0\n4,1\n5,1\n", timeout=1800)
    assert (process.returncode, err) == (0, "")
    assert "-: 4 points" in out
    process = start("path", "-", "-k", "linear", "-q", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.write("1,0\n2,0\n4,1\n5,1\n")
    process.stdin.close()
    assert process.wait(timeout=1800) == 1
    assert process.stderr.read() == ""
    process.stderr.close()


def test_labels_that_the_output_has_no_letters_for(tmp_path):
    (tmp_path / "d.csv").write_text("1,é\n2,é\n3,n\n4,n\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "svmcore", "train", "d.csv"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | INTERACTIVE | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "\\xe9" in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="needs a shell")
@pytest.mark.parametrize(("words", "status"), [("train - <&-", 2), ("train d.csv -o m.npz >&-", 0)])
def test_closed_streams(tmp_path, words, status):
    (tmp_path / "d.csv").write_text("1,a\n2,a\n3,b\n4,b\n")
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m svmcore {words}'], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | INTERACTIVE,
    )  # fmt: skip
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert (tmp_path / "m.npz").exists() == (status == 0)
