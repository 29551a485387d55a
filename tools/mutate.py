"""Break one place of a hot file at a time, and see whether a test notices.

    python tools/mutate.py                       a seeded sample over the compiled homes
    python tools/mutate.py --count 300 --seed 1  another, larger one
    python tools/mutate.py svmcore/train/auto.py       only of these files

A mutant is one change of the syntax tree: a comparison, a sum, a product or a boolean is turned round, a constant changed,
min and max are exchanged, the two sides of a condition too, a statement is removed. Everything runs in plain Python, with
the small hypothesis profile, in forks of one process that has loaded the tests once.

`TESTS` names the tests of each file. They run once without a change, in turn from every word of the row, until `--seconds` of
CPU time are used, and it is noted which lines each one runs. The tests of a mutant are those that run its line, the quickest
first, until the first failure. A mutant is noticed when a test fails, or when the tests use several times the CPU time that
they need without it: some mutants are loops without end. A mutant that these few tests do not notice may still be noticed by
others, so the share is a lower bound. `--notes FILE` keeps what was noted, for the next run of the same sources.

Printed are the share that was noticed, and the survivors. The exit status is 1 when the share is below `--least`. A survivor
is a missing test, or a change that nothing can notice: another tolerance, another order of equal work.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PATH = (
    "window path_pieces path_exact:equals_the_rational_path path_exact:any_boxes windows:crosses windows:taken_back "
    "windows:candidates"
)
CERTIFIED = "properties:test_every_answer_is_certified"
# hot files, and the tests that are about them, the nearest first: a test file, and after a colon what a test's name contains
TESTS = {
    "_kernels": "kernels",
    "_path_jit": "path_steps path_events path_pieces",
    "_smo_jit": f"smo {CERTIFIED}[second {CERTIFIED}[mvp {CERTIFIED}[platt {CERTIFIED}[simplified",
    "train/auto": f"choice {CERTIFIED}[auto",
    "kernel/products": "kernels vector block:tiles block:symmetric",
    "kernel/rows": "path:row_budget path_exact:equals_the_rational_path",
    "cv/trials_jit": "trials",
    "path/curve_jit": "curve_pieces error_curve",
    "path/driver": f"{PATH} path:stopped",
    "path/elbow_jit": "elbow path_events path_steps",
    "path/log_jit": PATH,
    "path/middle_jit": "curve_pieces path_middle",
    "path/measure": "path_exact:rational_path[1 path_published:products path:certif",
    "path/published_jit": "published_pieces path_published",
    "path/crash_jit": f"path_steps {PATH}",
    "path/opening_jit": "stretch windows:candidates window:smallest",
    "path/products_jit": "window:products window_steps",
    "path/qr_jit": "qr",
    "path/record": PATH,
    "path/result": "path_exact:rational_path[1 path:events path:break path",
    "path/start": f"published_pieces:limit {PATH}",
    "path/stretch_jit": "stretch windows window:flush window:smallest",
    "path/tracker": f"{PATH} path_hard:near",
    "path/window": PATH,
    "path/window_jit": "window_steps window:inverse window:products window:row",
    "problem/certify": f"confirm measures {CERTIFIED}[block",
    "problem/formulations": f"measures total {CERTIFIED}[second",
    "problem/measures": f"measures {CERTIFIED}[second",
    "simd/loops": "vector block:kept",
    "simd/packing": "vector",
    "simd/sparse": "vector",
    "simd/line": "block_steps vector",
    "simd/passes": "block_steps:pass_means block_steps vector:passes block:conjugate",
    "simd/rows": "sweeps vector",
    "simd/sums": "steps:sums",
    "simd/vector": "vector kernels",
    "solvers/_active": "active simple:paper simple update:add",
    "solvers/_active_jit": "active simple:paper",
    "solvers/_block_jit": "block_steps block:worst",
    "solvers/_chunk_jit": "steps",
    "solvers/_coordinate_jit": "linear_pieces sweeps",
    "solvers/_contract": f"{CERTIFIED} properties:criterion",
    "solvers/_crowd_forms_jit": "crowd_pieces crowd",
    "solvers/_crowd_jit": "crowd_pieces crowd exemplars",
    "solvers/_crowd_pairs_jit": "crowd_pieces crowd",
    "solvers/_crowd_sets_jit": "crowd_pieces crowd",
    "solvers/_course": "literature:retrace literature:hulls simple",
    "solvers/_face": "smo block_branches:face",
    "solvers/_ipm_jit": "interior_pieces",
    "solvers/_lasso_jit": "linear_pieces lasso",
    "solvers/_newton_jit": "linear_pieces newton",
    "solvers/_npa_jit": "faces_and_hulls",
    "solvers/_pairs_jit": "steps",
    "solvers/_projection_jit": "faces_and_hulls projection",
    "solvers/_steps_jit": "steps smo",
    "solvers/_sweeps_jit": "steps",
    "solvers/_ends_jit": "block_steps:bias crowd_pieces small",
    "solvers/_near_jit": "near",
    "solvers/_shares_jit": "small_pieces small family:both_sides",
    "solvers/_small_jit": "small_pieces small block_steps:bias",
    "solvers/adatron": "literature",
    "solvers/block": "block_branches",
    "solvers/chunking": "literature:chunk",
    "solvers/interior": "interior",
    "solvers/npa": "literature:hulls literature:published_evaluations",
    "solvers/rosen": "projection",
    "solvers/simple": "simple",
    "solvers/smo": f"smo {CERTIFIED}[second",
}
PATIENCE = 3.0  # so many times the CPU seconds that tests need without a change, ...
START = 2.0  # and so many more, is slow
LONGEST = 5.0  # CPU seconds; tests that need more are left out
COMPARISONS: dict[type, type] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type, type] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
OPPOSITE = {"min": "max", "max": "min", "fmin": "fmax", "fmax": "fmin", "minimum": "maximum", "maximum": "minimum"}
# what plain Python never runs: functions with these decorators or parameters, which write machine instructions
COMPILED_ONLY = {"intrinsic", "overload"}
WRITERS = {"lanes", "builder", "context", "typingctx"}
HELPERS = {"_ranges", "_scalar_intrinsic", "_sparse_row"}  # of those
# exit codes of a child: a test failed; the changed module cannot even be loaded; something else went wrong
FAILED, BROKEN, ODD = 1, 2, 3
AT_LOAD = (0, 0)  # in place of its lines: a statement that runs when its module is loaded


class Mutant(NamedTuple):
    """A change: the text from `start` to `stop` of a file becomes `text`, in a statement of the lines `lines`."""

    file: Path
    line: int
    start: int
    stop: int
    before: str
    text: str
    lines: tuple[int, int]

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


def compiled_only(function: ast.FunctionDef) -> bool:
    """Whether plain Python never runs it."""
    marks = {getattr(m, "id", getattr(getattr(m, "func", None), "id", "")) for m in function.decorator_list}
    parameters = {part.arg for part in function.args.args}
    return bool(marks & COMPILED_ONLY or parameters & WRITERS or function.name in HELPERS)


def code(
    tree: ast.AST, lines: tuple[int, int] = AT_LOAD, inside: bool = False
) -> Iterator[tuple[ast.AST, tuple[int, int]]]:
    """The nodes that plain Python runs, with the lines of their statements.

    Left out are annotations, docstrings, decorators, fields of classes, and what exists compiled only.
    """
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        within = inside or (isinstance(tree, ast.FunctionDef) and name == "body")
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            if isinstance(tree, ast.ClassDef) and not isinstance(child, ast.FunctionDef):
                continue
            if isinstance(child, ast.FunctionDef) and compiled_only(child):
                continue
            if isinstance(child, ast.IfExp) and isinstance(child.test, ast.Name) and child.test.id == "DISABLED":
                continue  # it chooses between what plain Python runs and what is compiled
            around = lines
            if isinstance(child, ast.stmt) and within:
                body = getattr(child, "body", None)
                last = max(child.lineno, body[0].lineno - 1) if body else child.end_lineno
                around = (child.lineno, last or child.lineno)
            yield child, around
            yield from code(child, around, within)


def mutants(file: Path) -> list[Mutant]:
    """All of a file's."""
    text = file.read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, lines in code(ast.parse(text)):
        for other in changes(node):
            assert isinstance(node, ast.expr | ast.stmt)
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start, stop = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            new = ast.unparse(ast.fix_missing_locations(other))
            new = f"({new})" if isinstance(other, ast.expr) and not isinstance(other, ast.Constant | ast.Call) else new
            found.append(Mutant(file, node.lineno, start, stop, text[start:stop].decode(), new, lines))
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


