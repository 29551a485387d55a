"""The whole path against fits: our `svm_path`, one scikit-learn fit at C = 1, a grid of 100 C, and our own warm grid.

    python -m bench.path [--grid] [SET:GAMMA ...]        GAMMA: lin, 1/n or a number; SET: a data set or noisyN

All in one process, alternating, process time, best of three; the kernel is part of every time.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from typing import Any

import numpy as np

import svmcore

from .tables.path_paper import load

DEFAULT = [
    "heart:lin",
    "german:lin",
    "svmguide3:lin",
    "heart:1/n",
    "wbc:1/n",
    "german:1/n",
    "svmguide3:1/n",
    "noisy1000:0.2",
]


def data(name: str) -> tuple[Any, Any]:
    """A stored set, standardised, or noisy synthetic points."""
    if not (name.startswith("noisy") and name[5:].isdigit()):
        return load(name)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(int(name[5:]), 5))
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] > 0, 1, -1)
    return X, np.where(rng.random(len(y)) < 0.1, -y, y)


def clock(run: Any) -> float:
    """Process time of one call."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def grid_by_warm_fits(X: Any, y: Any, options: dict[str, Any], tol: float) -> None:
    """100 C from small to large by our own fit, each started from the one before, scaled."""
    alpha, last = None, None
    for C in np.geomspace(1e-4, 1e3, 100):
        start = None if alpha is None else np.minimum(alpha * (C / last), C)
        alpha, last = svmcore.train_svc(X, y, float(C), tol=tol, alpha0=start, **options).alpha, C


def main(arguments: list[str]) -> int:
    from sklearn.svm import SVC

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="*", default=DEFAULT)
    parser.add_argument("--grid", action="store_true", help="also both grids of 100 C")
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    for item in chosen.sets:
        name, gamma = item.split(":")
        X, y = data(name)
        width = {"lin": 1.0, "1/n": 1.0 / X.shape[1]}.get(gamma) or float(gamma)
        options = {"kernel": "linear"} if gamma == "lin" else {"kernel": "rbf", "gamma": width}
        svmcore.svm_path(X, y, max_events=100, **options)
        path = svmcore.svm_path(X, y, **options)
        whole, one = [], []
        for _ in range(chosen.repeat):
            whole.append(clock(lambda X=X, y=y, o=options: svmcore.svm_path(X, y, **o)))
            one.append(clock(lambda X=X, y=y, o=options: SVC(C=1.0, tol=1e-3, cache_size=500, **o).fit(X, y)))
        line = (
            f"{item:16s} n {len(y):5d} events {path.stats['n_events']:6d} |E| {path.stats['elbow_max']:5d}  "
            f"path {min(whole):8.4f}  LIBSVM at C=1 {min(one):8.4f}  ratio {min(whole) / min(one):6.2f}  "
            f"gap {path.stats['max_gap']:.0e}"
        )
        if chosen.grid:
            grid = sum(
                clock(lambda C=C, X=X, y=y, o=options: SVC(C=C, cache_size=500, max_iter=10**6, **o).fit(X, y))
                for C in np.geomspace(1e-4, 1e3, 100)
            )
            own = clock(lambda X=X, y=y, o=options: grid_by_warm_fits(X, y, o, 1e-3))
            line += f"  LIBSVM grid / path {grid / min(whole):7.1f}  own grid / path {own / min(whole):6.2f}"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
