"""Named tuples of arrays, handed to compiled code by reference.

Numba takes a named tuple apart: an array becomes seven numbers, a tuple of twenty arrays 140 arguments of every function
that passes it on, unpacked at each call from Python. Here such a tuple stays where it is. Compiled code gets its address,
and reads an array's address, lengths and strides from the array object when it needs them; numbers are taken along.
A tuple cannot change, and nobody gives an array another memory during a call, so each is read at most once per function.

Only tuples of the package's own classes are treated so, and none of `simd/vector` and `simd/sparse`, whose instructions take
theirs apart.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    box,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    unbox,
)

_BY_VALUE = ("svmcore.simd.vector", "svmcore.simd.sparse")
_WORD = ctypes.sizeof(ctypes.c_void_p)
_ITEMS = tuple.__basicsize__  # where a tuple's items begin
_DATA = object.__basicsize__  # of an array: its memory, the number of its dimensions, their lengths, their strides
_LENGTHS, _STRIDES = _DATA + 2 * _WORD, _DATA + 3 * _WORD


class Record(types.Type):  # type: ignore[misc]
    """The type of a named tuple that is passed by reference; `kinds` are the types of its fields."""

    def __init__(self, instance_class: Any, kinds: tuple[Any, ...]) -> None:
        self.instance_class = instance_class
        self.kinds = kinds
        names = ", ".join(str(kind) for kind in kinds)
        super().__init__(f"{instance_class.__module__}.{instance_class.__qualname__}&({names})")

    @property
    def key(self) -> Any:
        """What makes two of them the same type."""
        return self.instance_class, self.kinds

    @property
    def mangling_args(self) -> Any:
        """A short name in symbols."""
        return self.instance_class.__name__, ()

    @property
    def numbers(self) -> list[tuple[int, str, Any]]:
        """Position, name and type of the fields that are no arrays."""
        fields = zip(self.instance_class._fields, self.kinds, strict=True)
        return [(i, name, kind) for i, (name, kind) in enumerate(fields) if not isinstance(kind, types.Array)]


def by_reference(kind: Any) -> Any:
    """The type of an argument: a record where numba sees one of our named tuples with an array in it."""
    if not isinstance(kind, types.NamedTuple | types.NamedUniTuple) or not HOLDS:
        return kind
    module = kind.instance_class.__module__
    ours = module.startswith("svmcore.") and module not in _BY_VALUE
    return Record(kind.instance_class, tuple(kind)) if ours and any(isinstance(k, types.Array) for k in kind) else kind


class _Sample(NamedTuple):
    number: int
    array: Any


def _layout_holds() -> bool:
    """Whether tuples and arrays lie in memory as assumed here."""
    if sys.implementation.name != "cpython":
        return False

    def word(address: int) -> int:
        return ctypes.c_size_t.from_address(address).value

    array = np.zeros((3, 5))[:, ::2]
    address = word(id(_Sample(7, array)) + _ITEMS + _WORD)
    if address != id(array):
        return False
    lengths, strides = word(address + _LENGTHS), word(address + _STRIDES)
    found = [word(place + k * _WORD) for place in (lengths, strides) for k in range(2)]
    return word(address + _DATA) == array.ctypes.data and found == [*array.shape, *array.strides]


HOLDS = _layout_holds()
_INTEGER, _POINTER = ir.IntType(8 * _WORD), ir.IntType(8).as_pointer()


@register_model(Record)
class _RecordModel(models.StructModel):  # type: ignore[misc]
    """The tuple's address, and its numbers."""

    def __init__(self, manager: Any, record: Record) -> None:
        numbers = [(name, kind) for _, name, kind in record.numbers]
        super().__init__(manager, record, [("tuple__", types.voidptr), *numbers])


@infer_getattr
class _RecordFields(AttributeTemplate):  # type: ignore[misc]
    key = Record

    def generic_resolve(self, record: Record, name: str) -> Any:
        fields = record.instance_class._fields
        return record.kinds[fields.index(name)] if name in fields else None


