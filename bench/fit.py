"""How fast is a fit: our trainer beside scikit-learn's SVC (and scikit-learn-intelex, where installed), class by class.

    python -m bench.fit [CLASS ...] [--threads N] [--repeats R] [--quick]

One process; the machines alternate; CPU time (process_time), minimum of the repeats. Every answer is scored by our
certificate, in float64 from the data: its KKT violation and relative gap stand beside the time. `limit` is the time of
one |SV| x n kernel block through our own fused float32 tile; `rows` counts kernel values per |SV| x n.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import svmcore
from svmcore import tiles
from svmcore._types import Kernel, KernelKind
from svmcore.gram import KernelMatrix

DATA = Path(__file__).parents[1].parent / "shared" / "data"
clock = time.process_time


class Problem(NamedTuple):
    """One line of the table."""

    name: str
    X: Any
    y: np.ndarray
    C: float
    kernel: str = "rbf"
    gamma: float = 1.0
    tol: float = 1e-3


def generated(n: int, d: int, flip: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
    """Clusters with redundant features and flipped labels, standardised."""
    from sklearn.datasets import make_classification

    X, y = make_classification(
        n, d, n_informative=max(2, min(d // 2, 20)), n_redundant=d // 5, n_clusters_per_class=4 if d > 4 else 1,
        flip_y=flip, random_state=3,
    )  # fmt: skip
    return np.ascontiguousarray((X - X.mean(0)) / X.std(0)), np.where(y > 0, 1.0, -1.0)


def mixture(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Sixteen Gaussian blobs a class."""
    rng = np.random.default_rng(1)
    centres, which = 1.2 * rng.standard_normal((32, d)), rng.integers(0, 32, n)
    X = centres[which] + rng.standard_normal((n, d))
    return (X - X.mean(0)) / X.std(0), np.where(which % 2, 1.0, -1.0)


def stored(name: str, scale: bool = False) -> tuple[Any, np.ndarray]:
    """A set of the data folder."""
    from scipy.sparse import csr_matrix

    with np.load(DATA / f"{name}.npz", allow_pickle=False) as z:
        y = z["y"].astype(float)
        if "X" not in z:
            return csr_matrix((z["data"], z["indices"], z["indptr"]), tuple(z["shape"])).astype(float), y
        X = z["X"].astype(float)
    spread = X.std(0)
    return np.ascontiguousarray((X - X.mean(0)) / np.where(spread > 0, spread, 1.0)) if scale else X, y


def problems(group: str, quick: bool) -> Iterator[Problem]:
    """The problems of one class of the targets table."""
    most = 5000 if quick else 50000
    if group in ("rbf", "rbf-1e-6"):
        for n, d, flip in (
            (1000, 20, 0.02),
            (5000, 2, 0.02),
            (5000, 10, 0.02),
            (5000, 20, 0.3),
            (20000, 20, 0.02),
            (50000, 20, 0.02),
        ):
            if n <= most and (group == "rbf" or n <= 5000):
                X, y = generated(n, d, flip)
                for C in (0.1, 1.0) if n == 5000 and group == "rbf" else (1.0,):
                    yield Problem(
                        f"n={n} d={d} flip={flip} C={C:g}", X, y, C, gamma=1 / d, tol=1e-3 if group == "rbf" else 1e-6
                    )
        if group == "rbf":
            if not quick:
                yield Problem("mixture n=20000 d=20 C=1", *mixture(20000, 20), 1.0, gamma=1 / 20)
            yield Problem("svmguide1 C=1", *stored("svmguide1", True), 1.0, gamma=0.25)
    if group == "rbf-wide":
        for n, d in ((5000, 100), (5000, 300), (20000, 100)):
            if n <= most:
                yield Problem(f"n={n} d={d} C=1", *generated(n, d), 1.0, gamma=1 / d)
        yield Problem("splice C=1", *stored("splice", True), 1.0, gamma=1 / 60)
        yield Problem("madelon C=1", *stored("madelon", True), 1.0, gamma=1 / 500)
    if group in ("rbf-large-C", "rbf-large-C-1e-6"):
        tol = 1e-3 if group == "rbf-large-C" else 1e-6
        for n, d, flip, C in (
            (2000, 10, 0.3, 1000),
            (5000, 20, 0.3, 100),
            (5000, 20, 0.02, 1000),
            (20000, 20, 0.02, 100),
        ):
            if n <= min(most, 5000 if tol < 1e-4 else 20000):
                yield Problem(f"n={n} d={d} flip={flip} C={C}", *generated(n, d, flip), float(C), gamma=1 / d, tol=tol)
        if tol == 1e-3:
            for C in (100.0, 1000.0):
                yield Problem(f"svmguide1 C={C:g}", *stored("svmguide1", True), C, gamma=0.25)
    if group == "sparse":
        for name in ("a1a", "a4a") if quick else ("a1a", "a4a", "a7a"):
            for C in (1.0, 100.0):
                yield Problem(f"{name} C={C:g}", *stored(name), C, gamma=0.05)
    if group == "linear":
        for n, d, C in ((2000, 10, 0.1), (2000, 10, 1.0), (5000, 20, 1.0), (5000, 50, 1.0), (20000, 20, 0.1)):
            if n <= most:
                yield Problem(f"n={n} d={d} C={C:g}", *generated(n, d, 0.1), C, "linear")
        yield Problem("svmguide1 C=1", *stored("svmguide1", True), 1.0, "linear")
        yield Problem("splice C=0.1", *stored("splice", True), 0.1, "linear")
    if group == "poly":
        for n, d in ((2000, 10), (5000, 20)):
            yield Problem(f"n={n} d={d} C=1", *generated(n, d), 1.0, "poly", gamma=1 / d)
        yield Problem("splice C=1", *stored("splice", True), 1.0, "poly", gamma=1 / 60)
        yield Problem("svmguide1 C=1", *stored("svmguide1", True), 1.0, "poly", gamma=0.25)
    if group == "small":
        for d in (2, 10, 100):
            yield Problem(f"n=200 d={d} C=1", *generated(200, d), 1.0, gamma=1 / d)


