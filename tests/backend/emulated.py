"""Runs code for AArch64 in an emulator: kernels of a graph as `harness` has them, and whole plans.

Object code, a driver in C (driver.c) and the C library become one program; a file says which functions to call on which
buffers. A call's threads run at the same time, and buffers end at a page that may not be touched.
"""

from __future__ import annotations

import math
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from backend.harness import Feeds, Program
from backend.ways import equal_pieces
from cross import EMULATOR, GCC, run_tool
from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.jit import compile_object
from parax.compiler.backend.lower import physical_array
from parax.compiler.backend.lowering import BarrierSlot, OffsetOperand, Scratch, SharedScratch, Weight
from parax.compiler.ir.graph import Value
from parax.compiler.ir.types import evaluate
from parax.compiler.kernel_ir.verifier import verify_function
from parax.runtime.bindings import Signature
from parax.runtime.dims import evaluate as size_of
from parax.runtime.elf import objects_in
from parax.runtime.plan import Plan
from parax.runtime.sync import ERROR_OFFSET, sync_nbytes

DRIVER = Path(__file__).with_name("driver.c")
REST_OF_LINE = 63  # bytes behind weights and scratch that kernels may read
Argument = tuple[int, int]
"""A buffer's number and an offset in it, or -1 and a number."""


@dataclass
class Job:
    """Calls on buffers, as driver.c reads them."""

    buffers: list[tuple[int, int, bytes]] = field(default_factory=list)
    pointers: list[tuple[int, int, int]] = field(default_factory=list)
    calls: list[tuple[int, list[list[Argument]]]] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def buffer(self, nbytes: int, content: bytes = b"", align: int = 1) -> int:
        """The number of a new buffer."""
        self.buffers.append((nbytes, align, content))
        return len(self.buffers) - 1

    def call(self, function: int, threads: list[list[Argument]]) -> None:
        """A call with the arguments of each thread."""
        self.calls.append((function, threads))

    def encoded(self) -> bytes:
        """The driver's input."""
        parts = [_words(len(self.buffers))]
        for nbytes, align, content in self.buffers:
            parts += [_words(nbytes, align, len(content)), content]
        parts.append(_words(len(self.pointers), *(word for pointer in self.pointers for word in pointer)))
        parts.append(_words(len(self.calls)))
        for function, threads in self.calls:
            words = [word for arguments in threads for argument in arguments for word in argument]
            parts.append(_words(function, len(threads), len(threads[0]), *words))
        parts.append(_words(len(self.outputs), *self.outputs))
        return b"".join(parts)

    def decoded(self, output: bytes) -> list[bytes]:
        """The outputs' bytes."""
        found, at = [], 0
        for number in self.outputs:
            nbytes = self.buffers[number][0]
            found.append(output[at : at + nbytes])
            at += nbytes
        assert at == len(output)
        return found


def _words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


class Emulator:
    """A program of object code, ready to run jobs."""

    def __init__(self, folder: Path, objects: Sequence[bytes], functions: Sequence[str]) -> None:
        """Link.

        Args:
            folder: for its files. functions: names in the objects; jobs call them by their number here.
        """
        self.folder, self.program = folder, folder / "program"
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for i, code in enumerate(objects):
            paths.append(folder / f"code{i}.o")
            paths[-1].write_bytes(code)
        table = folder / "table.c"
        table.write_text("".join(f"extern void {name}();\n" for name in functions) + "void (*const functions[])() = {"
                         + ", ".join(functions) + "};\n")  # fmt: skip
        run_tool(GCC, "-O1", "-static", "-pthread", DRIVER, table, *paths, "-lm", "-o", self.program)

    def __call__(self, job: Job) -> list[bytes]:
        """The outputs' bytes."""
        job_file, output = self.folder / "job", self.folder / "output"
        job_file.write_bytes(job.encoded())
        done = subprocess.run([EMULATOR, self.program, job_file, output], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr}"
        return job.decoded(output.read_bytes())


