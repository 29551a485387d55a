"""Numba, quicker: what its compiler does often and slowly, done the same way in less time.

Each function here takes the place of one of numba's while a root compiles (`roots`), and no longer. What it does not
know it hands to the one it replaces. Private names of numba, as in `roots`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import NoneType
from typing import Any

from numba.core import interpreter, ir, typeinfer
from numba.core.cpu import CPUContext
from numba.core.errors import ForceLiteralArg, TypingError
from numba.core.imputils import builtin_registry
from numba.core.postproc import PostProcessor
from numba.core.pythonapi import NativeValue, PythonAPI
from numba.core.types import Array
from numba.core.types.functions import BaseFunction
from numba.core.types.misc import Module
from numba.core.typing.context import BaseContext

from svmcore.compiler.records import HOLDS, read_array


def _process(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """After a pass: which variable lives how long matters only where references are counted."""
    if self.func_ir.variable_lifetime is None or getattr(self.func_ir.func_id, "counts_references", True):
        _SLOWER[PostProcessor, "run"](self, emit_dels, extend_lifetimes)


def _get_abi_sizeof(self: Any, kind: Any) -> int:
    """The size of a type, which llvmlite has a module of its own printed and read for, each time."""
    if kind not in _sizes:
        _sizes[kind] = _SLOWER[CPUContext, "get_abi_sizeof"](self, kind)
    return _sizes[kind]


def _get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
    """The signature of an operator on some types; numba tries all there are each time."""
    question = (self.key, args)
    if kws or question not in answers:
        answer = _SLOWER[BaseFunction, "get_call_type"](self, context, args, kws)
        if kws:
            return answer
        answers[question] = (answer, self._impl_keys[answer.args])
    answer, self._impl_keys[answer.args] = answers[question]
    return answer


def _get_function(self: Any, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
    """How to write a call down; what is not known may have just been defined, or is in modules that homes do not need.

    Each array is asked for something that none has, and each function as one of its kind.
    """
    final = not _firstcall or isinstance(fn, type) or fn == "__array__"
    for learn in (None, _refresh, learn_all):
        if learn is not None:
            learn(self)
        try:
            return _SLOWER[CPUContext, "get_function"](self, fn, sig, _firstcall=False)
        except NotImplementedError:
            if final or learn is learn_all:
                raise
    raise AssertionError


def _refresh(self: Any) -> None:
    """Learn what has just been defined. Numba would look through all that it has."""
    for registry in list(self._registries):
        self.install_registry(registry)


def learn(context: Any) -> None:
    """Learn what homes speak of: numbers, tuples, ranges, arrays. All that numba has would take as long as a large root."""
    from numba.core import optional  # noqa: F401
    from numba.core.runtime import rtsys
    from numba.core.typing import mathdecl, npydecl
    from numba.cpython import builtins, iterators, mathimpl, numbers, rangeobj, slicing, tupleobj  # noqa: F401
    from numba.np import arrayobj, npyimpl  # noqa: F401

    rtsys.initialize(context)
    for registry in (builtin_registry, mathimpl.registry, npyimpl.registry):
        context.install_registry(registry)
    for registry in (mathdecl.registry, npydecl.registry):
        context.typing_context.install_registry(registry)
    context.typing_context._load_builtins()
    context.install_registry(builtin_registry)


def learn_all(context: Any) -> None:
    """Learn all that numba has."""
    _SLOWER[CPUContext, "refresh"](context)


# ---- variables of instructions, and of bytecode

_NO_VARIABLES = {str, int, bool, float, NoneType, ir.Loc}


def _rec_list_vars(_: Any, value: Any) -> list[Any]:
    """The variables in a part of an instruction."""
    found: list[Any] = []
    _gather(value, found)
    return found


def _gather(value: Any, found: list[Any]) -> None:
    kind = type(value)
    if kind is ir.Var:
        found.append(value)
        return
    if kind is ir.Expr:
        value, kind = value._kws, dict
    if kind is dict or kind is tuple or kind is list:
        for part in value.values() if kind is dict else value:
            if type(part) not in _NO_VARIABLES:
                _gather(part, found)
    elif isinstance(value, ir.Inst):
        found.extend(value.list_vars())


_NOT_IN_HOMES = {"peep_hole_delete_with_exit", "peep_hole_fuse_dict_add_updates"}
"""What numba looks for in every instruction: context managers, and dictionaries that are written out."""


def _post_process(self: Any, peepholes: Any, func_ir: Any) -> Any:
    """The first intermediate form, put right."""
    useful = [peep for peep in peepholes if peep.__name__ not in _NOT_IN_HOMES]
    return _SLOWER[interpreter.Interpreter, "post_process"](self, useful, func_ir)


# ---- types


def _propagate(self: Any, inference: Any) -> list[Any]:
    """All constraints once; those that fail once more, as numba does it. Its warnings are collected together."""
    errors: list[Any] = []
    with inference.warnings.catch_warnings():
        for constraint in self.constraints:
            try:
                constraint(inference)
            except (TypingError, ForceLiteralArg):
                alone = typeinfer.ConstraintNetwork()
                alone.append(constraint)
                errors += _SLOWER[typeinfer.ConstraintNetwork, "propagate"](alone, inference)
    return errors


def _resolve(self: Any, inference: Any, variables: Any, fnty: Any) -> None:
    """The type of a call, unless it is known for the same types; numba works it out until nothing changes anywhere."""
    given = [*self.args, *(variable for _, variable in self.kws)]
    question = [fnty, *(variables[variable.name].type for variable in given)]
    known = getattr(self, "answered", None)
    if known is not None and known == question:
        return
    _SLOWER[typeinfer.CallConstraint, "resolve"](self, inference, variables, fnty)
    if self.vararg is None and self.signature is not None and self.signature.return_type.is_precise():
        self.answered = question


def _resolve_getattr(self: Any, kind: Any, name: str) -> Any:
    """The type of an attribute; numba asks all that could know it each time."""
    question = (kind, name)
    answer = _attributes.get(question)
    if answer is None:
        answer = _SLOWER[BaseContext, "resolve_getattr"](self, kind, name)
        if answer is not None and not isinstance(kind, Module):  # whose constants may be others the next time
            _attributes[question] = answer
    return answer


# ---- arguments


def _to_native_value(self: Any, kind: Any, obj: Any) -> Any:
    """An argument of a call from Python. Whether it is an array of this type has been seen: its object is only read.

    Numba has a function fill in a copy, and looks whether that went well. It does so still where references are counted.
    """
    if not isinstance(kind, Array) or self.context.enable_nrt or not HOLDS:
        return _SLOWER[PythonAPI, "to_native_value"](self, kind, obj)
    return NativeValue(read_array(self.context, self.builder, kind, obj))


_sizes: dict[Any, int] = {}
answers: dict[Any, Any] = {}
_attributes: dict[Any, Any] = {}
_QUICKER: dict[tuple[Any, str], Any] = {
    (CPUContext, "refresh"): _refresh,
    (CPUContext, "get_function"): _get_function,
    (PostProcessor, "run"): _process,
    (CPUContext, "get_abi_sizeof"): _get_abi_sizeof,
    (BaseFunction, "get_call_type"): _get_call_type,
    (BaseContext, "resolve_getattr"): _resolve_getattr,
    (ir.Inst, "_rec_list_vars"): _rec_list_vars,
    (interpreter.Interpreter, "post_process"): _post_process,
    (typeinfer.ConstraintNetwork, "propagate"): _propagate,
    (typeinfer.CallConstraint, "resolve"): _resolve,
    (PythonAPI, "to_native_value"): _to_native_value,
}
_SLOWER = {(owner, name): getattr(owner, name) for owner, name in _QUICKER}


@contextlib.contextmanager
def quicker() -> Iterator[None]:
    """While a root compiles, with numba's lock held, some methods of numba's are replaced by quicker ones."""
    for (owner, name), method in _QUICKER.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for (owner, name), method in _SLOWER.items():
            setattr(owner, name, method)
