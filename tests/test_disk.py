"""Machine code on disk: found while its sources are the same, and only what was written whole and by ourselves."""

from __future__ import annotations

import importlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkouts import PROGRAM, ROOT, checkout, edit, files, finish, finish_all, posix, run, start

from svmcore.compiler import disk as _disk
from svmcore.compiler import files as _files

pytestmark = pytest.mark.once

FIT = """
import svmcore
from scipy.sparse import csr_matrix
from svmcore._smo_jit import smo_slice
options = dict(gamma=1.0, solver="smo", tol=1e-9)
X = csr_matrix([[1e3, 0.0], [1e3, 1.0]])  # so far from the origin that tiles refuse: certified by the same home
solution = svmcore.train_svc(X, [-1, 1], 10.0, **options)
print(round(solution.alpha[0], 6), sum(smo_slice.stats.cache_hits.values()), sum(smo_slice.stats.cache_misses.values()))
"""


@pytest.fixture
def two_homes(tmp_path):
    return checkout(tmp_path)


# ---- what code depends on --------------------------------------------------------------------------------------------


def test_sources_are_followed_through_every_kind_of_import(tmp_path, monkeypatch):
    package = tmp_path / "stones"
    package.mkdir()
    texts = {
        "__init__": "",
        "_a": "x = 1\n",
        "_b": "from . import _a\n",
        "_c": "from ._b import (  # a comment\n    _a as name,\n)\n",
        "_d": "import stones._c as c\nimport json\n",
        "_e": "from stones import (\n    _b,\n    _d,\n)\n",
        "_f": '"""import stones._e"""\nx = "_e"\n',
        "room/__init__": "",
        "room/_g": "from stones._a import x\n",
        "room/_h": "from stones.room import _g\n",
        "room/_i": "from . import _h\nfrom .._b import _a\n",
        "room/_j": "from stones.room._g import x\n",
    }
    (package / "room").mkdir()
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("stones._e")
    importlib.import_module("stones._f")
    importlib.import_module("stones.room._i")
    importlib.import_module("stones.room._j")
    names = [name for name in texts if not name.endswith("__init__")]
    found = {
        name.rpartition("/")[2]: {
            module.rpartition(".")[2] for module in _disk.sources(f"stones.{name.replace('/', '.')}")
        }
        for name in names
    }
    assert found == {
        "_a": {"_a"}, "_b": {"_a", "_b"}, "_c": {"_a", "_b", "_c"}, "_d": {"_a", "_b", "_c", "_d"},
        "_e": {"_a", "_b", "_c", "_d", "_e"}, "_f": {"_f"},
        "_g": {"_a", "_g"}, "_h": {"_a", "_g", "_h", "room"}, "_i": {"_a", "_b", "_g", "_h", "_i", "room"},
        "_j": {"_a", "_g", "_j"},
    }  # fmt: skip


@pytest.mark.compiled
def test_an_edited_home_is_seen_by_its_importer_in_another_process(two_homes):
    assert run(PROGRAM, two_homes) == [7.0, 0, 1]
    assert run(PROGRAM, two_homes) == [7.0, 1, 0]
    edit(two_homes / "svmcore" / "_kernels.py", "2.0", "5.0")
    assert run(PROGRAM, two_homes) == [16.0, 0, 1]
    assert run(PROGRAM, two_homes) == [16.0, 1, 0]
    edit(two_homes / "svmcore" / "_kernels.py", "5.0", "2.0")
    assert run(PROGRAM, two_homes) == [7.0, 1, 0]  # what was compiled then is still there


@pytest.mark.ci
@pytest.mark.compiled
def test_an_edited_home_is_seen_from_another_folder(two_homes):
    """The home below moves to a room of its own; the one above follows, by each way to import it."""
    package = two_homes / "svmcore"
    (package / "room").mkdir()
    (package / "room" / "__init__.py").write_text("")
    (package / "_kernels.py").rename(package / "room" / "kernels.py")
    last, found = "from svmcore._kernels import _double", []
    for line in ("from svmcore.room.kernels import _double", "from .room.kernels import _double"):
        edit(package / "_smo_jit.py", last, line)
        last = line
        found.append(run(PROGRAM, two_homes))
        edit(package / "room" / "kernels.py", "2.0", "5.0")
        found.append(run(PROGRAM, two_homes))
        edit(package / "room" / "kernels.py", "5.0", "2.0")
    assert found == [[7.0, 0, 1], [16.0, 0, 1]] * 2


