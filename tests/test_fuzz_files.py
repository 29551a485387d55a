"""Damaged files of every format, read in a process with little memory: an answer or a sentence, and nothing else.

A seed is a mutation: `trial(format, seed)` repeats it. 3,000 of each format run here, 100,000 at night.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import resource
import signal
import sys
import traceback
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import sparse
from warned import quiet

import svmcore
from svmcore.cli.machines import _kind

pytestmark = [pytest.mark.once, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and limits of memory")]

COUNT, NIGHT = 500, 100_000
ROOM = (
    160 << 20
)  # bytes of address space beyond those of the test: what a small file may unpack to, and what is made of it
CPU = 10.0  # seconds for one file
RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3)).round(2)
Y = np.where(X[:, 0] > 0, 1, -1)
Z = np.zeros((2, 3))


class Format(NamedTuple):
    """Good files, and what is done with a damaged one."""

    originals: list[bytes]
    use: Callable[[bytes, str], None]
    pack: Callable[[bytes], bytes] | None = None  # damage goes inside, too


def saved(found: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    found.save(file, **options)
    return file.getvalue()


def data(end: str, rows: Any, y: Any, folder: Path) -> bytes:
    file = folder / f"good.{end}"
    svmcore.save_data(file, rows, y)
    return file.read_bytes()


def read(content: bytes, name: str) -> None:
    file = Path(name)
    file.unlink(missing_ok=True)  # to write over a file makes some systems wait for the disk
    file.write_bytes(content)
    svmcore.load_data(name)


def load(content: bytes, _: str) -> None:
    found = svmcore.load(io.BytesIO(content))
    _kind(found)
    if isinstance(found, svmcore.PathCV):
        repr(found)
    elif isinstance(found, svmcore.Path):
        found.decision_function(Z, float(np.sqrt(found.C_range[1])))
    else:
        repr(found)
        found.predict(Z)


def made(folder: Path) -> dict[str, Format]:
    three, S = Y + (X[:, 1] > 0), sparse.csr_matrix(X)
    words = np.array(["a", "b, c"])[(Y > 0).astype(int)]
    light, table = data("svm", X, Y, folder), data("csv", X, words, folder)
    archives = [data("npz", X, Y, folder), data("npz", S, Y, folder)]
    with quiet():
        machines = [
            svmcore.train_svc(X, Y, gamma=0.5), svmcore.train_svc(S, words, kernel="linear", standardize=True),
            svmcore.train_svr(X, X[:, 0], kernel="poly"), svmcore.train_classes(X, three, gamma=0.5),
            svmcore.svm_path(X, Y, gamma=0.5, C_max=10.0), svmcore.cv_path(X, Y, gamma=0.5, C_max=5.0, cv=2),
            svmcore.gp_regression(X, X[:, 0], noise=0.1),
        ]  # fmt: skip
    texts = [saved(found, format="libsvm") for found in (machines[0], machines[2], machines[3])]
    formats = {
        "svmlight": Format([light], read), "csv": Format([table], read),
        "gzip": Format([gzip.compress(table)], read, gzip.compress),
        "bzip2": Format([bz2.compress(light)], read, bz2.compress), "xz": Format([lzma.compress(light)], read, lzma.compress),
        "npz": Format(archives, read),
        "libsvm": Format(texts, load), "models": Format([saved(found) for found in machines], load),
    }  # fmt: skip
    with contextlib.suppress(svmcore.MissingExtraError):
        formats["arrow"] = Format([data(end, X, words, folder) for end in ("parquet", "feather")], read)
    return formats


# ---- damage ----------------------------------------------------------------------------------------------------------


def spoilt(rng: np.random.Generator, before: bytes) -> bytes:
    """Bits flipped, bytes cut off, given twice, left out or made up; digits made larger."""
    content = bytearray(before)
    for _ in range(int(rng.integers(1, 4))):
        if not content:
            break
        at, size = int(rng.integers(len(content))), int(rng.integers(1, 40))
        match rng.integers(6):
            case 0:
                for _ in range(int(rng.integers(1, 6))):
                    content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
            case 1:
                del content[at:]
            case 2:
                content[at:at] = content[at : at + size]
            case 3:
                del content[at : at + size]
            case 4:
                content[at : at + size] = rng.integers(0, 256, size, dtype=np.uint8).tobytes()
            case 5:
                content[at:at] = bytes(rng.choice([*b"0123456789-.:, \ne"], int(rng.integers(1, 9))).tolist())
    return bytes(content)


def repacked(rng: np.random.Generator, before: bytes) -> bytes:
    """An archive with damaged members: its check sums would notice damage from outside."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(before)) as old, zipfile.ZipFile(packed, "w") as new:
        names = old.namelist()
        chosen = set(rng.choice(names, int(rng.integers(1, 3))))
        for name in names:
            content = old.read(name)
            new.writestr(name, spoilt(rng, content) if name in chosen else content)
    return packed.getvalue()


