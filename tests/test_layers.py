"""The rules of the house (docs/architecture.md), read from the syntax trees of the sources.

A rule takes the parsed files of a checkout and yields its offences, as sentences. Each one is held against the
project, and against files made to break it.
"""

from __future__ import annotations

import ast
import itertools
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest
from checkouts import ran

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]

# What compiles, and keeps what was compiled: numba's own business stays in these files and the homes.
MACHINERY = {
    "compiler.jit",
    "compiler.fast",
    "compiler.roots",
    "compiler.lower",
    "compiler.quick",
    "compiler.records",
    "compiler.disk",
    "compiler.bundle",
    "compiler.files",
}

# The compiled homes, and what each may import from the package. pyproject.toml names the same ones.
BASE = {"compiler.jit", "_types"}
STEPS = BASE | {"solvers._steps_jit", "simd.sums"}
PAIRS = STEPS | {"solvers._pairs_jit"}
LINES = BASE | {"simd.vector", "simd.passes", "simd.line", "solvers._block_jit"}
ELBOW = BASE | {"path.elbow_jit", "path.log_jit", "simd.sums", "simd.vector"}
HOMES = {
    "simd.lanes": BASE,
    "simd.sums": BASE,
    "simd.vector": BASE | {"simd.lanes"},
    "simd.rows": BASE | {"simd.lanes"},
    "simd.passes": BASE | {"simd.vector", "simd.lanes"},
    "simd.loops": BASE | {"simd.vector", "simd.packing"},
    "simd.packing": BASE | {"simd.vector", "simd.lanes"},
    "simd.sparse": BASE | {"simd.vector", "simd.lanes"},
    "simd.line": BASE | {"simd.vector", "simd.lanes"},
    "_kernels": BASE | {"simd.sums", "simd.vector"},
    "_smo_jit": STEPS | {"simd.vector", "_kernels"},
    "_path_jit": ELBOW,
    "solvers._steps_jit": BASE,
    "solvers._pairs_jit": STEPS,
    "solvers._sweeps_jit": STEPS,
    "solvers._projection_jit": STEPS,
    "solvers._active_jit": STEPS,
    "solvers._npa_jit": STEPS,
    "solvers._chunk_jit": PAIRS,
    "solvers._newton_jit": BASE | {"simd.sums", "solvers._ipm_jit"},
    "solvers._coordinate_jit": BASE | {"simd.lanes", "simd.rows", "solvers._newton_jit"},
    "solvers._lasso_jit": BASE | {"solvers._coordinate_jit"},
    "solvers._ipm_jit": BASE | {"simd.sums", "simd.vector", "_kernels"},
    "solvers._block_jit": BASE | {"simd.vector", "simd.passes", "simd.line"},
    "solvers._ends_jit": BASE | {"simd.vector"},
    "solvers._small_jit": LINES | {"simd.loops", "simd.packing", "solvers._ends_jit", "solvers._crowd_sets_jit"},
    "solvers._shares_jit": LINES | {"solvers._ends_jit", "solvers._small_jit"},
    "solvers._crowd_sets_jit": BASE | {"simd.vector", "simd.sums", "simd.loops"},
    "solvers._crowd_pairs_jit": BASE | {"simd.vector", "simd.passes", "solvers._crowd_sets_jit", "solvers._ends_jit"},
    "solvers._crowd_forms_jit": BASE | {"_kernels", "solvers._crowd_sets_jit", "solvers._crowd_pairs_jit"},
    "solvers._crowd_jit": BASE
    | {"simd.vector", "simd.passes", "solvers._crowd_forms_jit", "solvers._crowd_sets_jit", "solvers._crowd_pairs_jit"},
    "solvers._near_jit": LINES | {"simd.loops", "simd.packing", "solvers._ends_jit"},
    "cv.trials_jit": BASE,
    "path.elbow_jit": BASE | {"simd.sums", "simd.vector"},
    "path.log_jit": BASE,
    "path.qr_jit": BASE,
    "path.curve_jit": BASE | {"simd.loops", "simd.sums"},
    "path.middle_jit": BASE,
    "path.published_jit": ELBOW,
    "path.products_jit": BASE | {"simd.vector", "simd.sums"},
    "path.window_jit": ELBOW | {"path.products_jit"},
    "path.crash_jit": ELBOW | {"_path_jit"},
    "path.opening_jit": ELBOW | {"path.products_jit", "path.window_jit"},
    "path.stretch_jit": ELBOW | {"_path_jit", "path.products_jit", "path.window_jit", "path.opening_jit"},
}

