"""What becomes of the intercept: found with the weights, embedded in the kernel, or fixed beforehand."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from svmcore._errors import InputError
from svmcore._types import FloatArray, Kernel
from svmcore.kernel.matrix import KernelMatrix
from svmcore.problem import border
from svmcore.problem.border import KernelSpec


class Intercept(NamedTuple):
    """What is wanted. `scaling` is the tau of the embedding K + tau^2, or "auto"."""

    found: bool  # there is an equality row
    scaling: float | str | None
    fixed: float

    def embedded(self, spec: KernelSpec, X: Any, weights: FloatArray | None) -> KernelSpec:
        """The kernel K + tau^2; "auto" makes tau the largest norm of a point in feature space."""
        if self.scaling is None:
            return spec
        if isinstance(self.scaling, str):
            squares = KernelMatrix(X, spec.kernel, spec.function, cache_bytes=0).diagonal
            offset = float(squares.max(initial=0.0, where=True if weights is None else weights > 0))
        else:
            offset = self.scaling**2
        return spec._replace(kernel=spec.kernel._replace(offset=offset))


def wanted(fit_intercept: Any, intercept_scaling: Any, fixed_intercept: Any) -> Intercept:
    """What the three words about the intercept ask for together."""
    found = border.flag("fit_intercept", fit_intercept)
    for name, value, what in [
        ("intercept_scaling", intercept_scaling, "a regularised intercept"),
        ("fixed_intercept", fixed_intercept, "an intercept that is given and not found"),
    ]:
        if found and value is not None:
            raise InputError(f"{name}={value!r} stands for {what} and needs fit_intercept=False")
    if isinstance(intercept_scaling, str):
        border.choice("intercept_scaling", intercept_scaling, ("auto",))
    elif intercept_scaling is not None:
        intercept_scaling = border.number("intercept_scaling", intercept_scaling, low=0.0)
    fixed = 0.0 if fixed_intercept is None else border.number("fixed_intercept", fixed_intercept)
    return Intercept(found, intercept_scaling, fixed)


def settled(intercept_scaling: Any, kernel: Kernel) -> Any:
    """`intercept_scaling` as later changes of a machine keep it: the number that "auto" has become."""
    return math.sqrt(kernel.offset) if isinstance(intercept_scaling, str) else intercept_scaling
