"""LLVM assembly → object code, and loading it into this process for tests and tuning.

Owns the choice of LLVM passes. It must not know of kernels or graphs. llvmlite holds one lock around every LLVM call,
so compiling in parallel takes processes, not threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm

from ...errors import InternalError, UsageError
from ..kernel_ir.loops import KFunc
from ..targets.target import Target
from .emit_llvm import ModuleEmitter


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


class _Kind(NamedTuple):
    """All that LLVM's machine for a target and a level depends on, by LLVM's names."""

    triple: str
    cpu: str
    features: tuple[str, ...]
    level: int


def _kind(target: Target, level: int) -> _Kind:
    return _Kind(target.architecture.triple, target.cpu, target.features, level)


@cache
def _machine(kind: _Kind) -> Any:
    """Position-independent code: the runtime places it anywhere, and calls the C library through stubs."""
    _initialize()
    text = ",".join(f"+{f}" for f in kind.features)
    target = llvm.Target.from_triple(kind.triple)
    return target.create_target_machine(cpu=kind.cpu, features=text, opt=kind.level, reloc="pic", codemodel="small")


def _builder(kind: _Kind) -> Any:
    """LLVM's pass builder. Vectorising and unrolling are the schedule's business."""
    options = llvm.create_pipeline_tuning_options(speed_level=kind.level)
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_unrolling = options.loop_interleaving = False
    return llvm.create_pass_builder(_machine(kind), options)


@cache
def _passes(kind: _Kind) -> tuple[Any, Any, Any]:
    """What inlines what is marked, what simplifies a function (None at level 1), and their builder, which they need.

    Made once: llvmlite 0.50 never frees the passes of a function, 16 KB of them. The interprocedural half of LLVM's own
    pipeline finds nothing in kernels that call each other once, at twice the time.
    """
    builder, level = _builder(kind), kind.level
    inline = llvm.create_new_module_pass_manager()
    inline.add_always_inliner_pass()
    inline.add_global_dead_code_eliminate_pass()
    if level == 1:
        for add in (inline.add_simplify_cfg_pass, inline.add_instruction_combine_pass, inline.add_new_gvn_pass,
                    inline.add_loop_rotate_pass, inline.add_simplify_cfg_pass):  # fmt: skip
            add()
    return inline, builder.getFunctionPassManager() if level >= 2 else None, builder


def _optimize(module: Any, target: Target, level: int) -> None:
    """Inline what is marked, then simplify function by function; level 1 only cleans up (a third of the time)."""
    kind = _kind(target, level)
    inline, passes, _ = _passes(kind)
    builder = _builder(kind)  # anew: each run leaves something in it, by which the next one takes longer
    inline.run(module, builder)
    for function in module.functions if passes is not None else ():
        if not function.is_declaration:
            passes.run(function, builder)


def compile_object(module_text: str, target: Target, opt_level: int = 2) -> bytes:
    """Object code (ELF, position independent) of a module in LLVM assembly.

    Args:
        module_text: as ModuleEmitter.text gives it.
        opt_level: 0 none, 1 quick, 2 and 3 everything.

    Raises:
        InternalError: LLVM rejects the module; the text is attached as a note.
    """
    return _compile(module_text, target, opt_level, "emit_object")


def compile_assembly(module_text: str, target: Target, opt_level: int = 2) -> str:
    """The machine code as assembly text, for dumps."""
    return _compile(module_text, target, opt_level, "emit_assembly")


def _compile(text: str, target: Target, level: int, emit: str) -> Any:
    if level not in range(4):
        raise UsageError("no such level", where="opt_level", expected="0, 1, 2 or 3", found=level)
    machine = _machine(_kind(target, level))
    try:
        # a context of its own, so that types and constants of the module are freed with it
        module = llvm.parse_assembly(text, context=llvm.create_context())
        module.verify()
    except RuntimeError as error:
        failure = InternalError(f"LLVM rejects the module: {error}", where="code generation")
        if hasattr(failure, "add_note"):
            failure.add_note(text)
        raise failure from error
    with module:
        _optimize(module, target, level)
        return getattr(machine, emit)(module)


class Loaded:
    """Object code in this process's memory; its functions are valid as long as this object lives."""

    def __init__(self, code: bytes, names: Sequence[str]) -> None:
        _initialize()
        self._jit = llvm.create_lljit_compiler()
        library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in names:
            library.export_symbol(name)
        self._tracker = library.link(self._jit, "kernels")

    def address(self, name: str) -> int:
        """Where the exported function starts."""
        return int(self._tracker[name])

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """The exported function as a ctypes callable; numpy arrays are passed by `.ctypes.data` as c_void_p."""
        call: Any = ctypes.CFUNCTYPE(result, *arguments)(self.address(name))
        call.owner = self  # keeps the code alive
        return call


_CTYPES = {"i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
           "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
           "f32": ctypes.c_float, "f64": ctypes.c_double, "bool": ctypes.c_bool}


def load_function(func: KFunc, target: Target, opt_level: int = 2) -> Any:
    """Compile one kernel and load it: a ctypes callable (pointers are c_void_p, scalars the C type).

    Raises:
        InternalError: LLVM rejects the code.
    """
    emitter = ModuleEmitter(target)
    entry = f"parax_entry_{func.name}"
    emitter.export(func, entry)
    loaded = Loaded(compile_object(emitter.text(), target, opt_level), [entry])

    def c_type(t: Any) -> Any:
        return _CTYPES[t.dtype.name] if hasattr(t, "lanes") else ctypes.c_void_p

    result = c_type(func.returns) if func.returns else None
    return loaded.function(entry, result, *(c_type(p.type) for p in func.params))
