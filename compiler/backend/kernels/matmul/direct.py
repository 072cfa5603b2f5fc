"""MatMul and Gemm by the register tile: which rows, columns and strides they mean, and how tiles find their operands.

f32 results (and half precisions, computed in f32): B constant and shared by all rows is packed at compile time, of
few rows it is read as it lies, otherwise each work item packs its panel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ....ir.ops.bf16_products import Bf16MatMul
from ....ir.ops.contraction import IntegralMatMul
from ....ir.types import BF16, F16, Dim, DType, TensorType, ceil_div, prod
from ....kernel_ir.builder import F32, F32PTR, I64PTR, Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...algorithm import Algorithm
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Operand, Scratch
from ...microkernels.emitter import Emitter
from ...microkernels.table import emitter_of, has_instruction
from ..plain import decompose
from ..tail import Addend, Tail, tail_of
from .blocking import PanelKind, Product, padded_columns, plan_product
from .copying import FEW_ROWS, goes_along_rows, is_interleaved
from .gemm import Operands, ProductEmitter
from .interleave import InterleavedEmitter, Source
from .pack import copy_function, packed_panels, pad_vector
from .shapes import Matrices, Rows, is_packed, plan_rows
from .tile import LINE
from .woven import Columns, rows_scratch, weave_panel

FLOATS = (F32, F16, BF16)
SET_FLOATS = 512  # rows of B a multiple of that apart crowd a few sets of the caches:
FEWER_ROWS = 6  # only one tile may read them where they lie


@dataclass(frozen=True)
class ProductLayer:
    """A matrix product with what is fused to it, and its operands."""

    fusion: Fusion
    matrices: Matrices


ProductAlgorithm = Algorithm[ProductLayer]


class DirectAlgorithm(ProductAlgorithm):
    """The register tile: what Strassen's algorithm is compared with."""

    name = "direct"

    def applies(self, ctx: LowerContext, layer: ProductLayer) -> bool:
        fusion, m = layer.fusion, layer.matrices
        return is_tiled(fusion, m) and not is_rounded(ctx, fusion, m) and not has_pairs(ctx, fusion, m)

    def lower(self, ctx: LowerContext, layer: ProductLayer) -> KernelCall:
        return lower_direct(ctx, layer.fusion, layer.matrices)


def is_rounded(ctx: LowerContext, fusion: Fusion, m: Matrices) -> bool:
    """Whether a product of f32 by a constant f32 matrix is to have its operands rounded, for tiles that the target has.

    Products of whole numbers are exact and stay so.
    """
    to = ctx.matmul_input
    if to == F32 or not is_tiled(fusion, m) or not is_packed(m) or isinstance(fusion.root.op, IntegralMatMul):
        return False
    single = all(t.dtype == F32 for t in (fusion.result.tensor, m.a.tensor, m.b.tensor))
    return single and has_instruction(ctx.target, to)


def has_pairs(ctx: LowerContext, fusion: Fusion, m: Matrices) -> bool:
    """Whether a product of bf16 is for tiles of vectors of pairs; of a matrix that is not constant, where they weave.

    Where a target has none but by conversion, a model's own products of bf16 are faster by copies of f32.
    """
    emitter = emitter_of(ctx.target, BF16)
    narrow = m.a.tensor.dtype == m.b.tensor.dtype == BF16
    if not narrow or not is_tiled(fusion, m) or emitter.matrices:
        return False
    if not is_packed(m):
        return emitter.weave is not None
    return isinstance(fusion.root.op, Bf16MatMul) or has_instruction(ctx.target, BF16)


def pitch_in_place(m: Matrices, y: TensorType) -> int | None:
    """Elements between rows of B where few rows of A meet it and its columns lie side by side; None: it is packed."""
    if is_packed(m) or m.b.tensor.dtype != F32 or m.column_axis is None or m.b_strides[m.column_axis] != 1:
        return None
    rows, pitch = prod(y.dims[a] for a in plan_rows(y, m).axes), m.b_k
    if not isinstance(rows, int) or not isinstance(pitch, int):
        return None
    return pitch if rows <= (FEW_ROWS if pitch % SET_FLOATS else FEWER_ROWS) else None


