"""The rules of the house (docs/architecture.md), read from the syntax trees of the sources.

A rule takes the parsed files of a checkout and yields its offences, as sentences. Each one is held against the
project, and against files made to break it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]

# What compiles, and keeps what was compiled: numba's own business stays in these files and the homes.
MACHINERY = {"_jit", "_roots", "_records", "_disk", "_bundle", "_files"}

# The compiled homes, and what each may import from the package.
BASE = {"_jit", "_types"}
HOMES = {
    "_lanes": BASE,
    "_vector": BASE | {"_lanes"},
    "_passes": BASE | {"_vector", "_lanes"},
    "_kernels": BASE | {"_vector"},
    "_smo_jit": BASE | {"_vector", "_kernels"},
    "_elbow_jit": BASE | {"_vector"},
    "_path_jit": BASE | {"_elbow_jit", "_vector"},
    "_qr_jit": BASE,
    "_published_jit": BASE | {"_elbow_jit", "_vector"},
    "_curve_jit": BASE,
    "_window_jit": BASE | {"_elbow_jit", "_vector"},
    "_stretch_jit": BASE | {"_elbow_jit", "_path_jit", "_window_jit", "_vector"},
    "_ipm_jit": BASE | {"_vector", "_kernels"},
    "_block_jit": BASE | {"_vector", "_passes"},
    "_steps_jit": BASE,
    "_active_jit": BASE | {"_steps_jit"},
    "_npa_jit": BASE | {"_steps_jit"},
    "_chunk_jit": BASE | {"_steps_jit"},
}

# Arrows point down: at import, no module loads one of a higher layer. Modules that are not listed are free to.
LAYERS = [
    {"_files"},
    {"_bundle"},
    {"_disk", "_records"},
    {"_roots"},
    {"_errors", *BASE},
    {"_lanes"},
    {"_vector"},
    {"_passes"},
    {"_kernels"},
    {"_steps_jit", "_elbow_jit", "_curve_jit"},
    {
        "_smo_jit",
        "_path_jit",
        "_ipm_jit",
        "_active_jit",
        "_npa_jit",
        "_chunk_jit",
        "_block_jit",
        "_window_jit",
        "_published_jit",
    },
    {"_stretch_jit"},
    {"tiles", "gram", "_measures"},
    {"solvers", "forms", "certify", "_check", "parallel", "_highs", "data"},
    {"path_result", "solve", "gp"},
    {"_path_data", "_path_measure"},
    {"_path_start"},
    {"path"},
    {"cv"},
    {"plots"},
    {"estimators", "plots_cv"},
    {"cli"},
    {"__main__"},
]

FORBIDDEN_TO_SOLVERS = {"solvers", "forms", "_check", "solve", "certify"}
SHARED_BY_SOLVERS = "solvers._"  # private files of that folder are no solvers
OPTIONAL = ["sklearn", "matplotlib", "dask", "distributed", "joblib", "rich"]
COMPILERS = {"jit", "njit", "vectorize", "guvectorize", "jitclass", "cfunc", "stencil", "generated_jit"}
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 90
MAX_PRIVATE_PARAMETERS = 12


class Import(NamedTuple):
    """One imported name: `at_load` is False inside a function, a `TYPE_CHECKING` block does not count at all."""

    name: str
    line: int
    at_load: bool


class File(NamedTuple):
    """A parsed source; `module` is its dotted name inside the package ("solvers.smo"), or None outside of it."""

    path: str
    module: str | None
    text: str
    tree: ast.Module

    @property
    def home(self) -> bool:
        return self.module in HOMES

    @property
    def solver(self) -> bool:
        return self.module is not None and self.module.startswith("solvers.")

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))

    @property
    def imports(self) -> Iterator[Import]:
        yield from self._imports(self.tree, at_load=True)

    @property
    def internal(self) -> Iterator[Import]:
        """Imports from the package, without its name: "forms", "solvers.smo"; `svmcore` itself is ""."""
        for item in self.imports:
            if item.name.split(".")[0] == "svmcore":
                yield item._replace(name=item.name.removeprefix("svmcore").lstrip("."))

    def _imports(self, node: ast.AST, at_load: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = Path(self.path).with_suffix("").parts[:-1]
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*start, *filter(None, [node.module])])
            # `from svmcore import forms` names a module; `from svmcore.forms import x` names something inside one.
            for alias in node.names if module in ("svmcore", "svmcore.solvers") else [None]:
                yield Import(f"{module}.{alias.name}" if alias else module, node.lineno, at_load)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        types_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in [] if types_only else ast.iter_child_nodes(node):
            yield from self._imports(child, at_load and not inside)


def parse(path: str, text: str) -> File:
    parts = Path(path).with_suffix("").parts
    dotted = [part for part in parts[1:] if part != "__init__"]
    return File(path, ".".join(dotted) if parts[0] == "svmcore" else None, text, ast.parse(text))


def checkout() -> list[File]:
    folders = ["svmcore", "tests", "tools", "bench", "docs"]
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [parse(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


def package(files: list[File]) -> list[File]:
    return [file for file in files if file.module is not None]


def numba_stays_in_the_homes(files: list[File]) -> Iterator[str]:
    for file in package(files):
        for item in file.imports:
            if item.name.split(".")[0] in ("numba", "llvmlite") and not (file.home or file.module in MACHINERY):
                yield f"{file.path}:{item.line} imports {item.name}"


def the_decorator_is_defined_once(files: list[File]) -> Iterator[str]:
    for file in package(files):
        if file.module == "_jit":
            continue
        for node in ast.walk(file.tree):
            wraps = isinstance(node, ast.Attribute) and node.attr in COMPILERS
            takes = isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "numba"
            if wraps or (takes and COMPILERS & {alias.name for alias in node.names}):
                yield f"{file.path}:{node.lineno} compiles without svmcore._jit.jit"
        if any(function.name in COMPILERS for function in file.functions):
            yield f"{file.path} defines a compiling decorator"


def homes_are_listed(files: list[File]) -> Iterator[str]:
    for file in package(files):
        names = {getattr(node, "id", getattr(node, "attr", None)) for node in ast.walk(file.tree)}
        if "jit" in names and not file.home and file.module != "_jit":
            yield f"{file.path} compiles, but is not one of the homes listed in this test"


def homes_import_only_homes_below(files: list[File]) -> Iterator[str]:
    for file in package(files):
        for item in file.internal if file.home else ():
            if item.name not in HOMES[str(file.module)]:
                yield f"{file.path}:{item.line} imports {item.name or 'svmcore'}"


def solvers_know_only_the_dual(files: list[File]) -> Iterator[str]:
    for file in package(files):
        for item in file.internal if file.solver else ():
            if item.name.split(".")[0] in FORBIDDEN_TO_SOLVERS and not item.name.startswith(SHARED_BY_SOLVERS):
                yield f"{file.path}:{item.line} imports {item.name}"


def arrows_point_down(files: list[File]) -> Iterator[str]:
    rank = {name: level for level, names in enumerate(LAYERS) for name in names}
    for file in package(files):
        own = rank.get(str(file.module).split(".")[0])
        for item in file.internal:
            other = rank.get(item.name.split(".")[0])
            if item.at_load and own is not None and other is not None and other > own:
                yield f"{file.path}:{item.line} imports {item.name}, of a higher layer"


def imports_have_no_cycle(files: list[File]) -> Iterator[str]:
    modules = {file.module for file in package(files)}
    graph = {}
    for file in package(files):
        names = [item.name for item in file.internal if item.at_load]
        graph[file.module] = {name if name in modules else name.rpartition(".")[0] for name in names}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield "import cycle: " + " <- ".join(name or "svmcore" for name in error.args[1])


def heavy_packages_have_one_importer(files: list[File]) -> Iterator[str]:
    for name in OPTIONAL:
        importers = [
            file.path for file in package(files) if any(item.name.split(".")[0] == name for item in file.imports)
        ]
        if len(importers) > 1:
            yield f"{name} is imported by {', '.join(importers)}"


def highspy_is_imported_by_highs(files: list[File]) -> Iterator[str]:
    for file in package(files):
        for item in file.imports:
            if item.name.split(".")[0] == "highspy" and file.module != "_highs":
                yield f"{file.path}:{item.line} imports highspy"


def homes_and_solvers_are_silent(files: list[File]) -> Iterator[str]:
    for file in package(files):
        if not (file.home or file.solver):
            continue
        for node in ast.walk(file.tree):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Raise) or called in ("print", "warn", "warnings.warn"):
                yield f"{file.path}:{node.lineno} speaks: return a status instead"


def files_and_functions_are_short(files: list[File]) -> Iterator[str]:
    for file in files:
        if (lines := len(file.text.splitlines())) > MAX_FILE_LINES:
            yield f"{file.path} has {lines} lines"
        for function in file.functions:
            lines = (function.end_lineno or 0) - function.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{file.path}:{function.lineno} {function.name} has {lines} lines"
            arity = len([*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs])
            if arity > MAX_PRIVATE_PARAMETERS and file.module is not None and function.name.startswith("_"):
                yield f"{file.path}:{function.lineno} {function.name} has {arity} parameters"


def nothing_is_left_for_later(files: list[File]) -> Iterator[str]:
    for file in files:
        for number, line in enumerate(file.text.splitlines(), 1):
            if re.search(r"\b(TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b", line):
                yield f"{file.path}:{number} {line.strip()}"


Rule = Callable[[list[File]], Iterator[str]]

# Every rule, with files that break it.
RULES: dict[Rule, list[tuple[str, str]]] = {
    numba_stays_in_the_homes: [
        ("svmcore/forms.py", "import numba"),
        ("svmcore/solvers/smo.py", "def run():\n    from numba import prange"),
    ],
    the_decorator_is_defined_once: [
        ("svmcore/_kernels.py", "from numba import njit"),
        ("svmcore/_kernels.py", "import numba\n@numba.njit\ndef f(): pass"),
        ("svmcore/forms.py", "def jit(f): return f"),
    ],
    homes_are_listed: [("svmcore/_new.py", "from svmcore._jit import jit\n@jit(sums=True)\ndef f(): pass")],
    homes_import_only_homes_below: [
        ("svmcore/_vector.py", "from svmcore._kernels import row"),
        ("svmcore/_kernels.py", "from . import _smo_jit"),
        ("svmcore/_smo_jit.py", "from svmcore._path_jit import step"),
        ("svmcore/_path_jit.py", "import svmcore"),
    ],
    solvers_know_only_the_dual: [
        ("svmcore/solvers/smo.py", "from svmcore.solvers.block import run"),
        ("svmcore/solvers/smo.py", "from . import block"),
        ("svmcore/solvers/smo.py", "from .block import run"),
        ("svmcore/solvers/smo.py", "def run():\n    from svmcore import forms"),
        ("svmcore/solvers/smo.py", "from .. import _check"),
        ("svmcore/solvers/smo.py", "from ..certify import gap"),
    ],
    arrows_point_down: [
        ("svmcore/forms.py", "from svmcore.solve import solve"),
        ("svmcore/path.py", "import svmcore.estimators"),
        ("svmcore/solvers/__init__.py", "from svmcore import cv"),
    ],
    imports_have_no_cycle: [
        ("svmcore/parallel.py", "import svmcore.parallel"),
        ("svmcore/parallel.py", "from svmcore.parallel import run"),
    ],
    heavy_packages_have_one_importer: [("svmcore/solve.py", "def f():\n    import joblib")],
    highspy_is_imported_by_highs: [("svmcore/solvers/chunking.py", "from highspy import Highs")],
    homes_and_solvers_are_silent: [
        ("svmcore/_kernels.py", "def f():\n    raise ValueError"),
        ("svmcore/solvers/smo.py", "print(1)"),
        ("svmcore/solvers/smo.py", "import warnings\nwarnings.warn('')"),
    ],
    files_and_functions_are_short: [
        ("tests/test_long.py", "x = 1\n" * (MAX_FILE_LINES + 1)),
        ("svmcore/_smo_jit.py", "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES),
        ("svmcore/solve.py", "def _f(" + ", ".join(f"x{i}" for i in range(MAX_PRIVATE_PARAMETERS + 1)) + "): pass"),
    ],
    nothing_is_left_for_later: [("svmcore/solve.py", "# TO" + "DO")],
}


@pytest.fixture(scope="module")
def files() -> list[File]:
    return checkout()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_project_keeps_the_rule(rule, files):
    assert not list(rule(files))


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [pytest.param(rule, *bad, id=f"{rule.__name__}-{i}") for rule, bads in RULES.items() for i, bad in enumerate(bads)],
)
def test_rule_sees_an_offence(rule, path, text):
    innocent = parse("svmcore/parallel.py", "import joblib\nimport numpy")
    assert not list(rule([innocent]))
    assert list(rule([innocent, parse(path, text)]))


def test_registry_may_name_solvers_and_raise(files):
    registry = parse("svmcore/solvers/__init__.py", "from svmcore.solvers import smo\nraise KeyError")
    assert not list(solvers_know_only_the_dual([registry]))
    assert not list(homes_and_solvers_are_silent([registry]))


def test_training_loads_no_optional_package():
    program = f"import sys, svmcore; svmcore.train_svc; print(*sorted({set(OPTIONAL)} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