@pytest.mark.ci
def test_an_edited_kernel_is_seen_by_the_solver(tmp_path):
    """On the homes themselves: alpha = 1 / (1 - K) for two points, whose K = 1/e is squared.

    A run may mend by its last checks what stale code did; the counts of the cache tell what was compiled.
    """
    shutil.copytree(ROOT / "svmcore", tmp_path / "svmcore", ignore=shutil.ignore_patterns("__pycache__"))
    assert run(FIT, tmp_path) == [1.581977, 0, 1]
    assert run(FIT, tmp_path) == [1.581977, 1, 0]
    edit(tmp_path / "svmcore" / "_kernels.py", "out[j] *= -kernel.gamma", "out[j] *= -2.0 * kernel.gamma")
    assert run(FIT, tmp_path) == [1.156518, 0, 1]


@pytest.mark.ci
@pytest.mark.compiled
def test_settings_of_the_compiler_are_part_of_the_key(two_homes):
    assert run(PROGRAM, two_homes, NUMBA_BOUNDSCHECK="0") == [7.0, 0, 1]
    assert run(PROGRAM, two_homes, NUMBA_BOUNDSCHECK="1") == [7.0, 0, 1]
    assert run(PROGRAM, two_homes, NUMBA_OPT="1") == [7.0, 0, 1]
    assert run(PROGRAM, two_homes, NUMBA_BOUNDSCHECK="1") == [7.0, 1, 0]


def test_old_variants_are_deleted(tmp_path):
    """Of one function and its types: the oldest beyond 16. Those of another function stay."""
    for age in range(20):
        file = tmp_path / f"home.step-types-{age:02}{_disk.SUFFIX}"
        _files.write(file, b"payload")
        os.utime(file, (time.time() - age - 10, time.time() - age - 10))
    other = tmp_path / f"home.step-othertypes-99{_disk.SUFFIX}"
    _files.write(other, b"payload")
    _disk._tidy(file)
    assert [file.name[-7:-5] for file in files(tmp_path)] == ["99", *(f"{age:02}" for age in range(16))]


# ---- where -----------------------------------------------------------------------------------------------------------


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setattr(_disk.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _disk.folder().parent == tmp_path / "svmcore"
    monkeypatch.setattr(_disk.config, "CACHE_DIR", str(tmp_path / "numba"))
    assert _disk.folder().parent == tmp_path / "numba" / "svmcore"
    monkeypatch.setattr(_disk.config, "CACHE_DIR", "")
    monkeypatch.delenv("XDG_CACHE_HOME")
    if sys.platform != "win32":
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        assert _disk.folder().parent == tmp_path / "home" / ".cache" / "svmcore"


@pytest.mark.compiled
def test_nothing_is_written_beside_the_sources(two_homes, tmp_path):
    assert run(PROGRAM, two_homes, NUMBA_CACHE_DIR="", XDG_CACHE_HOME=str(tmp_path / "xdg")) == [7.0, 0, 1]
    written = {file for file in tmp_path.rglob("*") if file.suffix in (".code", ".nbi", ".nbc", ".tmp")}
    assert written
    assert all(tmp_path / "xdg" / "svmcore" in file.parents for file in written)


# ---- one file --------------------------------------------------------------------------------------------------------


def test_a_file_is_what_was_written_or_nothing(tmp_path):
    file = tmp_path / "folder" / f"f-1-2{_disk.SUFFIX}"
    assert _files.read(file) is None
    _files.write(file, b"payload")
    assert _files.read(file) == b"payload"
    whole = file.read_bytes()
    for k in range(len(whole)):
        file.write_bytes(whole[:k])
        assert _files.read(file) is None
        file.write_bytes(whole[:k] + bytes([whole[k] ^ 1]) + whole[k + 1 :])
        assert _files.read(file) is None
    _files.write(file, b"another")
    assert _files.read(file) == b"another"
    assert list(file.parent.iterdir()) == [file]


@posix
def test_files_that_others_own_or_may_write_to_are_not_read(tmp_path, monkeypatch):
    file = tmp_path / f"f-1-2{_disk.SUFFIX}"
    before = os.umask(0)
    try:
        _files.write(file, b"payload")
    finally:
        os.umask(before)
    assert _files.read(file) == b"payload"
    for mode in (0o666, 0o664, 0o646):
        file.chmod(mode)
        assert _files.read(file) is None
    file.chmod(0o600)
    assert _files.read(file) == b"payload"
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert _files.read(file) == (b"payload" if owner == 0 else None)
    if os.getuid() == 0:
        os.chown(file, 4321, -1)
        assert _files.read(file) is None


@posix
def test_files_in_a_folder_that_others_may_write_to_are_not_read(tmp_path):
    file = tmp_path / "folder" / f"f-1-2{_disk.SUFFIX}"
    before = os.umask(0)
    try:
        _files.write(file, b"payload")
    finally:
        os.umask(before)
    assert _files.read(file) == b"payload"  # the folder was made for its owner alone
    for mode in (0o777, 0o757):
        file.parent.chmod(mode)
        assert _files.read(file) is None
    file.parent.chmod(0o1777)  # there, nobody can replace what is another's
    assert _files.read(file) == b"payload"
    file.parent.chmod(0o700)
    if os.getuid() == 0:
        os.chown(file.parent, 4321, -1)
        assert _files.read(file) is None


@pytest.mark.ci
@posix
@pytest.mark.compiled
def test_a_cache_that_others_may_write_to_is_passed_over(two_homes):
    assert run(PROGRAM, two_homes) == [7.0, 0, 1]
    assert run(PROGRAM, two_homes) == [7.0, 1, 0]
    before = {file: file.stat().st_mtime_ns for file in files(two_homes)}
    (folder,) = {file.parent for file in before}
    folder.chmod(0o777)
    assert run(PROGRAM, two_homes) == [7.0, 0, 1]
    assert {file: file.stat().st_mtime_ns for file in files(two_homes)} == before  # and nothing was written there
    folder.chmod(0o755)
    assert run(PROGRAM, two_homes) == [7.0, 1, 0]


@pytest.mark.ci
@posix
@pytest.mark.compiled
def test_what_is_no_file_keeps_nobody_waiting(two_homes):
    """A pipe, a folder, a device: each counts as absent, and where it can be replaced, it is."""
    run(PROGRAM, two_homes)
    (file,) = (file for file in files(two_homes) if file.name.startswith("_smo_jit.step"))
    file.unlink()
    os.mkfifo(file)
    assert _files.read(file) is None
    assert finish(start(PROGRAM, two_homes), 60.0).split() == ["7.0", "0", "1"]
    assert file.is_file()
    assert run(PROGRAM, two_homes) == [7.0, 1, 0]
    file.unlink()
    file.mkdir()
    assert run(PROGRAM, two_homes) == [7.0, 0, 1]
    file.rmdir()
    file.symlink_to("/dev/zero")
    assert run(PROGRAM, two_homes) == [7.0, 0, 1]


@posix
@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="gives files away")
def test_a_group_of_ones_own_may_write(tmp_path, monkeypatch):
    """Installers leave files that the user's group may write to where that group is the user alone."""
    file = tmp_path / f"f-1-2{_disk.SUFFIX}"
    _files.write(file, b"payload")
    os.chown(file, 4321, 4321)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    file.chmod(0o664)
    assert _files.read(file) == b"payload"
    file.chmod(0o666)
    assert _files.read(file) is None
    file.chmod(0o664)
    os.chown(file, 4321, 100)
    assert _files.read(file) is None


