"""Fused blocks as the kernels see them: a root and an element-wise tail applied to its results.

Owns the evaluation of element-wise bodies on vectors and the addressing of their extra operands. Knows kernel IR and
the catalogue; must not know any one root kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InternalError
from ..ir.graph import Graph, Node, Value
from ..ir.ops.base import Elementwise, Fused
from ..ir.types import BF16, F16, F32, NARROW, Dim, DType, TensorType
from ..kernel_ir.builder import Builder, KValue
from ..kernel_ir.loops import PtrType


def register_dtype(dtype: DType) -> DType:
    """The type a value of `dtype` has in registers: half precisions compute in f32."""
    return F32 if dtype in (F16, BF16) else dtype


def round_like(k: Builder, value: KValue, dtype: DType) -> KValue:
    """A value in registers rounded as if it had been stored as `dtype`."""
    return k.cast(k.cast(value, dtype), F32) if dtype in (F16, BF16) else value


def widen(k: Builder, v: KValue) -> KValue:
    """The value in the type it has in registers."""
    return k.cast(v, register_dtype(v.dtype))


def load(k: Builder, ptr: KValue, index: KValue | int, lanes: int, mask: KValue | None = None) -> KValue:
    """Load and widen half precisions to f32."""
    return widen(k, k.load(ptr, index, lanes, mask))


def store(k: Builder, ptr: KValue, index: KValue | int, value: KValue, mask: KValue | None = None) -> None:
    """Round to the pointer's element type and store."""
    k.store(ptr, index, k.cast(value, ptr.dtype), mask)


def scalar_constant(v: Value) -> bool:
    """Whether a constant is one element that is written into the kernel's text; those of narrow types are no text."""
    return v.data is not None and v.producer is None and v.data.size == 1 and v.tensor.dtype not in NARROW


def constant_value(k: Builder, v: Value) -> KValue:
    """A one-element constant as a kernel constant."""
    assert v.data is not None
    return k.const(v.data.reshape(-1)[0].item(), register_dtype(v.tensor.dtype))


def evaluate_body(k: Builder, nodes: list[Node], values: dict[Value, KValue]) -> None:
    """Compute element-wise `nodes` lane by lane; `values` holds their inputs and receives their outputs.

    Each rounds by itself, as in the model, whatever they follow: behind a Round or a quantisation even an open sum's
    results are whole numbers that no order of the sum changes.
    """

    def get(v: Value | None) -> KValue | None:
        if v is None:
            return None
        if v not in values and scalar_constant(v):
            return constant_value(k, v)
        return values[v]

    for node in nodes:
        assert isinstance(node.op, Elementwise)
        with k.rounding():
            out = node.op.compute(k, *(get(v) for v in node.inputs))
        results = out if isinstance(out, (list, tuple)) else [out]
        for v, r in zip(node.outputs, results):
            if v.tensor.dtype not in (F16, BF16) and r.dtype != register_dtype(v.tensor.dtype):
                raise InternalError(f"compute gave {r.dtype}, the graph says {v.tensor.dtype}", where=node.where)
            values[v] = round_like(k, r, v.tensor.dtype)  # as the unfused operator does


@dataclass
class Fusion:
    """A node seen as root + tail.

    Attributes:
        node: the outer node. root: the node whose kernel this is (the node itself when nothing is fused).
        tail: element-wise nodes after the root, in order. result: the root's output inside the block.
        extras: the outer operands that only the tail reads, with the body's name for each.
        outputs: pairs (value in the block, outer output).
    """

    node: Node
    root: Node
    tail: list[Node]
    result: Value
    root_inputs: list[Value | None]
    extras: list[tuple[Value, Value]]
    outputs: list[tuple[Value, Value]]

    @staticmethod
    def of(node: Node) -> Fusion:
        """Take a node apart; body inputs that are the same outer value stay separate."""
        if not isinstance(node.op, Fused):
            return Fusion(node, node, [], node.outputs[0], list(node.inputs), [], list(zip(node.outputs, node.outputs)))
        body = node.body
        assert isinstance(body, Graph)
        nodes = list(body)
        root, tail = nodes[0], nodes[1:]
        outer = dict(zip(body.inputs, node.inputs))
        used = {v for n in tail for v in n.inputs}
        extras = [(b, outer[b]) for b in body.inputs if b in used]
        root_inputs = [None if v is None else outer.get(v, v) for v in root.inputs]
        if not all(isinstance(n.op, Elementwise) for n in tail):
            raise InternalError("only element-wise operators may follow a fused root", where=node.name)
        return Fusion(node, root, tail, root.outputs[0], root_inputs, extras, list(zip(body.outputs, node.outputs)))  # type: ignore[arg-type]

    def rooted(self, k: Builder, value: KValue) -> dict[Value, KValue]:
        """The body's values before the tail: a vector of the root's result, rounded as the unfused root does.

        Without a tail, storing rounds.
        """
        return {self.result: round_like(k, value, self.result.tensor.dtype) if self.tail else value}

    def params(self) -> list[tuple[str, PtrType]]:
        """Pointer parameters x0, x1, … of the extras and y0, y1, … of the outputs."""
        return ([(f"x{i}", PtrType(o.tensor.dtype)) for i, (_, o) in enumerate(self.extras)]
                + [(f"y{i}", PtrType(o.tensor.dtype)) for i, (_, o) in enumerate(self.outputs)])

    def operands(self) -> list[Value]:
        """The values behind `params`, in the same order."""
        return [o for _, o in self.extras] + [o for _, o in self.outputs]


