"""Runs operators and small graphs through their kernels alone: no importer, passes, memory plan or runtime.

    y, = run_node(op("Softmax", axis=1), [x])                       # arrays are run-time inputs
    y, = run_node(op("Softmax"), [x], layouts=[(0, 2, 3, 1)], symbols={"N": 0})
    outputs = run_graph(parse_graph(text), feeds, symbols={"N": 4})

Every buffer is filled with garbage and has guard bytes around it, so that unwritten elements and writes out of bounds
show. Each kernel's work is run in several pieces, last piece first, as cores might; at once where the kernel's cores
meet. Composite operators are expanded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import numpy as np

from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.host import host_features
from parax.compiler.backend.jit import Loaded, compile_object
from parax.compiler.backend.kernels.known import is_known, lower_known
from parax.compiler.backend.lower import physical_array
from parax.compiler.backend.lowering import (
    Common,
    KernelCall,
    LowerContext,
    Meeting,
    Scratch,
    Shifted,
    Weight,
    WeightStore,
    lowering_of,
)
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph, Node, Value
from parax.compiler.ir.loops import KFunc, verify_function
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.ops.base import Composite, Operator
from parax.compiler.ir.target import TARGETS, Target
from parax.compiler.ir.types import Dim, DType, TensorType, evaluate, symbol
from parax.compiler.ir.views import roots, view_source

GUARD = 256
GARBAGE = 0xC5


def op(name: str, domain: str = "", **attributes: Any) -> Operator:
    """An operator instance from the catalogue."""
    return lookup(domain, name)(**attributes)


def host_targets() -> list[Target]:
    """The portable targets that this machine runs, best first."""
    return [t for t in TARGETS.values() if t.supported_by(host_features())]


def default_target() -> Target:
    return host_targets()[0]


def run_node(operator: Operator, inputs: Sequence[Any], *, outputs: int = 1, symbols: Mapping[str, int] | None = None,
             layouts: Sequence[tuple[int, ...] | None] | None = None, out_layouts: Sequence[Any] | None = None,
             constants: Sequence[int] = (), target: Target | None = None) -> list[np.ndarray]:
    """The outputs of one operator.

    Args:
        inputs: arrays (or None for omitted operands), logical shapes.
        symbols: name -> axis of input 0 that becomes symbolic. layouts: physical axis order per input.
        out_layouts: per output; default what the operator infers. constants: operands known when compiling.
    """
    graph = Graph("node")
    values: list[Value | None] = []
    axes = {axis: name for name, axis in (symbols or {}).items()}
    feeds = {}
    for i, array in enumerate(inputs):
        if array is None:
            values.append(None)
        elif i in constants:
            values.append(graph.add_constant(np.asarray(array), f"c{i}"))
        else:
            array = np.asarray(array)
            layout = layouts[i] if layouts and i < len(layouts) else None
            shape: tuple[Dim, ...] = array.shape
            if i == 0:
                shape = tuple(symbol(axes[a]) if a in axes else d for a, d in enumerate(shape))
            values.append(graph.add_input(f"x{i}", TensorType(DType.from_numpy(array.dtype), shape, layout)))
            feeds[f"x{i}"] = array
    node = graph.add_node(operator, values, n_outputs=outputs)
    for value, layout in zip(node.outputs, out_layouts or ()):
        value.type = value.tensor.with_layout(layout)
    graph.set_outputs(node.outputs)
    sizes = {name: np.shape(inputs[0])[axis] for axis, name in axes.items()}
    return run_graph(graph, feeds, sizes, target)


def run_graph(graph: Graph, feeds: Mapping[str, np.ndarray], symbols: Mapping[str, int] | None = None,
              target: Target | None = None, pieces: int = 3) -> list[np.ndarray]:
    """The graph's outputs for inputs by value name, in logical shape.

    Args:
        symbols: run-time values of the symbolic dimensions. pieces: how many parts each kernel's work is run in.
    """
    return Program(graph, target, tuple(symbols or {})).run(feeds, symbols or {}, pieces)


def expand_composites(graph: Graph) -> None:
    """Replace Composite nodes without a kernel by their expansion, until none is left."""
    node = graph.first
    while node is not None:
        if isinstance(node.op, Composite) and lowering_of(node.op) is None:
            builder = GraphBuilder(graph, before=node, name=node.name)
            before = node.prev
            results = node.op.expand(builder, *_padded_inputs(node))
            for old, new in zip(node.outputs, results if isinstance(results, (list, tuple)) else [results]):
                graph.replace_all_uses_with(old, new)
            graph.erase(node)
            node = before.next if before is not None else graph.first
        else:
            node = node.next


def _padded_inputs(node: Node) -> list[Value | None]:
    """A node's operands with None for every omitted optional one at the end."""
    inputs = node.op.signature.inputs
    variadic = bool(inputs) and inputs[-1].kind == "variadic"
    missing = 0 if variadic else len(inputs) - len(node.inputs)
    return [*node.inputs, *[None] * missing]


def entry_name(func: KFunc) -> str:
    return f"entry_{func.name}"


def load_kernels(functions: Sequence[KFunc], target: Target) -> Loaded:
    """Compile kernels into this process; each is exported under its `entry_name`."""
    unique = list({f.name: f for f in functions}.values())
    emitter = ModuleEmitter(target)
    for func in unique:
        verify_function(func)
        emitter.export(func, entry_name(func))
    return Loaded(compile_object(emitter.text(), target), [entry_name(f) for f in unique])