def functions(space: dict[str, Any], module: str) -> Iterator[FunctionType]:
    """The functions and methods that a module defines."""
    for value in list(space.values()):
        if getattr(value, "__module__", None) != module:
            continue
        for part in vars(value).values() if isinstance(value, type) else [value]:
            inner = getattr(part, "fget", None) or getattr(part, "func", None) or getattr(part, "__func__", part)
            while hasattr(inner, "__wrapped__"):
                inner = inner.__wrapped__
            if isinstance(inner, FunctionType) and inner.__module__ == module:
                yield inner


def apply(mutant: Mutant) -> None:
    """Change the loaded module: the code of its functions, and its constants wherever they were imported by name."""
    name = ".".join(mutant.file.relative_to(ROOT).with_suffix("").parts)
    live = vars(sys.modules[name])
    text = mutant.file.read_bytes()
    text = text[: mutant.start] + mutant.text.encode() + text[mutant.stop :]
    fresh: dict[str, Any] = {key: live[key] for key in ("__name__", "__file__", "__package__", "__spec__")}
    try:
        exec(compile(text, str(mutant.file), "exec"), fresh)
    except Exception:
        os._exit(BROKEN)
    olds = {old.__qualname__: old for old in functions(live, name)}
    for new in functions(fresh, name):
        old = olds[new.__qualname__]
        old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
    for key, value in fresh.items():
        before = live.get(key)
        if isinstance(value, int | float | str | tuple) and type(value) is type(before) and value != before:
            for module in list(sys.modules.values()):
                space = getattr(module, "__dict__", {})
                if type(space.get(key)) is type(before) and space[key] == before:
                    space[key] = value


