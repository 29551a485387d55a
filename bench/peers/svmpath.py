"""R's svmpath, through Rscript, where R and the package are there. It times itself: starting R is not the path.

Its multipliers are ours times lambda = 1 / C, in [0, 1], and linear in lambda between its steps.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.objective import Answer
from bench.problems import Problem

NAME = "R svmpath"
MOST_POINTS = 1_000  # it stores n x steps multipliers, and factors afresh at every step
_PATIENCE = 120.0  # seconds
_SCRIPT = """
folder <- commandArgs(trailingOnly = TRUE)[1]
input <- as.matrix(read.csv(file.path(folder, "input.csv"), header = FALSE))
y <- input[, 1]
x <- input[, -1, drop = FALSE]
kernel <- if (%(rbf)s) svmpath::radial.kernel else svmpath::poly.kernel
K <- kernel(x, x, param.kernel = %(parameter)r)
seconds <- system.time(
  path <- svmpath::svmpath(x, y, K = K, kernel.function = kernel, param.kernel = %(parameter)r,
                           lambda.min = %(lowest)r, Nmoves = 100 * length(y), trace = FALSE, plot.it = FALSE)
)
output <- rbind(path$lambda, path$alpha0, path$alpha)
write.table(output, file.path(folder, "output.csv"), sep = ",", row.names = FALSE, col.names = FALSE)
cat(sum(seconds[1:2]), seconds[3])
"""


class Steps(NamedTuple):
    """A path as R returned it: lambda, intercept and multipliers at every step, and its own times."""

    lambdas: np.ndarray
    intercepts: np.ndarray  # times lambda
    alphas: np.ndarray  # (n, steps), times lambda
    cpu: float
    wall: float

    def answer(self, problem: Problem, C: float) -> Answer:
        """Linear interpolation at lambda = 1 / C."""
        rising = self.lambdas[::-1]
        alpha = np.array([np.interp(1.0 / C, rising, row[::-1]) for row in self.alphas])
        return Answer(C * alpha * problem.y, C * float(np.interp(1.0 / C, rising, self.intercepts[::-1])))


@functools.cache
def missing() -> str:
    """Why it cannot run here; empty when it can."""
    if shutil.which("Rscript") is None:
        return "Rscript is not installed"
    question = 'quit(status = if (requireNamespace("svmpath", quietly = TRUE)) 0 else 1)'
    found = subprocess.run(["Rscript", "-e", question], capture_output=True, check=False)
    return "" if found.returncode == 0 else "the R package svmpath is not installed"


def run(problem: Problem, lowest: float) -> Steps:
    """The path down to lambda = `lowest`; RuntimeError with R's words where it fails."""
    parameters = {
        "rbf": "TRUE" if problem.kernel == "rbf" else "FALSE",
        "parameter": problem.gamma_value if problem.kernel == "rbf" else 1.0,
        "lowest": lowest,
    }
    with tempfile.TemporaryDirectory() as folder:
        np.savetxt(Path(folder) / "input.csv", np.column_stack([problem.y, problem.X]), delimiter=",", fmt="%.17g")
        script = Path(folder) / "run.R"
        script.write_text(_SCRIPT % parameters, encoding="utf-8")
        try:
            done = subprocess.run(
                ["Rscript", str(script), folder], capture_output=True, text=True, check=False, timeout=_PATIENCE
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"not done after {_PATIENCE:g} s") from None
        if done.returncode != 0:
            raise RuntimeError(" ".join(done.stderr.split())[-200:] or "R failed")
        output = np.loadtxt(Path(folder) / "output.csv", delimiter=",", ndmin=2)
    cpu, wall = (float(word) for word in done.stdout.split()[-2:])
    return Steps(output[0], output[1], output[2:], cpu, wall)