@unbox(Record)
def _unbox_record(record: Record, obj: Any, c: Any) -> NativeValue:
    proxy = cgutils.create_struct_proxy(record)(c.context, c.builder)
    proxy.tuple__ = c.builder.bitcast(obj, _POINTER)
    for position, name, kind in record.numbers:
        setattr(proxy, name, c.unbox(kind, c.pyapi.tuple_getitem(obj, position)).value)
    return NativeValue(proxy._getvalue())


@box(Record)
def _box_record(record: Record, value: Any, c: Any) -> Any:
    obj = cgutils.create_struct_proxy(record)(c.context, c.builder, value).tuple__
    c.pyapi.incref(obj)
    return obj


def describe_arguments(function: Any, description: Any) -> None:
    """Tell the compiler that the records among the arguments of a function are there, so that it may read them early."""
    arguments = {argument.name: argument for argument in function.args}
    for name, kind in zip(description.args, description.argtypes, strict=True):
        if isinstance(kind, Record):
            attributes = arguments[f"arg.{name}.0"].attributes
            attributes.align = _WORD
            attributes.dereferenceable = _ITEMS + _WORD * len(kind.kinds)


def _read(builder: Any, pointer: Any, offset: int, kind: Any = _INTEGER, behind: int = 0) -> Any:
    """A word that no call changes: the compiler may read it early, late, or once. `behind` a pointer are so many bytes."""
    value = builder.load(builder.bitcast(builder.gep(pointer, [ir.Constant(_INTEGER, offset)]), kind.as_pointer()))
    facts: dict[str, list[int]] = {"invariant.load": []}
    if behind:
        facts |= {"dereferenceable": [behind], "align": [_WORD]}
    for name, numbers in facts.items():
        value.set_metadata(name, builder.module.add_metadata([ir.Constant(ir.IntType(64), k) for k in numbers]))
    return value


array_fields = ("meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides")
"""Of what numba has of an array, in order."""


@lower_getattr_generic(Record)
def read_field(context: Any, builder: Any, record: Record, value: Any, name: str) -> Any:
    """The value of a field."""
    position = record.instance_class._fields.index(name)
    kind = record.kinds[position]
    if not isinstance(kind, types.Array):
        number = [other for _, other, _ in record.numbers].index(name)
        return builder.extract_value(value, 1 + number)
    pointer = builder.extract_value(value, 0)
    return read_array(
        context, builder, kind, _read(builder, pointer, _ITEMS + _WORD * position, _POINTER, behind=_STRIDES + _WORD)
    )


def read_array(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """An array as compiled code has it, from the address of the array object."""
    lengths = _read(builder, array, _LENGTHS, _POINTER, behind=_WORD * kind.ndim)
    shape = [_read(builder, lengths, _WORD * k) for k in range(kind.ndim)]
    size = ir.Constant(_INTEGER, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    if kind.layout == "C":
        strides = [size]
        for length in shape[:0:-1]:
            strides.insert(0, builder.mul(strides[0], length, flags=("nsw",)))
    else:
        steps = _read(builder, array, _STRIDES, _POINTER, behind=_WORD * kind.ndim)
        strides = [_read(builder, steps, _WORD * k) for k in range(kind.ndim)]
    count = shape[0] if shape else ir.Constant(_INTEGER, 1)
    for length in shape[1:]:
        count = builder.mul(count, length, flags=("nsw",))
    whole = ir.Constant(context.get_value_type(kind), None)  # owned by the array object, which outlives the call
    data = builder.bitcast(_read(builder, array, _DATA, _POINTER), whole.type.elements[4])
    packed = (cgutils.pack_array(builder, numbers, ty=_INTEGER) for numbers in (shape, strides))
    for place, part in enumerate((count, size, data, *packed), start=2):
        whole = builder.insert_value(whole, part, place)
    return whole
