"""Break one place of a hot file at a time, and see whether a test notices.

    python tools/mutate.py                       a seeded sample over all hot files
    python tools/mutate.py --count 300 --seed 1  another, larger one
    python tools/mutate.py svmcore/auto.py       only of these files

A mutant is one change of the syntax tree: a comparison, a sum, a product or a boolean is turned round, a constant changed,
min and max are exchanged, the two sides of a condition too, a statement is removed. All runs are in a copy of the checkout,
in plain Python, with the small hypothesis profile.

`TESTS` names the tests of each file. They run once without a change, in turn from every word of the row, until `--seconds` of
CPU time are used. Those that got their turn are the tests of all mutants of that file, the quickest first, until the first
failure. A mutant is noticed when a test fails, or when they use several times the CPU time that they need
without it: some mutants are loops without end. A mutant that these few tests do not notice may still be noticed by others, so
the share is a lower bound.

Printed are the share that was noticed, and the survivors. The exit status is 1 when the share is below `--least`. A survivor
is a missing test, or a change that nothing can notice: another tolerance, another order of equal work.
"""

from __future__ import annotations

import argparse
import ast
import copy
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
PATH = (
    "window path_pieces path_exact:equals_the_rational_path path_boxes:any_boxes windows:crosses windows:taken_back "
    "windows:candidates"
)
CERTIFIED = "properties:test_every_answer_is_certified"
# hot files, and the tests that are about them, the nearest first: a test file, and after a colon what a test's name contains
TESTS = {
    "_kernels": "kernels",
    "_path_jit": PATH,
    "_smo_jit": f"smo {CERTIFIED}[second {CERTIFIED}[mvp {CERTIFIED}[platt {CERTIFIED}[simplified",
    "auto": f"choice {CERTIFIED}[auto",
    "kernel/products": "kernels vector block:tiles block:symmetric",
    "kernel/rows": "path:row_budget path:copied path_exact:equals_the_rational_path",
    "path/curve_jit": "error_curve",
    "path/driver": f"{PATH} path:stopped",
    "path/elbow_jit": PATH,
    "path/log_jit": PATH,
    "path/measure": "path_exact:rational_path[1 path_published:products path:certif",
    "path/published_jit": "published_pieces path_published",
    "path/qr_jit": "qr",
    "path/record": PATH,
    "path/result": "path_exact:rational_path[1 path:events path:break path",
    "path/start": f"published_pieces:limit {PATH}",
    "path/stretch_jit": f"windows:bend windows:thirds windows:crossings {PATH}",
    "path/tracker": f"{PATH} path_hard:near",
    "path/window": PATH,
    "path/window_jit": f"window {PATH}",
    "problem/certify": f"confirm measures {CERTIFIED}[block",
    "problem/formulations": f"measures total {CERTIFIED}[second",
    "problem/measures": f"measures {CERTIFIED}[second",
    "simd/loops": "vector block:kept block_branches",
    "simd/passes": "block_branches block:conjugate",
    "simd/sums": "steps:sums",
    "simd/vector": "vector kernels",
    "solvers/_active": "simple:paper simple update:add",
    "solvers/_active_jit": "simple:paper simple update:add",
    "solvers/_block_jit": "block:worst block_branches",
    "solvers/_chunk_jit": "working_sets",
    "solvers/_contract": f"{CERTIFIED} properties:criterion",
    "solvers/_course": "npa working_sets:retrace simple",
    "solvers/_face": "smo block_branches:face",
    "solvers/_ipm_jit": "interior",
    "solvers/_npa_jit": "npa",
    "solvers/_pairs_jit": "steps working_sets",
    "solvers/_projection_jit": "projection",
    "solvers/_steps_jit": "steps smo npa",
    "solvers/_sweeps_jit": "steps adatron",
    "solvers/adatron": "adatron",
    "solvers/block": "block_branches",
    "solvers/chunking": "working_sets:chunk",
    "solvers/interior": "interior",
    "solvers/npa": "npa",
    "solvers/rosen": "projection",
    "solvers/simple": "simple",
    "solvers/smo": f"smo {CERTIFIED}[second",
}
PATIENCE = 2.5  # so many times the CPU seconds that tests need without a change, ...
START = 4.0  # and so many more, is slow
LONGEST = 300.0  # CPU seconds of a row without a change
COMPARISONS: dict[type, type] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type, type] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
OPPOSITE = {"min": "max", "max": "min", "fmin": "fmax", "fmax": "fmin", "minimum": "maximum", "maximum": "minimum"}
LOADED_ONCE = ["numba", "scipy.linalg", "scipy.sparse", "sklearn.svm", "highspy", "pytest"]
COMPILED_ONLY = {"intrinsic", "overload"}  # decorators of what plain Python never runs


class Mutant(NamedTuple):
    """A change: the text from `start` to `stop` of a file becomes `text`."""

    file: Path
    line: int
    start: int
    stop: int
    before: str
    text: str

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
    for node in code(ast.parse(text)):
        for other in changes(node):
            assert isinstance(node, ast.expr | ast.stmt)
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start, stop = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            new = ast.unparse(ast.fix_missing_locations(other))
            new = f"({new})" if isinstance(other, ast.expr) and not isinstance(other, ast.Constant | ast.Call) else new
            found.append(Mutant(file, node.lineno, start, stop, text[start:stop].decode(), new))
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


