"""Vector instructions, emitted through an llvmlite builder: the primitives of `simd/vector` are built from them."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from svmcore.compiler.jit import DISABLED, host_features

_WIDE = "avx512f" in host_features()
REGISTERS = 4 if _WIDE else 2
REGISTER_BYTES = 64 if _WIDE else 32
MULTIPLIES_PAIRS = any("vnni" in each for each in host_features())
"""Whether `Lanes.add_pairs` is one instruction."""

_EXP2_32 = (
    1.0,
    0.6931469775948397,
    0.2402224208254222,
    0.05550733749450752,
    0.009671512769608074,
    0.0013264725334697438,
)
_EXP2_64 = (
    1.0,
    0.6931471805599453,
    0.2402265069591013,
    0.05550410866482018,
    0.00961812910759459,
    0.0013333558146758065,
    0.00015403530456645757,
    1.525273350579181e-05,
    1.3215435478450683e-06,
    1.0178195047954177e-07,
    7.0737534132806355e-09,
    4.4353820776488477e-10,
)
"""Coefficients of 2^r on [-1/2, 1/2], the constant first. Both are minimax polynomials that are exact at 0.

Their relative errors are 9e-8 in float32 and 4e-18 in float64.
"""


HALF = ir.IntType(16)
BYTE = ir.IntType(8)
UNITS_16 = 65535.0
"""Kernel values in [0, 1] may be stored as 16-bit multiples of 1 / UNITS_16."""


class Lanes:
    """Arithmetic on one register of numbers, emitted through an llvmlite builder.

    Integers of 32 bits stand beside float32 numbers: what is made of them is float32.
    """

    def __init__(self, builder: Any, dtype: Any) -> None:
        single = dtype != types.float64
        self.b = builder
        self.single = single
        self.count = REGISTER_BYTES // (4 if single else 8)
        self.real = ir.FloatType() if single else ir.DoubleType()
        self.whole = ir.IntType(32 if single else 64)
        self.vector = ir.VectorType(self.real, self.count)
        self.wholes = ir.VectorType(self.whole, self.count)
        self.suffix = f"v{self.count}f{32 if single else 64}"

    def call(self, name: str, *args: Any, result: Any = None, flags: tuple[str, ...] = ()) -> Any:
        """Call the LLVM instruction `name` on vectors."""
        symbol = f"llvm.{name}.{self.suffix if args[0].type == self.vector else f'v{self.count}i{self.whole.width}'}"
        function = self.b.module.globals.get(symbol)
        if function is None:
            kind = ir.FunctionType(result or self.vector, [a.type for a in args])
            function = ir.Function(self.b.module, kind, symbol)
        return self.b.call(function, args, fastmath=flags)

    def constant(self, x: float) -> Any:
        """One number in every lane."""
        return ir.Constant(self.vector, [float(x)] * self.count)

    def integers(self, x: Any) -> Any:
        """A register of whole numbers: the same one in every lane, or a list that has one for each lane."""
        return ir.Constant(self.wholes, [x] * self.count if isinstance(x, int) else list(x))

    def scalar(self, x: Any) -> Any:
        """An argument of type double, converted to the register's own number type."""
        return self.b.fptrunc(x, self.real) if self.single and x.type == ir.DoubleType() else x

    def splat(self, x: Any) -> Any:
        """The same number in every lane."""
        x, zeros = self.scalar(x), ir.Constant(ir.VectorType(ir.IntType(32), self.count), [0] * self.count)
        empty = ir.Constant(ir.VectorType(x.type, self.count), ir.Undefined)
        first = self.b.insert_element(empty, x, ir.Constant(ir.IntType(32), 0))
        return self.b.shuffle_vector(first, empty, zeros)

    def load(self, pointer: Any, index: Any) -> Any:
        """A register, read from an array of its own type or of 16-bit integers."""
        element = pointer.type.pointee
        kind = ir.VectorType(element, self.count)
        where = self.b.bitcast(self.b.gep(pointer, [index]), kind.as_pointer())
        align = 2 if element == HALF else 4 if self.single else 8
        value = self.b.load(where, align=align)
        return self.b.sitofp(self.b.zext(value, self.wholes), self.vector) if element == HALF else value

    def store(self, value: Any, pointer: Any, index: Any) -> None:
        """Write a register to an array of its own type, of a shorter one, or of 16-bit integers.

        A 16-bit integer is the number of units of 1 / `UNITS_16`.
        """
        align = 4 if self.single else 8
        if pointer.type.pointee == ir.FloatType() and not self.single:
            value = self.b.fptrunc(value, ir.VectorType(ir.FloatType(), self.count))
            align = 4
        if pointer.type.pointee == HALF:
            fraction = self.call("rint", self.b.fmul(value, self.constant(UNITS_16)))
            value = self.b.trunc(self.b.fptosi(fraction, self.wholes), ir.VectorType(HALF, self.count))
            align = 2
        where = self.b.bitcast(self.b.gep(pointer, [index]), value.type.as_pointer())
        self.b.store(value, where, align=align)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a b + c, in one rounding where the processor has it."""
        return self.call("fmuladd", a, b, c)

    def add_pairs(self, a: Any, b: Any, c: Any) -> Any:
        """c plus the products of both halves of a and b: a lane holds two integers of 16 bits, and their sum in 32."""
        wide = self.count == 16
        halves = ir.VectorType(HALF, 2 * self.count)
        symbol = "llvm.x86.avx512.pmaddw.d.512" if wide else "llvm.x86.avx2.pmadd.wd"
        function = self.b.module.globals.get(symbol)
        if function is None:
            function = ir.Function(self.b.module, ir.FunctionType(self.wholes, [halves, halves]), symbol)
        return self.b.add(c, self.b.call(function, [self.b.bitcast(each, halves) for each in (a, b)]))

    def larger(self, a: Any, b: Any) -> Any:
        """The larger one, lane by lane."""
        return self.b.select(self.b.fcmp_ordered(">", a, b), a, b)

    def smaller(self, a: Any, b: Any) -> Any:
        """The smaller one, lane by lane."""
        return self.b.select(self.b.fcmp_ordered("<", a, b), a, b)

    def reciprocal(self, a: Any) -> Any:
        """1 / a for positive a. In float32 a guess from the bits of a is followed by a Newton step.

        It is up to 0.3 % too small, which is near enough to choose by.
        """
        if not self.single:
            return self.b.fdiv(self.constant(1.0), a)
        guess = self.b.sub(self.integers(0x7EF311C7), self.b.bitcast(a, self.wholes))
        y = self.b.bitcast(guess, self.vector)
        return self.b.fmul(y, self.fma(self.b.fneg(a), y, self.constant(2.0)))

    def sum(self, a: Any) -> Any:
        """The sum of the lanes, by halves."""
        count = self.count
        while count > 1:
            count //= 2
            upper = ir.Constant(
                ir.VectorType(ir.IntType(32), self.count), [(i + count) % self.count for i in range(self.count)]
            )
            a = self.b.fadd(a, self.b.shuffle_vector(a, a, upper))
        return self.b.extract_element(a, ir.Constant(ir.IntType(32), 0))

    def exp2_minus(self, x: Any) -> Any:
        """2^-x for x >= 0. Let n be x rounded, and let r = n - x.

        A polynomial gives 2^r. Then n is subtracted from the exponent of that number.
        """
        x = self.smaller(x, self.constant(126.0 if self.single else 1022.0))
        n = self.call("rint", x)
        r = self.b.fsub(n, x)
        coefficients = _EXP2_32 if self.single else _EXP2_64
        p = self.constant(coefficients[-1])
        for c in coefficients[-2::-1]:
            p = self.fma(p, r, self.constant(c))
        exponent = self.b.shl(self.b.fptosi(n, self.wholes), self.integers(23 if self.single else 52))
        return self.b.bitcast(self.b.sub(self.b.bitcast(p, self.wholes), exponent), self.vector)


def emit_for(builder: Any, stop: Any, step: int, carried: list[Any], body: Any) -> list[Any]:
    """Emit ``for k in range(0, stop, step): carried = body(k, carried)`` and return the last `carried`."""
    before = builder.block
    head, inside, after = (builder.append_basic_block(name) for name in ("head", "inside", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    k = builder.phi(stop.type)
    k.add_incoming(ir.Constant(stop.type, 0), before)
    values = [builder.phi(value.type) for value in carried]
    for phi, value in zip(values, carried, strict=True):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", k, stop), inside, after)
    builder.position_at_end(inside)
    following = body(k, values)
    k.add_incoming(builder.add(k, ir.Constant(stop.type, step), flags=("nsw",)), builder.block)
    for phi, value in zip(values, following, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return values


def emit_if(builder: Any, condition: Any, then: Any, otherwise: Any) -> list[Any]:
    """Emit ``then() if condition else otherwise()``. Both return the same number of values."""
    with builder.if_else(condition) as (first, second):
        with first:
            ours, here = then(), builder.block
        with second:
            theirs, there = otherwise(), builder.block
    values = [builder.phi(value.type) for value in ours]
    for phi, one, other in zip(values, ours, theirs, strict=True):
        phi.add_incoming(one, here)
        phi.add_incoming(other, there)
    return values


def emit_sums(builder: Any, count: Any, chunk: int, zeros: list[Any], add: Any) -> list[Any]:
    """Emit sums over k < count, where add(k, sums) adds the terms. From more than `chunk` terms on, parts are summed first.

    Few terms have code of their own: what holds the sums of parts would take their registers.
    """
    whole = integer(chunk)

    def part(first: Any) -> list[Any]:
        left = builder.sub(count, first)
        length = builder.select(builder.icmp_signed("<", left, whole), left, whole)
        return emit_for(builder, length, 1, zeros, lambda k, sums: add(builder.add(first, k), sums))

    def one_more(c: Any, totals: list[Any]) -> list[Any]:
        sums = part(builder.mul(builder.add(c, integer(1)), whole))
        return [builder.fadd(total, one) for total, one in zip(totals, sums, strict=True)]

    def in_parts() -> list[Any]:
        others = builder.sdiv(builder.sub(count, integer(1)), whole)
        return emit_for(builder, others, 1, part(integer(0)), one_more)

    few = builder.icmp_signed("<=", count, whole)
    return emit_if(builder, few, lambda: emit_for(builder, count, 1, zeros, add), in_parts)


def _unpacked(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """An argument of an instruction: an array becomes (data pointer, shape), a tuple with arrays a list, others stay."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        return array.data, cgutils.unpack_tuple(builder, array.shape)
    if isinstance(kind, types.BaseTuple) and any(isinstance(field, types.Array) for field in kind):
        return [_unpacked(context, builder, field, builder.extract_value(value, i)) for i, field in enumerate(kind)]
    return value