class Epilogue:
    """Applies a fusion's tail to vectors of the root's result and stores the outputs.

    The result tensor is seen as rows × columns in memory order: columns = its innermost physical axis. All outputs of
    the block must have the root's type but for its elements'.
    """

    def __init__(self, k: Builder, fusion: Fusion) -> None:
        self.k, self.fusion = k, fusion
        t = fusion.result.type
        assert isinstance(t, TensorType)
        self.type = t
        order = t.axis_order
        self.row_axes = order[:-1]
        self.columns: Dim = t.physical_shape[-1] if order else 1
        self.pitch = t.pitch
        self.column_axis = order[-1] if order else None
        self.strides = [self._aligned_strides(o.tensor) for _, o in fusion.extras]

    def _aligned_strides(self, t: TensorType) -> tuple[Dim, ...]:
        """Element strides of an extra operand per axis of the result (0 where it broadcasts)."""
        lead = self.type.rank - t.rank
        own = t.strides
        return tuple(0 if a < lead or t.dims[a - lead] == 1 else own[a - lead] for a in range(self.type.rank))

    def row_base(self, extra: int, row: KValue) -> KValue:
        """Offset of an extra operand's element for (row, column 0)."""
        k, strides = self.k, self.strides[extra]
        whole = self.type.strides
        axes = [a for a in self.row_axes if self.type.dims[a] != 1]
        pitch = strides[axes[-1]] if axes else 0
        if all(strides[a] * self.pitch == whole[a] * pitch for a in axes):
            return row * k.index(pitch)
        offset, rest = k.index(0), row
        for i, a in enumerate(reversed(axes)):
            size = k.index(self.type.dims[a])
            last = i == len(axes) - 1
            here = rest if last else k.urem(rest, size)
            rest = rest if last else k.udiv(rest, size)
            if strides[a] != 0:
                offset = offset + here * k.index(strides[a])
        return offset

    def load_extra(self, i: int, row: KValue, column: KValue, lanes: int, mask: KValue | None) -> KValue:
        k, strides = self.k, self.strides[i]
        ptr = k[f"x{i}"]
        step = strides[self.column_axis] if self.column_axis is not None else 0
        base = self.row_base(i, row)
        if step == 0:
            return load(k, ptr, base, 1)
        if step == 1:
            return load(k, ptr, base + column, lanes, mask)
        index = k.splat(base + column * k.index(step), lanes) + k.ramp(lanes) * k.splat(k.index(step), lanes)
        return widen(k, k.gather(ptr, index, mask))

    def apply(self, row: KValue, column: KValue, value: KValue, mask: KValue | None = None) -> None:
        """Finish `value` = result[row, column : column + lanes] and store every output of the block."""
        k, f = self.k, self.fusion
        values = f.rooted(k, value)
        for i, (inner, _) in enumerate(f.extras):
            values[inner] = self.load_extra(i, row, column, value.lanes, mask)
        evaluate_body(k, f.tail, values)
        for i, (inner, _outer) in enumerate(f.outputs):
            v = k.splat(values[inner], value.lanes)
            store(k, k[f"y{i}"], row * k.index(self.pitch) + column, v, mask)
