"""The one format of files: what may be in one, what is refused, and that older ones are read."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from kept import file_of, parts_of
from refusals import refused

import svmcore
from svmcore._types import Kernel, KernelKind
from svmcore.models import archive

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3))
Y = np.where(X[:, 0] + 0.3 * RNG.normal(size=30) > 0, 1, -1)


def written(**fields: object) -> io.BytesIO:
    file = io.BytesIO()
    archive.write(file, fields)
    file.seek(0)
    return file


def bomb(zeros: int, packed: int = zipfile.ZIP_DEFLATED) -> io.BytesIO:
    """An archive that is small, and unpacks to so many zeros."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (zeros,)})
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packed) as out, out.open("X.npy", "w") as member:
        member.write(header.getvalue())
        piece = bytes(8 << 20)
        for _ in range(zeros >> 20):
            member.write(piece)
    file.seek(0)
    return file


def test_arrays_come_back_as_they_were():
    fields = {
        "a": np.arange(6.0).reshape(2, 3)[:, ::-1], "b": np.array("word"), "c": np.array(3), "d": np.empty((0, 4)),
        "e": np.array(["ä", "bb"]), "f": np.asfortranarray(np.arange(6).reshape(2, 3)), "g": np.array([True, False]),
        "h": np.arange(3, dtype=">i4"),
    }  # fmt: skip
    found = archive.read("it", written(**fields))
    assert list(found) == list(fields)
    for name, value in fields.items():
        assert found[name].shape == value.shape
        np.testing.assert_array_equal(found[name], value)
        assert found[name].flags.writeable
        assert found[name].dtype.isnative
    with np.load(written(**fields)) as theirs:  # it is numpy's own format
        np.testing.assert_array_equal(theirs["a"], fields["a"])


def test_the_same_answer_makes_the_same_file():
    assert written(a=np.arange(5)).getvalue() == written(a=np.arange(5)).getvalue()