# Arrows point down: no module imports one of a higher layer. Every module is in a layer, by its own name, by its folder's,
# or as a home. Inside a layer arrows may go anywhere, as long as they do not close a ring.
LAYERS: dict[str, set[str]] = {
    "the compiler": {"compiler"},
    "words that all speak": {"_errors", "_types", "base"},
    "vector instructions": {"simd"},
    "kernel values, compiled": {"_kernels"},
    "compiled loops": {
        name for name in HOMES if name.startswith(("solvers.", "path.", "cv.")) or name in ("_smo_jit", "_path_jit")
    },
    "kernel values": {"kernel"},
    "the problem": {"problem", "_control", "_keywords", "base.parallel"},
    "solvers": {"solvers"},
    "answers": {"models"},
    "training": {"train"},
    "on top of training": {"train.certificates", "models.incremental", "models.leave_out"},
    "the path": {"path"},
    "several classes": {
        "train.ballot",
        "train.between",
        "train.classes",
        "train.machines",
        "train.heads",
        "train.many",
    },
    "model selection": {"cv", "trials"},
    "scikit-learn's interface": {"estimators"},
    "pictures": {"plots"},
    "files of data": {"data"},
    "beyond one machine": {"distributed"},
    "files of answers": {"models.files", "models.libsvm", "models.audit"},
    "what people touch": {"compiler.warm", "cli", "", "__main__"},
}

# The arrows that point up: methods that hand their work to a room above, when they are called.
DOORS = {
    ("models.solution", "models.incremental"),  # Solution.add and remove
    ("models.solution", "models.libsvm"),  # save(format="models.libsvm")
    ("train.machines", "models.libsvm"),
    ("models.solution", "plots.machine"),  # Solution.plot
    ("path.result", "plots.paths"),  # Path.plot
    ("cv.result", "plots.cv"),  # PathCV.plot
    ("cv.calibration", "plots.cv"),
    ("trials.permutations", "plots.null"),  # PermutationTest.plot
    ("trials.spheres", "plots.null"),  # Searchlight.plot
}

# Names with an underscore that another room uses all the same: what paths and cross-validations keep for pictures and folds.
FRIENDS = {
    "_data", "_decision", "_mean", "_means", "_places", "_problem", "_range", "_score", "_study", "_track", "_values",
}  # fmt: skip

FORBIDDEN_TO_SOLVERS = {"solvers", "problem", "train"}
MEASURES = "problem.measures"  # which solvers share with certificates
SHARED_BY_SOLVERS = "solvers._"  # private files of that folder are no solvers
FOLDERS = {"svmcore", *(f"svmcore.{path.parent.name}" for path in (ROOT / "svmcore").glob("*/__init__.py"))}
OPTIONAL = ["sklearn", "matplotlib", "dask", "distributed", "pyarrow", "joblib", "rich"]
COMPILERS = {"jit", "njit", "vectorize", "guvectorize", "jitclass", "cfunc", "stencil", "generated_jit"}
# Keywords whose values are tolerances that have a name already: theirs.
NAMED_BY_KEYWORD = {"tol", "default"}
MAX_FILE_LINES, MAX_TEST_FILE_LINES = 500, 660  # of the library, and of what is around it
MAX_FUNCTION_LINES = 60  # of code: parameters and docstrings are as long as they must be
MAX_PRIVATE_PARAMETERS = 12


class Import(NamedTuple):
    """One imported name: `at_load` is False inside a function, a `TYPE_CHECKING` block does not count at all."""

    name: str
    line: int
    at_load: bool


