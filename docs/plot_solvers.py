"""Draw docs/solvers.png: the objective's distance to the optimum against kernel values and against time.

Time is read from progress reports (a callback), so it includes what a callback costs: use it for shapes, not for races.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import svmcore

SOLVERS = {
    "smo": {}, "simple": {"scan": "max"}, "rosen": {"face_steps": False}, "rosen-cg": {}, "decomposition": {"q": 10},
    "chunking": {"size": 20},
}  # fmt: skip


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 6))
    return X, np.where(X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=400) > 0, 1, -1)


def main() -> None:
    """Fit, draw, save."""
    X, y = problem()
    options = {"C": 10.0, "gamma": 0.15}
    best = svmcore.train_svc(X, y, tol=1e-10, **options).objective
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for name, own in SOLVERS.items():
        reports: list[tuple[float, float]] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            svmcore.train_svc(X, y, solver=name, max_iter=3, **own, **options)  # compile
            run = svmcore.train_svc(X, y, solver=name, tol=1e-6, trace=True, max_iter=20000, **own, **options)
            keep = lambda report, to=reports: to.append((report.seconds, report.objective))  # noqa: E731
            svmcore.train_svc(X, y, solver=name, tol=1e-6, max_iter=20000, callback=keep, **own, **options)
        gap = np.maximum(run.trace["objective"] - best, 1e-10) / abs(best)
        left.semilogy(run.trace["n_kernel_evals"] / 1e3, gap, label=name)
        times = np.array(reports)
        right.loglog(1e3 * times[:, 0], np.maximum(times[:, 1] - best, 1e-10) / abs(best), label=name)
    left.set(xlabel="kernel values (thousands)", ylabel="(f - f*) / |f*|", ylim=(1e-9, 2))
    right.set(xlabel="milliseconds")
    left.legend()
    figure.tight_layout()
    figure.savefig(Path(__file__).with_name("solvers.png"), dpi=110)


if __name__ == "__main__":
    main()