class Chosen:
    """A plugin of pytest: the tests of a row of `TESTS`, in turn from its words, until the time is used."""

    def __init__(self, row: str, seconds: float) -> None:
        self.words = [word.partition(":") for word in row.split()]
        self.seconds = seconds
        self.took: dict[str, float] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Called with all tests of the files."""
        chance = random.Random(0)
        piles = []
        for file, _, part in self.words:
            pile = [i for i in items if f"/test_{file}.py" in i.nodeid and part in i.nodeid.partition("::")[2]]
            piles.append(chance.sample(pile, len(pile)))
        longest = max(map(len, piles))
        items[:] = dict.fromkeys(pile[k] for k in range(longest) for pile in piles if k < len(pile))
        self.seconds += time.process_time()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called before, in and after every test."""
        self.took[report.nodeid] = self.took.get(report.nodeid, 0.0) + report.duration

    def pytest_runtest_teardown(self, item: Any) -> None:
        """Called after every test."""
        if time.process_time() > self.seconds:
            item.session.shouldstop = "the time is used"

    @property
    def quick(self) -> list[str]:
        """The tests that ran, the quickest first."""
        return sorted(self.took, key=lambda t: self.took[t])


class These:
    """A plugin of pytest: these tests, in this order."""

    def __init__(self, tests: list[str]) -> None:
        self.rank = {test: rank for rank, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Called with all tests of the files."""
        items[:] = sorted((i for i in items if i.nodeid in self.rank), key=lambda i: self.rank[i.nodeid])


def in_child(tree: Path, files: list[str], plugin: Chosen | These, seconds: float, told: Path) -> tuple[str, float]:
    """Run tests in a child, which has no need to load what they load: ("failed", "slow" or "", CPU seconds)."""
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

            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *files], plugins=[plugin]))
            if isinstance(plugin, Chosen):
                told.write_text(json.dumps(plugin.quick))
                code = 0 if code == pytest.ExitCode.INTERRUPTED else code
        finally:
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    how = "slow" if os.WIFSIGNALED(status) else "failed" if status else ""
    return how, used.ru_utime + used.ru_stime


class Row(NamedTuple):
    """The tests of a file, and the CPU seconds they need without a change."""

    tests: list[str]
    seconds: float


def row_of(tree: Path, words: str, seconds: float) -> Row:
    """Run the tests of a row of `TESTS` without a change."""
    files = list(dict.fromkeys(f"tests/test_{word.partition(':')[0]}.py" for word in words.split()))
    told = tree / ".quick"
    how, used = in_child(tree, files, Chosen(words, seconds), LONGEST, told)
    if how:
        sys.exit(f"these tests do not pass without any change: {words}")
    return Row(json.loads(told.read_text()), used)


def noticed(tree: Path, mutant: Mutant, row: Row) -> tuple[str, float]:
    """How the tests noticed it ("failed", "slow"), or "" if they did not; and the CPU seconds."""
    file = tree / mutant.file.relative_to(ROOT)
    text = file.read_bytes()
    file.write_bytes(text[: mutant.start] + mutant.text.encode() + text[mutant.stop :])
    files = sorted({test.partition("::")[0] for test in row.tests})
    try:
        return in_child(tree, files, These(row.tests), START + PATIENCE * row.seconds, tree)
    finally:
        file.write_bytes(text)


def main() -> int:
    """Run the sample."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="hot files; all of them by default")
    parser.add_argument("--count", type=int, default=150, help="how many mutants (150)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of CPU time for the tests of a file (10)")
    parser.add_argument("--least", type=float, default=0.9, help="share that must be noticed (0.9)")
    options = parser.parse_args()
    os.environ |= {
        "NUMBA_DISABLE_JIT": "1", "SVMCORE_HYPOTHESIS": "small", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"
    }  # fmt: skip
    sys.dont_write_bytecode = True
    for module in LOADED_ONCE:
        importlib.import_module(module)
    files = [file.resolve() for file in options.files] or [ROOT / "svmcore" / f"{name}.py" for name in TESTS]
    chosen = sample(files, options.count, options.seed)
    survivors, slow, spent = [], 0, 0.0
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "checkout"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache", ".hypothesis"))
        for number, mutant in enumerate(chosen, 1):
            key = mutant.file.relative_to(ROOT / "svmcore").with_suffix("").as_posix()
            words = TESTS.get(key, f"{CERTIFIED} contract")
            if words not in rows:
                rows[words] = row_of(tree, words, options.seconds)
                spent += rows[words].seconds
                print(f"     {len(rows[words].tests)} tests, {rows[words].seconds:.1f} s: {words}", flush=True)
            how, seconds = noticed(tree, mutant, rows[words])
            spent += seconds
            slow += how == "slow"
            survivors += [] if how else [mutant]
            print(f"{number:4d} {how or 'SURVIVED':8s} {seconds:6.1f} s  {mutant}", flush=True)
    share = 1.0 - len(survivors) / max(1, len(chosen))
    print(f"\n{share:.1%} of {len(chosen)} mutants noticed ({slow} by being slow), {spent:.0f} s of CPU; survivors:")
    for mutant in survivors:
        print(f"  {mutant}")
    return int(share < options.least)


if __name__ == "__main__":
    sys.exit(main())