def in_child(work: Callable[[], None], seconds: float) -> tuple[int, float]:
    """Do this in a fork: (exit code or -signal, CPU seconds)."""
    child = os.fork()
    if not child:
        code = ODD  # whatever happens, the child goes no further than this
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 10))
            signal.alarm(600 + 20 * int(seconds))  # for those that wait for ever
            work()
            code = 0
        finally:
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime


class Test(NamedTuple):
    """CPU seconds that a test needs without a change, and the lines it runs, by file."""

    seconds: float
    lines: dict[str, list[int]]


class Bench:
    """A plugin of pytest, which runs the mutants in place of the tests."""

    def __init__(self, chosen: list[Mutant], seconds: float, notes: Path) -> None:
        self.chosen, self.seconds, self.notes = chosen, seconds, notes
        self.survivors: list[Mutant] = []
        self.slow, self.spent = 0, 0.0
        self.out = os.fdopen(os.dup(1), "w", buffering=1)
        self.items: dict[str, Any] = {}
        self.tests: dict[str, Test] = {}
        self.failed: set[str] = set()  # without any change

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called in a child before, in and after every test."""
        if report.failed:
            if self.tests:
                os._exit(FAILED)
            self.out.write(f"left out, it does not pass without any change: {report.nodeid}\n")
            self.failed.add(report.nodeid)

    def pytest_runtestloop(self, session: Any) -> bool:
        """Called with all tests of the files."""
        self.items = {item.nodeid: item for item in session.items if item.get_closest_marker("skip") is None}
        self.tests = self.noted()
        for number, mutant in enumerate(self.chosen, 1):
            how = self.noticed(mutant)
            self.survivors += [] if how.islower() else [mutant]
            self.slow += how == "slow"
            self.out.write(f"{number:4d} {how:8s} {self.spent:6.0f} s  {mutant}\n")
        return True

    def run(self, names: list[str]) -> None:
        """Run these tests, until one fails."""
        for name in names:
            item = self.items[name]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    def noted(self) -> dict[str, Test]:
        """What each test of the rows needs and runs: measured, or read from an earlier run."""
        files = sorted({mutant.file for mutant in self.chosen})
        sources = [file for folder in ("svmcore", "tests") for file in sorted((ROOT / folder).rglob("*.py"))]
        parts = [file.read_bytes() for file in [*sources, Path(__file__)]]
        key = hashlib.sha256(b"".join(parts) + repr((files, self.seconds)).encode()).hexdigest()
        if not (self.notes.is_file() and json.loads(self.notes.read_text())["key"] == key):
            code, seconds = in_child(lambda: self.measure(files, key), 3600.0)
            self.spent += seconds
            if code:
                raise RuntimeError(f"the tests ended with {code} without any change")
        tests = json.loads(self.notes.read_text())["tests"]
        self.out.write(f"{len(tests)} tests, {sum(test[0] for test in tests.values()):.0f} s of CPU\n")
        return {name: Test(*test) for name, test in tests.items()}

    def measure(self, files: list[Path], key: str) -> None:
        """Run the rows' tests without a change; which lines of which files does each one run?"""
        import coverage

        cover = coverage.Coverage(data_file=None, config_file=False, include=[str(file) for file in files])
        took: dict[str, float] = {}
        cover.start()
        for file in files:
            left = self.seconds
            for name in self.row(file):
                if left <= 0.0:
                    break
                if name not in took:
                    cover.switch_context(name)
                    began = time.process_time()
                    self.run([name])
                    took[name] = time.process_time() - began
                left -= took[name]
        cover.stop()
        lines: dict[str, dict[str, list[int]]] = {name: {} for name in took}
        for file in files:
            for line, names in cover.get_data().contexts_by_lineno(str(file)).items():
                for name in names:
                    if name in lines:
                        lines[name].setdefault(str(file), []).append(line)
        usable = [name for name in took if took[name] <= LONGEST and name not in self.failed]
        tests = {name: Test(took[name], lines[name]) for name in usable}
        self.notes.write_text(json.dumps({"key": key, "tests": tests}))

    def row(self, file: Path) -> list[str]:
        """The tests of a file, in turn from its words."""
        chance = random.Random(0)
        piles = []
        for word in words_of(file):
            where, _, part = word.partition(":")
            pile = [name for name in self.items if f"/test_{where}.py" in name and part in name.partition("::")[2]]
            piles.append(chance.sample(pile, len(pile)))
        return list(dict.fromkeys(p[k] for k in range(max(map(len, piles))) for p in piles if k < len(p)))

    def noticed(self, mutant: Mutant) -> str:
        """How the tests noticed it ("failed", "slow", "broken"), or that they did not (in capitals)."""
        wanted = set(range(mutant.lines[0], mutant.lines[1] + 1))
        reach = {}
        for name, test in self.tests.items():
            run = test.lines.get(str(mutant.file), [])
            if run and (mutant.lines == AT_LOAD or not wanted.isdisjoint(run)):
                reach[name] = test.seconds
        if not reach:
            return "NOT RUN"
        names, seconds = [], 0.0
        for name in sorted(reach, key=lambda name: reach[name]):
            if seconds < self.seconds:
                names.append(name)
                seconds += reach[name]

        def work() -> None:
            apply(mutant)
            self.run(names)

        code, used = in_child(work, START + PATIENCE * seconds)
        self.spent += used
        return {0: "SURVIVED", FAILED: "failed", BROKEN: "broken", ODD: "ODD"}.get(code, "slow")


