"""Break one place of a hot file at a time, and see whether a test notices.

    python tools/mutate.py                      a seeded sample over all hot files
    python tools/mutate.py --count 300 --seed 1 another, larger one
    python tools/mutate.py svmcore/auto.py    only of these files

A mutant is one change of the syntax tree: a comparison, a sum, a product or a boolean turned round, a constant changed, min
and max exchanged, a condition negated, a statement removed. It is run in a copy of the checkout, in plain Python with the
small hypothesis profile, against the tests that belong to its file, until the first failure. Too slow counts as noticed: a
loop without end is what some mutants are. Printed are the share that was noticed, and the survivors; the exit status is 1
when the share is below `--least`.

A survivor is a missing test, or a change that nothing can notice: another tolerance, another order of equal work.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PATHS = "path_exact window windows path path_hard"
SWEEPS = "adatron projection working_sets simple contract"
# hot files, and the tests that are about them: the nearest first
TESTS = {
    "problem/measures": "measures properties",
    "problem/certify": "confirm measures check solution properties",
    "auto": "choice properties",
    "_kernels": "kernels measures smo",
    "_smo_jit": "smo properties",
    "simd/loops": "vector block_branches block path",
    "solvers/_block_jit": "block_branches block",
    "solvers/_ipm_jit": "interior contract",
    "solvers/_steps_jit": SWEEPS,
    "solvers/_active_jit": "simple update contract",
    "solvers/_npa_jit": "npa contract",
    "solvers/_chunk_jit": "working_sets contract",
    "path/elbow_jit": PATHS,
    "_path_jit": PATHS,
    "path/window_jit": "window path_exact windows path",
    "path/stretch_jit": "windows window path_exact path",
    "path/qr_jit": "qr path",
    "path/window": PATHS,
    "path/tracker": PATHS,
    "path/driver": PATHS,
    "path/result": "path path_exact path_hard plots",
    "solvers/smo": "smo properties contract",
    "solvers/block": "block_branches block properties",
    "solvers/interior": "interior properties contract",
    "solvers/_active": "simple update contract",
    "solvers/_contract": "contract properties",
    "solvers/_course": SWEEPS,
    "solvers/_face": "smo block_branches contract",
    "solvers/adatron": "adatron contract",
    "solvers/chunking": "working_sets contract",
    "solvers/npa": "npa contract",
    "solvers/simple": "simple contract",
}
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


def tests_of(file: Path) -> list[str]:
    """The test files of a hot file, the nearest first."""
    key = file.relative_to(ROOT / "svmcore").with_suffix("").as_posix()
    names = [f"tests/test_{name}.py" for name in TESTS.get(key, "properties contract").split()]
    return [name for name in names if (ROOT / name).is_file()]


def tested(tree: Path, tests: list[str], seconds: float) -> str:
    """Run tests in a child, which has no need to load what they load: "failed", "slow", or "" when they pass."""
    child = os.fork()
    if not child:
        code = 70  # whatever happens, the child goes no further than this
        try:
            os.setsid()
            os.chdir(tree)
            sys.path[:0] = [str(tree), str(tree / "tests")]
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            import pytest

            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "failed" if status else ""
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "slow"


def noticed(tree: Path, mutant: Mutant, seconds: float) -> str:
    """How the tests noticed it ("failed", "slow"), or "" if they did not."""
    file = tree / mutant.file.relative_to(ROOT)
    text = file.read_bytes()
    file.write_bytes(text[: mutant.start] + mutant.text.encode() + text[mutant.stop :])
    try:
        return tested(tree, tests_of(mutant.file), seconds)
    finally:
        file.write_bytes(text)


def main() -> int:
    """Run the sample."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="hot files; all of them by default")
    parser.add_argument("--count", type=int, default=150, help="how many mutants (150)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="for the tests of one mutant; slower is noticed (600)"
    )
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
    survivors, slow = [], 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "checkout"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache", ".hypothesis"))
        if tested(tree, ["tests/test_choice.py"], options.seconds):
            print("the tests do not pass without any change")
            return 2
        for number, mutant in enumerate(chosen, 1):
            begin = time.perf_counter()
            how = noticed(tree, mutant, options.seconds)
            slow += how == "slow"
            survivors += [] if how else [mutant]
            print(f"{number:4d} {how or 'SURVIVED':8s} {time.perf_counter() - begin:6.1f} s  {mutant}", flush=True)
    share = 1.0 - len(survivors) / max(1, len(chosen))
    print(f"\n{share:.1%} of {len(chosen)} mutants noticed ({slow} by being slow); survivors:")
    for mutant in survivors:
        print(f"  {mutant}")
    return int(share < options.least)


if __name__ == "__main__":
    sys.exit(main())
