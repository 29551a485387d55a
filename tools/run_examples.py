"""Run every example: the blocks of code of README.md and of the pages in docs/, and the docstrings.

`python tools/run_examples.py [PAGE...]`. A page is one session: its blocks ```python and ```pycon run in their order, in one
namespace, in an empty folder. A ```pycon block must print what it shows (doctest's `...` stands for anything). Warnings are
errors. The gallery is run by Sphinx, the sessions of the command line by tests/test_readme.py.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import os
import pkgutil
import re
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(python|pycon)\n(.*?)^```", re.DOTALL | re.MULTILINE)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def pages() -> list[Path]:
    """README.md and what stands in docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def shown(text: str, names: dict[str, Any], page: str, line: int) -> bool:
    """Run a block with prompts; does it print what it shows?"""
    example = doctest.DocTestParser().get_doctest(text, names, page, page, line)
    example.globs = names  # the parser copies them
    return doctest.DocTestRunner(optionflags=OPTIONS).run(example, clear_globs=False).failed == 0


def page_runs(page: Path) -> tuple[int, bool]:
    """The number of blocks of a page, and whether all of them ran."""
    text = page.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for match in BLOCK.finditer(text):
        language, code = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        count += 1
        try:
            if language == "pycon":
                if not shown(code, names, page.name, line):
                    return count, False
            else:
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile("\n" * line + code, str(page), "exec"), names)
        except Exception:
            print(f"{page.name}, the block in line {line}:\n{traceback.format_exc()}")
            return count, False
    return count, True


def docstrings_run() -> tuple[int, bool]:
    """The examples in the docstrings of all modules."""
    import svmcore

    attempted = failed = 0
    for module in pkgutil.walk_packages(svmcore.__path__, "svmcore."):
        if not module.name.endswith("__main__"):
            result = doctest.testmod(importlib.import_module(module.name), optionflags=OPTIONS)
            attempted, failed = attempted + result.attempted, failed + result.failed
    result = doctest.testmod(svmcore, optionflags=OPTIONS)
    return attempted + result.attempted, failed + result.failed == 0


def main(words: list[str]) -> int:
    """Run the named pages, or all of them and the docstrings; the exit status."""
    os.environ.setdefault("MPLBACKEND", "agg")
    os.environ.setdefault("SVMCORE_QUIET", "1")
    sys.path.insert(0, str(ROOT))
    warnings.simplefilter("error")
    wanted = [Path(word).resolve() for word in words] or pages()
    bad = []
    home = os.getcwd()
    for page in wanted:
        started = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            count, good = page_runs(page)
            os.chdir(home)
        print(f"{'ok  ' if good else 'FAIL'} {page.name}: {count} blocks, {time.process_time() - started:.1f} s")
        bad += [] if good else [page.name]
    if not words:
        count, good = docstrings_run()
        print(f"{'ok  ' if good else 'FAIL'} docstrings: {count} lines")
        bad += [] if good else ["docstrings"]
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
