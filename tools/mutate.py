"""Break one place of a hot file at a time, and see whether a test notices.

    python tools/mutate.py                       a seeded sample over all hot files
    python tools/mutate.py --count 300 --seed 1  another, larger one
    python tools/mutate.py svmcore/auto.py       only of these files

A mutant is one change of the syntax tree: a comparison, a sum, a product or a boolean is turned round, a constant changed,
min and max are exchanged, the two sides of a condition too, a statement is removed. Hot files are the compiled homes and
the files in `HOT`. All runs are in a copy of the checkout, in plain Python, with the small hypothesis profile.

The tests run once without a change, under coverage. That says which tests run a line, and what each of them costs. It is
kept in the file `--map`, which is made anew when a source or a test has changed. A mutant is then run against the tests of
its line, the cheapest first, as many as `--seconds` allow, until the first failure. A mutant is noticed when a test fails, or
when the tests use several times the CPU seconds that they need without it: some mutants are loops without end.

Printed are the share that was noticed, and the survivors. The exit status is 1 when the share is below `--least`. A survivor
is a missing test, or a change that nothing can notice: another tolerance, another order of equal work.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import hashlib
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
HOT = """
    auto kernel/products kernel/rows path/driver path/measure path/result path/start path/tracker path/window
    problem/certify problem/formulations problem/measures solvers/_active solvers/_contract solvers/_course solvers/_face
    solvers/adatron solvers/block solvers/chunking solvers/interior solvers/npa solvers/rosen solvers/simple solvers/smo
"""
# what the tests of the hot files are about; the others train a machine to talk about something else
TESTS = """
    adatron block block_branches check choice column_store confirm contract error_curve family gp interior kernels limits
    measures npa path path_boxes path_exact path_hard path_published projection properties qr rare_events scales simple smo
    solution step_curve total update vector window windows working_sets
"""
PATIENCE = 5.0  # so many times the CPU seconds that tests need without a change, ...
START = 20.0  # and so many more, is slow
COMPARISONS: dict[type, type] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type, type] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
OPPOSITE = {"min": "max", "max": "min", "fmin": "fmax", "fmax": "fmin", "minimum": "maximum", "maximum": "minimum"}
LOADED_ONCE = ["numba", "scipy.linalg", "scipy.sparse", "sklearn.svm", "highspy", "hypothesis", "coverage", "pytest"]
COMPILED_ONLY = {"intrinsic", "overload"}  # decorators of what plain Python never runs


class Mutant(NamedTuple):
    """A change: the text from `start` to `stop` of a file becomes `text`."""

    file: Path
    line: int
    start: int
    stop: int
    before: str
    text: str
    statement: tuple[int, int]  # the lines of the statement around it, without the statements inside
    name: str = ""  # what the statement defines, where it runs when the file is loaded

    @property
    def key(self) -> str:
        """The file as a map knows it."""
        return self.file.relative_to(ROOT / "svmcore").as_posix()

    def __str__(self) -> str:
        old, new = (" ".join(part.split())[:70] for part in (self.before, self.text))
        return f"{self.file.relative_to(ROOT)}:{self.line}: {old}  ->  {new}"


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What a node can become."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        other = copy.deepcopy(node)
        other.ops[0] = COMPARISONS[type(node.ops[0])]()
        yield other
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        yield ast.Constant(node.value + 1 if isinstance(node.value, int) else 10.0 * node.value + 1e-3)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        if name in OPPOSITE:
            other_call = copy.deepcopy(node)
            if isinstance(other_call.func, ast.Name):
                other_call.func.id = OPPOSITE[name]
            elif isinstance(other_call.func, ast.Attribute):
                other_call.func.attr = OPPOSITE[name]
            yield other_call
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield ast.Pass()


def code(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that plain Python runs: no annotations, docstrings, decorators, nor what exists compiled only."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            marks = getattr(child, "decorator_list", [])
            if any(getattr(m, "id", getattr(getattr(m, "func", None), "id", "")) in COMPILED_ONLY for m in marks):
                continue
            yield child
            yield from code(child)


def mutants(file: Path) -> list[Mutant]:
    """All of a file's."""
    text = file.read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    tree = ast.parse(text)
    around = statements(tree)
    for node in code(tree):
        for other in changes(node):
            assert isinstance(node, ast.expr | ast.stmt)
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start, stop = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            new = ast.unparse(ast.fix_missing_locations(other))
            new = f"({new})" if isinstance(other, ast.expr) and not isinstance(other, ast.Constant | ast.Call) else new
            found.append(Mutant(file, node.lineno, start, stop, text[start:stop].decode(), new, *around[node]))
    return found


