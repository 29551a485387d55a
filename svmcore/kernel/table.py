"""What the rooms ask about kernels: one row a kernel."""

from __future__ import annotations

from typing import NamedTuple

from svmcore._types import Kernel, KernelKind


class KernelFacts(NamedTuple):
    """A row of the table."""

    measure: str
    """What its values are functions of: "product" x'z, "square" |x - z|^2, "cityblock" |x - z|_1, or "": not of features."""
    parameters: tuple[str, ...] = ()
    """The fields of `Kernel` that it uses, besides the offset."""
    positive: bool = False
    """Whether its matrices are positive semi-definite as long as gamma and coef0 are not negative."""

    @property
    def exponential(self) -> bool:
        """Whether it is exp(-gamma distance), with values in (0, 1]."""
        return self.measure in ("square", "cityblock")


TABLE = {
    KernelKind.LINEAR: KernelFacts("product", (), positive=True),
    KernelKind.POLY: KernelFacts("product", ("gamma", "degree", "coef0"), positive=True),
    KernelKind.SIGMOID: KernelFacts("product", ("gamma", "coef0")),
    KernelKind.RBF: KernelFacts("square", ("gamma",), positive=True),
    KernelKind.LAPLACIAN: KernelFacts("cityblock", ("gamma",), positive=True),
    KernelKind.PRECOMPUTED: KernelFacts(""),
    KernelKind.CALLABLE: KernelFacts(""),
}


def facts_of(kernel: Kernel) -> KernelFacts:
    """The row of a kernel."""
    return TABLE[KernelKind(kernel.kind)]


def name_of(kernel: Kernel) -> str:
    """What users and files call it."""
    return KernelKind(kernel.kind).name.lower()


def parameters_of(kernel: Kernel) -> dict[str, float]:
    """The parameters that it uses."""
    return {name: getattr(kernel, name) for name in facts_of(kernel).parameters}


def is_positive(kernel: Kernel) -> bool:
    """Whether its matrices are known to be positive semi-definite."""
    return facts_of(kernel).positive and kernel.gamma >= 0.0 and kernel.coef0 >= 0.0
