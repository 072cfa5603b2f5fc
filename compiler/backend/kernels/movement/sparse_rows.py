"""RowChains, SumChains: rows that belong to one row of a table, found and added up in their order.

RowChains is one work item, `for index, last to first: put it before its row's chain`, as what it writes depends on what
it wrote. SumChains: `for each row n: where a chain begins, for row of the chain: y[n + 1] += row, else zeros`.
"""

from __future__ import annotations

from ....ir.graph import Node
from ....ir.ops.sparse_rows import RowChains, SumChains
from ....ir.types import F32, I32, I64
from ....kernel_ir.builder import KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import emit_span
from .lookup import Component, resolve


@lowers(RowChains)
def lower_row_chains(ctx: LowerContext, node: Node) -> KernelCall:
    """One work item; an index out of range is in no chain."""
    assert isinstance(node.op, RowChains)
    (index,), (first, more) = node.operands, node.outputs
    rows, n, lanes = node.op.rows, index.tensor.dims[0], ctx.lanes
    site = ctx.error_site(node, "an index is out of range")

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [("index", PtrType(I64)), ("first", PtrType(I32)), ("more", PtrType(I32))])

        def put(i: KValue, _: list[KValue]) -> None:
            at = k.index(n) - i - 1
            good, row = resolve(k, [Component(0, rows, 1)], lambda _: k.load(k["index"], at))

            def before() -> None:
                head = k.load(k["first"], row)
                after = k.cast(head, I64) - 1
                k.if_(head > 0, lambda: k.store(k["more"], after, ~k.load(k["more"], after)))
                k.store(k["more"], at, head)
                k.store(k["first"], row, k.cast(at + 1, I32))

            def alone() -> None:
                k.fail(site)
                k.store(k["more"], at, k.const(-1, I32))

            k.if_(good, before, alone)

        def item(_: KValue, __: list[KValue]) -> None:
            zero = k.splat(k.const(0, I32), lanes)
            emit_span(k, k.index(0), k.index(rows), lanes, lambda i, _, mask: k.store(k["first"], i, zero, mask))
            k.for_(0, k.index(n), 1, [], put)

        k.for_(k["begin"], k["end"], 1, [], item)
        return k.func

    func = ctx.function("row_chains", node, build, site, lanes)
    return KernelCall(func, (index, first, more), 1, node.name, nbytes=first.tensor.nbytes + 2 * index.tensor.nbytes)


@lowers(SumChains)
def lower_sum_chains(ctx: LowerContext, node: Node) -> KernelCall:
    """A work item for each row of the result."""
    (rows, more), y = node.operands, node.output
    width, lanes = rows.tensor.dims[1], ctx.lanes

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [("x", PtrType(F32)), ("more", PtrType(I32)), ("y", PtrType(F32))])

        def item(work: KValue, _: list[KValue]) -> None:
            to, row = work * k.index(width), work - 1
            chain = k.if_(work > 0, lambda: [k.load(k["more"], row)], lambda: [k.const(-1, I32)])[0]

            def zeros(i: KValue, n: int, mask: KValue | None) -> None:
                k.store(k["y"], to + i, k.splat(k.const(0.0, F32), n), mask)

            def begun() -> None:
                def copy(i: KValue, n: int, mask: KValue | None) -> None:
                    k.store(k["y"], to + i, k.load(k["x"], row * k.index(width) + i, n, mask), mask)

                emit_span(k, k.index(0), k.index(width), lanes, copy)
                k.while_([chain], lambda seen: (seen[0] != 0, seen), lambda seen: [added(seen[0])])

            def added(number: KValue) -> KValue:
                source = k.cast(number, I64) - 1

                def add(i: KValue, n: int, mask: KValue | None) -> None:
                    more_ = k.load(k["x"], source * k.index(width) + i, n, mask)
                    k.store(k["y"], to + i, k.load(k["y"], to + i, n, mask) + more_, mask)

                emit_span(k, k.index(0), k.index(width), lanes, add)
                return ~k.load(k["more"], source)

            k.if_(chain >= 0, begun, lambda: emit_span(k, k.index(0), k.index(width), lanes, zeros))

        k.for_(k["begin"], k["end"], 1, [], item)
        return k.func

    func = ctx.function("sum_chains", node, build, lanes)
    return KernelCall(func, (rows, more, y), y.tensor.dims[0], node.name, nbytes=rows.tensor.nbytes + y.tensor.nbytes)
