"""Writing functions down in the optimiser's language, in few words.

Numba writes an element of an array in forty instructions, a loop over a range in sixty and a field of a record in forty:
it stores each tuple in memory and loads it again, and leaves the rest to the optimiser. Most of the time of a first call
went into writing, printing, reading and removing those. Here they are four to ten, for what loops are made of: elements
of arrays, loops in steps of one, lengths, and fields of records. All else is numba's business.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from llvmlite import ir as llvm
from numba.core import cgutils, ir, lowering, types
from numba.core.analysis import compute_cfg_from_blocks, compute_use_defs
from numba.np.arrayobj import fix_integer_index

from svmcore.compiler.records import Record, array_fields, describe_arguments, read_field

_DATA, _SHAPE, _STRIDES = map(array_fields.index, ("data", "shape", "strides"))
_LAYOUTS = ("C", "A")


class Lower(lowering.Lower):  # type: ignore[misc]
    """One function."""

    def setup_function(self, description: Any) -> None:
        """Begin it."""
        super().setup_function(description)
        describe_arguments(self.function, description)
        self._known: dict[tuple[int, str], list[tuple[int, Any]]] = {}

    # ---- variables

    def _find_singly_assigned_variable(self) -> None:
        """Variables that need no place in memory; not only those of one block, as numba has it.

        A variable that is assigned once is a value, where the block that assigns it comes before those that use it.
        """
        self._before = compute_cfg_from_blocks(self.blocks).dominators()
        if self.context.enable_nrt:
            super()._find_singly_assigned_variable()
            return
        found = compute_use_defs(self.blocks)
        self._blk_local_varmap: dict[str, Any] = {}
        times: Counter[str] = Counter()
        home: dict[str, int] = {}
        for offset, block in self.blocks.items():
            for assignment in block.find_insts(ir.Assign):
                times[assignment.target.name] += 1
                home[assignment.target.name] = offset
        late = {
            name
            for offset, names in found.usemap.items()
            for name in names
            if name in home and not (home[name] < offset and home[name] in self._before[offset])
        }
        self._singly_assigned_vars = {name for name, count in times.items() if count == 1 and name not in late}

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """Numba looks at the old value, which only matters where references are counted."""
        if self.context.enable_nrt or name in self._singly_assigned_vars or self._disable_sroa_like_opt:
            super().storevar(value, name, argidx)
        else:
            self._alloca_var(name, self.typeof(name))
            self.builder.store(value, self.getvar(name))

    def _definition(self, name: Any) -> Any:
        """What a variable is, where it is one thing only."""
        try:
            return self.func_ir.get_definition(name)
        except KeyError:
            return None

    # ---- instructions

    def lower_inst(self, inst: Any) -> None:
        """An instruction. A constant index is one: numba first looks everywhere for something that knows it as such."""
        if isinstance(inst, ir.StaticSetItem) and isinstance(self.typeof(inst.target.name), types.Array):
            self.lower_setitem(inst.target, inst.index_var, inst.value, self.fndesc.calltypes[inst])
        elif isinstance(inst, ir.Assign) and not isinstance(inst.value, ir.Arg):  # numba writes each out, for its log
            self.debuginfo.mark_location(self.builder, self.loc.line)
            self.storevar(self.lower_assign(self.typeof(inst.target.name), inst), inst.target.name)
        else:
            super().lower_inst(inst)

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """An expression."""
        op = expr.op
        kind = self.typeof(expr.value.name) if op in _SHORTER else None
        if op == "getattr" and isinstance(kind, Record):
            return self._field(resty, expr, kind)
        if op == "getattr" and isinstance(kind, types.Array) and expr.attr == "shape":
            return self.builder.extract_value(self.loadvar(expr.value.name), _SHAPE)
        if op in ("pair_first", "pair_second") and not self.context.enable_nrt:
            return self.builder.extract_value(self.loadvar(expr.value.name), int(op == "pair_second"))
        if op == "getiter" and kind == types.range_state64_type and self._counts_by_one(expr.value):
            return self._counter(self.loadvar(expr.value.name), resty)
        if op == "iternext" and kind == types.range_iter64_type and self._counts_by_one(expr.value):
            return self._next(self.loadvar(expr.value.name), resty)
        index = expr.index if op == "getitem" else expr.index_var if op == "static_getitem" else None
        element = None if index is None else self._element(resty, expr, index)
        if element is not None:
            return element
        if op == "static_getitem" and isinstance(kind, types.Array):  # no function for it is worth looking for
            return self.lower_getitem(resty, expr, expr.value, index, self.fndesc.calltypes[expr])
        return super().lower_expr(resty, expr)

    def _field(self, resty: Any, expr: Any, record: Any) -> Any:
        """A field of a record. That of an argument is read once, as long as this is where all others have come from."""
        argument = self._definition(expr.value)
        if not isinstance(argument, ir.Arg):
            value = self.loadvar(expr.value.name)
        else:
            value, here = self.fnargs[argument.index], self._offset
            known = self._known.setdefault((argument.index, expr.attr), [])
            for offset, field in known:
                if offset == here or offset in self._before[here]:
                    return field
        field = read_field(self.context, self.builder, record, value, expr.attr)
        kind = record.kinds[record.instance_class._fields.index(expr.attr)]
        field = self.context.cast(self.builder, field, kind, resty)
        if isinstance(argument, ir.Arg):
            known.append((here, field))
        return field

    def pre_block(self, block: Any) -> None:
        """Begin a block."""
        if self.context.enable_nrt:
            super().pre_block(block)
        self._cur_ir_block = block
        self._offset = next(offset for offset, other in self.blocks.items() if other is block)

    # ---- loops over a range in steps of one

    def _counts_by_one(self, variable: Any) -> bool:
        call = self._definition(variable)
        if isinstance(call, ir.Expr) and call.op == "getiter":
            call = self._definition(call.value)
        if not (isinstance(call, ir.Expr) and call.op == "call" and not call.kws and call.vararg is None):
            return False
        function = self._definition(call.func)
        return isinstance(function, ir.Global) and function.value is range and len(call.args) <= 2

    def _counter(self, bounds: Any, resty: Any) -> Any:
        """(place of the next number, end, step, place of a number that nobody reads)."""
        b = self.builder
        start = b.extract_value(bounds, 0)
        place = cgutils.alloca_once(b, start.type)
        b.store(start, place)
        counter = llvm.Constant(self.context.get_value_type(resty), llvm.Undefined)
        counter = b.insert_value(counter, place, 0)
        return b.insert_value(counter, b.extract_value(bounds, 1), 1)

    def _next(self, counter: Any, resty: Any) -> Any:
        """(the number, whether there is one). One more than the last is never looked at."""
        b = self.builder
        place = b.extract_value(counter, 0)
        number = b.load(place)
        more = b.icmp_signed("<", number, b.extract_value(counter, 1))
        b.store(b.add(number, number.type(1), flags=["nsw"]), place)
        pair = llvm.Constant(self.context.get_value_type(resty), llvm.Undefined)
        return b.insert_value(b.insert_value(pair, number, 0), more, 1)

    # ---- elements of arrays

    def _element(self, resty: Any, expr: Any, index: Any) -> Any:
        """What lies at whole numbers in an array; None where this is something else."""
        place = self._place(expr.value, index)
        if place is None:
            return None
        dtype = self.typeof(expr.value.name).dtype
        return self.context.cast(self.builder, self.context.unpack_value(self.builder, dtype, place), dtype, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """An element is changed."""
        given = self.typeof(value_var.name)
        scalar = isinstance(given, types.Number | types.Boolean)
        place = self._place(target_var, index_var) if scalar else None
        if place is None:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        dtype = self.typeof(target_var.name).dtype
        value = self.context.cast(self.builder, self.loadvar(value_var.name), given, dtype)
        return self.context.pack_value(self.builder, dtype, value, place)

    def _place(self, array_var: Any, index_var: Any) -> Any:
        """The address of one element, whose indices are whole numbers; None where this is something else."""
        array, index = self.typeof(array_var.name), self.typeof(index_var.name)
        kinds = tuple(getattr(index, "types", [index]))
        ours = isinstance(array, types.Array) and array.layout in _LAYOUTS and array.aligned
        if not (ours and len(kinds) == array.ndim and all(isinstance(kind, types.Integer) for kind in kinds)):
            return None
        if self.context.enable_boundscheck:
            return None
        b, whole, numbers = self.builder, self.loadvar(array_var.name), self.loadvar(index_var.name)
        shape = [b.extract_value(whole, (_SHAPE, k)) for k in range(array.ndim)]
        data = b.extract_value(whole, _DATA)
        at = [b.extract_value(numbers, k) for k in range(len(kinds))] if kinds[0] is not index else [numbers]
        at = [
            fix_integer_index(self.context, b, kind, number, length)
            for kind, number, length in zip(kinds, at, shape, strict=True)
        ]
        if array.layout == "C":
            offset = at[0]
            for number, length in zip(at[1:], shape[1:], strict=True):
                offset = b.add(b.mul(offset, length), number)
            return b.gep(data, [offset])
        steps = [b.mul(b.extract_value(whole, (_STRIDES, k)), number) for k, number in enumerate(at)]
        offset = steps[0]
        for step in steps[1:]:
            offset = b.add(offset, step)
        return cgutils.pointer_add(b, data, offset)


_SHORTER = {"getattr", "getitem", "static_getitem", "pair_first", "pair_second", "getiter", "iternext"}
