"""What warmup names is compiled by it; the word about compilation is said once; another numba is no obstacle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from checkouts import REPORT, USE, ran
from refusals import refused

import svmcore
from svmcore.compiler import fast as _fast

pytestmark = pytest.mark.once

WORD = "svmcore: compiling once for this machine"


def run(program: str, cache: Path, **environment: str) -> tuple[str, str]:
    return ran(program, **{"NUMBA_CACHE_DIR": str(cache), "SVMCORE_FAST": "1"} | environment)


@pytest.mark.compiled
@pytest.mark.slow  # that "all" names all is seen at every change by the test of the wheels in test_bundle
@pytest.mark.parametrize(("what", "jobs"), [("fit", 1), ("path", 1), ("all", 2)])
def test_after_warmup_nothing_compiles(tmp_path, what, jobs):
    """Neither in the process that warmed up nor in a later one, nor in one with an empty cache and a bundle."""
    use = USE + {"fit": "fit()", "path": "path()", "all": "fit(); path(); many()"}[what] + REPORT
    file = tmp_path / "warm.bundle"
    warm = f"import svmcore\nsvmcore.warmup({what!r}, jobs={jobs})\n"
    pack = f"svmcore.warmup({what!r}, bundle={str(file)!r})\n"
    assert run(warm + use + pack, tmp_path) == ("\n", "")
    assert run(use, tmp_path) == ("\n", "")
    assert run(use, tmp_path / "empty", SVMCORE_BUNDLE=str(file)) == ("\n", "")
    assert not (tmp_path / "empty").exists()


def test_wrong_arguments_of_warmup():
    refused("'fit', 'path', 'all', not 'everything'", svmcore.warmup, "everything")
    refused("jobs must be a positive whole number, not 0", svmcore.warmup, jobs=0)


SHORT = "import svmcore\nfrom svmcore.compiler import jit as _jit\n_jit.PATIENCE = 0.01\n"
USES = """
import numpy as np
from svmcore.simd import sums
sums.dot(np.arange(3.0), np.arange(3.0), 3)
sums.dot(np.arange(3, dtype=np.float32), np.arange(3, dtype=np.float32), 3)
"""  # one of the smallest things to compile, twice


@pytest.mark.compiled
def test_a_long_compilation_is_announced_once(tmp_path):
    assert run(SHORT + USES, tmp_path, SVMCORE_QUIET="0")[1].count(WORD) == 1
    assert run(SHORT + USES, tmp_path, SVMCORE_QUIET="0") == ("", "")  # nothing to compile, nothing to say
    assert run(SHORT + USES, tmp_path / "quiet") == ("", "")
    mine = "said = []\n_jit.say = said.append\n"
    out, err = run(
        SHORT + mine + USES + f"print(sum({WORD!r} in line for line in said))", tmp_path / "hook", SVMCORE_QUIET="0"
    )
    assert (out, err) == ("1\n", "")


fast = pytest.mark.skipif(
    bool(_fast.TESTED.get(tuple(map(int, _fast.numba.__version__.split(".")[:2])))),
    reason="a numba without the fast way",
)

NEW = """
import sys
import numba
numba.__version__ = "0.99.0"
{before}
import svmcore
from svmcore.compiler import jit as _jit
from svmcore.simd.sums import dot
import numpy as np
value = dot(np.arange(3.0), np.arange(3.0), 3)
print(type(dot).__name__, "svmcore.compiler.roots" in sys.modules, value, _jit.OBSTACLE)
homes = [module for name, module in sys.modules.items() if name == "svmcore.simd.sums"]
stats = [f.stats for home in homes for f in vars(home).values() if hasattr(f, "stats")]
print(any(s.cache_hits for s in stats), any(s.cache_misses for s in stats))
"""


@pytest.mark.ci
@fast
@pytest.mark.compiled
def test_a_numba_that_is_new_compiles_fast_where_its_private_names_are_the_same(tmp_path):
    program = NEW.format(before="")
    assert run(program, tmp_path)[0] == "Root True 5.0 \nFalse True\n"
    assert run(program, tmp_path)[0] == "Root True 5.0 \nTrue False\n"


MOVED = """
from numba.core.typed_passes import NativeLowering
run_pass = NativeLowering.run_pass
def moved(self, state):
    assert type(self) is NativeLowering, "moved"
    return run_pass(self, state)
