"""What the other rooms ask about kernels. The table has one row for each kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from svmcore._types import FloatArray, Kernel, KernelKind

Value = Callable[[Kernel, FloatArray], FloatArray]


def _itself(kernel: Kernel, measure: FloatArray) -> FloatArray:  # noqa: ARG001
    return measure


class KernelFacts(NamedTuple):
    """A row of the table."""

    measure: str
    """What its values are functions of: "product" x'z, "square" |x - z|^2 or "cityblock" |x - z|_1.

    It is "" where values are not computed from features by us.
    """
    parameters: tuple[str, ...] = ()
    """The fields of `Kernel` that it uses, besides the offset."""
    positive: bool = False
    """Whether its matrices are positive semi-definite as long as gamma and coef0 are not negative."""
    value: Value = _itself
    """Its values without the offset, given what they are functions of. It serves a few values. Loops are in `_kernels`."""

    @property
    def exponential(self) -> bool:
        """Whether it is exp(-gamma distance), with values in (0, 1]."""
        return self.measure in ("square", "cityblock")


def _power(kernel: Kernel, products: FloatArray) -> FloatArray:
    """(gamma x'z + coef0)^degree by repeated squaring. The power of numpy takes many times longer."""
    base, exponent = kernel.gamma * products + kernel.coef0, kernel.degree
    result: FloatArray | None = None
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        base = base * base if exponent else base
    return np.ones_like(base) if result is None else result


def _tanh(kernel: Kernel, products: FloatArray) -> FloatArray:
    return np.tanh(kernel.gamma * products + kernel.coef0)


def _exponential(kernel: Kernel, distances: FloatArray) -> FloatArray:
    return np.exp(-kernel.gamma * distances)


TABLE = {
    KernelKind.LINEAR: KernelFacts("product", (), positive=True),
    KernelKind.POLY: KernelFacts("product", ("gamma", "degree", "coef0"), positive=True, value=_power),
    KernelKind.SIGMOID: KernelFacts("product", ("gamma", "coef0"), value=_tanh),
    KernelKind.RBF: KernelFacts("square", ("gamma",), positive=True, value=_exponential),
    KernelKind.LAPLACIAN: KernelFacts("cityblock", ("gamma",), positive=True, value=_exponential),
    KernelKind.PRECOMPUTED: KernelFacts(""),
    KernelKind.CALLABLE: KernelFacts(""),
}


def facts_of(kernel: Kernel) -> KernelFacts:
    """The row of a kernel."""
    return TABLE[kernel.kind]  # type: ignore[index]  # numbers equal the kinds, which take time to make


def name_of(kernel: Kernel) -> str:
    """What users and files call it."""
    return KernelKind(kernel.kind).name.lower()


def parameters_of(kernel: Kernel) -> dict[str, float]:
    """The parameters that it uses."""
    return {name: getattr(kernel, name) for name in facts_of(kernel).parameters}


def is_positive(kernel: Kernel) -> bool:
    """Whether its matrices are known to be positive semi-definite."""
    return facts_of(kernel).positive and kernel.gamma >= 0.0 and kernel.coef0 >= 0.0
