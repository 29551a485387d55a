"""Look into a wheel and a source distribution, install the wheel, and use it.

    python -m build --outdir dist        the wheel is built from the source distribution
    python tools/check_dist.py dist

The wheel must hold the library, the benchmarks inside of it, and nothing else. The source distribution must hold what its
tests, documents and benchmarks need, and nothing that a build has made. The installed library trains, predicts, reads its
own file and runs a benchmark, away from the checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LARGEST = {".whl": 2_000_000, ".gz": 4_000_000}
NEEDED = [
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "pyproject.toml",
    "bench/published.jsonl", "docs/conf.py", "docs/index.md", "docs/gallery/plot_spirals.py", "docs/_static/svmcore.css",
    "tests/conftest.py", "tools/compiled_wheel.py",
]  # fmt: skip
REFUSED = ("__pycache__", ".npz", "docs/api/", "auto_examples", "/build/", "/dist/", ".github/", ".git/")
PROGRAM = """
import pathlib, sys, svmcore
assert pathlib.Path(svmcore.__file__).is_relative_to(sys.argv[1]), svmcore.__file__
assert svmcore.__version__ == sys.argv[2], svmcore.__version__
X, y = svmcore.load_data("demo:spirals")
machine = svmcore.train_svc(X, y, C=10.0, gamma=0.15)
machine.save("machine.npz")
assert machine.converged and (svmcore.load("machine.npz").predict(X) == machine.predict(X)).all()
"""


def sources() -> set[str]:
    """The files of the library in this checkout."""
    folder = ROOT / "svmcore"
    files = [*folder.rglob("*.py"), folder / "py.typed"]
    return {file.relative_to(ROOT).as_posix() for file in files}


def contents() -> set[str]:
    """The files of a wheel: the library, and the benchmarks inside of it."""
    benchmarks = {f"svmcore/_bench/{file.relative_to(ROOT).as_posix()}" for file in (ROOT / "bench").rglob("*.py")}
    return sources() | benchmarks


def wheel_faults(file: Path) -> list[str]:
    """What is missing in a wheel, and what should not be there."""
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
        information = f"{'-'.join(file.name.split('-')[:2])}.dist-info"
        metadata = archive.read(f"{information}/METADATA").decode()
    library = {name for name in names if not name.startswith(information)}
    about = {name.removeprefix(f"{information}/") for name in names - library}
    faults = [f"{file.name} lacks {name}" for name in sorted(contents() - library)]
    faults += [f"{file.name} holds {name}" for name in sorted(library - contents())]
    faults += [f"{file.name} lacks {name}" for name in ("entry_points.txt", "licenses/LICENSE") if name not in about]
    faults += [
        f"{file.name} names no {word}"
        for word in ("License-Expression", "Requires-Python")
        if f"{word}: " not in metadata
    ]
    return faults


def sdist_faults(file: Path) -> list[str]:
    """The same for a source distribution."""
    with tarfile.open(file) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    faults = [f"{file.name} lacks {name}" for name in sorted({*NEEDED, *sources()} - names)]
    return faults + [
        f"{file.name} holds {name}" for name in sorted(names) if any(word in f"/{name}" for word in REFUSED)
    ]


def installed(wheel: Path) -> None:
    """Install the wheel beside its dependencies, and use it from an empty folder."""
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        target, work = folder / "library", folder / "work"
        work.mkdir()
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
        subprocess.run(install, check=True)
        settings = {**os.environ, "PYTHONPATH": str(target), "SVMCORE_QUIET": "1"}
        subprocess.run([sys.executable, "-c", PROGRAM, str(target), version], cwd=work, env=settings, check=True)
        for words in (["--version"], ["bench", "solvers", "--problems", "two_spirals", "--only", "smo"]):
            subprocess.run([sys.executable, "-m", "svmcore", *words], cwd=work, env=settings, check=True)


def main(folder: Path) -> int:
    """Check all that a folder holds; the exit status."""
    wheels, archives = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(archives) != 1:
        print(f"{folder} should hold one wheel and one source distribution; it has {len(wheels)} and {len(archives)}")
        return 1
    faults = wheel_faults(wheels[0]) + sdist_faults(archives[0])
    for file in (*wheels, *archives):
        size = file.stat().st_size
        faults += [f"{file.name} has {size} bytes"] if size > LARGEST[file.suffix] else []
    print(*faults, sep="\n", end="\n" if faults else "")
    if not faults:
        installed(wheels[0])
        print(f"{wheels[0].name} and {archives[0].name} hold what they should, and work")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