@dataclass(frozen=True)
class File:
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

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        return (node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))

    @cached_property
    def imports(self) -> list[Import]:
        return list(self._imports(self.tree, at_load=True))

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
            for alias in node.names if module in FOLDERS else [None]:
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
        if file.module == "compiler.jit":
            continue
        for node in file.nodes:
            wraps = isinstance(node, ast.Attribute) and node.attr in COMPILERS
            takes = isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "numba"
            if wraps or (takes and COMPILERS & {alias.name for alias in node.names}):
                yield f"{file.path}:{node.lineno} compiles without svmcore.compiler.jit.jit"
        if any(function.name in COMPILERS for function in file.functions):
            yield f"{file.path} defines a compiling decorator"


def underscored(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def room(file: File) -> str:
    return file.path.rpartition("/")[0]


def defined(file: File) -> Iterator[str]:
    """The names that a file gives: of functions, classes, variables and attributes."""
    for node in file.nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def an_underscore_is_private_to_its_room(files: list[File]) -> Iterator[str]:
    """Rooms are folders. Names of numba and others, which no room gives, are no business of this rule."""
    modules = {file.module for file in files}
    rooms: dict[str, set[str]] = {}
    for file in package(files):
        for name in filter(underscored, defined(file)):
            rooms.setdefault(name, set()).add(room(file))
    for file in package(files):
        for node in file.nodes:
            used = [node.attr] if isinstance(node, ast.Attribute) and file.module not in MACHINERY else []  # numba's
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("svmcore."):
                inside = str(node.module).partition(".")[2]
                used = [alias.name for alias in node.names if f"{inside}.{alias.name}" not in modules]
            for name in used:
                if underscored(name) and name not in FRIENDS and room(file) not in rooms.get(name, {room(file)}):
                    yield f"{file.path}:{node.lineno} uses {name}, which is private to {', '.join(sorted(rooms[name]))}"


def homes_are_listed(files: list[File]) -> Iterator[str]:
    for file in package(files):
        names = {getattr(node, "id", getattr(node, "attr", None)) for node in file.nodes}
        if "jit" in names and not file.home and file.module != "compiler.jit":
            yield f"{file.path} compiles, but is not one of the homes listed in this test"


def homes_import_only_homes_below(files: list[File]) -> Iterator[str]:
    for file in package(files):
        for item in file.internal if file.home else ():
            if item.name not in HOMES[str(file.module)]:
                yield f"{file.path}:{item.line} imports {item.name or 'svmcore'}"


def solvers_know_only_the_dual(files: list[File]) -> Iterator[str]:
    for file in package(files):
        for item in file.internal if file.solver else ():
            shared = item.name.startswith(SHARED_BY_SOLVERS) or item.name == MEASURES
            if item.name.split(".")[0] in FORBIDDEN_TO_SOLVERS and not shared:
                yield f"{file.path}:{item.line} imports {item.name}"


def layer_of(module: str) -> int | None:
    """The layer of a module, by its own name or by its folder's."""
    names = [module, module.rpartition(".")[0]] if "." in module else [module]
    return next((level for name in names for level, members in enumerate(LAYERS.values()) if name in members), None)


def every_module_has_a_layer(files: list[File]) -> Iterator[str]:
    for file in package(files):
        if layer_of(str(file.module)) is None:
            yield f"{file.path} is in no layer"


def arrows_point_down(files: list[File]) -> Iterator[str]:
    for file in package(files):
        own = layer_of(str(file.module))
        for item in file.internal if file.module else ():
            other = layer_of(item.name)
            door = not item.at_load and (file.module, item.name) in DOORS
            if item.name and own is not None and other is not None and other > own and not door:
                yield f"{file.path}:{item.line} imports {item.name}, of a higher layer"


def imports_have_no_cycle(files: list[File]) -> Iterator[str]:
    modules = {file.module for file in package(files)}
    graph = {}
    for file in package(files):
        names = [item.name for item in file.internal if item.at_load]
        near = {name if name in modules else name.rpartition(".")[0] for name in names}
        graph[file.module] = near - {
            str(file.module).rpartition(".")[0]
        }  # a module of a folder is no user of the folder
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
            if item.name.split(".")[0] == "highspy" and file.module != "base.highs":
                yield f"{file.path}:{item.line} imports highspy"


def homes_and_solvers_are_silent(files: list[File]) -> Iterator[str]:
    for file in package(files):
        if not (file.home or file.solver):
            continue
        for node in file.nodes:
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Raise) or called in ("print", "warn", "warnings.warn"):
                yield f"{file.path}:{node.lineno} speaks: return a status instead"