def blocks(
    ctx: LowerContext, fusion: Fusion, m: Matrices, input_type: DType = F32, emitter: Emitter | None = None
) -> Product:
    """How a product is blocked, of operands that are rounded to a type; `emitter`: None: the usual one of the type."""
    y = fusion.result.tensor
    rows, columns = plan_rows(y, m), y.dims[y.axis_order[-1]]
    outer, n_rows = prod(y.dims[a] for a in rows.outer), prod(y.dims[a] for a in rows.axes)
    emitter = emitter or emitter_of(ctx.target, input_type)
    steps = ceil_div(m.depth, emitter.k_step)
    whole = 0 if is_packed(m) or pitch_in_place(m, y) is not None else 384
    return plan_product(ctx, outer, n_rows, columns, 1, steps, whole_rows=whole, input_type=input_type,
                        emitter=emitter)  # fmt: skip


def is_tiled(fusion: Fusion, m: Matrices) -> bool:
    """Whether the register tile applies: float result with columns innermost and rows at a constant distance."""
    y = fusion.result.tensor
    if m.depth == 0:  # sums of nothing: there is no panel to plan
        return False
    if y.dtype not in FLOATS or m.a.tensor.dtype not in FLOATS or m.b.tensor.dtype not in FLOATS:
        return False
    if m.column_axis is None or y.axis_order[-1] != m.column_axis:
        return False
    return m.c is None or m.c.tensor.dtype in FLOATS


def constant_matrix(m: Matrices) -> np.ndarray | None:
    """B as [K, N], a view, if it is known at compile time and shared by all rows."""
    if not is_packed(m):
        return None
    assert m.b.data is not None
    data = m.b.data.reshape(m.b.data.shape[-2:])
    return data.T if m.transposed_b else data


class DirectProduct:
    """One product by the register tile: how it is blocked, its operands, and the emitter of its loops.

    Args:
        emitter: how its tiles multiply; None: the usual one of the element type.

    Attributes:
        p, rows, columns: how it is cut. operands: of its kernel, by name. biased: whether sums start from a vector.
    """

    def __init__(
        self, ctx: LowerContext, fusion: Fusion, m: Matrices, input_type: DType = F32, emitter: Emitter | None = None
    ) -> None:
        y = fusion.result.tensor
        self.ctx, self.m, self.y, self.columns = ctx, m, y, y.dims[y.axis_order[-1]]
        self.rows, p, matrix = plan_rows(y, m), blocks(ctx, fusion, m, input_type, emitter), constant_matrix(m)
        vector, addend = bias_vector(m, self.columns), addend_of(m, self.columns)
        in_place = pitch_in_place(m, y) is not None
        p = replace(p, along_rows=vector is None and not in_place and goes_along_rows(ctx, m, self.rows, p))
        self.biased, self.is_packed = vector is not None, matrix is not None
        self.tail = tail_of(fusion, ctx.symbols, addend, m.alpha)
        pack_a = m.a_k != 1 or m.a.tensor.dtype != p.emitter.element or is_interleaved(ctx, m, self.rows, p)
        self.pack_a = pack_a or (p.emitter.width > 1 and m.depth % p.emitter.width != 0)
        if self.pack_a:
            p = p.spaced(row_pitch(p) * p.emitter.width)
        elif len(self.rows.a_runs) == 1:
            p = p.spaced(self.rows.a_runs[0][1])
        self.p = p
        self.operands = [*self._own(vector), *self._of_b(matrix, in_place)]
        if addend is not None:
            assert m.c is not None
            self.operands.append(("addend", PtrType(m.c.tensor.dtype), m.c))

    def _own(self, vector: np.ndarray | None) -> list[tuple[str, PtrType, Operand]]:
        """A, the bias and scratch."""
        ctx, m, p, sums = self.ctx, self.m, self.p, PtrType(self.p.emitter.sums)
        nelements = 4 * ctx.lanes  # zeros for one panel
        if vector is not None:
            nelements = max(padded_columns(vector.size, ctx.lanes), nelements)
        bias = ctx.weights.add(pad_vector(np.zeros(0) if vector is None else vector, nelements))
        return [
            ("a", PtrType(m.a.tensor.dtype), m.a),
            ("bias", sums, bias),
            ("table", I64PTR, Scratch(8 * p.table_entries)),
            ("partial", sums, Scratch(p.partial_nbytes)),
            ("apack", PtrType(p.emitter.element), Scratch(p.row_block * row_pitch(p) * 4 if self.pack_a else 64)),
        ]

    def _of_b(self, matrix: np.ndarray | None, in_place: bool) -> list[tuple[str, PtrType, Operand]]:
        """B, packed or as it lies, and where its panels are packed."""
        ctx, m, p, emitter = self.ctx, self.m, self.p, self.p.emitter
        packed, width = PtrType(emitter.b_element), max(kind.vectors for kind in p.kinds) * ctx.lanes
        if matrix is not None:
            return [("b", packed, packed_panels(ctx, matrix[None], p.kinds, ctx.lanes, emitter=emitter))]
        panels = p.panels_per_item if p.along_rows else 1
        operands: list[tuple[str, PtrType, Operand]] = [
            ("b", PtrType(m.b.tensor.dtype), m.b),
            ("bpack", packed, Scratch(64 if in_place else p.kc * panels * (width * 4))),
        ]
        if emitter.weave is not None:
            operands.append(("rows", F32PTR, rows_scratch(1, width, emitter)))
        return operands

    def places(self, k: Builder, p: Product | None = None) -> MatMulEmitter:
        """Where the tiles of a kernel with these operands find them; `p`: cut otherwise, with A read where it lies."""
        pack_a = self.pack_a and p is None
        return MatMulEmitter(k, self.ctx, self.m, self.rows, self.y, p or self.p, pack_a, self.is_packed, self.biased)

    def emit(self, k: Builder) -> None:
        """The kernel's loops."""
        self.places(k).loops(self.tail, self.columns).emit()


