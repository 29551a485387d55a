"""What becomes of the intercept: found with the weights, embedded in the kernel, or fixed beforehand."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from svmcore._errors import InputError
from svmcore._types import FloatArray, Kernel
from svmcore.kernel.matrix import KernelMatrix
from svmcore.problem import border
from svmcore.problem.border import KernelSpec

EMBEDDED = "embedded"
"""The word for a regularised intercept, in place of True and False."""


class Intercept(NamedTuple):
    """What is wanted. `scaling` is the tau of the embedding K + tau^2, or "auto", which is its default."""

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


_FOUND = Intercept(True, None, 0.0)


def wanted(fit_intercept: Any, intercept_scaling: Any, fixed_intercept: Any) -> Intercept:
    """What the three words about the intercept ask for together."""
    if fit_intercept is True and intercept_scaling is None and fixed_intercept is None:
        return _FOUND
    embedded = isinstance(fit_intercept, str)
    if embedded and fit_intercept != EMBEDDED:
        raise InputError(f"fit_intercept={fit_intercept!r} is not known; choose True, False or {EMBEDDED!r}")
    if embedded:
        intercept_scaling = "auto" if intercept_scaling is None else intercept_scaling
    found = not embedded and border.flag("fit_intercept", fit_intercept)
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


def by_size(fit_intercept: Any, intercept_scaling: Any) -> bool:
    """Whether tau is read off the points."""
    left_open = isinstance(fit_intercept, str) and intercept_scaling is None
    return left_open or isinstance(intercept_scaling, str)


def settled(form: dict[str, Any], kernel: Kernel) -> dict[str, Any]:
    """`intercept_scaling` as later changes of a machine keep it: the number that tau has become."""
    given = form.get("intercept_scaling")
    if by_size(form.get("fit_intercept", True), given):
        return {"intercept_scaling": math.sqrt(kernel.offset)}
    return {"intercept_scaling": given} if "intercept_scaling" in form else {}
