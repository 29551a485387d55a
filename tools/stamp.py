"""Keep numba's disk cache honest.

Numba recompiles a cached function when the file that holds it changes, and looks at no other file: a home that calls
into another one, or freezes its constants, would go on running machine code made from sources that are gone. So every
home (a file of the package that uses the jit decorator) carries one line

    _STAMP = "<hash of the sources of everything it imports from the package, transitively>"

and therefore changes whenever they do. Stamp lines themselves are left out of the hash, so that the order in which
files are stamped does not matter.

    python tools/stamp.py            rewrite what is stale
    python tools/stamp.py --check    name what is stale and exit with status 1
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "svmcore"
STAMP_LINE = re.compile(r'(^\n?)_STAMP = ".*"\n', re.MULTILINE)


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def is_home(path: Path) -> bool:
    """True for a file that compiles something with the package's decorator."""
    names = {getattr(node, "id", getattr(node, "attr", None)) for node in ast.walk(parse(path))}
    return path.name != "_jit.py" and "jit" in names


def homes(root: Path) -> list[Path]:
    """The homes of the package below `root`."""
    return [path for path in sorted((root / PACKAGE).rglob("*.py")) if is_home(path)]


def imported_modules(path: Path, root: Path) -> Iterator[str]:
    """Dotted names that a file imports, relative ones resolved; some are names inside a module."""
    package = path.relative_to(root).with_suffix("").parts[:-1]
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*start, *filter(None, [node.module])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def sources(path: Path, root: Path) -> set[Path]:
    """The modules of the package that a file imports, directly or not."""
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        for name in imported_modules(waiting.pop(), root):
            file = root.joinpath(*name.split(".")).with_suffix(".py")
            if name.startswith(PACKAGE + ".") and file.is_file() and file not in found:
                found.add(file)
                waiting.append(file)
    return found - {path}


def stamped(path: Path, root: Path) -> str:
    """The text of a home with the stamp it should carry; a missing line is added below the imports."""
    digest = hashlib.sha256()
    for source in sorted(sources(path, root)):
        text = STAMP_LINE.sub("", source.read_text(encoding="utf-8"))
        digest.update(f"{source.relative_to(root).as_posix()}\n{text}".encode())
    line = f'_STAMP = "{digest.hexdigest()[:12]}"\n'
    text = path.read_text(encoding="utf-8")
    if STAMP_LINE.search(text):
        return STAMP_LINE.sub(rf"\g<1>{line}", text, count=1)
    lines = text.splitlines(keepends=True)
    last = max(node.end_lineno or 0 for node in parse(path).body if isinstance(node, ast.Import | ast.ImportFrom))
    return "".join([*lines[:last], "\n", line, *lines[last:]])


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description="Rewrite, or check, the stamps of the compiled homes.")
    parser.add_argument("--check", action="store_true", help="only name the stale files; exit 1 if there are any")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1], help="the checkout")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    stale = {path: text for path in homes(root) if (text := stamped(path, root)) != path.read_text(encoding="utf-8")}
    for path, text in stale.items():
        if not options.check:
            path.write_text(text, encoding="utf-8")
        print(path.relative_to(root), "has a stale stamp: run python tools/stamp.py" if options.check else "stamped")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