def lower_direct(
    ctx: LowerContext, fusion: Fusion, m: Matrices, input_type: DType = F32, emitter: Emitter | None = None
) -> KernelCall:
    """By the register tile of an element type; of a B that is not constant, its own type's or one that weaves.

    Args:
        emitter: how its tiles multiply; None: the usual one of the type.
    """
    product = DirectProduct(ctx, fusion, m, input_type, emitter)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in product.operands] + fusion.params())
        product.emit(k)
        return k.func

    func = ctx.function("matmul", fusion.node, build, not product.is_packed, not product.biased, input_type,
                        product.p.emitter.b_element)  # fmt: skip
    return KernelCall(func, (*(o for _, _, o in product.operands), *fusion.operands()), product.p.work)


def bias_vector(m: Matrices, columns: Dim) -> np.ndarray | None:
    """Gemm's C where it is a constant vector: the accumulators start from it, unless alpha scales them later.

    Alpha is no part of B: together with it B may leave f32's range where the result does not.
    """
    if m.c is None or m.beta == 0 or m.c.data is None or m.c.producer is not None or not isinstance(columns, int):
        return None
    if m.alpha != 1:
        return None
    t = m.c.tensor
    if t.rank == 2 and t.dims[0] != 1:
        return None
    return np.broadcast_to(m.c.data.reshape(-1), (columns,)).astype(np.float32) * np.float32(m.beta)


def addend_of(m: Matrices, columns: Dim) -> Addend | None:
    """Gemm's C where it is anything else: it is added at the end."""
    if m.c is None or m.beta == 0 or bias_vector(m, columns) is not None:
        return None
    t = m.c.tensor
    dims, strides = (1,) * (2 - t.rank) + t.dims, (0,) * (2 - t.rank) + t.strides
    row, column = (0 if d == 1 else s for d, s in zip(dims, strides))
    return Addend(row, column, m.beta, t.dtype)


def row_pitch(p: Product) -> Dim:
    """Steps of k between rows of A that are copied to scratch, of 4 bytes each."""
    return ceil_div(p.kc, p.lanes) * p.lanes


