"""How long each candidate kernel of a node takes on this machine.

Owns the stand-in buffers and the clock. Every run starts as it does inside a model: other layers have driven the
weights out of the caches, the input has just been written. Candidates take turns, medians count.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np

from ..ir.graph import Node, Value
from ..ir.types import SymDim, TensorType, evaluate
from ..targets.target import Target
from .emit_llvm import ModuleEmitter
from .host import host_features
from .jit import Loaded, compile_object
from .lower import physical_array
from .lowering import Candidates, KernelCall, LowerContext, OffsetOperand, Scratch, SharedScratch, Weight, WeightStore

ROUNDS = 7
ROUNDS_SECONDS = 0.5  # of one node, after which no further round begins; three are the least
ALIGN = 64


def can_measure(ctx: LowerContext, node: Node) -> bool:
    """Whether this machine runs the target's code, and all sizes are known but for the batch."""
    types = [v.type for v in (*node.operands, *node.outputs)]
    if not ctx.target.supported_by(host_features()) or not all(isinstance(t, TensorType) for t in types):
        return False
    symbolic = [(axis, d) for t in types for axis, d in enumerate(t.dims) if isinstance(d, SymDim)]  # type: ignore[union-attr]
    return all(axis == 0 for axis, _ in symbolic) and len({s for _, d in symbolic for s in d.symbols()}) <= 1


def measure(ctx: LowerContext, node: Node, candidates: Candidates) -> dict[str, float]:
    """Seconds that each candidate takes one core; where the batch is open the sum of a row's in each of the calls that
    it is chosen for.

    Raises:
        InternalError: LLVM rejects a candidate.
    """
    total = dict.fromkeys(candidates, 0.0)
    for sizes in ctx.calls.sizes(_open_symbols(node)):
        rows = max(sizes.values(), default=1)
        found = _measured(ctx, node, candidates, {s: sizes.get(s, rows) for s in ctx.symbols})
        for name, seconds in found.items():
            total[name] += seconds / rows
    return total


def _open_symbols(node: Node) -> set[str]:
    dims = (d for v in (*node.operands, *node.outputs) for d in v.tensor.dims)
    return {s for d in dims if isinstance(d, SymDim) for s in d.symbols()}


def _measured(ctx: LowerContext, node: Node, candidates: Candidates, symbols: Mapping[str, int]) -> dict[str, float]:
    """Medians for calls of these sizes."""
    buffers = _Buffers(symbols)
    runs = {name: _prepared(ctx, make, buffers) for name, make in candidates.items()}
    last = ctx.target.l3_nbytes if ctx.machine is None else ctx.machine.l3_nbytes
    others = np.ones(last // 4, np.float32)
    times: dict[str, list[float]] = {name: [] for name in runs}
    began = time.perf_counter()
    for number in range(1 + ROUNDS):  # the first one warms up
        if number > 3 and time.perf_counter() - began > ROUNDS_SECONDS:
            break
        for name, run in runs.items():
            others += 1
            for v in node.operands:
                if v in buffers.of_values and v.data is None:
                    buffers.of_values[v] ^= 0  # touched last, as by the layer before
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(own[1:]) for name, own in times.items()}


def _prepared(ctx: LowerContext, make: Callable[[LowerContext], KernelCall], buffers: _Buffers) -> Callable[[], None]:
    """A candidate compiled into this process, with its operands bound."""
    own = LowerContext(ctx.target, ctx.symbols, WeightStore(), fp=ctx.fp, rows=ctx.rows, calls=ctx.calls,
                       cores=ctx.cores, machine=ctx.machine, matmul_input=ctx.matmul_input)  # fmt: skip
    call = make(own)
    weights = aligned(own.weights.nbytes)
    weights[:] = np.frombuffer(own.weights.to_bytes(), np.uint8)
    held = [buffers.of(operand, weights) for operand in call.operands]
    dims = np.array([buffers.symbols[s] for s in ctx.symbols] or [0], np.int64)
    sync = aligned(2 * ALIGN)
    loaded = load_kernel(call, ctx.target)
    kinds = [ctypes.c_void_p] * (len(held) + 2) + [ctypes.c_int64] * 2
    function = loaded.function(f"measured_{call.func.name}", None, *kinds)
    arguments = [m.ctypes.data for m in (*held, dims, sync)] + [0, evaluate(call.work, buffers.symbols)]

    def run(keep: object = (held, dims, sync, loaded)) -> None:
        function(*arguments)

    return run


def load_kernel(call: KernelCall, target: Target) -> Loaded:
    """The call's function in this process, exported as `measured_<its name>`."""
    emitter = ModuleEmitter(target)
    name = f"measured_{call.func.name}"
    emitter.export(call.func, name)
    return Loaded(compile_object(emitter.text(), target), [name])


class _Buffers:
    """Memory for the values around a node, the same for all candidates."""

    def __init__(self, symbols: Mapping[str, int]) -> None:
        self.symbols = symbols
        self.of_values: dict[Value, np.ndarray] = {}

    def of(self, operand: object, weights: np.ndarray) -> np.ndarray:
        if isinstance(operand, Weight):
            return weights[operand.offset :]
        if isinstance(operand, Scratch | SharedScratch):
            return aligned(evaluate(operand.nbytes, self.symbols))
        if isinstance(operand, OffsetOperand):
            return self.of(operand.value, weights)[operand.offset :]
        assert isinstance(operand, Value), operand
        if operand not in self.of_values:
            t = operand.tensor
            whole = t if t.within is None else t.with_shape(t.within)
            buffer = aligned(evaluate(whole.nbytes, self.symbols))
            if operand.data is not None:
                buffer[:] = physical_array(operand).reshape(-1).view(np.uint8)
            elif operand.tensor.dtype.numpy == np.float32:
                floats = buffer.view(np.float32)
                floats[:] = np.random.default_rng(0).standard_normal(floats.size, np.float32)
            self.of_values[operand] = buffer
        return self.of_values[operand]


def aligned(nbytes: int) -> np.ndarray:
    """Zeroed bytes on a cache line of their own."""
    whole = np.zeros(nbytes + ALIGN, np.uint8)
    start = -whole.ctypes.data % ALIGN
    return whole[start : start + nbytes]