NativeLowering.run_pass = moved
"""


@pytest.mark.ci
@fast
@pytest.mark.compiled
@pytest.mark.parametrize(
    ("before", "why"),
    [
        ('sys.modules["svmcore.compiler.lower"] = None', "ModuleNotFoundError: import of svmcore.compiler.lower"),
        (MOVED, "AssertionError: "),
    ],
    ids=["at import", "while it compiles"],
)
def test_a_numba_whose_private_names_moved_compiles_the_plain_way(tmp_path, before, why):
    for again in (False, True):  # what the first process has compiled the second one finds, verdict and machine code
        out, err = run(NEW.format(before=before), tmp_path)
        assert out.startswith(f"CPUDispatcher False 5.0 {why}")
        assert out.endswith(f"\n{again} {not again}\n")
        assert err == ""


GONE = """
import builtins
import_of = builtins.__import__
def without(name, module=None, *rest, **words):
    if name.startswith("numba.core.") and (module or {}).get("__name__", "").startswith("svmcore."):
        raise ImportError("it moved")
    return import_of(name, module, *rest, **words)
builtins.__import__ = without
"""


@pytest.mark.ci
@fast
@pytest.mark.compiled
def test_a_numba_without_any_private_name_compiles_the_plain_way_and_keeps_nothing(tmp_path):
    out, err = run(NEW.format(before=GONE), tmp_path, SVMCORE_QUIET="0")
    assert out.startswith("CPUDispatcher False 5.0 ImportError: it moved\n")
    assert out.endswith("\nFalse True\n")
    assert err == ""
    assert not list(tmp_path.rglob("*.code"))


@pytest.mark.ci
@fast
@pytest.mark.compiled
def test_the_word_says_what_this_process_does_without(tmp_path):
    program = NEW.format(before=MOVED) + "print(*_jit.words(), sep='\\n')"
    *_, plain, word = run(program, tmp_path)[0].splitlines()
    assert plain.startswith("svmcore: numba 0.99.0 compiles in the plain way, five times as long: AssertionError: ")
    assert word == f"{WORD}, up to a minute; svmcore.warmup() does it ahead"
    (tmp_path / "file").touch()
    nowhere = tmp_path / "file" / "folder"
    *_, word = run(NEW.format(before="") + "print(*_jit.words(), sep='\\n')", nowhere)[0].splitlines()
    assert word.startswith(f"svmcore: compiling for this process alone, a few seconds: {nowhere / 'svmcore'}")
    assert word.endswith("cannot be written to; NUMBA_CACHE_DIR=folder names another")


@pytest.mark.compiled
def test_the_plain_way_can_be_asked_for(tmp_path):
    assert run(NEW.format(before=""), tmp_path, SVMCORE_FAST="0")[0].startswith(
        "CPUDispatcher False 5.0 SVMCORE_FAST=0"
    )


class Tries:
    """A compiler whose roots are plain functions, as long as it works."""

    def __init__(self, spoil=lambda function: function):
        self.spoil, self.count = spoil, 0

    def __call__(self, function, *, allocates):
        self.count += 1
        spoiled = self.spoil(function)

        def root(*args):
            return spoiled(*args)

        return root


def test_a_tested_numba_is_not_tried(tmp_path, monkeypatch):
    tries = Tries()
    for version, works in (("0.68.1", True), ("0.62.0", True), ("0.61.2", False)):
        monkeypatch.setattr(_fast.numba, "__version__", version)
        assert (_fast.obstacle(tmp_path, tries) == "") == works
    assert tries.count == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda function: function, ""),
        (lambda function: lambda *args: np.add(function(*args), 1), "a sample computes something else"),
        (lambda function: None, "TypeError: 'NoneType' object is not callable"),
    ],
    ids=["works", "computes something else", "fails"],
)
@pytest.mark.parametrize("version", ["1.0.0rc1", "0+unknown"])
def test_a_numba_that_is_new_is_tried_once(tmp_path, monkeypatch, version, spoil, why):
    monkeypatch.setattr(_fast, "_MACHINERY", ())  # which stays loaded in this process
    monkeypatch.setattr(_fast.numba, "__version__", version)
    tries = Tries(spoil)
    assert _fast.obstacle(tmp_path, tries) == why
    assert tries.count > 0
    before = tries.count
    assert _fast.obstacle(tmp_path, tries) == why
    assert tries.count == before
    assert _fast.obstacle(tmp_path / "none" / "file", tries) == why
    (file,) = tmp_path.glob("*.verdict")
    file.write_bytes(b"damaged")
    assert _fast.obstacle(tmp_path, tries) == why
    assert tries.count > before