def warnings_have_one_voice(files: list[File]) -> Iterator[str]:
    for file in package(files):
        for node in file.nodes:
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn" and file.module != "_errors":
                yield f"{file.path}:{node.lineno} warns: `_errors.warn` finds the caller's line"


def files_and_functions_are_short(files: list[File]) -> Iterator[str]:
    for file in files:
        most = MAX_FILE_LINES if str(file.path).startswith("svmcore/") else MAX_TEST_FILE_LINES
        if (lines := len(file.text.splitlines())) > most:
            yield f"{file.path} has {lines} lines"
        for function in file.functions:
            said = ast.get_docstring(function, clean=False) is not None and len(function.body) > 1
            lines = (function.end_lineno or 0) - function.body[said].lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{file.path}:{function.lineno} {function.name} has {lines} lines of code"
            arity = len([*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs])
            if arity > MAX_PRIVATE_PARAMETERS and file.module is not None and function.name.startswith("_"):
                yield f"{file.path}:{function.lineno} {function.name} has {arity} parameters"


def a_class_name_has_one_meaning(files: list[File]) -> Iterator[str]:
    """No two classes of the package have one name, in whatever rooms they are, with or without an underscore."""
    first: dict[str, str] = {}
    for file in package(files):
        for node in file.nodes:
            if isinstance(node, ast.ClassDef):
                name = node.name.lstrip("_")
                if name in first:
                    yield f"{file.path}:{node.lineno} {node.name} is the name of a class in {first[name]}"
                first[name] = file.path


def small_numbers(node: ast.AST) -> Iterator[ast.Constant]:
    """The numbers below 1e-3 in a piece of code, but for those that a keyword names."""
    if isinstance(node, ast.Constant) and isinstance(node.value, float) and 0.0 < abs(node.value) < 1e-3:
        yield node
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, ast.keyword) and child.arg in NAMED_BY_KEYWORD
        yield from () if named else small_numbers(child)


def tolerances_have_names(files: list[File]) -> Iterator[str]:
    """A small number inside of a function is a tolerance without a name."""
    for file in package(files):
        for line in sorted(
            {number.lineno for f in file.functions for part in f.body for number in small_numbers(part)}
        ):
            yield f"{file.path}:{line} has a number below 1e-3 without a name"


def tolerances_are_explained(files: list[File]) -> Iterator[str]:
    """A small number with a name has a sentence: a comment behind or above it, or a text below."""
    for file in package(files):
        lines = file.text.splitlines()
        for node, after in zip(file.tree.body, [*file.tree.body[1:], None], strict=True):
            if not isinstance(node, ast.Assign | ast.AnnAssign) or not any(small_numbers(node)):
                continue
            text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            block = itertools.takewhile(str.strip, reversed(lines[: node.lineno - 1]))
            comments = "#" in lines[node.end_lineno - 1] or any(line.startswith("#") for line in block)
            if not (text or comments):
                yield f"{file.path}:{node.lineno} has a tolerance without a sentence"


def nothing_is_left_for_later(files: list[File]) -> Iterator[str]:
    for file in files:
        for number, line in enumerate(file.text.splitlines(), 1):
            if re.search(r"\b(TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b", line):
                yield f"{file.path}:{number} {line.strip()}"


Rule = Callable[[list[File]], Iterator[str]]