class MatMulEmitter:
    """The callbacks of one matrix product."""

    def __init__(
        self,
        k: Builder,
        ctx: LowerContext,
        m: Matrices,
        rows: Rows,
        y: TensorType,
        p: Product,
        pack_a: bool,
        packed_b: bool,
        biased: bool,
    ) -> None:
        self.k, self.ctx, self.m, self.rows, self.y, self.p = k, ctx, m, rows, y, p
        self.pack_a, self.packed_b, self.biased = pack_a, packed_b, biased
        self.b_pitch = pitch_in_place(m, y)

    def operands(self, columns: Dim) -> Operands:
        k = self.k
        a = k["apack"] if self.pack_a else k["a"]
        return Operands(
            a=a,
            zero=a,
            table=k["table"],
            partial=k["partial"],
            fill_table=self.fill_table,
            panel=self.panel,
            bias=lambda column: k.gep(k["bias"], column) if self.biased else k["bias"],
            row_base=lambda outer: self.outer_offset(outer, self.rows.y_strides),
            pitch=columns,
            row_step=self.rows.y_step,
            b_pitch=self.b_pitch,
        )

    def loops(self, tail: Tail, columns: Dim) -> ProductEmitter:
        """The product's loops."""
        given = self.k, self.ctx, self.p, tail, self.operands(columns)
        if not is_interleaved(self.ctx, self.m, self.rows, self.p):
            return ProductEmitter(*given)
        a_strides = dict(enumerate(self.m.a_strides))
        source = Source(self.k["a"], lambda outer: self.outer_offset(outer, a_strides),
                        self.rows.a_runs[0][1], self.m.a_k, self.m.depth)  # fmt: skip
        return InterleavedEmitter(*given, source=source)

    def outer_offset(self, outer: KValue, strides: Mapping[int, Dim]) -> KValue:
        """Sum of index times stride over the outer axes."""
        k = self.k
        index = decompose(k, outer, self.rows.outer, self.y.dims)
        total = k.index(0)
        for a in self.rows.outer:
            if strides[a] != 0:
                total = total + index[a] * k.index(strides[a])
        return total

    def fill_table(self, outer: KValue, row0: KValue, count: KValue) -> None:
        """Offsets of the block's rows of A, or the rows themselves copied to scratch."""
        k, m, runs = self.k, self.m, self.rows.a_runs
        base = self.outer_offset(outer, dict(enumerate(m.a_strides)))
        pitch = k.index(row_pitch(self.p) * self.p.emitter.width)
        single = len(runs) == 1

        def offset(r: KValue) -> KValue:
            if single:
                return base + r * k.index(runs[0][1])
            index = decompose(k, r, range(len(runs)), [size for size, _ in runs])
            total = base
            for i, (_, stride) in zip(index, runs):
                total = total + i * k.index(stride)
            return total

        def row(i: KValue, _: list[KValue]) -> None:
            if self.pack_a and not single:
                self.copy_rows(offset(row0 + i), k.gep(k["apack"], i * pitch), k.index(1), 0, pitch)
            at = i * pitch if self.pack_a else offset(row0 + i)
            k.store(k["table"], i, at)
            if not self.pack_a and not self.packed_b and isinstance(m.depth, int) and m.depth <= 8 * LINE:
                for line in range(0, m.depth, LINE):
                    k.prefetch(k["a"], at + line)

        if self.pack_a and single:
            self.copy_rows(offset(row0), k["apack"], count, runs[0][1], pitch)
        k.for_(0, count, 1, [], row)

    def copy_rows(self, at: KValue, dst: KValue, count: KValue, stride: Dim, pitch: KValue) -> None:
        k, m = self.k, self.m
        emitter = self.p.emitter
        mode = "rows" if m.a_k == 1 else "strided"
        copy = copy_function(self.ctx, m.a.tensor.dtype, mode, self.ctx.lanes, emitter)
        depth = k.index(m.depth)
        k.call(
            copy,
            [k.gep(k["a"], at), dst, count, depth, k.index(stride), k.index(m.a_k), pitch, depth, k.const(1.0, F32)],
        )

    def panel(
        self, outer: KValue, kind: PanelKind, panel: KValue, column: KValue, place: KValue | None = None
    ) -> KValue:
        """A panel of B: packed, in the weights or now (to a place of `bpack`), or as it lies."""
        k, m, p = self.k, self.m, self.p
        if self.packed_b:
            return k.gep(k["b"], column * k.index(p.kc * p.emitter.width))
        axis = m.column_axis
        assert axis is not None
        n_step = m.b_strides[axis]
        at = self.outer_offset(outer, dict(enumerate(m.b_strides))) + column * k.index(n_step)
        if self.b_pitch is not None:
            return k.gep(k["b"], at)
        mode = "panel" if n_step == 1 else "transposed" if m.b_k == 1 else "strided"
        width = kind.vectors * p.lanes
        valid = k.min(k.index(p.columns) - column, width)
        if p.emitter.weave is not None:
            columns = Columns(k.gep(k["b"], at), valid, m.b_k, n_step, mode)
            weave_panel(k, self.ctx, columns, k.index(m.depth), 1, width, p.lanes, p.emitter, k["rows"], k["bpack"])
            return k["bpack"]
        copy = copy_function(self.ctx, m.b.tensor.dtype, mode, p.lanes)
        k.call(
            copy,
            [
                k.gep(k["b"], at),
                place or k["bpack"],
                k.index(m.depth),
                valid,
                k.index(m.b_k),
                k.index(n_step),
                k.index(width),
                k.index(width),
                k.const(1.0, F32),
            ],
        )
        return k["bpack"]