def statements(tree: ast.Module) -> dict[ast.AST, tuple[tuple[int, int], str]]:
    """Of every node the lines of the statement around it, and what that defines where it is not inside of a function."""
    found: dict[ast.AST, tuple[tuple[int, int], str]] = {}

    def visit(node: ast.AST, at: tuple[tuple[int, int], str], loaded: bool) -> None:
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", [])
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            at = (node.lineno, max(node.lineno, last)), defined_by(node) if loaded else ""
        found[node] = at
        for child in ast.iter_child_nodes(node):
            inside = isinstance(node, ast.FunctionDef) and child in node.body
            visit(child, at, loaded and not inside)

    visit(tree, ((0, 0), ""), True)
    return found


def defined_by(node: ast.stmt) -> str:
    """The name that a statement defines."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    return str(getattr(targets[0], "id", getattr(targets[0], "name", "")))


@functools.cache
def readers(name: str) -> list[tuple[str, int]]:
    """Where the package uses a name: (file, line)."""
    found = []
    for file in sorted((ROOT / "svmcore").rglob("*.py")):
        key = file.relative_to(ROOT / "svmcore").as_posix()
        for node in ast.walk(ast.parse(file.read_bytes())):
            used = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
            if used == name and isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.append((key, node.lineno))
    return found


def sample(files: list[Path], count: int, seed: int) -> list[Mutant]:
    """So many, in turn from every file."""
    chance = random.Random(seed)
    piles = [chance.sample(pile, len(pile)) for pile in map(mutants, files) if pile]
    chosen: list[Mutant] = []
    while piles and len(chosen) < count:
        chosen += [pile.pop() for pile in piles]
        piles = [pile for pile in piles if pile]
    return chosen[:count]


class Timer:
    """A plugin of pytest that keeps what every test costs, and the names of those that fail."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called by pytest before, in and after every test."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed.append(report.nodeid)