def test_what_a_dead_process_left_is_deleted_after_a_while(tmp_path):
    old, new = tmp_path / "old.tmp", tmp_path / "new.tmp"
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    _disk._tidy(tmp_path / f"f-1-2{_disk.SUFFIX}")
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), OSError(122, "Quota"), PermissionError(13, "")]
)
@pytest.mark.parametrize("call", ["open", "replace", "mkdir"])
def test_what_cannot_be_written_is_not_there_in_half(tmp_path, monkeypatch, error, call):
    def fails(*args, **options):
        raise error

    file = tmp_path / "folder" / f"f-1-2{_disk.SUFFIX}"
    owner = os if call == "open" else Path
    monkeypatch.setattr(owner, call, fails)
    with pytest.raises(OSError, match=re.escape(str(error))):
        _files.write(file, b"payload")
    monkeypatch.undo()
    assert _files.read(file) is None
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


@pytest.mark.ci
@posix
@pytest.mark.compiled
def test_a_full_disk_is_no_obstacle(two_homes):
    """Files end at 1000 bytes here: a write that fails in the middle."""
    limit = "import resource, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    limit += (
        "sys.dont_write_bytecode = True\n"  # Python itself would leave half a .pyc file, and stumble over it next time
    )
    assert run(limit + PROGRAM, two_homes) == [7.0, 0, 1]
    assert files(two_homes) == []
    assert list(two_homes.rglob("*.tmp")) == []
    assert run(PROGRAM, two_homes) == [7.0, 0, 1]
    assert run(limit + PROGRAM, two_homes) == [7.0, 1, 0]