def trial(form: Format, seed: int) -> bytes:
    """One damaged file."""
    rng = np.random.default_rng([5, seed])
    before = form.originals[seed % len(form.originals)]
    inside = rng.random() < 0.7
    if inside and before.startswith(b"PK"):
        return repacked(rng, before)
    if inside and form.pack is not None:
        unpack = {gzip.compress: gzip.decompress, bz2.compress: bz2.decompress, lzma.compress: lzma.decompress}[
            form.pack
        ]
        return form.pack(spoilt(rng, unpack(before)))
    return spoilt(rng, before)


# ---- a process of its own --------------------------------------------------------------------------------------------


class Endless(BaseException):
    """A file that is not done with in time."""


def limited(form: Format, seeds: range, name: str, out: Any) -> None:
    """What the process does: one line for every file that sets off anything but an answer or a sentence."""

    def ring(*_: Any) -> None:
        raise Endless

    signal.signal(signal.SIGVTALRM, ring)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 1 << 20
    most = pages * resource.getpagesize() + ROOM
    loaded = 0
    damaged = [(seed, trial(form, seed)) for seed in seeds]
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for seed, content in damaged:
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                form.use(content, name)
            loaded += 1
        except svmcore.SVMError:
            pass
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            out.write(f"seed {seed}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})\n")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    out.write(f"done, {loaded} loaded\n")


def in_a_child(form: Format, seeds: range, folder: Path) -> list[str]:
    """The lines of `limited`, from a process that may die."""
    report = folder / "report"
    with quiet():  # of threads, which a copy of a process does not have
        child = os.fork()
    if child == 0:
        try:
            with open(os.devnull, "w") as nothing, report.open("w") as out:
                sys.stdout = sys.stderr = nothing
                try:
                    limited(form, seeds, str(folder / "damaged"), out)
                except BaseException:
                    out.write(traceback.format_exc())
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    lines = report.read_text().splitlines()
    return lines if os.waitstatus_to_exitcode(status) == 0 else [*lines, f"died by {os.waitstatus_to_exitcode(status)}"]


@pytest.fixture(scope="module")
def formats(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    found = made(folder)
    for form in found.values():  # what is compiled, and loaded, at the first time
        for content in form.originals:
            form.use(content, str(folder / "again"))
    return found


@pytest.mark.parametrize(
    "count", [pytest.param(COUNT, id="few"), pytest.param(NIGHT, id="all", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", ["svmlight", "csv", "gzip", "bzip2", "xz", "npz", "libsvm", "models", "arrow"])
def test_damaged_files_are_answered_or_refused(name, count, formats, tmp_path):
    if name not in formats:
        pytest.skip("pyarrow is not installed")
    *wrong, last = in_a_child(formats[name], range(count), tmp_path)
    assert not wrong, "\n".join(wrong[:20])
    assert last.startswith("done")
    assert 0.001 * count < int(last.split()[1]) < 0.9 * count  # some load and many are refused
