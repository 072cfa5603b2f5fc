"""The epilogue inside a register tile: a fusion's element-wise tail with run-time pitch, shared between layers.

Owns which tails are equal up to sizes. `fusion.Epilogue` does the same for kernels that are built per layer; here
extra operands that are laid out like the result, vary with the column only, or are one number need no shapes at all,
so that all layers of a network with, say, bias + Relu use the same tile functions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.graph import Node, Value
from ...ir.ops.base import Elementwise
from ...ir.ops.elementwise import Cast
from ...ir.ops.quantization import RoundTo
from ...ir.types import Dim, DType
from ...kernel_ir.builder import Builder, KValue
from ...kernel_ir.loops import PtrType
from ..fusion import Epilogue, Fusion, evaluate_body, load, scalar_constant, store, widen
from ..lowering import node_signature

CONVERSIONS = (Cast, RoundTo)  # of quantised tensors: a few instructions, too
LONGEST = 16  # operators of a tail that is written out for each accumulator


@dataclass(frozen=True)
class Addend:
    """A matrix added before the tail, `scale` times: element strides along rows and columns (0 = broadcast)."""

    row: Dim
    column: Dim
    scale: float
    dtype: DType

    def load(self, k: Builder, row: KValue, column: KValue, lanes: int, mask: KValue | None) -> KValue:
        """The addend's elements at (row, column .. column + lanes)."""
        at = row * k.index(self.row)
        if self.column == 0:
            value = k.splat(load(k, k["addend"], at, 1), lanes)
        elif self.column == 1:
            value = load(k, k["addend"], at + column, lanes, mask)
        else:
            step = k.index(self.column)
            index = k.splat(at + column * step, lanes) + k.ramp(lanes) * k.splat(step, lanes)
            value = widen(k, k.gather(k["addend"], index, mask))
        return value if self.scale == 1 else value * self.scale


@dataclass(frozen=True)
class Tail:
    """What follows the accumulators.

    Attributes:
        fusion: gives the nodes. kinds: of each extra operand: full (laid out like the result), column (a vector along
            it), scalar, or general (any broadcast: its address is computed from the layer's own shape).
        key: equal for tails that one tile function can serve. heavy: keep one copy of the code per tile.
        factor: of the sums, before the addend.
    """

    fusion: Fusion = field(compare=False, hash=False)
    kinds: tuple[str, ...]
    key: tuple
    heavy: bool
    symbols: tuple[str, ...]
    addend: Addend | None = None
    factor: float = 1.0

    @property
    def needs_dims(self) -> bool:
        """Whether addresses depend on the layer's own shape."""
        return "general" in self.kinds or self.addend is not None

    def params(self) -> list[tuple[str, PtrType]]:
        """The pointers that `apply` reads and writes."""
        addend = [("addend", PtrType(self.addend.dtype))] if self.addend is not None else []
        return addend + self.fusion.params()

    def prefetch(self, k: Builder, row: KValue, rows: int, column: KValue, width: int) -> None:
        """Ask for the memory of the outputs and operands of the tile that starts at a row and a column."""
        pointers = [k[f"y{i}"] for i in range(len(self.fusion.outputs))]
        pointers += [k[f"x{i}"] for i, kind in enumerate(self.kinds) if kind == "full"]
        for i in range(rows):
            at = (row + k["row_step"] * i) * k["pitch"] + column
            for ptr in pointers:
                for j in range(0, width, 64 * 8 // ptr.dtype.bits):
                    k.prefetch(ptr, at + j)

    def apply(self, k: Builder, row: KValue, column: KValue, value: KValue, mask: KValue | None) -> None:
        """Finish one vector of the result at (row, column) and store every output; k has pitch and the pointers."""
        f = self.fusion
        at = row * k["pitch"] + column
        value = value if self.factor == 1 else value * self.factor
        if self.addend is not None:
            value = value + self.addend.load(k, row, column, value.lanes, mask)
        values = f.rooted(k, value)
        general = Epilogue(k, f) if self.needs_dims else None
        for i, (inner, _) in enumerate(f.extras):
            ptr, kind = k[f"x{i}"], self.kinds[i]
            if kind == "general":
                assert general is not None
                values[inner] = general.load_extra(i, row, column, value.lanes, mask)
            elif kind == "scalar":
                values[inner] = load(k, ptr, 0, 1)
            else:
                values[inner] = load(k, ptr, at if kind == "full" else column, value.lanes, mask)
        evaluate_body(k, f.tail, values)
        for i, (inner, _) in enumerate(f.outputs):
            store(k, k[f"y{i}"], at, k.splat(values[inner], value.lanes), mask)


def tail_of(
    fusion: Fusion, symbols: tuple[str, ...], addend: Addend | None = None, factor: float = 1.0
) -> Tail:
    """Classify the extras of a fusion whose result is stored as rows × columns in memory order."""
    epilogue = Epilogue(None, fusion)  # type: ignore[arg-type]
    whole, column = epilogue.type.strides, epilogue.column_axis
    dims = epilogue.type.dims
    kinds = []
    for strides in epilogue.strides:
        rows = [(strides[a], whole[a]) for a in epilogue.row_axes if dims[a] != 1]
        along = strides[column] if column is not None else 0
        if all(s == 0 for s, _ in rows) and along in (0, 1):
            kinds.append("column" if along == 1 else "scalar")
        elif along == 1 and all(s == w for s, w in rows):
            kinds.append("full")
        else:
            kinds.append("general")
    heavy = len(fusion.tail) > LONGEST or not all(
        isinstance(n.op, Elementwise) and (n.op.effort.repeats or isinstance(n.op, CONVERSIONS)) for n in fusion.tail)
    types = tuple(str(o.tensor.dtype) for _, o in (*fusion.extras, *fusion.outputs))
    shape_key = (node_signature(fusion.node),) if "general" in kinds else ()
    key = (tuple(kinds), str(epilogue.type.dtype), types, addend, factor, _nodes_key(fusion), *shape_key)
    return Tail(fusion, tuple(kinds), key, heavy, symbols, addend, factor)


def _nodes_key(fusion: Fusion) -> tuple:
    """Structure of the tail without sizes; values are numbered in order of appearance."""
    number: dict[Value, int] = {fusion.result: 0}
    for inner, _ in fusion.extras:
        number[inner] = len(number)

    def ref(v: Value | None) -> object:
        if v is None:
            return None
        if v not in number and scalar_constant(v):
            assert v.data is not None
            return (str(v.tensor.dtype), v.data.tobytes())
        return number[v]

    rows: list[tuple] = []
    for node in fusion.tail:
        rows.append((_op_key(node), tuple(ref(v) for v in node.inputs)))
        for v in node.outputs:
            number[v] = len(number)
    return (*rows, tuple(number[inner] for inner, _ in fusion.outputs))


def _op_key(node: Node) -> tuple:
    return (node.op.key(), tuple(str(v.tensor.dtype) for v in node.outputs))