def instruction(emit: Any, plain: Any, result: Any = None) -> Any:
    """What compiled code calls to have `emit` write instructions. It means `plain`, which is what runs without JIT.

    ``emit(builder, kinds, *arguments)`` gets the arguments unpacked, and their types in `kinds`, by their names. Numbers
    become whole ones of 64 bits, or of the number type of the first array. ``result(number type)`` is what comes back.
    """
    if DISABLED:
        return plain
    parameters = list(inspect.signature(emit).parameters.values())
    names = [parameter.name for parameter in parameters[2:]]

    def define(typingctx, *given):  # noqa: ARG001
        real = next(kind.dtype for kind in given if isinstance(kind, types.Array))
        taken = [
            types.intp if isinstance(kind, types.Integer) else real if isinstance(kind, types.Float) else kind
            for kind in given
        ]

        def codegen(context, builder, signature, args):
            kinds = SimpleNamespace(**dict(zip(names, given, strict=True)))
            values = (_unpacked(context, builder, *each) for each in zip(signature.args, args, strict=True))
            found = emit(builder, kinds, *values)
            if isinstance(found, list):
                return context.make_tuple(builder, signature.return_type, found)
            return context.get_dummy_value() if found is None else found

        return (types.void if result is None else result(real))(*taken), codegen

    # Numba looks at the names of the arguments, too. The builder stands for the typing context.
    named: Any = define
    named.__name__ = emit.__name__
    named.__signature__ = inspect.Signature([parameters[0], *parameters[2:]])
    return intrinsic(named)


def position(builder: Any, shape: Any, *indices: Any) -> Any:
    """Position of an element in a C-ordered array."""
    position = indices[0]
    for length, index in zip(shape[1:], indices[1:], strict=True):
        position = builder.add(builder.mul(position, length), index)
    return position


def integer(i: int) -> Any:
    """A 64-bit whole number."""
    return ir.Constant(ir.IntType(64), i)


if DISABLED:

    def fetch(values: Any, place: int) -> None:
        """Ask for the cache line of ``values[place]``, which is read soon. It changes no value."""

else:  # pragma: no cover  (exists compiled only)

    @intrinsic
    def fetch(typingctx, values, place):  # noqa: ARG001
        """Ask for the cache line of ``values[place]``, which is read soon. It changes no value."""

        def codegen(context, builder, signature, args):
            array = context.make_array(signature.args[0])(context, builder, args[0])
            byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            address = builder.bitcast(builder.gep(array.data, [args[1]]), byte)
            kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            symbol = "llvm.prefetch.p0i8"
            function = builder.module.globals.get(symbol) or ir.Function(builder.module, kind, symbol)
            builder.call(function, [address, number(0), number(3), number(1)])
            return context.get_dummy_value()

        return types.void(values, types.int64), codegen