@pytest.mark.compiled
def test_a_file_that_cannot_be_read_is_made_anew(two_homes):
    assert run(PROGRAM, two_homes) == [7.0, 0, 1]
    whole = {file: file.read_bytes() for file in files(two_homes)}
    for damage in (b"garbage", None):
        for file, content in whole.items():
            file.write_bytes(content[: len(content) // 2] if damage is None else damage)
        assert run(PROGRAM, two_homes) == [7.0, 0, 1]
    assert run(PROGRAM, two_homes) == [7.0, 1, 0]


@pytest.mark.ci
@pytest.mark.compiled
def test_a_file_under_the_name_of_another_is_not_believed(two_homes):
    """Two types of one function, exchanged: each says in full what it is."""
    both = PROGRAM.replace("step(3.0)", "step(3.0), step(3)")
    assert run(both, two_homes) == [7.0, 7.0, 0, 2]
    one, two = (file for file in files(two_homes) if file.name.startswith("_smo_jit.step"))
    first = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(first)
    assert run(both, two_homes) == [7.0, 7.0, 0, 2]
    assert run(both, two_homes) == [7.0, 7.0, 2, 0]


@pytest.mark.ci
@pytest.mark.compiled
def test_a_class_that_is_gone_is_a_miss(two_homes):
    assert run(PROGRAM, two_homes) == [7.0, 0, 1]
    for file in files(two_homes):
        file.unlink()
        _files.write(file, b"csvmcore._smo_jit\nGone\n.")
    assert run(PROGRAM, two_homes) == [7.0, 0, 1]
    assert run(PROGRAM, two_homes) == [7.0, 1, 0]


@pytest.mark.ci
@posix
@pytest.mark.compiled
def test_a_home_that_cannot_be_written_to(two_homes, tmp_path):
    """A file where the folder should be: neither root nor anybody else can write there."""
    (tmp_path / "home").write_text("")
    blocked = str(tmp_path / "home" / "user")
    for _ in range(2):
        assert run(PROGRAM, two_homes, HOME=blocked, XDG_CACHE_HOME="", NUMBA_CACHE_DIR="") == [7.0, 0, 1]


# ---- many processes --------------------------------------------------------------------------------------------------

# One of several problems with its own types, with the objective that plain Python finds for it.
MANY = """
import numpy as np, svmcore
from scipy.sparse import csr_matrix
k = {k}
rng = np.random.default_rng(0)
X = rng.standard_normal((60, 3))
y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
kernel = ["rbf", "linear", "poly", "laplacian"][k % 4]
data = [X, X.astype(np.float32), csr_matrix(np.round(X)), np.asfortranarray(X)][(k // 4 + k) % 4]
machine = svmcore.train_svc(data, y, 1.0, kernel=kernel, gamma=0.5, tol={tol}, solver="block")
print(repr(float(machine.objective)), float(machine.decision_function(data).sum()))
"""


@posix
@pytest.mark.compiled
@pytest.mark.parametrize(
    ("kinds", "tol"),
    [pytest.param([0, 0], 1e-3, marks=pytest.mark.ci), pytest.param([*range(16)] * 3, 1e-9, marks=pytest.mark.slow)],
)
def test_many_processes_start_at_once_on_an_empty_cache(tmp_path, kinds, tol):
    """Some compile the same, at the same time. The tight tolerance needs both precisions: twice as many functions."""
    programs = [MANY.format(k=k, tol=tol) for k in kinds]
    found = finish_all([start(program, ROOT, tmp_path / "cache") for program in programs])
    again = {program: finish(start(program, ROOT, tmp_path / "cache")) for program in set(programs)}
    assert found == [again[program] for program in programs]
    assert found[0] == finish(start(programs[0], ROOT, tmp_path / "alone"))
    assert list((tmp_path / "cache").rglob("*.tmp")) == []


# For each line of its input, a child that writes without end; prints the child's number.
WRITERS = """
import os, sys
from pathlib import Path
from svmcore.compiler import files as _files
for _ in sys.stdin:
    child = os.fork()
    if child:
        print(child, flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)
        continue
    for k in range(10**9):
        _files.write(Path(sys.argv[1]) / f"f-{k % 3}-0.code", bytes([k % 251]) * 3_000_000)
"""


@posix
@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_processes_that_are_killed_while_they_write_leave_no_half_file(tmp_path, count):
    rng = random.Random(0)
    interrupted = 0
    with subprocess.Popen(
        [sys.executable, "-c", WRITERS, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writers:
        assert writers.stdin is not None
        assert writers.stdout is not None
        for _ in range(count):
            print(file=writers.stdin, flush=True)
            child = int(writers.stdout.readline())
            time.sleep(0.02 + 0.03 * rng.random())
            os.kill(child, signal.SIGKILL)
            assert writers.stdout.readline() == "ended\n"
            for file in tmp_path.glob(f"*{_disk.SUFFIX}"):
                payload = _files.read(file)
                assert payload is not None
                assert payload == payload[:1] * 3_000_000
            for file in tmp_path.glob("*.tmp"):
                interrupted += _files.read(file) is None
                file.unlink()
        writers.stdin.close()
    assert interrupted  # some were killed in the middle
