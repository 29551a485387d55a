"""Compiling less: parts and roots.

Numba optimises and translates every function by itself, then links it into each function that calls it and optimises it
there again: what lies five calls deep is optimised five times, and translated five times for nothing. Here a function
that compiled code calls is a *part*: turned into the optimiser's language and left so. A function that Python calls is a
*root*: it takes all its parts along, however deep, and is optimised and translated once. Who calls tells which is
meant, so the same function can be both.

These are private names of numba. `_jit` uses this file for the versions of numba that it was tested with, and numba's
plain decorator, which does the same in three times the time, for any other.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from types import CodeType
from typing import Any

from llvmlite.binding import parse_assembly
from numba.core import codegen, config, lowering, typed_passes, types, untyped_passes
from numba.core.compiler import CompilerBase, CompileResult, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import PassManager, _pass_registry, register_pass
from numba.core.postproc import PostProcessor
from numba.core.registry import CPUDispatcher

from svmcore._records import by_reference, describe_arguments


class _PartLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of a part: each function tidied by itself, as what is worth copying into a caller is judged by its size."""

    def finalize(self) -> None:
        """Nothing more is added; the roots optimise."""
        self._raise_if_finalized()
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name == "external":
                function.linkage = "linkonce_odr"  # several roots may have it
        self._shared_module = self._final_module
        self._finalized = True


class _RootLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of a root and of all its parts."""

    def _optimize_functions(self, module: Any) -> None:
        if module.name == "wrapper":  # what Python calls; it calls the function
            module.data_layout = self._codegen._data_layout
        else:
            super()._optimize_functions(module)

    def _optimize_final_module(self) -> None:
        """Once, at the second level: the third takes longer, and its code was never faster."""
        passes, builder = self._codegen._module_pass_manager(opt=min(int(config.OPT), 2), slp_vectorize=False)
        passes.run(self._final_module, builder)

    def finalize(self) -> None:
        """Link the parts of the parts, too; then optimise and translate."""
        self._linking_libraries: list[Any] = list(_with_parts(self._linking_libraries))
        super().finalize()

    def serialize_using_object_code(self) -> tuple[str, str, tuple[bytes, bytes]]:
        """What is kept on disk: the machine code, and the names of its functions. Nobody links a root."""
        self._ensure_finalized()
        names = (function.name for function in self.get_defined_functions() if function.linkage.name == "external")
        stubs = "\n".join(f'define void @"{name}"() {{ ret void }}' for name in names)
        return self.name, "object", (self._get_compiled_object(), parse_assembly(stubs).as_bitcode())


def _with_parts(libraries: Iterable[Any]) -> Iterable[Any]:
    """Libraries and those that their parts need, each once."""
    waiting, seen = list(libraries), set()
    while waiting:
        library = waiting.pop(0)
        if library not in seen:
            seen.add(library)
            yield library
            if isinstance(library, _PartLibrary):
                waiting.extend(library._linking_libraries)


class _Lower(lowering.Lower):  # type: ignore[misc]
    def setup_function(self, description: Any) -> None:
        """Begin a function."""
        super().setup_function(description)
        describe_arguments(self.function, description)


class _Lowering(typed_passes.NativeLowering):  # type: ignore[misc]
    """Numba's last pass, with a library of ours."""

    library_class: Any
    lowering_class = _Lower

    def run_pass(self, state: Any) -> bool:
        """Write a function down in the optimiser's language."""
        state.library = self.library_class(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class _RootLowering(_Lowering):
    _name = "root_lowering"
    library_class = _RootLibrary


class _NoEntry:
    """What numba knows a part by, as it has no address."""


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(_Lowering):
    _name = "part_lowering"
    library_class = _PartLibrary

    def run_pass(self, state: Any) -> bool:
        state.flags.no_compile = True
        super().run_pass(state)
        lowered, entry = state["cr"], _NoEntry()
        state.targetctx.insert_user_function(entry, lowered.fndesc, [state.library])
        state.reload_init.extend(state.library._reload_init)
        state["cr"] = lowered._replace(cfunc=entry)
        return True


_NEVER = {
    untyped_passes.WithLifting,
    untyped_passes.RewriteDynamicRaises,
    untyped_passes.InlineInlinables,
    untyped_passes.FindLiterallyCalls,
    untyped_passes.LiteralUnroll,
    untyped_passes.LiteralPropagationSubPipelinePass,
    typed_passes.DumpParforDiagnostics,
}
"""Passes that look for what no home has, and look through the whole function each."""

_CLOSURES = {untyped_passes.InlineClosureLikes, untyped_passes.MakeFunctionToJitFunction}


class _Passes(PassManager):  # type: ignore[misc]
    """Runs passes; without a description of each that nobody reads, and without looking again at what did not change."""

    def _runPass(self, index: int, step: Any, state: Any) -> None:
        step.analysis = self._analysis
        changed = [stage(state) for stage in (step.run_initialization, step.run_pass, step.run_finalizer)]
        if any(changed) and _pass_registry.get(type(step)).mutates_CFG:
            PostProcessor(state.func_ir).run()


class _Pipeline(CompilerBase):  # type: ignore[misc]
    lowering: Any

    def define_pipelines(self) -> list[Any]:
        """Numba's own, with our lowering in the place of its."""
        inner = any(isinstance(constant, CodeType) for constant in self.state.func_id.code.co_consts)
        left_out = _NEVER if inner else _NEVER | _CLOSURES
        manager = _Passes("parts and roots")
        for step, text in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            if step not in left_out:
                manager.add_pass(self.lowering if step is typed_passes.NativeLowering else step, text)
        manager.finalize()
        return [manager]


class _PartPipeline(_Pipeline):
    lowering = _PartLowering


class _RootPipeline(_Pipeline):
    lowering = _RootLowering


class _QuickFlags(Flags):  # type: ignore[misc]
    """Flags that are compared by what is set. Numba looks every operator up by them, many times, and slowly."""

    def __hash__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return type(other) is _QuickFlags and self._values == other._values


class _Part(CPUDispatcher):  # type: ignore[misc]
    def get_call_template(self, args: Any, kws: Any) -> Any:
        """The signature of a call. A literal number is a number: not every one needs a function of its own."""
        plain = types.unliteral  # type: ignore[attr-defined]
        return super().get_call_template(tuple(map(plain, args)), {name: plain(kind) for name, kind in kws.items()})

    def add_overload(self, result: CompileResult) -> None:
        """Remember it for compiled callers; there is nothing that Python could call."""
        self.overloads[tuple(result.signature.args)] = result


class Root(CPUDispatcher):  # type: ignore[misc]
    """A function as Python sees it. Compiled code sees its part."""

    def __init__(self, function: Any, locals: Any = None, targetoptions: Any = None) -> None:  # noqa: A002  (numba's name)
        options = {"nopython": True, "boundscheck": None, **(targetoptions or {})}
        super().__init__(function, locals, options, _RootPipeline)
        self.part = _Part(function, locals, {**options, "no_cpython_wrapper": True}, _PartPipeline)
        for dispatcher in (self, self.part):
            dispatcher._compiler._customize_flags = _QuickFlags

    @property
    def _numba_type_(self) -> Any:
        return self.part._numba_type_

    def typeof_pyval(self, value: Any) -> Any:
        """The type of an argument."""
        return by_reference(super().typeof_pyval(value))

    def compile(self, signature: Any) -> Any:
        """Compile or load. The compiler leaves little garbage, and looking for it takes a tenth of its time."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            return super().compile(signature)
        finally:
            if collecting:
                if not gc.get_freeze_count():  # what is there counts as old, and is not looked through at once
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()
