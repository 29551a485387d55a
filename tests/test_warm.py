"""What warmup names is compiled by it; the word about compilation is said once; another numba is no obstacle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkouts import REPORT, USE

import svmcore

ROOT = Path(__file__).parents[1]
WORD = "svmcore: compiling once for this machine"


def run(program: str, cache: Path, **environment: str) -> tuple[str, str]:
    settings = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "SVMCORE_QUIET": "1", **environment}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.compiled
@pytest.mark.slow  # that "all" names all is seen at every change by the test of the wheels in test_bundle
@pytest.mark.parametrize(("what", "jobs"), [("fit", 1), ("path", 1), ("all", 2)])
def test_after_warmup_nothing_compiles(tmp_path, what, jobs):
    """Neither in the process that warmed up nor in a later one, nor in one with an empty cache and a bundle."""
    use = USE + {"fit": "fit()", "path": "path()", "all": "fit(); path()"}[what] + REPORT
    file = tmp_path / "warm.bundle"
    warm = f"import svmcore\nsvmcore.warmup({what!r}, jobs={jobs})\n"
    pack = f"svmcore.warmup({what!r}, bundle={str(file)!r})\n"
    assert run(warm + use + pack, tmp_path) == ("\n", "")
    assert run(use, tmp_path) == ("\n", "")
    assert run(use, tmp_path / "empty", SVMCORE_BUNDLE=str(file)) == ("\n", "")
    assert not (tmp_path / "empty").exists()


def test_wrong_arguments_of_warmup():
    with pytest.raises(svmcore.InputError, match="'fit', 'path', 'all', not 'everything'"):
        svmcore.warmup("everything")
    with pytest.raises(svmcore.InputError, match="jobs must be a positive whole number, not 0"):
        svmcore.warmup(jobs=0)


SHORT = "import svmcore\nfrom svmcore import _jit\n_jit.PATIENCE = 0.01\n"
CHECK = "svmcore.certificate([[0.0], [1.0], [2.0]], [0, 1, 1], [0.5, 0.5, 0.0], 0.0, C=1.0, kernel={!r})\n"
USES = CHECK.format("rbf") + CHECK.format("laplacian")  # one of the smallest things to compile, and another one


@pytest.mark.compiled
def test_a_long_compilation_is_announced_once(tmp_path):
    assert run(SHORT + USES, tmp_path, SVMCORE_QUIET="0")[1].count(WORD) == 1
    assert run(SHORT + USES, tmp_path, SVMCORE_QUIET="0") == ("", "")  # nothing to compile, nothing to say
    assert run(SHORT + USES, tmp_path / "quiet") == ("", "")
    mine = "said = []\n_jit.say = said.append\n"
    out, err = run(SHORT + mine + USES + "print(len(said))", tmp_path / "hook", SVMCORE_QUIET="0")
    assert (out, err) == ("1\n", "")


@pytest.mark.compiled
def test_another_numba_compiles_with_the_plain_decorator(tmp_path):
    program = """
import numba
numba.__version__ = "0.99.0"
import sys
import svmcore
from svmcore import _jit
from svmcore.solvers._steps_jit import violation
X = [[-2.0], [-1.0], [1.0], [2.0]]
machine = svmcore.train_svc(X, [0, 0, 1, 1], kernel="linear", C=1e3, solver="adatron", fit_intercept=False)
print(_jit.TESTED, "svmcore._roots" in sys.modules, type(violation).__name__, machine.predict([[-2.0], [2.0]]).tolist())
homes = [module for name, module in sys.modules.items() if name.startswith("svmcore.") and name.endswith("_jit")]
stats = [f.stats for home in homes for f in vars(home).values() if hasattr(f, "stats")]
print(any(s.cache_hits for s in stats), any(s.cache_misses for s in stats))
"""
    assert run(program, tmp_path)[0] == "False False CPUDispatcher [0, 1]\nFalse True\n"
    assert run(program, tmp_path)[0] == "False False CPUDispatcher [0, 1]\nTrue False\n"
