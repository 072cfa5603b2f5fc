"""Products by constants of 4 or 8 bits with a scale a block: of few rows unpacked in registers, of many panel by panel.

    for (outer, row block, column group) in work items:
        few rows:   copy the block's rows of A, unless the item before had them
                    for panel in column group: few_function
        many rows:  for block of K: for panel in column group: write it out in f32; tiles below one another

How many rows there are may be known when the kernel runs only; both ways read the same panels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ....ir.graph import Node
from ....ir.ops.block_products import FEW_ROWS, BlockedMatMul
from ....ir.types import I8, U8, U32, TensorType, ceil_div, prod
from ....kernel_ir.builder import F32PTR, I64PTR, Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Operand, Scratch, lowers, unsupported
from ..tail import Tail, tail_of
from .block_integers import SCALES, few_integers, integer_params, rounded_row, takes_integers
from .block_panels import Blocks, blocks_of, packed_blocks
from .block_tiles import FewShape, few_function, few_params, padded, scaled_row, written_out
from .blocking import L2_SHARE, MIN_ITEMS, PanelKind, Product, plan_product, static
from .direct import MatMulEmitter, row_pitch
from .gemm import Operands, ProductEmitter, RowRange, Step
from .shapes import Matrices, Rows, plan_rows

MOST_TOGETHER = 4  # of few rows by a panel, which is unpacked again for as many more
MOST_BLOCK = 256  # weights that share a scale
MOST_PANELS = 8  # of an item
WHOLE_ROWS = 384  # of a block, about, where there are so many: each of them writes its panels out


@lowers(BlockedMatMul)
def lower_blocked(ctx: LowerContext, node: Node) -> KernelCall:
    """The kernel call of a (fused) product by blocked weights."""
    fusion = Fusion.of(node)
    if any(v.data is None for v in fusion.root_inputs[1:] if v is not None):
        raise unsupported(fusion.root, "blocked weights that are computed")
    m, y = _matrices(fusion), fusion.result.tensor
    rows, columns, blocks = plan_rows(y, m), static(y.dims[-1]), blocks_of(fusion)
    outer, n_rows = prod(y.dims[a] for a in rows.outer), prod(y.dims[a] for a in rows.axes)
    is_few = isinstance(n_rows, int) and n_rows <= FEW_ROWS
    p = plan_product(ctx, outer, n_rows, columns, 1, m.depth, whole_rows=0 if is_few else WHOLE_ROWS)
    p = p if is_few or p.one_k_block else _grouped(p)
    tail, pack_a, in_integers = tail_of(fusion, ctx.symbols), m.a_k != 1, _in_integers(ctx, blocks)
    weights, few = packed_blocks(ctx, fusion, blocks, p.kinds, ctx.lanes), 0 if _are_many(p) else FEW_ROWS
    width = max(kind.vectors for kind in p.kinds) * ctx.lanes
    operands: list[tuple[str, PtrType, Operand]] = [
        ("a", F32PTR, m.a),
        ("bias", F32PTR, ctx.weights.add(np.zeros(width, np.float32))),
        ("table", I64PTR, Scratch(8 * p.table_entries)),
        ("partial", F32PTR, Scratch(p.partial_nbytes if is_few else p.partial_nbytes * p.panels_per_item)),
        ("apack", F32PTR, Scratch(p.row_block * row_pitch(p) * 4 if pack_a else 64)),
        ("few", F32PTR, Scratch(4 * few * (SCALES * blocks.n if in_integers else padded(blocks)) + 64)),
        ("bpack", F32PTR, Scratch(64 if is_few else 4 * min(padded(blocks), _steps(ctx, p)) * width)),
        ("b", PtrType(U32), weights),
    ]
    if in_integers:
        operands += [("b_bytes", PtrType(U8), weights), ("rounded", PtrType(I8), Scratch(few * padded(blocks) + 64))]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        places = _Places(k, ctx, m, rows, y, p, pack_a, blocks)
        _Emitter(k, ctx, p, tail, places.operands(columns), blocks).emit()
        return k.func

    func = ctx.function("blocked", node, build, blocks)
    nbytes = sum((v.tensor.nbytes for v in {*node.operands, *node.outputs}), start=0)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), p.work, node.name,
                      2 * prod(y.dims) * m.depth, nbytes)  # fmt: skip


def _matrices(fusion: Fusion) -> Matrices:
    a, b, rank = fusion.root_inputs[0], fusion.root_inputs[1], fusion.result.tensor.rank
    assert a is not None and b is not None
    strides = a.tensor.strides
    return Matrices(a, b, None, a.tensor.dims[-1], (*strides[:-1], 0), (*[0] * (rank - 1), 1), strides[-1], 1,
                    rank - 2 if rank > 1 else None, rank - 1)  # fmt: skip


def _grouped(p: Product) -> Product:
    """The product with more panels to an item: each of them meets a block of A while that is in L2."""
    return replace(p, panels_per_item=max(1, min(MOST_PANELS, static(p.n_panels) // (2 * MIN_ITEMS))))


def _steps(ctx: LowerContext, p: Product) -> int:
    """Of k, for which a panel is written out and multiplied at a time."""
    if p.one_k_block:
        return ceil_div(static(p.kc), MOST_BLOCK) * MOST_BLOCK
    fits = 4 * static(p.row_block) * 2 * MOST_BLOCK <= L2_SHARE * ctx.target.l2_nbytes
    return 2 * MOST_BLOCK if fits else MOST_BLOCK


def _in_integers(ctx: LowerContext, blocks: Blocks) -> bool:
    """Whether few rows are rounded."""
    return blocks.rounds and takes_integers(ctx.target, blocks)


def _are_many(p: Product) -> bool:
    """Whether it is known that there are many rows."""
    return isinstance(p.rows, int) and p.rows > FEW_ROWS


class _Places(MatMulEmitter):
    """Where the operands are: a panel is written out in f32 before the tiles read it."""

    def __init__(self, k: Builder, ctx: LowerContext, m: Matrices, rows: Rows, y: TensorType, p: Product, pack_a: bool,
                 blocks: Blocks) -> None:  # fmt: skip
        super().__init__(k, ctx, m, rows, y, p, pack_a, False, False)
        self.blocks = blocks

    def panel(
        self, outer: KValue, kind: PanelKind, panel: KValue, column: KValue, place: KValue | None = None
    ) -> KValue:
        k = self.k
        write = written_out(self.ctx, self.blocks, kind.vectors, self.p.lanes)
        k.call(write, [panel_at(k, self.blocks, column), k["bpack"], 0, self.blocks.n])
        return k["bpack"]


def panel_at(k: Builder, blocks: Blocks, column: KValue) -> KValue:
    """The packed panel that begins at a column."""
    return k.gep(k["b"], column * (blocks.n * blocks.words))


class _Emitter(ProductEmitter):
    """The loops of one product, with those of few rows."""

    by_blocks = True

    def __init__(self, k: Builder, ctx: LowerContext, p: Product, tail: Tail, operands: Operands,
                 blocks: Blocks) -> None:  # fmt: skip
        super().__init__(k, ctx, p, tail, operands)
        self.blocks = blocks
        self.in_integers = _in_integers(ctx, blocks)
        self.few_pitch = SCALES * blocks.n if self.in_integers else padded(blocks)

    def begin_block(self, outer: KValue, row0: KValue, count: KValue) -> None:
        super().begin_block(outer, row0, count)
        self.by_count(count, lambda: self.scale(count), lambda: None)

    def panels(self, outer: KValue, row0: KValue, count: KValue, first: KValue, last: KValue) -> None:
        rows, whole = RowRange(outer, row0, count), super().panels

        def many() -> None:
            if self.p.one_k_block:
                whole(outer, row0, count, first, last)
            else:
                self.many(rows, first, last)

        self.by_count(count, lambda: self.few(rows, first, last), many)

    def by_count(self, count: KValue, few: Callable[[], None], many: Callable[[], None]) -> None:
        """One of both, by the number of rows."""
        if isinstance(self.p.rows, int):
            many() if _are_many(self.p) else few()
        else:
            self.k.if_(count <= FEW_ROWS, few, many)

    def many(self, rows: RowRange, first: KValue, last: KValue) -> None:
        """The panels [first, last), a block of k after the other."""
        k, p, o, blocks, size = self.k, self.p, self.o, self.blocks, _steps(self.ctx, self.p)
        widest = max(kind.vectors for kind in p.kinds) * p.lanes
        n = ceil_div(static(p.kc), size)

        def panel(i: KValue, number: KValue, kind: PanelKind) -> None:
            column = k.index(kind.column) + (number - kind.first) * (kind.vectors * p.lanes)
            steps = k.min(k.index(p.kc) - i * size, size)
            write = written_out(self.ctx, blocks, kind.vectors, p.lanes)
            count = k.udiv(steps + (blocks.size - 1), blocks.size)
            k.call(write, [panel_at(k, blocks, column), k["bpack"], i * (size // blocks.size), count])
            begins, ends = (k.cast(i == at, steps.dtype) for at in (0, n - 1))
            partial = k.gep(o.partial, (number - first) * (static(p.row_block) * widest))
            step = Step(self.start_of_a(i * size), o.table, k["bpack"], self.taps, steps, begins, ends, partial)
            self.tiles(rows, kind, column, step)

        def block(i: KValue, _: list[KValue]) -> None:
            for kind in p.kinds:
                low, high = k.max(first, kind.first), k.min(last, kind.first + kind.count)
                k.for_(low, high, 1, [], lambda number, _, kind=kind: panel(i, number, kind))

        k.for_(0, n, 1, [], block)

    def scale(self, count: KValue) -> None:
        """The rows of A as functions of few rows read them."""
        k, blocks, depth = self.k, self.blocks, static(self.p.kc)

        def row(i: KValue, _: list[KValue]) -> None:
            source, place = k.gep(self.o.a, k.load(self.o.table, i)), k.gep(k["few"], i * self.few_pitch)
            if self.in_integers:
                k.call(rounded_row(self.ctx, blocks, depth), [source, k.gep(k["rounded"], i * padded(blocks)), place])
            else:
                k.call(scaled_row(self.ctx, blocks, depth, self.p.lanes), [source, place])

        k.for_(0, count, 1, [], row)

    def few(self, rows: RowRange, first: KValue, last: KValue) -> None:
        """The panels [first, last) by a few rows at a time."""
        k = self.k
        for kind in self.p.kinds:
            low = k.index(kind.first)

            def one(panel: KValue, _: list[KValue], kind: PanelKind = kind, low: KValue = low) -> None:
                self.few_by_panel(rows, kind, k.index(kind.column) + (panel - low) * (kind.vectors * self.p.lanes))

            k.for_(k.max(first, low), k.min(last, k.index(kind.first + kind.count)), 1, [], one)

    def few_by_panel(self, rows: RowRange, kind: PanelKind, column: KValue) -> None:
        k, p, o, blocks = self.k, self.p, self.o, self.blocks
        together = min(MOST_TOGETHER, self.ctx.target.n_registers // 2 // kind.vectors)
        known = p.rows if isinstance(p.rows, int) else None
        for height, low, tiles in self.heights(rows.count, known, together):
            shape = FewShape(height, kind.vectors, p.lanes, kind.masked, self.ctx.target.has_fma, blocks)
            make, params = (few_integers, integer_params) if self.in_integers else (few_function, few_params)
            func, names = make(self.ctx, shape, self.tail), [name for name, _ in params(shape, self.tail)]

            def tile(t: KValue, _: list[KValue], height: int = height, low: KValue = low, func: KFunc = func,
                     names: list[str] = names) -> None:  # fmt: skip
                row = low + t * height
                given = {
                    "a": k.gep(k["few"], row * self.few_pitch),
                    "b": panel_at(k, blocks, column),
                    "row": o.row_base(rows.outer) + (rows.first + row) * k.index(o.row_step),
                    "row_step": k.index(o.row_step),
                    "column": column,
                    "pitch": k.index(o.pitch),
                    "n_columns": k.index(p.columns) - column,
                }
                if self.in_integers:
                    given["rounded"] = k.gep(k["rounded"], row * padded(blocks))
                    given["b_bytes"] = k.gep(k["b_bytes"], column * (4 * blocks.n * blocks.words))
                k.call(func, [given[n] if n in given else k[n] for n in names])

            k.for_(0, tiles, 1, [], tile)
