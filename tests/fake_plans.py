"""Small plans with real machine code from LLVM text. Tests import it by this name: tests/ is on their path."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import llvmlite.binding as llvm

from parax.runtime import Plan
from parax.runtime.handoff import handoff_text
from parax.runtime.interface import MARK, interface_digests, interface_text, marked_code

ARCH = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())

# Every segment: y[i] = x[i] + w[0] for its share of dims[0] * 4 elements, split by tid; a negative x[0] is an error.
ADD = """
declare void @llvm.trap()
define i32 @parax_run_{segment}(ptr %io, ptr %weights, ptr %arena, ptr %dims, i64 %tid, i64 %nt, ptr %sync) {{
entry:
  %x = load ptr, ptr %io
  %y.p = getelementptr ptr, ptr %io, i64 1
  %y = load ptr, ptr %y.p
  %rows = load i64, ptr %dims
  %n = mul i64 %rows, 4
  %w = load float, ptr %weights
  %first = load float, ptr %x
  %wrong = fcmp oeq float %first, -99.0
  br i1 %wrong, label %bad, label %share
bad:
  %flag = getelementptr i8, ptr %sync, i64 64
  store i32 7, ptr %flag
  ret i32 7
share:
  %lo.n = mul i64 %n, %tid
  %lo = sdiv i64 %lo.n, %nt
  %tid1 = add i64 %tid, 1
  %hi.n = mul i64 %n, %tid1
  %hi = sdiv i64 %hi.n, %nt
  br label %loop
loop:
  %i = phi i64 [ %lo, %share ], [ %i1, %body ]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %body, label %out
body:
  %xp = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %xp
  %sum = fadd float %v, %w
  %ap = getelementptr float, ptr %arena, i64 %i
  store float %sum, ptr %ap
  %again = load float, ptr %ap
  %yp = getelementptr float, ptr %y, i64 %i
  store float %again, ptr %yp
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret i32 0
}}
"""


def object_code(text: str) -> bytes:
    """LLVM text and the runtime's own functions, compiled for this machine."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=1, reloc="pic", codemodel="small")
    module = llvm.parse_assembly(text + handoff_text(ARCH) + interface_text())
    module.verify()
    return bytes(machine.emit_object(module))


def fake_plan(manifest: Mapping[str, Any], code: Mapping[str, bytes], weights: Any, graph: str = "") -> Plan:
    """A plan as the compiler makes it: its code (of `object_code`, per target) says which manifest it belongs to."""
    nbytes = memoryview(weights).nbytes
    bound = {
        name: marked_code(data, interface_digests(manifest, name, nbytes)) if MARK in data else data
        for name, data in code.items()
    }
    return Plan.build(manifest, bound, weights, graph)


def tensor(name: str, *shape: Any, dtype: str = "f32") -> dict[str, Any]:
    """A signature entry."""
    return {"name": name, "dtype": dtype, "shape": list(shape)}


def add_manifest() -> dict[str, Any]:
    """x: f32[N,4] → y = x + w, rows independent."""
    return {
        "name": "add",
        "inputs": [tensor("x", "N", 4)],
        "outputs": [tensor("y", "N", 4)],
        "symbols": [{"name": "N", "input": 0, "axis": 0}],
        "targets": [{"name": "base", "arch": ARCH, "features": []}],
        "steps": [{"kind": "native", "segment": 0, "inputs": ["x"], "outputs": ["y"], "arena": ["*", 16, "N"]}],
        "batch": {"symbol": "N", "axis": {"x": 0, "y": 0}},
        "errors": {"7": "Gather 'emb': index out of range"},
    }
