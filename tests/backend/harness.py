"""Runs operators and small graphs through their kernels alone: no importer, passes, memory plan or runtime.

    y, = run_node(op("Softmax", axis=1), [x])                       # arrays are run-time inputs
    y, = run_node(op("Softmax"), [x], layouts=[(0, 2, 3, 1)], symbols={"N": 0})
    outputs = run_graph(parse_graph(text), feeds, symbols={"N": 4})

Every buffer is filled with garbage and lies beside a page that may not be touched; inputs and weights cannot be
written. Each kernel's work is run in several ways that cores may share it in (`ways`), which must give the same bits,
in a process of its own (`guards`). A core without work runs first and must leave every byte as it was. Composite
operators are expanded.

A kernel may read up to 63 bytes behind a packed weight and behind its scratch, to the end of the cache line that both
begin and end in; of values, not a byte.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from random import Random
from typing import Any

import numpy as np

from backend.guards import Guarded, in_child
from backend.ways import USUAL, Way, at_once, equal_pieces, overwritten
from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.host import host_features
from parax.compiler.backend.jit import Loaded, compile_object
from parax.compiler.backend.kernels.known import has_no_elements, is_known, lower_known
from parax.compiler.backend.lower import physical_array
from parax.compiler.backend.lowering import (
    BarrierSlot,
    Chooser,
    KernelCall,
    LowerContext,
    OffsetOperand,
    Scratch,
    SharedScratch,
    Weight,
    WeightStore,
    lowering_of,
)
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph, Node, Value
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.ops.base import Composite, Operator
from parax.compiler.ir.types import F32, Dim, DType, TensorType, evaluate, symbol
from parax.compiler.ir.views import roots, view_source
from parax.compiler.kernel_ir.loops import KFunc
from parax.compiler.kernel_ir.verifier import verify_function
from parax.compiler.targets.target import TARGETS, Target

Feeds = Mapping[str, np.ndarray]


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
             constants: Sequence[int] = (), target: Target | None = None,
             fp: Fp = Fp.DEFAULT) -> list[np.ndarray]:
    """The outputs of one operator.

    Args:
        inputs: arrays (or None for omitted operands), logical shapes.
        symbols: name -> axis of input 0 that becomes symbolic. layouts: physical axis order per input.
        out_layouts: per output; default what the operator infers. constants: operands known when compiling.
        fp: which algorithms may be used.
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
    return run_graph(graph, feeds, sizes, target, fp)


def run_graph(graph: Graph, feeds: Mapping[str, np.ndarray], symbols: Mapping[str, int] | None = None,
              target: Target | None = None, fp: Fp = Fp.DEFAULT) -> list[np.ndarray]:
    """The graph's outputs for inputs by value name, in logical shape.

    Args:
        symbols: run-time values of the symbolic dimensions.
    """
    return Program(graph, target, tuple(symbols or {}), fp).run(feeds, symbols or {})


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


def lowered_calls(graph: Graph, context: LowerContext) -> list[tuple[Node, KernelCall]]:
    """The kernels of a graph without composite operators, node by node."""
    calls = []
    for node in graph:
        if view_source(node) is None:
            lowering = lowering_of(next(iter(node.body)).op if node.body is not None else node.op)
            lowering = lower_known if has_no_elements(node) or (lowering is None and is_known(node)) else lowering
            assert lowering is not None, f"{node.op.name} has no kernel"
            result = lowering(context, node)
            calls += [(node, c) for c in (result if isinstance(result, list) else [result])]
    return calls


@dataclass
class Program:
    """A graph compiled kernel by kernel."""

    graph: Graph
    target: Target | None = None
    symbols: tuple[str, ...] = ()
    fp: Fp = Fp.DEFAULT
    chooser: Chooser | None = None
    matmul_input: DType = F32
    calls: list[tuple[Node, KernelCall]] = field(default_factory=list)

    def __post_init__(self) -> None:
        expand_composites(self.graph)
        self.target = self.target or default_target()
        self.context = LowerContext(self.target, self.symbols, WeightStore(), fp=self.fp, chooser=self.chooser,
                                    matmul_input=self.matmul_input)  # fmt: skip
        self.calls = lowered_calls(self.graph, self.context)
        self.roots = roots(self.graph)

    @cached_property
    def code(self) -> Loaded:
        """The kernels in this process, compiled once; only a target that this machine runs has any."""
        return load_kernels([c.func for _, c in self.calls], self.target or default_target())

    def run(self, feeds: Feeds, symbols: Mapping[str, int], pieces: int | None = None,
            ways: Sequence[Way] = USUAL) -> list[np.ndarray]:  # fmt: skip
        """The outputs in logical shape, the same bits in all `ways`, or with the work in so many `pieces`."""
        cut = Way(f"in {pieces} pieces", partial(equal_pieces, n=pieces or 1), cores=pieces or 1)
        return self.run_all([(feeds, symbols)], ways if pieces is None else [cut])[0]

    def run_all(self, runs: Sequence[tuple[Feeds, Mapping[str, int]]], ways: Sequence[Way]) -> list[list[np.ndarray]]:
        """The outputs for each of several inputs.

        Fails if a byte that is no element is touched or an error site is reported; runs in a process of its own.
        """

        def once(feeds: Feeds, symbols: Mapping[str, int], note: Callable[[str], None]) -> list[np.ndarray]:
            first: list[np.ndarray] = []
            for way in ways:
                results = Run(self, dict(symbols), way, note).outputs(feeds)
                first = first or results
                for value, a, b in zip(self.graph.outputs, first, results):
                    assert a.tobytes() == b.tobytes(), f"{value}: {way.name} gives other bits than {ways[0].name}"
            return first

        _ = self.code  # here, not in the child: what it compiles is gone with it, and the next run compiles anew
        return list(in_child(lambda note: [once(feeds, symbols, note) for feeds, symbols in runs]))


