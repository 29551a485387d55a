"""Machine code in one file: loaded where it fits, from a safe place; else left alone, with one line."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path

import llvmlite
import llvmlite.binding
import pytest
from checkouts import PROGRAM, REPORT, ROOT, USE, checkout, edit, files, finish, finish_all, posix, run, start

import svmcore
from svmcore._control import Control
from svmcore.cli import main
from svmcore.compiler import bundle as _bundle
from svmcore.compiler import disk
from svmcore.compiler import files as _files

sys.path.insert(0, str(ROOT / "tools"))
import compiled_wheel

pytestmark = pytest.mark.once

PACK = "from pathlib import Path\nfrom svmcore.compiler import disk\nprint(disk.pack(Path({file!r})))\n"
WORDS = "from svmcore.compiler import bundle as _bundle\nprint(*_bundle.words(), *_bundle.words(), sep='\\n')\n"


@pytest.fixture(scope="module")
def packed_once(tmp_path_factory):
    root = checkout(tmp_path_factory.mktemp("packed"))
    *compiled, packed = run(PROGRAM + PACK.format(file=str(root / "homes.bundle")), root)
    assert (compiled, packed) == (COMPILED, len(files(root)))  # the plain way keeps the home below in a file of its own
    return root


@pytest.fixture
def packed(tmp_path, packed_once):
    """A checkout of two homes, and a bundle of its machine code."""
    shutil.copytree(packed_once, tmp_path, dirs_exist_ok=True)
    return tmp_path, tmp_path / "homes.bundle"


def use(packed, cache: str = "empty", **environment: str) -> tuple[list[float], list[str]]:
    """What the program says that uses a bundle, and what is said of the bundle."""
    root, file = packed
    settings = {"SVMCORE_BUNDLE": str(file), **environment}
    first, *lines = finish(start(PROGRAM + WORDS, root, root / cache, **settings)).splitlines()
    return [float(word) for word in first.split()], [line for line in lines if line]


def change(file: Path, target: Path | None = None, **changes: object) -> None:
    """Write a bundle with something else in it."""
    bundle = _bundle.Bundle(*pickle.loads(_files.read(file) or b""))
    _files.write(target or file, pickle.dumps(tuple(bundle._replace(**changes))))


LOADED, COMPILED = [7.0, 1, 0], [7.0, 0, 1]


@pytest.mark.compiled
def test_a_bundle_takes_the_place_of_the_compiler(packed):
    root, file = packed
    assert use(packed) == (LOADED, [])
    assert not (root / "empty").exists()  # nothing that is there already is written again
    assert use(packed, "cache") == (LOADED, [])
    assert use(packed, SVMCORE_BUNDLE=os.path.relpath(file, root)) == (LOADED, [])


@pytest.mark.ci
@pytest.mark.compiled
def test_the_users_own_files_come_first(packed):
    _, file = packed
    names = pickle.loads(_files.read(file) or b"")[2]
    change(file, codes=dict.fromkeys(names, b"nothing of use"))
    assert use(packed, "cache") == (LOADED, [])
    values, (line,) = use(packed)
    assert values == COMPILED
    assert "other sources" in line


@pytest.mark.compiled
def test_other_sources_are_compiled_with_one_line(packed):
    root, file = packed
    edit(root / "svmcore" / "_kernels.py", "2.0", "5.0")
    values, lines = use(packed)
    assert values == [16.0, 0, 1]
    assert lines == [
        f"svmcore: the machine code in {file} is not used: svmcore has other sources than those it was made from"
    ]
    edit(root / "svmcore" / "_kernels.py", "5.0", "2.0")
    assert use(packed, "another") == (LOADED, [])


TRIPLE = llvmlite.binding.get_process_triple()
UNFIT = {
    "numba": ({"compiler": f"numba 0.67.0, {disk.compiler()}"}, "another compiler made it: numba 0.67.0, "),
    "system": ({"magic": ("m68k-unknown-amigaos", "68000", "")}, "it is for m68k-unknown-amigaos"),
    "processor": ({"magic": (TRIPLE, "future", "+sse9,+fma5,-sse2")}, "this processor lacks fma5, sse9"),
}


@pytest.mark.compiled
@pytest.mark.parametrize(
    "what", [pytest.param(name, marks=() if name == "numba" else pytest.mark.ci) for name in UNFIT]
)
def test_a_bundle_for_another_place_is_not_used_and_says_why(packed, what):
    changes, why = UNFIT[what]
    change(packed[1], **changes)
    values, (line,) = use(packed, "refused")
    assert values == COMPILED
    assert line.startswith(f"svmcore: the machine code in {packed[1]} is not used: ")
    assert why in line


@pytest.mark.ci
@pytest.mark.compiled
def test_compiler_settings_are_part_of_what_must_fit(packed):
    values, (line,) = use(packed, NUMBA_BOUNDSCHECK="1")
    assert values == COMPILED
    assert "BOUNDSCHECK=1" in line
    values, (line,) = use(packed, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert values == COMPILED  # whoever asks for less than the processor can do gets it
    assert "this processor lacks" in line


def reason(file: Path) -> str:
    """Why a bundle is not used; empty where it is."""
    found = _bundle._opened(file, disk.compiler())
    return found if isinstance(found, str) else ""


@pytest.mark.ci
@pytest.mark.compiled
def test_a_bundle_that_is_damaged_missing_or_something_else(packed):
    _, file = packed
    whole = file.read_bytes()
    for content in (whole[:-1], whole[: len(whole) // 2], b"", b"PK\3\4" + whole):
        file.write_bytes(content)
        assert "it is damaged" in reason(file)
    assert use(packed)[0] == COMPILED
    for payload in (b"not what it should be", pickle.dumps(("too", "short")), b"csvmcore._bundle\nGone\n."):
        _files.write(file, payload)
        assert "it is no bundle of this version" in reason(file)
    file.unlink()
    assert "cannot be read (No such file or directory)" in reason(file)
    if hasattr(os, "mkfifo"):
        os.mkfifo(file)  # nobody waits for somebody who writes to it
        assert "cannot be read (it is no regular file)" in reason(file)
        file.unlink()
    assert use(packed, "another")[0] == COMPILED


@posix
@pytest.mark.compiled
def test_a_bundle_that_others_may_change_is_not_loaded(packed):
    root, file = packed
    for mode, folder_mode, why in [
        (0o666, 0o755, "others own it or may write to it"),
        (0o664, 0o755, "others own it or may write to it"),
        (0o644, 0o777, "others may write to its folder"),
    ]:
        file.chmod(mode)
        root.chmod(folder_mode)
        assert why in reason(file)
    root.chmod(0o1777)  # there, nobody can replace what is another's
    assert reason(file) == ""
    if os.getuid() == 0:
        os.chown(file, 4321, -1)
        assert "others own it" in reason(file)


@pytest.mark.ci
@posix
@pytest.mark.compiled
def test_the_installed_package_is_found_and_the_richest_bundle_that_fits_is_taken(packed):
    root, file = packed
    package = root / "svmcore_compiled"
    package.mkdir(mode=0o755)
    (package / "__init__.py").write_text("")
    change(file, package / "a-future.bundle", magic=(TRIPLE, "x", "+x"))
    change(file, package / "b-poor.bundle", magic=(TRIPLE, "x", ""), codes={})
    file.rename(package / "c-rich.bundle")
    which = "from svmcore.compiler import bundle, disk\nprint(*[f.name for f, _ in bundle.fitting(disk.compiler())])\n"
    program = which + PROGRAM + WORDS
    lines = finish(start(program, root, root / "empty", SVMCORE_BUNDLE="")).split()
    assert lines == ["c-rich.bundle", "b-poor.bundle", "7.0", "1", "0"]  # no word of what another one makes good


@pytest.mark.compiled
def test_who_asks_for_progress_reads_why(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(_bundle.NAMED, str(tmp_path / "none.bundle"))
    monkeypatch.setattr(_bundle, "_reasons", {})
    monkeypatch.setattr(_bundle, "_told", set())
    _bundle.fitting.cache_clear()
    assert _bundle.fitting(disk.compiler()) == []
    with Control(time_limit=None, callback=None, verbose=0):
        pass
    assert capsys.readouterr().err == ""
    for expected in (1, 0):
        with Control(time_limit=None, callback=None, verbose=1):
            pass
        assert capsys.readouterr().err.count("none.bundle is not used: it cannot be read") == expected
    _bundle.fitting.cache_clear()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"processor": "x86-64-v3"}, "processor='x86-64-v3' is about a bundle; name its file"),
        ({"bundle": "/nowhere/x.bundle"}, "there is no folder '/nowhere'"),
        ({"bundle": "x.bundle", "processor": "z80"}, "processor must be one of 'native', .*, not 'z80'"),
    ],
)
@pytest.mark.compiled
def test_wrong_arguments(arguments, message):
    with pytest.raises(svmcore.InputError, match=message):
        svmcore.warmup(**arguments)


def test_processors_are_levels():
    names = {name: _bundle.needed(processor.features) for name, processor in _bundle.PROCESSORS.items()}
    assert {"avx2", "fma"} <= names["x86-64-v3"] < names["x86-64-v4"]
    assert "avx512f" not in names["x86-64-v3"]
    assert _bundle.needed("+a,-b,+c.1") == {"a", "c.1"}


# ---- many processes --------------------------------------------------------------------------------------------------


@posix
@pytest.mark.compiled
@pytest.mark.parametrize("count", [pytest.param(3, marks=pytest.mark.ci), pytest.param(50, marks=pytest.mark.slow)])
def test_many_processes_load_one_bundle_while_it_is_written(packed, count):
    """Whoever comes early finds the old file, whoever comes late the new one, and nobody half of one."""
    root, file = packed
    packed_files = len(files(root))
    together = [start(PROGRAM, root, root / f"c{k}", SVMCORE_BUNDLE=str(file)) for k in range(count)]
    packers = [start(PROGRAM + PACK.format(file=str(file)), root) for _ in range(2)]
    assert finish_all(together + packers) == ["7.0 1 0\n"] * count + [f"7.0 1 0\n{packed_files}\n"] * 2
    assert use(packed) == (LOADED, [])
    assert [other.name for other in file.parent.glob("*.bundle*")] == [file.name]


@posix
@pytest.mark.compiled
@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.ci), pytest.param(50, marks=pytest.mark.slow)])
def test_a_process_that_is_killed_while_it_packs_leaves_the_bundle_as_it_was(packed, count):
    root, file = packed
    whole = file.read_bytes()
    rng = random.Random(0)
    pack = PACK.format(file=str(file)).splitlines()
    endless = "\n".join(["import svmcore._smo_jit", "print(flush=True)", *pack[:-1], f"while True: {pack[-1]}"])
    for _ in range(count):
        process = start(endless, root)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05 * rng.random())
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert file.read_bytes() == whole
    assert use(packed) == (LOADED, [])


@pytest.mark.ci
@posix
@pytest.mark.compiled
def test_a_full_disk_is_said_and_leaves_nothing(packed):
    root, file = packed
    file.unlink()
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    pack = PACK.format(file=str(file)).splitlines()
    attempt = limit + PROGRAM + "\n".join([*pack[:-1], f"try: {pack[-1]}", "except OSError: print('refused')"])
    assert finish(start(attempt, root)) == "7.0 1 0\nrefused\n"
    assert not list(root.glob("*.bundle*"))
    assert not list(root.glob(f"*{_files.UNFINISHED}"))


# ---- the wheel -------------------------------------------------------------------------------------------------------


def test_the_wheel_says_what_it_is_for(tmp_path):
    bundles = [tmp_path / "one.bundle", tmp_path / "two.bundle"]
    for file in bundles:
        file.write_bytes(file.name.encode() * 100)
    first, second = (
        compiled_wheel.wheel(bundles, tmp_path / place, "manylinux2014_x86_64").read_bytes() for place in "ab"
    )
    assert first == second
    (file,) = (tmp_path / "a").iterdir()
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert file.name == f"svmcore_compiled-{svmcore.__version__}-{python}-{python}-manylinux2014_x86_64.whl"
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        assert archive.read("svmcore_compiled/one.bundle") == bundles[0].read_bytes()
        metadata = archive.read(f"svmcore_compiled-{svmcore.__version__}.dist-info/METADATA").decode()
    assert f"Requires-Dist: numba=={importlib.metadata.version('numba')}\n" in metadata
    assert f"Requires-Dist: svmcore=={svmcore.__version__}\n" in metadata


# A first fit and, unless it shall be short, a first path in a process; prints what it compiled.
FIRST = """
import json, os
import numpy as np
from numba.core import event
import svmcore
from svmcore.compiler.bundle import words
record = event.RecordingListener()
event.register("numba:compile", record)
rng = np.random.default_rng(7)
X = rng.standard_normal((200, 2))
y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(200) > 0, 1, -1)
svmcore.train_svc(X, y, 1.0).predict(X[:3])
if "SHORT" not in os.environ: svmcore.svm_path(X, y, gamma=1.0, lambda_min=0.01).certify()
names = {e.data["dispatcher"].py_func.__qualname__ for _, e in record.buffer if e.is_start}
print(json.dumps([sorted(names), words(), svmcore.__file__]))
"""


def environment_of(folder: Path) -> Path:
    """A new environment that sees the packages of this one; its Python."""
    venv.create(folder, with_pip=False)
    (here,) = folder.glob("lib/python*/site-packages") if os.name == "posix" else folder.glob("Lib/site-packages")
    others = {
        str(Path(module.__file__).parents[1]) for module in (_bundle.llvmlite, _bundle.importlib.import_module("numpy"))
    }
    (here / "others.pth").write_text("\n".join(sorted(others)))
    return here


@pytest.mark.ci
def test_both_wheels_installed_in_a_new_environment(tmp_path):
    """From nothing: built, installed by pip, loaded with an empty cache; then made unfit in each way."""
    here = environment_of(tmp_path / "env")
    python = str(next(tmp_path.glob("env/bin/python"), tmp_path / "env/Scripts/python.exe"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(tmp_path / "dist"), str(ROOT)], check=True)
    build = [sys.executable, str(ROOT / "tools" / "compiled_wheel.py"), "--jobs", "2", "--out", str(tmp_path / "dist")]
    level = compiled_wheel.within_reach()[-1:]
    subprocess.run([*build, *(f"--processor={name}" for name in level)], check=True, stdout=subprocess.DEVNULL)
    wheels = [str(file) for file in (tmp_path / "dist").glob("*.whl")]
    assert len(wheels) == 2
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", str(here), *wheels], check=True)

    def first(**environment: str) -> tuple[list[str], list[str]]:
        empty = {"NUMBA_CACHE_DIR": str(tmp_path / f"cache-{time.monotonic_ns()}"), "SVMCORE_QUIET": "1", **environment}
        settings = {**{k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", _bundle.NAMED)}, **empty}
        out = subprocess.run(
            [python, "-c", FIRST], env=settings, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        names, lines, file = json.loads(out)
        assert Path(file).is_relative_to(here)
        return names, lines

    names, lines = first()
    assert (names, lines) == ([], [])

    ordinary = USE + "fit(); path(); many()" + REPORT  # nothing is left to compile
    empty = str(tmp_path / "empty")
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", _bundle.NAMED)}
    done = subprocess.run(
        [python, "-c", ordinary],
        env=environment | {"NUMBA_CACHE_DIR": empty},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("\n", "", 0)
    assert not Path(empty).exists()

    def refused(why: str, **environment: str) -> None:
        names, (line,) = first(SHORT="1", **environment)
        assert names
        assert why in line

    refused("another compiler made it", NUMBA_BOUNDSCHECK="0")
    refused("this processor lacks", NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    home = here / "svmcore" / "_types.py"
    home.write_text(home.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")
    refused("svmcore has other sources")


def test_the_command_hands_over_what_was_typed(tmp_path, monkeypatch, capsys):
    asked = []
    file = tmp_path / "x.bundle"
    file.write_bytes(b"x" * 2_100_000)
    monkeypatch.setattr("svmcore.compiler.warm.warmup", lambda *what, **options: asked.append((*what, options)))
    assert main(["warmup", "path", "--jobs", "2", "--bundle", str(file), "--processor", "x86-64-v3"]) == 0
    assert asked == [("path", {"jobs": 2, "bundle": str(file), "processor": "x86-64-v3"})]
    assert re.search(rf"^written +{re.escape(str(file))} \(2\.1 MB\)$", capsys.readouterr().out, re.MULTILINE)
    assert main(["warmup"]) == 0
    assert asked[1:] == [("all", {"jobs": 1, "bundle": None, "processor": "native"})]
