"""What warmup names is compiled by it; the word about compilation is said once; another numba is no obstacle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import svmcore

ROOT = Path(__file__).parents[1]
WORD = "svmcore: compiling once for this machine"

# Ordinary use, other data than warmup's. Prints what it compiled.
USE = """
import warnings
import numpy as np
from numba.core import event
from scipy.sparse import csr_matrix
import svmcore
warnings.simplefilter("ignore")
record = event.RecordingListener()
event.register("numba:compile", record)
rng = np.random.default_rng(7)
X = rng.standard_normal((90, 5))
y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
sparse = csr_matrix((rng.random((90, 30)) < 0.2) * rng.standard_normal((90, 30)))

def fit():
    for kernel in ("rbf", "linear", "poly", "sigmoid", "laplacian"):
        for data in (X, X.astype(np.float32), sparse):
            machine = svmcore.train_svc(data, y, 1.0, kernel=kernel)
            machine.predict(data[:1]), machine.decision_function(data), machine.certificate
            svmcore.certificate(data, y, machine.alpha, machine.intercept, C=1.0, kernel=kernel)
    svmcore.train_svr(X, X[:, 0], 1.0)
    svmcore.leave_one_out(X, y, 1.0)
    svmcore.train_one_class(X).predict(X)
    svmcore.train_svc(X, y, nu=0.3)
    svmcore.train_classes(X, np.digitize(X[:, 0], [-0.4, 0.4])).predict(X)
    svmcore.gp_regression(X, X[:, 0], noise=0.1).predict(X)

def path():
    for data in (X, X.astype(np.float32), sparse):
        path = svmcore.svm_path(data, y, gamma=0.5, lambda_min=0.01)
        path.certify(), path.error_curve().best_C, path.predict(data[:2], C=[1.0])
    svmcore.svm_path(X, y, kernel="linear", lambda_min=0.1)
    svmcore.cv_path(X, y, C_min=0.1, C_max=10.0)
    for follow in (svmcore.svr_path, svmcore.epsilon_path, svmcore.quantile_path):
        follow(X, X[:, 0])
    svmcore.one_class_path(X)
"""
REPORT = """
print(*sorted({e.data["dispatcher"].py_func.__qualname__ for _, e in record.buffer if e.is_start}))
"""


def run(program: str, cache: Path, **environment: str) -> tuple[str, str]:
    settings = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "SVMCORE_QUIET": "1", **environment}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


WARMUPS = [pytest.param("fit", 1, marks=pytest.mark.slow), pytest.param("path", 1, marks=pytest.mark.slow), ("all", 2)]


@pytest.mark.compiled
@pytest.mark.parametrize(("what", "jobs"), WARMUPS)
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


SHORT = "import svmcore\nfrom svmcore import _jit\n_jit.PATIENCE = 0.05\n"
FIT = "svmcore.train_svc([[0.0], [1.0], [2.0]], [0, 1, 1]"
FITS = f"{FIT})\n{FIT}, solver='smo')\n"


@pytest.mark.compiled
def test_a_long_compilation_is_announced_once(tmp_path):
    assert run(SHORT + FITS, tmp_path, SVMCORE_QUIET="0")[1].count(WORD) == 1
    assert run(SHORT + FITS, tmp_path, SVMCORE_QUIET="0") == ("", "")  # nothing to compile, nothing to say
    assert run(SHORT + FITS, tmp_path / "quiet") == ("", "")
    mine = "said = []\n_jit.say = said.append\n"
    out, err = run(SHORT + mine + FITS + "print(len(said))", tmp_path / "hook", SVMCORE_QUIET="0")
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
