"""Build the wheel `svmcore-compiled`: machine code for the svmcore, numba and Python that run this script.

    python tools/compiled_wheel.py --out dist             for every level of processor that this one can run
    python tools/compiled_wheel.py --processor x86-64-v3  for this one only
    python tools/compiled_wheel.py --bundle FILE          of bundles that are there already

`pip install "svmcore[fast-start]"` brings the wheel along. Where it fits, nothing is compiled; where it does not, svmcore
compiles as ever. So it is pinned to one svmcore, one numba and one Python, and a release builds one for each system.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from svmcore import __version__  # noqa: E402  (of this checkout)
from svmcore.compiler.bundle import PACKAGE, PROCESSORS, SUFFIX, missing  # noqa: E402

BUILD = "import sys, svmcore; svmcore.warmup(jobs=int(sys.argv[1]), bundle=sys.argv[2], processor=sys.argv[3])"
METADATA = """Metadata-Version: 2.1
Name: svmcore-compiled
Version: {version}
Summary: Machine code of svmcore, so that a first call need not compile
License: BSD-3-Clause
Requires-Python: {python}
Requires-Dist: svmcore=={version}
Requires-Dist: numba=={numba}
Requires-Dist: llvmlite=={llvmlite}

Machine code for {names}, loaded by svmcore where it fits. It has no functions of its own.
"""
WHEEL = """Wheel-Version: 1.0
Generator: tools/compiled_wheel.py
Root-Is-Purelib: false
Tag: {tag}
"""


def platform_tag() -> str:
    """The system, as the names of wheels say it: numba's own wheels need a newer C library than this one promises."""
    name = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return name.replace("linux_", "manylinux2014_", 1) if name.startswith("linux_") else name


def within_reach() -> list[str]:
    """The levels that this processor can run."""
    import llvmlite.binding

    machine = llvmlite.binding.get_process_triple().partition("-")[0].replace("arm64", "aarch64")
    return [name for name, p in PROCESSORS.items() if p.machine == machine and not missing(p.features)]


def build(processor: str, folder: Path, jobs: int) -> Path:
    """A bundle for a level of processors, from nothing: an empty cache."""
    file = folder / f"{processor}{SUFFIX}"
    with tempfile.TemporaryDirectory() as cache:
        settings = {**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", BUILD, str(jobs), str(file), processor], env=settings, check=True)
    return file


def wheel(bundles: list[Path], out: Path, platform: str) -> Path:
    """A wheel of bundles; the same ones give the same file."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    tag = f"{python}-{python}-{platform}"
    information = f"{PACKAGE}-{__version__}.dist-info"
    names = ", ".join(bundle.stem for bundle in bundles)
    metadata = METADATA.format(
        version=__version__,
        python=f"=={sys.version_info.major}.{sys.version_info.minor}.*",
        numba=version("numba"),
        llvmlite=version("llvmlite"),
        names=names,
    )
    files = {f"{PACKAGE}/__init__.py": b'"""Machine code of svmcore; svmcore loads it where it fits."""\n'}
    files |= {f"{PACKAGE}/{bundle.name}": bundle.read_bytes() for bundle in bundles}
    files |= {
        f"{information}/METADATA": metadata.encode(),
        f"{information}/WHEEL": WHEEL.format(tag=tag).encode(),
        f"{information}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items())
    files[f"{information}/RECORD"] = f"{record}{information}/RECORD,,\n".encode()
    out.mkdir(parents=True, exist_ok=True)
    target = out / f"{PACKAGE}-{__version__}-{tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return target


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def main() -> None:
    """Build it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder of the wheel (dist)")
    parser.add_argument("--processor", action="append", choices=PROCESSORS, help="a level; all that can be run here")
    parser.add_argument("--bundle", action="append", type=Path, help="a bundle that is there already")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that share the work")
    parser.add_argument("--platform", default=platform_tag(), help="of the wheel's name")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        levels = options.processor or within_reach()
        bundles = options.bundle or [build(level, Path(folder), options.jobs) for level in levels]
        if not bundles:
            sys.exit(f"this processor is of no level that machine code is shipped for: {', '.join(PROCESSORS)}")
        print(wheel(bundles, options.out, options.platform))


if __name__ == "__main__":
    main()