@pytest.mark.parametrize("packed", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_a_trap_is_refused_before_it_is_unpacked(packed):
    file = bomb(16 << 20, packed)  # 128 MB
    assert len(file.getvalue()) < 200_000
    refused("unpacks to more than 100 times its length", archive.read, "it", file)


def test_the_length_of_a_header_is_no_claim_on_memory():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out, out.open("X.npy", "w") as member:
        member.write(b"\x93NUMPY\x02\x00" + (40 << 20).to_bytes(4, "little"))
        for _ in range(40):
            member.write(b" " * (1 << 20))
    file.seek(0)
    tracemalloc.start()
    try:
        refused("X claims a header of 41,943,040 bytes", archive.read, "it", file)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_claim_is_compared_with_the_archive():
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as out:
        out.writestr("X.npy", header.getvalue() + bytes(80))
    refused("claims the shape", archive.read, "it", file)


def test_what_would_look_like_a_trap_is_stored():
    fields = {"zeros": np.zeros(12 << 20), "numbers": RNG.normal(size=10)}
    file = written(**fields)
    assert len(file.getvalue()) > 90 << 20
    np.testing.assert_array_equal(archive.read("it", file)["zeros"][::999], 0.0)


def test_small_archives_may_shrink_as_they_like():
    file = written(zeros=np.zeros(1 << 20))
    assert len(file.getvalue()) < 50_000
    assert not archive.read("it", file)["zeros"].any()


@pytest.mark.parametrize("damage", [np.array([{}], dtype=object), np.array([1j]), np.zeros(2, dtype="f8,i4")])
def test_types_that_no_file_has_are_refused(damage):
    file = io.BytesIO()
    np.savez(file, x=damage, allow_pickle=True)
    file.seek(0)
    refused(r"never unpickled|has type", archive.read, "it", file)


def test_a_flipped_bit_is_noticed():
    content = bytearray(written(a=RNG.normal(size=1000)).getvalue())
    content[2000] ^= 4
    refused("damaged", archive.read, "it", io.BytesIO(bytes(content)))


# ---- kernels by name -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KernelKind if kind is not KernelKind.CALLABLE])
def test_kernels_have_names(kind):
    kernel = Kernel(int(kind), 0.25, -1.5, 4, 0.5)
    parts = archive.read("it", written(**archive.kernel_fields(kernel)))
    assert str(parts["kernel"]) == kind.name.lower()
    assert archive.read_kernel(parts) == kernel


@pytest.mark.parametrize(
    ("number", "name"), list(enumerate(["linear", "poly", "sigmoid", "rbf", "laplacian", "precomputed"]))
)
def test_older_files_numbered_kernels(number, name):
    found = archive.read_kernel({"kernel": np.array([number, 0.25, -1.5, 4.0, 0.5])})
    assert (KernelKind(found.kind).name.lower(), *found[1:]) == (name, 0.25, -1.5, 4, 0.5)


@pytest.mark.parametrize(
    "damage",
    [
        {"kernel": np.array("callable")}, {"kernel": np.array("rbg")}, {"kernel_degree": np.array(-1)},
        {"kernel_gamma": np.array(np.nan)}, {"kernel_offset": np.array(-1.0)}, {"kernel": np.array([6.0, 1, 1, 1, 1])},
        {"kernel": np.array(["rbf", "rbf"])},
    ],
)  # fmt: skip
def test_kernels_that_there_are_not(damage):
    parts = archive.kernel_fields(Kernel(int(KernelKind.RBF), 1.0, 0.0, 3, 0.0)) | damage
    with pytest.raises(ValueError, match=r"it names|ambiguous|unpack|only"):
        archive.read_kernel(parts)


def as_it_was(parts: dict[str, np.ndarray], version: str, name: bool = False) -> dict[str, np.ndarray]:
    """The arrays of a file under the name of an older format, with numbers for kernels."""
    old = dict(parts)
    for key in [key for key in parts if key.endswith("kernel")]:
        kernel = archive.read_kernel({f.removeprefix(key[:-6]): v for f, v in parts.items() if f.startswith(key)})
        for field in ("gamma", "coef0", "degree", "offset"):
            del old[f"{key}_{field}"]
        if name:
            old[f"{key}_name"] = parts[key]
        old[key] = np.array([float(value) for value in kernel])
    return {**old, "format": np.array(version)}


@pytest.mark.parametrize(
    ("made", "version", "name"),
    [
        (lambda: svmcore.train_svc(X, Y, kernel="poly", coef0=1.0), "svmcore-solution-2", False),
        (lambda: svmcore.train_classes(X, Y + (X[:, 1] > 0), kernel="laplacian"), "svmcore-classes-1", False),
        (lambda: svmcore.svm_path(X, Y, C_max=10.0), "svmcore-path-2", True),
        (lambda: svmcore.quantile_path(X, X[:, 0], C_max=10.0), "svmcore-path-3", True),
        (lambda: svmcore.cv_path(X, Y, C_max=10.0, cv=2), "svmcore-cv-2", True),
    ],
    ids=["solution", "classes", "path", "form", "cv"],
)
def test_files_of_older_versions_are_read(made, version, name):
    found = made()
    parts = archive.read("it", file_of(found))
    again = svmcore.load(written(**as_it_was(parts, version, name)))
    if version.startswith("svmcore-cv"):
        np.testing.assert_array_equal(again.decision_scores(2.0), found.decision_scores(2.0))
        return
    at = (2.0,) if version.startswith("svmcore-path") else ()
    np.testing.assert_array_equal(again.decision_function(X, *at), found.decision_function(X, *at))


def test_files_of_newer_versions_say_so(tmp_path: Path):
    np.savez(tmp_path / "m.npz", format=np.array("svmcore-solution-99"))
    refused("written by a newer one", svmcore.load, tmp_path / "m.npz")


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_processes_are_kept_in_files(solver, tmp_path):
    gp = svmcore.gp_regression(X, 3.0 * X[:, 0] + 5.0, noise=0.1, solver=solver, standardize=True, normalize_y=True)
    gp.save(tmp_path / "gp.npz")
    again = svmcore.load(tmp_path / "gp.npz")
    assert repr(again) == repr(gp)
    for mine, theirs in zip(
        again.predict(X[:5] + 0.1, return_std=True), gp.predict(X[:5] + 0.1, return_std=True), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)
    parts = parts_of(tmp_path / "gp.npz")
    for damage in ({"alpha": np.zeros(3)}, {"solver": np.array("guess")}, {"noise": np.array(-1.0)}):
        refused("is damaged", svmcore.load, written(**{**parts, **damage}))


class _Stop(Exception):
    pass


@pytest.mark.skipif(os.name != "posix", reason="links and permissions as POSIX has them")
@pytest.mark.parametrize("kind", ["npz", "libsvm"])
def test_a_machine_is_saved_whole_or_not_at_all(kind, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    machine = svmcore.train_svc(X, X[:, 0] > 0, C=1.0, gamma=0.5)
    target, link = tmp_path / "real.npz", tmp_path / "link.npz"
    machine.save(target, format=kind)
    target.chmod(0o600)
    link.symlink_to(target)
    before = target.read_bytes()

    def half(stream, *_):
        stream.write(b"half of it")
        raise _Stop

    with monkeypatch.context() as patched:
        if kind == "npz":
            patched.setattr("svmcore.models.archive._write", half)
        else:
            patched.setattr("svmcore.models.libsvm._lines", lambda *_: (_ for _ in (1,) if half(io.BytesIO())))
        with pytest.raises(_Stop):
            machine.save(link, format=kind)
    assert target.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link.npz", "real.npz"]  # no draft is left
    svmcore.train_svc(X, X[:, 1] > 0, C=1.0, gamma=0.5).save(link, format=kind)
    assert link.is_symlink()
    assert target.read_bytes() != before
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError, match=r"nowhere/m\.npz"):
        machine.save(tmp_path / "nowhere" / "m.npz", format=kind)
