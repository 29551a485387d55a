"""A problem is a data set with everything that defines its optimum; every solver is handed the same numbers."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench import data


@dataclass(frozen=True)
class Problem:
    """One optimisation problem. `gamma` None means 1 / number of features. `epsilon` makes it a regression."""

    data: str
    C: float = 1.0
    kernel: str = "rbf"
    gamma: float | None = None
    degree: int = 3
    coef0: float = 0.0
    loss: str = "hinge"
    fit_intercept: bool = True
    epsilon: float | None = None

    @property
    def name(self) -> str:
        """Short, unique, readable."""
        parts = [self.data, self.kernel, f"C={self.C:g}"]
        if self.gamma is not None:
            parts.append(f"gamma={self.gamma:g}")
        if self.epsilon is not None:
            parts.append("regression")
        if self.loss != "hinge":
            parts.append(self.loss)
        if not self.fit_intercept:
            parts.append("no intercept")
        return " ".join(parts)

    @property
    def X(self) -> Any:
        return data.load(self.data).X

    @property
    def y(self) -> np.ndarray:
        return data.load(self.data).y

    @property
    def n(self) -> int:
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        return int(self.X.shape[1])

    @property
    def sparse(self) -> bool:
        return hasattr(self.X, "indptr")

    @property
    def regression(self) -> bool:
        return self.epsilon is not None

    @property
    def gamma_value(self) -> float:
        return 1.0 / self.d if self.gamma is None else self.gamma

    def keywords(self) -> dict[str, Any]:
        """What `svmcore.train_svc` and `svmcore.certificate` call it."""
        loss = self.loss if not self.regression else "epsilon_insensitive"
        return {
            "kernel": self.kernel,
            "gamma": self.gamma_value,
            "degree": self.degree,
            "coef0": self.coef0,
            "loss": loss,
            "fit_intercept": self.fit_intercept,
        }

    def kernel_keywords(self) -> dict[str, Any]:
        """What scikit-learn's classes call the kernel."""
        return {"kernel": self.kernel, "gamma": self.gamma_value, "degree": self.degree, "coef0": self.coef0}

    def described(self) -> dict[str, Any]:
        """For a results file."""
        return {**asdict(self), "name": self.name, "n": self.n, "d": self.d, "gamma": self.gamma_value}


@functools.lru_cache(maxsize=4)
def reference(problem: Problem) -> float:
    """A certified lower bound of the primal optimum: minus the dual objective of a tight fit of ours."""
    import svmcore

    keywords = problem.keywords()
    if problem.epsilon is not None:
        solution = svmcore.train_svr(problem.X, problem.y, problem.C, problem.epsilon, tol=1e-6, **keywords)
    else:
        solution = svmcore.train_svc(problem.X, problem.y, problem.C, tol=1e-6, **keywords)
    return -solution.objective