class Chosen:
    """A plugin of pytest that runs these tests, in this order, and no others."""

    def __init__(self, tests: list[str]) -> None:
        self.rank = {test: rank for rank, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Called by pytest with all tests of the files."""
        items[:] = sorted((i for i in items if i.nodeid in self.rank), key=lambda i: self.rank[i.nodeid])


def in_child(
    tree: Path, arguments: list[str], plugin: Timer | Chosen, seconds: float, result: Path | None = None
) -> str:
    """Run pytest in a child, which has no need to load what is loaded here: "failed", "slow", or "" when all pass."""
    child = os.fork()
    if not child:
        code = 70  # whatever happens, the child goes no further than this
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 10))
            signal.alarm(600 + 20 * int(seconds))  # for those that wait for ever
            os.chdir(tree)
            sys.path[:0] = [str(tree), str(tree / "tests")]
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            import pytest

            code = int(pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[plugin]))
            if result is not None and isinstance(plugin, Timer):
                result.write_text(json.dumps({"seconds": plugin.seconds, "failed": plugin.failed}))
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "slow"
    return "failed" if status else ""


class Map(NamedTuple):
    """Which tests run a line of a file, and what they cost: `lines["auto.py"]["17"]`, by number in `tests`."""

    tests: list[str]
    seconds: list[float]
    lines: dict[str, dict[str, list[int]]]
    stamp: str

    def of(self, mutant: Mutant, most: float) -> tuple[list[str], float]:
        """The tests of a mutant, and what they cost: the cheapest of those that run its line, or need its constant."""
        first, last = mutant.statement
        places = [(mutant.key, line) for line in range(first, last + 1)]
        if mutant.name:  # it runs when the file is loaded, and matters where the name is used
            places = readers(mutant.name)
        found = {test for key, line in places for test in self.lines.get(key, {}).get(str(line), ())}
        chosen: list[str] = []
        total = 0.0
        for test in sorted(found, key=lambda test: self.seconds[test]):
            if total + self.seconds[test] > most and chosen:
                break
            chosen.append(self.tests[test])
            total += self.seconds[test]
        return chosen, total


def stamp_of(tree: Path) -> str:
    """What a map depends on."""
    hashed = hashlib.sha256(TESTS.encode())
    for folder in ("svmcore", "tests"):
        for file in sorted((tree / folder).rglob("*.py")):
            hashed.update(file.read_bytes())
    return hashed.hexdigest()


def measured(tree: Path) -> Map:
    """Run all tests once without a change."""
    import coverage

    data, result = tree / ".coverage", tree / ".seconds"
    tests = [f"tests/test_{name}.py" for name in TESTS.split()]
    options = ["--cov", "--cov-context=test", "--cov-report=", "--cov-fail-under=0"]
    how = in_child(tree, [*options, *tests], Timer(), 7200.0, result)
    told = json.loads(result.read_text()) if result.is_file() else {"failed": ["all"]}
    if how:
        sys.exit(f"the tests do not pass without any change: {told['failed']}")
    names = list(told["seconds"])
    number = {name: k for k, name in enumerate(names)}
    lines: dict[str, dict[str, list[int]]] = {}
    stored = coverage.CoverageData(str(data))
    stored.read()
    for file in sorted(stored.measured_files()):
        key = Path(file).resolve().relative_to(tree.resolve() / "svmcore").as_posix()
        lines[key] = {
            str(line): sorted({number[c.rpartition("|")[0]] for c in contexts if c.rpartition("|")[0] in number})
            for line, contexts in stored.contexts_by_lineno(file).items()
        }
    return Map(names, [told["seconds"][name] for name in names], lines, stamp_of(tree))


def map_of(tree: Path, kept: Path | None) -> Map:
    """The map of these sources: the one that is kept, while it fits."""
    if kept is not None and kept.is_file():
        known = Map(**json.loads(kept.read_text()))
        if known.stamp == stamp_of(tree):
            return known
    known = measured(tree)
    if kept is not None:
        kept.write_text(json.dumps(known._asdict()))
    return known


def noticed(tree: Path, mutant: Mutant, known: Map, most: float) -> str:
    """How the tests noticed it ("failed", "slow"), or "" if they did not; "no test" where none runs the line."""
    tests, seconds = known.of(mutant, most)
    if not tests:
        return "no test"
    file = tree / mutant.file.relative_to(ROOT)
    text = file.read_bytes()
    file.write_bytes(text[: mutant.start] + mutant.text.encode() + text[mutant.stop :])
    files = sorted({test.partition("::")[0] for test in tests})
    try:
        return in_child(tree, ["-x", *files], Chosen(tests), START + PATIENCE * seconds)
    finally:
        file.write_bytes(text)


def hot_files() -> list[Path]:
    """The compiled homes, which use the decorator, and those of `HOT`."""
    homes = [f for f in sorted((ROOT / "svmcore").rglob("*.py")) if "@jit" in f.read_text()]
    return homes + [ROOT / "svmcore" / f"{name}.py" for name in HOT.split()]


def main() -> int:
    """Run the sample."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="hot files; all of them by default")
    parser.add_argument("--count", type=int, default=200, help="how many mutants (200)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of tests for one mutant, at the most (30)")
    parser.add_argument("--map", type=Path, help="a file that keeps which tests run which lines")
    parser.add_argument("--least", type=float, default=0.9, help="share that must be noticed (0.9)")
    options = parser.parse_args()
    os.environ |= {
        "NUMBA_DISABLE_JIT": "1", "SVMCORE_HYPOTHESIS": "small", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"
    }  # fmt: skip
    sys.dont_write_bytecode = True
    for module in LOADED_ONCE:
        importlib.import_module(module)
    files = [file.resolve() for file in options.files] or hot_files()
    chosen = sample(files, options.count, options.seed)
    survivors, slow, begin = [], 0, os.times()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "checkout"
        shutil.copytree(
            ROOT, tree, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache", ".hypothesis", ".coverage*")
        )
        known = map_of(tree, options.map)
        print(f"{len(known.tests)} tests, {sum(known.seconds):.0f} s under coverage", flush=True)
        for number, mutant in enumerate(chosen, 1):
            clock = time.perf_counter()
            how = noticed(tree, mutant, known, options.seconds)
            slow += how == "slow"
            alive = how in ("", "no test")
            survivors += [mutant] if alive else []
            said = f"SURVIVED {how}".strip() if alive else how
            print(f"{number:4d} {said:8s} {time.perf_counter() - clock:6.1f} s  {mutant}", flush=True)
    share = 1.0 - len(survivors) / max(1, len(chosen))
    end = os.times()
    spent = end.children_user + end.children_system - begin.children_user - begin.children_system
    print(f"\n{share:.1%} of {len(chosen)} mutants noticed ({slow} by being slow), {spent:.0f} s of CPU; survivors:")
    for mutant in survivors:
        print(f"  {mutant}")
    return int(share < options.least)


if __name__ == "__main__":
    sys.exit(main())