def words_of(file: Path) -> list[str]:
    """The row of a file."""
    return TESTS.get(file.relative_to(ROOT / "svmcore").with_suffix("").as_posix(), f"{CERTIFIED} contract").split()


def main() -> int:
    """Run the sample."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="hot files; the compiled homes by default")
    parser.add_argument("--count", type=int, default=150, help="how many mutants (150)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of CPU time for the tests of a file (10)")
    parser.add_argument("--least", type=float, default=0.9, help="share that must be noticed (0.9)")
    parser.add_argument("--notes", type=Path, help="file that keeps which lines the tests run")
    options = parser.parse_args()
    os.environ |= {"NUMBA_DISABLE_JIT": "1", "SVMCORE_HYPOTHESIS": "small", "OPENBLAS_NUM_THREADS": "1"}
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT)]
    homes = [
        ROOT / "svmcore" / f"{name}.py" for name in TESTS if name.endswith(("_jit", "_kernels")) or name[:5] == "simd/"
    ]
    chosen = sample([file.resolve() for file in options.files] or homes, options.count, options.seed)
    words = {word.partition(":")[0] for mutant in chosen for word in words_of(mutant.file)}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(chosen, options.seconds, options.notes or Path(folder) / "notes.json")
        import pytest

        plugins = ["-o", "addopts=", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:terminal"]
        code = pytest.main([*plugins, *(f"tests/test_{word}.py" for word in sorted(words))], plugins=[bench])
    if code:
        return int(code)
    noticed = len(chosen) - len(bench.survivors)
    print(f"\n{noticed} of {len(chosen)} mutants noticed, {noticed / max(1, len(chosen)):.1%}", end="")
    print(f" ({bench.slow} by being slow), {bench.spent:.0f} s of CPU; survivors:")
    for mutant in bench.survivors:
        print(f"  {mutant}")
    return int(noticed < options.least * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