@dataclass
class Program:
    """A graph compiled kernel by kernel."""

    graph: Graph
    target: Target | None = None
    symbols: tuple[str, ...] = ()
    calls: list[tuple[Node, KernelCall]] = field(default_factory=list)

    def __post_init__(self) -> None:
        expand_composites(self.graph)
        self.target = self.target or default_target()
        self.context = LowerContext(self.target, self.symbols, WeightStore())
        for node in self.graph:
            if view_source(node) is None:
                lowering = lowering_of(next(iter(node.body)).op if node.body is not None else node.op)
                lowering = lower_known if lowering is None and is_known(node) else lowering
                assert lowering is not None, f"{node.op.name} has no kernel"
                result = lowering(self.context, node)
                self.calls += [(node, c) for c in (result if isinstance(result, list) else [result])]
        self.code = load_kernels([c.func for _, c in self.calls], self.target)
        self.roots = roots(self.graph)

    def run(self, feeds: Mapping[str, np.ndarray], symbols: Mapping[str, int], pieces: int = 3) -> list[np.ndarray]:
        """The outputs in logical shape. Fails if a guard was overwritten or an error site was reported."""
        run = Run(self, dict(symbols))
        for value in self.graph.inputs:
            run.write(value, np.asarray(feeds[value.name]))
        for _, call in self.calls:
            run.call(call, pieces)
        return [run.read(v) for v in self.graph.outputs]


class Run:
    """The buffers of one run."""

    def __init__(self, program: Program, symbols: dict[str, int]) -> None:
        self.program, self.symbols = program, symbols
        self.buffers: dict[Value, np.ndarray] = {}
        self.weights = guarded(0, bytes(program.context.weights.to_bytes()))
        self.dims = np.array([symbols[s] for s in program.symbols] or [0], np.int64)
        self.sync = np.zeros(256, np.uint8)
        self.meeting = guarded(0, bytes(64))

    def evaluate(self, d: Dim) -> int:
        return evaluate(d, self.symbols)

    def buffer(self, value: Value) -> np.ndarray:
        """The bytes of a value (of the value it is a view of)."""
        root = self.program.roots.get(value, value)
        if root not in self.buffers:
            content = physical_array(root).tobytes() if root.data is not None else None
            self.buffers[root] = guarded(self.evaluate(root.tensor.nbytes), content)
        return self.buffers[root]

    def write(self, value: Value, array: np.ndarray) -> None:
        t = value.tensor
        assert array.shape == tuple(self.evaluate(d) for d in t.dims), f"{value}: {array.shape} for {t}"
        data = np.ascontiguousarray(array.transpose(t.axis_order))
        self.buffer(value)[:] = np.frombuffer(data.tobytes(), np.uint8)

    def read(self, value: Value) -> np.ndarray:
        t = value.tensor
        assert t.dtype.numpy is not None
        physical = tuple(self.evaluate(d) for d in t.physical_shape)
        data = np.frombuffer(self.buffer(value).tobytes(), t.dtype.numpy).reshape(physical)
        return data.transpose(np.argsort(t.axis_order)) if physical else data

    def call(self, call: KernelCall, pieces: int) -> None:
        common = [None if isinstance(o, Scratch) else self._memory(o) for o in call.operands]
        work = self.evaluate(call.work)
        cuts = [work * i // pieces for i in range(pieces + 1)]
        arguments = [ctypes.c_void_p] * (len(common) + 2) + [ctypes.c_int64] * 2
        function = self.program.code.function(entry_name(call.func), None, *arguments)
        held = []

        def piece(begin: int, end: int) -> None:
            memory = [self._memory(o) if m is None else m for o, m in zip(call.operands, common)]
            held.append(memory)
            function(*[m.ctypes.data for m in (*memory, self.dims, self.sync)], begin, end)

        backwards = reversed(list(zip(cuts, cuts[1:])))
        if call.meets:
            threads = [Thread(target=piece, args=cut) for cut in backwards]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            for cut in backwards:
                piece(*cut)
        site = int(self.sync[64:68].view(np.int32)[0])
        assert site == 0, self.program.context.errors[site - 1]
        own = [self.buffer(o.value) if isinstance(o, Shifted) else m
               for memory in held for m, o in zip(memory, call.operands) if not isinstance(o, Weight)]
        for m in (*own, self.weights):
            check_guards(m, call.func.name)

    def _memory(self, operand: Any) -> np.ndarray:
        if isinstance(operand, Weight):
            return self.weights[operand.offset:]
        if isinstance(operand, Meeting):
            return self.meeting
        if isinstance(operand, (Scratch, Common)):
            return guarded(self.evaluate(operand.nbytes))
        if isinstance(operand, Shifted):
            return self.buffer(operand.value)[operand.offset :]
        return self.buffer(operand)


def guarded(nbytes: int, content: bytes | None = None) -> np.ndarray:
    """A 64-byte aligned buffer of garbage (or `content`) between two guards."""
    nbytes = nbytes if content is None else len(content)
    whole = np.full(nbytes + 2 * GUARD + 64, GARBAGE, np.uint8)
    start = GUARD + -(whole.ctypes.data + GUARD) % 64
    view = whole[start : start + nbytes]
    if content:
        view[:] = np.frombuffer(content, np.uint8)
    return view


def check_guards(view: np.ndarray, where: str) -> None:
    """Fail if a byte around a buffer of `guarded` was changed."""
    whole = view.base
    while whole is not None and whole.base is not None:
        whole = whole.base
    assert whole is not None
    start = view.ctypes.data - whole.ctypes.data
    if view.size:
        assert (whole[max(0, start - GUARD) : start] == GARBAGE).all() or start > GUARD + 64, f"{where} wrote before"
    tail = whole[start + view.size :]
    assert (tail[:GUARD] == GARBAGE).all(), f"{where} wrote behind its buffer"
