"""Draw docs/solvers.png: the objective's distance to the optimum against kernel values and against time.

A point of the right picture is a run of its own, stopped after so many iterations: processor seconds on one thread, its
certificate included, the better of two.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import svmcore

SOLVERS: dict[str, dict[str, Any]] = {
    "smo": {}, "simple": {"scan": "max"}, "rosen": {"face_steps": False}, "rosen-cg": {}, "decomposition": {"q": 10},
    "chunking": {"size": 20}, "block": {},
}  # fmt: skip
POINTS = 14
LEAST = 1e-10


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(800, 6))
    return X, np.where(X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=800) > 0, 1, -1)


def timed(fit: Any) -> tuple[float, float]:
    """(processor milliseconds, objective) of the faster of two runs."""
    runs = []
    for _ in range(2):
        started = time.process_time()
        solution = fit()
        runs.append((1e3 * (time.process_time() - started), solution.objective))
    return min(runs)


def main() -> None:
    """Fit, draw, save."""
    warnings.simplefilter("ignore")
    X, y = problem()
    options = {"C": 10.0, "gamma": 0.15, "tol": 1e-6, "n_threads": 1}
    best = svmcore.train_svc(X, y, **{**options, "tol": 1e-11}).objective
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), sharey=True)
    for name, own in SOLVERS.items():
        run = svmcore.train_svc(X, y, solver=name, trace=True, max_iter=30000, **own, **options)
        colour = None
        if name != "block":  # it counts its float32 values when it ends
            gap = np.maximum(run.trace["objective"] - best, 0.0) / abs(best) + LEAST
            (line,) = left.semilogy(run.trace["n_kernel_evals"] / 1e3, gap, label=name)
            colour = line.get_color()
        counts = np.unique(np.geomspace(1, max(run.n_iter, 2), POINTS).astype(int))
        found = [
            timed(
                lambda k=int(k), name=name, own=own: svmcore.train_svc(X, y, solver=name, max_iter=k, **own, **options)
            )
            for k in counts
        ]
        times, values = np.array(sorted(found)).T
        gaps = np.minimum.accumulate(np.maximum(values - best, 0.0) / abs(best) + LEAST)
        right.loglog(times, gaps, "o-", ms=3, color=colour or "black", label=name)
    left.set(xlabel="kernel values (thousands)", ylabel="(f - f*) / |f*|", ylim=(LEAST / 2, 2))
    right.set(xlabel="processor milliseconds, certificate included")
    for axis in (left, right):
        axis.grid(alpha=0.3)
    left.legend(*right.get_legend_handles_labels(), fontsize=8, loc="lower left")
    figure.suptitle("n = 800, rbf, C = 10: kernel values fetched until then, and time", fontsize=10)
    figure.tight_layout()
    figure.savefig(Path(__file__).with_name("solvers.png"), dpi=110)


if __name__ == "__main__":
    main()