class EmulatedPlan:
    """A plan of one native step whose code is for AArch64."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        """Link its code."""
        self.plan, manifest = plan, plan.manifest
        (self.step,) = manifest.native_steps()
        (target,) = manifest.targets
        self.run_job = Emulator(folder, objects_in(bytes(plan.code(target))), [f"parax_run_{self.step.segment}"])

    def run(self, feeds: Feeds, n_threads: int) -> dict[str, np.ndarray]:
        """The outputs by name, computed by so many threads that meet at barriers."""
        job, manifest = Job(), self.plan.manifest
        sizes = {s.name: int(np.shape(feeds[manifest.inputs[s.input].name])[s.axis]) for s in manifest.symbols}
        shapes = [tuple(size_of(d, sizes) for d in spec.shape) for spec in manifest.outputs]
        arrays = [np.ascontiguousarray(feeds[spec.name]) for spec in manifest.inputs]
        assert {spec.dtype for spec in manifest.outputs} == {"f32"}
        values = [job.buffer(a.nbytes, a.tobytes()) for a in arrays]
        job.outputs = [job.buffer(4 * math.prod(shape)) for shape in shapes]
        io = job.buffer(8 * (len(values) + len(shapes)), align=8)
        job.pointers = [(io, 8 * i, number) for i, number in enumerate([*values, *job.outputs])]
        arena, scratch = Signature.memory(self.step, sizes)
        weights = bytes(self.plan.weights)
        dims = _words(*sizes.values())
        memory = [
            io, job.buffer(len(weights) + 64, weights, 64), job.buffer(arena + scratch * n_threads + 64, align=64),
            job.buffer(len(dims), dims, 8),
        ]  # fmt: skip
        nbytes = sync_nbytes(n_threads)
        sync = job.buffer(nbytes, bytes(nbytes), 64)
        shared = [(number, 0) for number in memory]
        job.call(0, [[*shared, (-1, t), (-1, n_threads), (sync, 0)] for t in range(n_threads)])
        found = zip(manifest.outputs, shapes, self.run_job(job), strict=True)
        return {spec.name: np.frombuffer(data, np.float32).reshape(shape) for spec, shape, data in found}


@dataclass
class Emulated:
    """A graph's kernels as object code, and the calls that compute its outputs.

    Attributes:
        prefix: of the names of its functions in a program of several graphs.
    """

    program: Program
    prefix: str
    first: int = 0

    def __post_init__(self) -> None:
        self.functions = list({call.func.name: call.func for _, call in self.program.calls}.values())
        self.names = [f"{self.prefix}_{func.name}" for func in self.functions]

    def object_code(self) -> bytes:
        """All kernels."""
        assert self.program.target is not None
        emitter = ModuleEmitter(self.program.target)
        for func, name in zip(self.functions, self.names, strict=True):
            verify_function(func)
            emitter.export(func, name)
        return compile_object(emitter.text(), self.program.target)

    def job(self, feeds: Feeds, symbols: Mapping[str, int], n_threads: int) -> Job:
        """The calls for inputs, each kernel's work shared by so many threads."""
        return _Recording(self, feeds, dict(symbols), n_threads).job

    def read(self, outputs: Sequence[bytes], symbols: Mapping[str, int]) -> list[np.ndarray]:
        """The graph's outputs in logical shape; fails where a kernel left an error site."""
        site = int(np.frombuffer(outputs[-1], np.int32)[ERROR_OFFSET // 4])
        assert site == 0, f"Refused: {self.program.context.errors[site - 1]}"
        found = []
        for value, data in zip(self.program.graph.outputs, outputs[:-1], strict=True):
            t = value.tensor
            shape = tuple(evaluate(d, symbols) for d in t.physical_shape)
            array = np.frombuffer(data, t.dtype.numpy).reshape(shape)
            found.append(array.transpose(np.argsort(t.axis_order)) if shape else array)
        return found


class _Recording:
    """The job of one run."""

    def __init__(self, emulated: Emulated, feeds: Feeds, symbols: dict[str, int], n_threads: int) -> None:
        self.job, self.program, self.symbols, self.n_threads = Job(), emulated.program, symbols, n_threads
        self.values: dict[Value, int] = {}
        self.weights: dict[int, int] = {}
        self.blob = self.program.context.weights.to_bytes()
        for value in self.program.graph.inputs:
            array = np.asarray(feeds[value.name])
            self._value(value, np.ascontiguousarray(array.transpose(value.tensor.axis_order)).tobytes())
        dims = np.array([symbols[s] for s in self.program.symbols] or [0], np.int64).tobytes()
        self.dims, self.sync = self.job.buffer(len(dims), dims, 8), self.job.buffer(256, bytes(256), 64)
        self.meeting = self.job.buffer(64, bytes(64), 64)
        for _, call in self.program.calls:
            self._call(call, emulated.first + emulated.functions.index(call.func))
        self.job.outputs = [*(self._value(v) for v in self.program.graph.outputs), self.sync]

    def _value(self, value: Value, content: bytes = b"") -> int:
        root = self.program.roots.get(value, value)
        if root not in self.values:
            content = physical_array(root).tobytes() if root.data is not None else content
            self.values[root] = self.job.buffer(evaluate(root.tensor.nbytes, self.symbols), content)
        return self.values[root]

    def _call(self, call: Any, function: int) -> None:
        work = evaluate(call.work, self.symbols)
        common = [None if isinstance(o, Scratch) else self._memory(o) for o in call.operands]
        pieces = [(b, e) for b, e in equal_pieces(work, None, self.n_threads) if b < e or not call.meets]
        threads = []
        for begin, end in pieces:
            memory = [self._memory(o) if m is None else m for o, m in zip(call.operands, common, strict=True)]
            threads.append([*memory, (self.dims, 0), (self.sync, 0), (-1, begin), (-1, end)])
        if threads:
            self.job.call(function, threads)

    def _memory(self, operand: Any) -> Argument:
        if isinstance(operand, Weight):
            if operand.offset not in self.weights:
                content = bytes(self.blob[operand.offset : operand.offset + operand.nbytes])
                self.weights[operand.offset] = self._line(len(content), content)
            return self.weights[operand.offset], 0
        if isinstance(operand, BarrierSlot):
            return self.meeting, 0
        if isinstance(operand, (Scratch, SharedScratch)):
            return self._line(evaluate(operand.nbytes, self.symbols)), 0
        if isinstance(operand, OffsetOperand):
            return self._value(operand.value), operand.offset
        return self._value(operand), 0

    def _line(self, nbytes: int, content: bytes = b"") -> int:
        """A buffer of whole cache lines."""
        return self.job.buffer((nbytes + REST_OF_LINE) // 64 * 64, content, 64)