# Every rule, with files that break it.
RULES: dict[Rule, list[tuple[str, str]]] = {
    numba_stays_in_the_homes: [
        ("svmcore/problem/formulations.py", "import numba"),
        ("svmcore/solvers/smo.py", "def run():\n    from numba import prange"),
    ],
    the_decorator_is_defined_once: [
        ("svmcore/_kernels.py", "from numba import njit"),
        ("svmcore/_kernels.py", "import numba\n@numba.njit\ndef f(): pass"),
        ("svmcore/problem/formulations.py", "def jit(f): return f"),
    ],
    an_underscore_is_private_to_its_room: [
        ("svmcore/cv/new.py", "from svmcore.base.parallel import _own"),
        ("svmcore/cv/new.py", "def f(path): return path._own"),
    ],
    homes_are_listed: [("svmcore/_new.py", "from svmcore.compiler.jit import jit\n@jit(sums=True)\ndef f(): pass")],
    homes_import_only_homes_below: [
        ("svmcore/simd/vector.py", "from svmcore._kernels import row"),
        ("svmcore/_kernels.py", "from . import _smo_jit"),
        ("svmcore/_smo_jit.py", "from svmcore._path_jit import step"),
        ("svmcore/_path_jit.py", "import svmcore"),
        ("svmcore/path/elbow_jit.py", "from svmcore.path import window_jit"),
    ],
    solvers_know_only_the_dual: [
        ("svmcore/solvers/smo.py", "from svmcore.solvers.block import run"),
        ("svmcore/solvers/smo.py", "from . import block"),
        ("svmcore/solvers/smo.py", "from .block import run"),
        ("svmcore/solvers/smo.py", "def run():\n    from svmcore.problem import formulations"),
        ("svmcore/solvers/smo.py", "from ..problem import border"),
        ("svmcore/solvers/smo.py", "from ..problem.certify import gap"),
    ],
    every_module_has_a_layer: [("svmcore/_new.py", ""), ("svmcore/new/_room.py", "")],
    arrows_point_down: [
        ("svmcore/problem/formulations.py", "from svmcore.train.solve import solve"),
        ("svmcore/path/driver.py", "import svmcore.cv"),
        ("svmcore/solvers/__init__.py", "from svmcore import cv"),
        ("svmcore/kernel/tiles.py", "def f():\n    from svmcore.solvers import block"),
        ("svmcore/models/solution.py", "from svmcore.models import incremental"),
    ],
    imports_have_no_cycle: [
        ("svmcore/base/parallel.py", "import svmcore.base.parallel"),
        ("svmcore/base/parallel.py", "from svmcore.base.parallel import run"),
    ],
    heavy_packages_have_one_importer: [("svmcore/train/solve.py", "def f():\n    import joblib")],
    highspy_is_imported_by_highs: [("svmcore/solvers/chunking.py", "from highspy import Highs")],
    homes_and_solvers_are_silent: [
        ("svmcore/_kernels.py", "def f():\n    raise ValueError"),
        ("svmcore/solvers/smo.py", "print(1)"),
        ("svmcore/solvers/smo.py", "import warnings\nwarnings.warn('')"),
    ],
    warnings_have_one_voice: [("svmcore/train/solve.py", "import warnings\nwarnings.warn('')")],
    files_and_functions_are_short: [
        ("tests/test_long.py", "x = 1\n" * (MAX_TEST_FILE_LINES + 1)),
        ("svmcore/long.py", "x = 1\n" * (MAX_FILE_LINES + 1)),
        ("svmcore/_smo_jit.py", "def f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES + 1)),
        (
            "svmcore/train/solve.py",
            "def _f(" + ", ".join(f"x{i}" for i in range(MAX_PRIVATE_PARAMETERS + 1)) + "): pass",
        ),
    ],
    a_class_name_has_one_meaning: [
        ("svmcore/train/solve.py", "class Job: pass\nclass _Job: pass"),
        ("svmcore/train/solve.py", "def f():\n    class Innocent: pass"),
        ("svmcore/cv/_new.py", "class _Rows: pass\nclass _Rows: pass"),
    ],
    tolerances_have_names: [
        ("svmcore/train/solve.py", "def f(x): return x < 1e-9"),
        ("svmcore/train/solve.py", "def f(A): return lstsq(A, rcond=-1e-300)"),
    ],
    tolerances_are_explained: [
        ("svmcore/train/solve.py", "# of something else\n\nNEAR = 1e-9"),
        ("svmcore/train/solve.py", "NEAR: float = 0.5 * 1e-9\nFAR = 1"),
    ],
    nothing_is_left_for_later: [("svmcore/train/solve.py", "# TO" + "DO")],
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
    innocent = parse("svmcore/base/parallel.py", "import joblib\nimport numpy\nclass Innocent: _own = 1")
    assert not list(rule([innocent]))
    assert list(rule([innocent, parse(path, text)]))


def test_registry_may_name_solvers_and_raise(files):
    registry = parse("svmcore/solvers/__init__.py", "from svmcore.solvers import smo\nraise KeyError")
    assert not list(solvers_know_only_the_dual([registry]))
    assert not list(homes_and_solvers_are_silent([registry]))


def test_layers_name_only_what_exists(files):
    modules = {file.module for file in package(files)}
    named = {name for members in LAYERS.values() for name in members}
    folders = {str(module).rpartition(".")[0] for module in modules}
    assert named <= modules | folders
    assert {name for door in DOORS for name in door} <= modules
    assert set(HOMES) <= modules


def test_architecture_names_every_room(files):
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+?)(?:\.py)?`", text))
    modules = {str(file.module) for file in package(files)} - {"", "__main__"}
    rooms = {module.partition(".")[0] for module in modules}
    assert sorted(room for room in rooms if not {room, f"{room}/"} & named) == []


def named_there(word: str, classes: set[str]) -> bool:
    """Whether a word of the page's table is there: a file, a folder, a name in a file, a class, or a command's option."""
    if word.startswith("--"):
        return f'"{word}"' in (ROOT / "svmcore" / "cli" / "parser.py").read_text(encoding="utf-8")
    if word.endswith(".md"):
        return (ROOT / "docs" / word).is_file()
    base = ROOT if word.startswith("bench/") else ROOT / "svmcore"
    if word.endswith("/"):
        return (base / word).is_dir()
    module, _, name = word.partition(".")
    file = base / f"{module}.py"
    if not file.is_file():
        return word in classes
    return bool(re.search(rf"^(?:class |def )?{name}\b", file.read_text(encoding="utf-8"), re.MULTILINE))


def test_where_it_goes_is_there(files):
    """Every place that the page sends a newcomer to exists."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("## Where does it go?")[2].partition("\n## ")[0]
    words = set(re.findall(r"`([^`]+)`", table)) - {"multi_class"}
    classes = {node.name for file in package(files) for node in file.nodes if isinstance(node, ast.ClassDef)}
    assert len(words) > 50
    assert sorted(word for word in words if not named_there(word, classes)) == []
    for word in ("path/nowhere", "solve.nothing", "nowhere/", "--nothing", "no.md", "Nobody"):
        assert not named_there(word, classes)


def test_pyproject_names_the_same_homes():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    (typed,) = [row["module"] for row in settings["mypy"]["overrides"] if "svmcore._kernels" in row["module"]]
    assert sorted(typed) == sorted(f"svmcore.{home}" for home in HOMES)
    (loops,) = [glob for glob in settings["ruff"]["lint"]["per-file-ignores"] if "_kernels" in glob]
    listed = loops.removeprefix("svmcore/{").removesuffix("}.py").split(",")
    assert sorted(listed) == sorted(home.replace(".", "/") for home in HOMES)


def test_doors_are_light():
    """What is asked for loads what it needs, and no other room: one after the other in one process, each adds its own."""
    doors = {
        "pass": ("numpy", "scipy", "numba", "llvmlite"),
        "svmcore.train_svc": tuple(OPTIONAL),
        "svmcore.train_svc([[0.0], [1.0]], [0, 1])": ("svmcore.path", "svmcore.cv", "svmcore.estimators", "highspy"),
        "from svmcore import SVC": ("svmcore.path", "svmcore.cv", "highspy"),
        "SVC().fit([[0.0], [1.0], [3.0]], [0, 1, 2])": ("svmcore.path", "svmcore.cv", "highspy"),
        "svmcore.svm_path([[0.0], [1.0], [3.0]], [0, 1, 1])": (
            "highspy",
            "svmcore.path.published",
            "svmcore.path.qr_jit",
        ),
    }
    program = "import sys, svmcore; " + "".join(f"{door}; print(*sys.modules); " for door in doors)
    for rooms, line in zip(doors.values(), ran(program)[0].splitlines(), strict=True):
        assert [name for name in line.split() if name.startswith(rooms)] == []
    assert {"svmcore.compiler.jit", "svmcore.path.tracker"} <= set(line.split())
    assert "svmcore.estimators" in line.split()