GROUPS = (
    "rbf", "rbf-wide", "rbf-large-C", "rbf-1e-6", "rbf-large-C-1e-6", "sparse", "linear", "poly", "small", "predict",
)  # fmt: skip


def fit_ours(p: Problem, threads: int) -> Any:
    return svmcore.train_svc(p.X, p.y, p.C, kernel=p.kernel, gamma=p.gamma, coef0=1.0, tol=p.tol, n_threads=threads)


def fit_sklearn(p: Problem, _: int) -> Any:
    from sklearn.svm import SVC

    return SVC(C=p.C, kernel=p.kernel, gamma=p.gamma, coef0=1.0, tol=p.tol, cache_size=2000, max_iter=2_000_000).fit(
        p.X, p.y
    )


def violation_of(p: Problem, alpha: np.ndarray) -> float:
    return svmcore.kkt_violation(p.X, p.y, np.minimum(alpha, p.C), p.C, kernel=p.kernel, gamma=p.gamma, coef0=1.0)


def limit(p: Problem, support: np.ndarray) -> float:
    """Seconds of one |SV| x n block through the fused float32 tile."""
    kind = KernelKind[p.kernel.upper()]
    X = np.ascontiguousarray(p.X) if isinstance(p.X, np.ndarray) else p.X
    K = KernelMatrix(X, Kernel(int(kind), p.gamma, 1.0, 3, 0.0), cache_bytes=1 << 20)
    mine = tiles.make_tiles(K, centred=True)
    field, coef = np.zeros(-(-K.n // 64) * 64), np.ones(len(support))
    times = []
    for _ in range(2):
        start = clock()
        mine.add(support, coef, field)
        times.append(clock() - start)
    return min(times)


def measure(p: Problem, threads: int, repeats: int) -> tuple[str, float]:
    """One line of the table, and its ratio."""
    ours, theirs = [], []
    start = clock()
    fit_ours(p, threads)
    repeats = max(repeats, min(30, int(0.25 / max(clock() - start, 1e-3))))  # short fits are easily disturbed
    for turn in range(repeats):
        start = clock()
        solution = fit_ours(p, threads)
        ours.append(clock() - start)
        if turn == 0 or theirs[0] < 3.0:
            start = clock()
            peer = fit_sklearn(p, threads)
            theirs.append(clock() - start)
    alpha = np.zeros(len(p.y))
    alpha[peer.support_] = np.abs(
        peer.dual_coef_.ravel() if hasattr(peer.dual_coef_, "ravel") else peer.dual_coef_.toarray().ravel()
    )
    ratio = min(theirs) / min(ours)
    count = len(solution.support)
    rows = solution.n_kernel_evals / max(1, count) / len(p.y)
    line = (
        f"| {p.name} | {solution.solver} | {min(theirs):.4f} | {min(ours):.4f} | **{ratio:.1f}** "
        f"| {violation_of(p, alpha):.1e} | {solution.kkt_violation:.1e} | {solution.relative_gap:.1e} | {count} | {rows:.2f} "
        f"| {min(ours) / max(limit(p, solution.support), 1e-9):.1f} |"
    )
    return line, ratio


def measure_predict(n: int, d: int, repeats: int) -> tuple[str, float]:
    """Decision values of n rows."""
    from sklearn.svm import SVC

    X, y = generated(n, d)
    half = n // 2
    solution = svmcore.train_svc(X[:half], y[:half], gamma=1 / d, n_threads=1)
    peer = SVC(gamma=1 / d).fit(X[:half], y[:half])
    ours, theirs = [], []
    for _ in range(repeats):
        start = clock()
        mine = solution.decision_function(X)
        ours.append(clock() - start)
        start = clock()
        other = peer.decision_function(X)
        theirs.append(clock() - start)
    ratio = min(theirs) / min(ours)
    name = f"{len(solution.support)} vectors, {n} rows, d={d}"
    return (
        f"| {name} | {min(theirs):.4f} | {min(ours):.4f} | **{ratio:.1f}** | {np.abs(mine - other).max():.1e} |",
        ratio,
    )


def main(arguments: list[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="classes of problems; default all")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="n <= 5000 only")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    for group in options.groups or GROUPS:
        sys.stdout.write(f"\n### {group}\n\n")
        if group == "predict":
            sys.stdout.write(
                "| problem | scikit-learn s | svmcore s | ratio | largest difference |\n|---|---|---|---|---|\n"
            )
            results = [
                measure_predict(n, d, options.repeats) for n, d in ((1000, 20), (5000, 20), (10000, 100), (5000, 2))
            ]
            for line, _ in results:
                sys.stdout.write(line + "\n")
        else:
            sys.stdout.write(
                "| problem | solver | LIBSVM s | svmcore s | ratio | violation LIBSVM | violation | relative gap | vectors "
                "| rows | x limit |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
            )
            results = []
            for problem in problems(group, options.quick):
                results.append(measure(problem, options.threads, 20 if group == "small" else options.repeats))
                sys.stdout.write(results[-1][0] + "\n")
                sys.stdout.flush()
        ratios = np.array([ratio for _, ratio in results])
        sys.stdout.write(f"\ngeometric mean {np.exp(np.log(ratios).mean()):.1f}, worst {ratios.min():.1f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
