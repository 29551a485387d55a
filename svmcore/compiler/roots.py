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
from numba.core import codegen, config, typed_passes, types, untyped_passes
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.errors import NumbaError
from numba.core.registry import CPUDispatcher

from svmcore.compiler.lower import Lower
from svmcore.compiler.quick import answers, learn, learn_all, quicker
from svmcore.compiler.records import by_reference


class _PartLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of a part: each function tidied by itself, as what is worth copying into a caller is judged by its size."""

    def _optimize_functions(self, module: Any) -> None:
        """Tidy up, at the first level: the roots do the rest."""
        module.data_layout = self._codegen._data_layout
        builder = self._codegen._pass_builder(opt=min(int(config.OPT), 1), loop_vectorize=False, slp_vectorize=False)
        passes = builder.getFunctionPassManager()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def finalize(self) -> None:
        """Nothing more is added; the roots optimise."""
        self._raise_if_finalized()
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name == "external":
                function.linkage = "linkonce_odr"  # several roots may have it
        self._shared_module = self._final_module
        self._finalized = True


class _RootLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]
    def _optimize_functions(self, module: Any) -> None:
        """What is added to a root is what Python calls; there is nothing to do about it."""
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Once, at the second level: the third takes longer, and its code was never faster."""
        passes, builder = self._codegen._module_pass_manager(opt=min(int(config.OPT), 2), slp_vectorize=False)
        passes.run(self._final_module, builder)
        for function in self._final_module.functions:  # names of parts may mean something else to another root
            if not function.is_declaration and function.linkage.name == "linkonce_odr":
                function.linkage = "internal"

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


class _NoEntry:
    """What numba knows a part by, as it has no address."""


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(typed_passes.NativeLowering):  # type: ignore[misc]
    """Numba's last pass, with a library of ours, and without translation."""

    _name = "part_lowering"
    lowering_class = Lower

    def run_pass(self, state: Any) -> bool:
        """Write a function down in the optimiser's language."""
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered, entry = state["cr"], _NoEntry()
        state.targetctx.insert_user_function(entry, lowered.fndesc, [state.library])
        state.reload_init.extend(getattr(state.library, "_reload_init", ()))  # numba has it since 0.63
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
    """Runs passes, without a description of each that nobody reads."""

    def _runPass(self, index: int, step: Any, state: Any) -> None:
        step.analysis = self._analysis
        for stage in (step.run_initialization, step.run_pass, step.run_finalizer):
            stage(state)


class _PartPipeline(CompilerBase):  # type: ignore[misc]
    def define_pipelines(self) -> list[Any]:
        """Numba's own, with our lowering in the place of its."""
        self.state.func_id.counts_references = self.state.flags.nrt
        inner = any(isinstance(constant, CodeType) for constant in self.state.func_id.code.co_consts)
        left_out = _NEVER if inner else _NEVER | _CLOSURES
        manager = _Passes("parts")
        for step, text in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            if step not in left_out:
                manager.add_pass(_PartLowering if step is typed_passes.NativeLowering else step, text)
        manager.finalize()
        return [manager]


class _QuickFlags(Flags):  # type: ignore[misc]
    """Flags that are compared by what is set. Numba looks every operator up by them, many times, and slowly."""

    def __hash__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return type(other) is _QuickFlags and self._values == other._values


class _CompiledPart(CPUDispatcher):  # type: ignore[misc]
    """A function as compiled code sees it."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """The signature of a call. A literal number is a number: not every one needs a function of its own."""
        plain = types.unliteral  # type: ignore[attr-defined]
        return super().get_call_template(tuple(map(plain, args)), {name: plain(kind) for name, kind in kws.items()})

    def compile(self, signature: Any) -> Any:
        """Lower it, once for each list of types. Who compiles a root has the lock, and is who is heard of."""
        args = tuple(signature)
        if args not in self.overloads:
            self._compiler._failed_cache.clear()  # what failed may have needed more of numba
            self.overloads[args] = self._compiler.compile(args, None)
        return self.overloads[args].entry_point


class _RootCompiler(_FunctionCompiler):  # type: ignore[misc]
    """Makes a root of a part: it adds what Python calls, and has all of it optimised and translated."""

    def __init__(self, part: _CompiledPart) -> None:
        super().__init__(part.py_func, part.targetdescr, part.targetoptions, part.locals, _PartPipeline)
        self.part = part

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        with quicker():
            return self._root(args)

    def _root(self, args: Any) -> Any:
        know = learn_all if self.targetoptions["_nrt"] else learn
        know(self.targetdescr.target_context)
        try:
            self.part.compile(args)
        except NumbaError:  # it may need more of numba than homes do
            learn_all(self.targetdescr.target_context)
            answers.clear()
            self.part.compile(args)
        part = self.part.overloads[args]
        context = part.target_context  # knows whether references are counted
        library = _RootLibrary(context.codegen(), part.library.name)
        library.enable_object_caching()
        library.add_linking_library(part.library)
        what = part.fndesc, part.environment
        with context.push_code_library(library):
            context.create_cpython_wrapper(library, *what, part.call_helper, release_gil=True)
        return part._replace(library=library, entry_point=context.get_executable(library, *what))


class Root(CPUDispatcher):  # type: ignore[misc]
    """A function as Python sees it. Compiled code sees its part."""

    def __init__(self, function: Any, locals: Any = None, targetoptions: Any = None) -> None:  # noqa: A002  (numba's name)
        options = {"nopython": True, "boundscheck": None, "no_cpython_wrapper": True, **(targetoptions or {})}
        super().__init__(function, locals or {}, options)
        self.part = _CompiledPart(function, locals or {}, options, _PartPipeline)
        self.part._compiler._customize_flags = _QuickFlags
        self._compiler = _RootCompiler(self.part)

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
