"""Vector primitives: the few loops that need help to become vector code, each with its plain meaning beside it.

LLVM turns a maximum reduction into vector code only when the maximum is the `maxnum` instruction with the no-NaN flag;
`max()` and `if` stay scalar. `fmax` and `fmin` are that instruction, and ordinary Python when JIT is disabled.
Vectors are processed in blocks of `LANES`, through slices (a slice tells LLVM that indices do not wrap).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore._jit import DISABLED, jit
from svmcore._types import LANES

_STAMP = "5ef15aee66a4"

BIG = 1e300
"""Stands for infinity in penalties and reductions: real infinities are undefined under the no-NaN flag."""


def _scalar_intrinsic(name: str) -> Any:
    """A float64 two-operand LLVM instruction, flagged as free of NaN, as a function that jitted code can call."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def instruction(typingctx, a, b):  # noqa: ARG001
        def codegen(context, builder, signature, args):  # noqa: ARG001
            double = ir.DoubleType()
            symbol = f"llvm.{name}.f64"
            function = builder.module.globals.get(symbol)
            if function is None:
                function = ir.Function(builder.module, ir.FunctionType(double, [double, double]), symbol)
            return builder.call(function, args, fastmath=("nnan", "nsz"))

        return types.float64(types.float64, types.float64), codegen

    return instruction


if DISABLED:

    def fmax(a: float, b: float) -> float:
        """The larger of two floats."""
        return a if a >= b else b

    def fmin(a: float, b: float) -> float:
        """The smaller of two floats."""
        return a if a <= b else b

else:
    fmax = _scalar_intrinsic("maxnum")
    fmin = _scalar_intrinsic("minnum")

_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5 * 2**52: adding and subtracting it rounds to the nearest integer


@jit
def exp_nonpositive(x, bits, power):
    """exp(x) for one block of x <= 0, to about one ulp. In place: x; `power` is the float64 view of scratch `bits`.

    exp(x) = 2^n exp(r) with n = round(x log2 e), |r| <= ln(2) / 2, exp(r) by its Taylor polynomial of degree 13.
    Below -708 the answer is exp(-708), about 3e-308.
    """
    for j in range(LANES):
        t = fmax(x[j], -708.0)
        n = (t * _LOG2E + _ROUND) - _ROUND
        r = (t - n * _LN2_HIGH) - n * _LN2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        p = p * r + 1.0
        x[j] = p
        bits[j] = (np.int64(n) + 1023) << 52
    for j in range(LANES):
        x[j] *= power[j]
