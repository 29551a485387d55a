"""One line, or a bar on a terminal, about long work on which nobody looks."""

from __future__ import annotations

import io
import os
import re
import threading

import numpy as np
import pytest

import svmcore
from svmcore import _control
from svmcore._control import Voice, new_control

pytestmark = pytest.mark.once
X, Y = svmcore.load_data("demo:monk1")
WORD = "verbose=1 shows how far it is, Ctrl-C ends it and keeps what it has"


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def voice(monkeypatch):
    """A process in which nothing has been said, and whose patience is short."""
    monkeypatch.setenv("SVMCORE_QUIET", "0")
    monkeypatch.delenv("SVMCORE_PROGRESS", raising=False)
    monkeypatch.setattr(Voice, "PATIENCE", 0.0)
    fresh = Voice()
    monkeypatch.setattr(_control, "voice", fresh)
    monkeypatch.setattr("svmcore.cv.progress.voice", fresh)
    return fresh


def test_long_work_says_one_line_in_a_process(voice, capfd):
    svmcore.cv_path(X, Y, gamma=0.25, C_max=10.0, cv=3)
    svmcore.cv_path(X, Y, gamma=0.25, C_max=10.0, cv=3)
    svmcore.svm_path(X, Y, gamma=0.25, C_max=10.0)
    err = capfd.readouterr().err
    assert err.count("\n") == err.count(WORD) == 1
    assert re.match(r"svmcore: cv has worked for \d+ s, \d+ % done; ", err)


@pytest.mark.parametrize(
    "work",
    [
        lambda: svmcore.svm_path(X, Y, gamma=0.25, C_max=10.0),
        lambda: svmcore.train_svc(X, Y, gamma=0.25, solver="smo", C=10.0),
        lambda: svmcore.gp_regression(X, Y.astype(float), noise=0.1, gamma=0.25),
        lambda: svmcore.SVCPathCV(cv=3, C_max=10.0).fit(X, Y),
    ],
)
def test_whoever_works_long_says_so(voice, capfd, work):
    work()
    assert capfd.readouterr().err.count(WORD) == 1


def test_who_looks_on_hears_nothing_more(voice, capfd, monkeypatch):
    svmcore.cv_path(X, Y, gamma=0.25, C_max=10.0, cv=3, callback=lambda _: False)
    svmcore.svm_path(X, Y, gamma=0.25, C_max=10.0, verbose=1)
    monkeypatch.setenv("SVMCORE_PROGRESS", "0")
    svmcore.svm_path(X, Y, gamma=0.25, C_max=10.0)
    monkeypatch.delenv("SVMCORE_PROGRESS")
    monkeypatch.setenv("SVMCORE_QUIET", "1")
    svmcore.svm_path(X, Y, gamma=0.25, C_max=10.0)
    monkeypatch.setenv("SVMCORE_QUIET", "0")
    monkeypatch.setattr(Voice, "PATIENCE", 3600.0)
    svmcore.svm_path(X, Y, gamma=0.25, C_max=10.0)
    monkeypatch.setattr(Voice, "PATIENCE", 0.0)
    monkeypatch.setattr("sys.stderr", None)
    svmcore.svm_path(X, Y, gamma=0.25, C_max=10.0)
    assert WORD not in capfd.readouterr().err


def test_other_threads_and_processes_are_silent(voice, capfd, monkeypatch):
    thread = threading.Thread(target=lambda: svmcore.svm_path(X, Y, gamma=0.25, C_max=10.0))
    thread.start()
    thread.join()
    monkeypatch.setattr("multiprocessing.parent_process", lambda: os)
    svmcore.svm_path(X, Y, gamma=0.25, C_max=10.0)
    assert WORD not in capfd.readouterr().err


def test_on_a_terminal_a_bar_renews_itself(voice, monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(_control, "_RENEWED", 0.0)
    with new_control("path", None, None, 0) as control:
        for done in (0.1, 0.5):
            control.step(done)
        control.check(3, 1.0, 2.0)
        with new_control("fit", None, None, 0) as inner:  # work inside of work is silent
            inner.check(1, 1.0, 1.0)
    states = screen.getvalue().split("\r")
    assert states[1].startswith("path: [##..................]  10 %, 0 s (Ctrl-C ends it and keeps what it has)")
    assert states[2].startswith("path: [##########..........]  50 %, 0 s")
    assert states[3].startswith("path: 0 s (Ctrl-C")
    assert len(states[3]) == len(states[2])  # what stood there is covered
    assert states[4:] == [" " * len(states[3].rstrip()), ""]  # and all of it at the end
    before = len(screen.getvalue())
    svmcore.cv_path(X, Y, gamma=0.25, C_max=10.0, cv=3)
    found = screen.getvalue()[before:]
    assert "cv: [" in found
    assert found.endswith("\r")
    assert np.max([len(part) for part in found.split("\r")]) < 80