class Run:
    """The buffers of one run, shared and guarded as its `way` says."""

    def __init__(self, program: Program, symbols: dict[str, int], way: Way, note: Callable[[str], None]) -> None:
        self.program, self.symbols, self.way, self.note = program, symbols, way, note
        self.random = Random(len(program.calls))
        self.buffers: dict[Value, Guarded] = {}
        self.weights: dict[int, Guarded] = {}
        self.blob = program.context.weights.to_bytes()
        self.dims = self._guarded(0, np.array([symbols[s] for s in program.symbols] or [0], np.int64).tobytes())
        self.dims.freeze()
        self.sync = np.zeros(256, np.uint8)
        self.meeting = self._guarded(0, bytes(64), 64)
        self.hosts = overwritten(program.graph, program.roots, way.overwrite) if way.overwrite is not None else {}

    def outputs(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Run all calls, as often as the way says, and read the results."""
        for value in self.program.graph.inputs:
            self.write(value, np.asarray(feeds[value.name]))
        for value in self.program.graph.inputs:
            if value not in self.hosts.values():
                self.buffer(value).freeze()
        for _ in range(1 if self.hosts else self.way.times):
            for node, call in self.program.calls:
                self.call(call, f"{call.func.name} for {node.op.name}")
        return [self.read(v) for v in self.program.graph.outputs]

    def evaluate(self, d: Dim) -> int:
        return evaluate(d, self.symbols)

    def _guarded(self, nbytes: int, content: bytes | None = None, align: int = 1) -> Guarded:
        return Guarded(nbytes, self.way.side, self.way.garbage, content, align)

    def buffer(self, value: Value) -> Guarded:
        """The bytes of a value (of the value it is a view of, or whose place it takes)."""
        root = self.program.roots.get(value, value)
        root = self.hosts.get(root, root)
        if root not in self.buffers:
            content = physical_array(root).tobytes() if root.data is not None else None
            self.buffers[root] = self._guarded(self.evaluate(root.tensor.nbytes), content)
            if content:
                self.buffers[root].freeze()
        return self.buffers[root]

    def write(self, value: Value, array: np.ndarray) -> None:
        t = value.tensor
        assert array.shape == tuple(self.evaluate(d) for d in t.dims), f"{value}: {array.shape} for {t}"
        data = np.ascontiguousarray(array.transpose(t.axis_order))
        self.buffer(value).view[:] = np.frombuffer(data.tobytes(), np.uint8)

    def read(self, value: Value) -> np.ndarray:
        t = value.tensor
        assert t.dtype.numpy is not None
        physical = tuple(self.evaluate(d) for d in t.physical_shape)
        data = np.frombuffer(self.buffer(value).view.tobytes(), t.dtype.numpy).reshape(physical)
        return data.transpose(np.argsort(t.axis_order)) if physical else data

    def call(self, call: KernelCall, where: str) -> None:
        """The work of one kernel, in pieces."""
        common = [None if isinstance(o, Scratch) else self._memory(o) for o in call.operands]
        work = self.evaluate(call.work)
        arguments = [ctypes.c_void_p] * (len(common) + 2) + [ctypes.c_int64] * 2
        function = self.program.code.function(entry_name(call.func), None, *arguments)
        scratch: list[Guarded] = []

        def piece(begin: int, end: int) -> None:
            self.note(f"{where}: {self.way.name}, items [{begin}, {end}) of {work}")
            memory = [self._memory(o) if m is None else m for o, m in zip(call.operands, common)]
            scratch.extend(m[0] for m, c in zip(memory, common) if c is None)
            addresses = [m.address + shift for m, shift in memory]
            function(*addresses, self.dims.address, self.sync.ctypes.data, begin, end)

        if not call.meets:
            self._idle(call, lambda at: piece(at, at), work)
        at_once(self.way.pieces(work, self.random, meets=call.meets), piece)
        self.note(f"{where}: {self.way.name}")
        site = int(self.sync[64:68].view(np.int32)[0])
        assert site == 0, f"Refused: {self.program.context.errors[site - 1]}"
        for m in (*(m[0] for m in common if m is not None), *scratch):
            m.check(call.func.name)

    def _idle(self, call: KernelCall, run: Callable[[int], None], work: int) -> None:
        """Run no items, at either end of the work: nothing may change."""
        values = [o.value if isinstance(o, OffsetOperand) else o for o in call.operands]
        buffers = [self.buffer(v) for v in values if isinstance(v, Value)]
        before = [b.view.tobytes() for b in buffers]
        for at in (0, work):
            run(at)
        for b, content in zip(buffers, before):
            assert b.view.tobytes() == content, f"{call.func.name} wrote without any work"

    def _memory(self, operand: Any) -> tuple[Guarded, int]:
        """Where an operand's bytes lie, and how far behind their beginning the kernel is to be pointed."""
        if isinstance(operand, Weight):
            if operand.offset not in self.weights:
                content = bytes(self.blob[operand.offset : operand.offset + operand.nbytes])
                self.weights[operand.offset] = self._guarded(0, content, 64)
                self.weights[operand.offset].freeze()
            return self.weights[operand.offset], 0
        if isinstance(operand, BarrierSlot):
            return self.meeting, 0
        if isinstance(operand, (Scratch, SharedScratch)):
            return self._guarded(self.evaluate(operand.nbytes), align=64), 0
        if isinstance(operand, OffsetOperand):
            return self.buffer(operand.value), operand.offset
        return self.buffer(operand), 0
