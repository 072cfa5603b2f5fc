"""The table of opcodes: whoever gives meaning to opcodes has an entry for each, and effects are what they do."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_ir.every_opcode import EVERY, made
from parax.compiler.backend.emit_llvm import HANDLERS, ModuleEmitter
from parax.compiler.backend.host import resolve_target
from parax.compiler.kernel_ir.interpreter import OPERATIONS, Pointer, interpret
from parax.compiler.kernel_ir.loops import PtrType
from parax.compiler.kernel_ir.opcodes import MATH, OPCODES, Effect
from parax.compiler.kernel_ir.verifier import verify_function
from parax.errors import InternalError


def test_each_opcode_is_emitted_and_interpreted_and_no_other_one() -> None:
    assert set(HANDLERS) == set(OPCODES) == set(OPERATIONS)


@pytest.mark.parametrize("opcode", EVERY)
def test_the_builder_makes_what_the_table_says(opcode: str) -> None:
    f = made(opcode)
    assert opcode in [o.opcode for o in f.walk()]
    verify_function(f)
    emitter = ModuleEmitter(resolve_target("x86-64-v4+amx-bf16+amx-int8+amx-tile+avx512bf16+avx512vbmi"))
    emitter.add([f])
    assert f"@{f.name}" in emitter.functions[f.name]


def _memory(writable: bool) -> Pointer:
    memory = np.zeros(4096, np.uint8)
    memory.flags.writeable = writable
    return Pointer(memory)


def _run(opcode: str, writable: bool) -> bytes:
    """The bytes behind all pointers when the kernel has run."""
    f = made(opcode)
    arguments = [_memory(writable) if isinstance(p.type, PtrType) else 1 for p in f.params]
    interpret(f, arguments)
    return b"".join(a.memory.tobytes() for a in arguments if isinstance(a, Pointer))


@pytest.mark.parametrize("opcode", EVERY)
def test_what_has_no_effect_writes_nothing(opcode: str) -> None:
    """On read-only memory everything runs but what is said to write; that leaves a mark on other memory."""
    if Effect.WRITES in OPCODES[opcode].effect:
        with pytest.raises((InternalError, ValueError), match="read-only"):
            _run(opcode, writable=False)
        assert any(_run(opcode, writable=True))
    else:
        _run(opcode, writable=False)


@pytest.mark.parametrize("opcode", EVERY)
def test_what_gives_nothing_does_something(opcode: str) -> None:
    o = OPCODES[opcode]
    assert o.result is not None or o.variadic or o.effect


def test_functions_of_lanes_are_the_builders() -> None:
    from parax.compiler.kernel_ir.builder import Builder

    assert all(callable(getattr(Builder, fn)) for fn in MATH)
