"""Pad: rows of the result, each a vector copy of the middle between two margins.

Loops: `for each row of y: find the source row by mapping its outer indices; left margin; copy; right margin`. Margins
of a constant are stored in vectors, mirrored or repeated ones element by element. Bytes of an image: see `pad_quads`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.graph import Node
from ....ir.ops.slicing import Pad
from ....ir.types import U32, Dim, prod
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import decode, emit_span, strided_index
from .pad_axes import PadAxis, first_kept, pad_axes
from .pad_quads import emit_quads, makes_quads
from .strided import bits_of


def source_position(k: Builder, mode: str, i: KValue, n: KValue) -> KValue:
    """The position in [0, n) that a position in the margin repeats."""
    if mode == "edge":
        return k.max(k.min(i, n - 1), 0)
    period = n if mode == "wrap" else k.max(n * 2 - 2, 1)
    phase = k.binary("rem", k.binary("rem", i, period) + period, period)
    return phase if mode == "wrap" else k.select(phase < n, phase, period - phase)


@lowers(Pad)
def lower_pad(ctx: LowerContext, node: Node) -> KernelCall:
    """One kernel for all modes."""
    assert isinstance(node.op, Pad)
    mode, context = node.op.mode, node.context()
    x, y = node.operands[0], node.output
    value = node.inputs[2] if len(node.inputs) > 2 else None
    widths = node.op.widths(context)
    axes = pad_axes(x.tensor, y.tensor, widths, mode == "constant")
    origin = 0 if mode == "constant" else first_kept(x.tensor, widths)
    bits = bits_of(x.tensor.dtype)
    lanes = ctx.lanes * 4 // max(4, bits.nbytes)
    quads = makes_quads(axes, mode, bits)
    outer = axes[: -2 if quads else -1]

    def build(name: str) -> KFunc:
        types = {"x": bits, "y": U32 if quads else bits, "value": bits}
        k = ctx.kernel(name, [(n, PtrType(types[n])) for n in ("x", "y", "value")[: 2 + (value is not None)]])
        fill = k.load(k["value"], 0) if value is not None else k.const(0, bits)

        def row(work: KValue, _: list[KValue]) -> None:
            x_at, y_at, inside = _place(k, outer, origin, mode, work)
            if quads:
                emit_quads(k, axes, lanes, fill, x_at, y_at, inside)
            else:
                _row(k, axes[-1], mode, lanes, fill, x_at, y_at, inside)

        k.for_(k["begin"], k["end"], 1, [], row)
        return k.func

    func = ctx.function("pad", node, build, (*axes, origin))
    operands = (x, y, value) if value is not None else (x, y)
    return KernelCall(func, operands, prod(a.y for a in outer), node.name, nbytes=2 * y.tensor.nbytes)


def _place(
    k: Builder, outer: Sequence[PadAxis], origin: Dim, mode: str, work: KValue
) -> tuple[KValue, KValue, KValue | None]:
    """The offsets of a row in x and y, and whether x has it; None: always."""
    x_at, y_at = k.index(origin), k.index(0)
    inside: KValue | None = None
    for a, i in zip(outer, decode(k, work, [a.y for a in outer]) if outer else ()):
        y_at = y_at + i * k.index(a.y_stride)
        source = i - k.index(a.before)
        if a.is_padded and mode == "constant":
            here = (source >= 0) & (source < k.index(a.x))
            inside = here if inside is None else inside & here
        elif a.is_padded:
            source = source_position(k, mode, source, k.index(a.x))
        x_at = x_at + source * k.index(a.x_stride)
    return x_at, y_at, inside


def _row(
    k: Builder, inner: PadAxis, mode: str, lanes: int, fill: KValue, x_at: KValue, y_at: KValue,
    inside: KValue | None,
) -> None:  # fmt: skip
    size, before = k.index(inner.y), k.index(inner.before)
    low = k.min(k.max(before, 0), size)
    high = k.max(k.min(before + k.index(inner.x), size), low)

    def copy(i: KValue, n: int, mask: KValue | None) -> None:
        at = x_at + (i - before) * k.index(inner.x_stride)
        if inner.x_stride == 1 or n == 1:
            value = k.load(k["x"], at, n, mask)
        else:
            value = k.gather(k["x"], strided_index(k, at, inner.x_stride, n), mask)
        k.store(k["y"], y_at + i, value, mask)

    def margin(begin: KValue, end: KValue) -> None:
        if mode == "constant":
            emit_span(k, begin, end, lanes, lambda i, n, mask: k.store(k["y"], y_at + i, k.splat(fill, n), mask))
            return

        def one(i: KValue, _: list[KValue]) -> None:
            at = source_position(k, mode, i - before, k.index(inner.x))
            k.store(k["y"], y_at + i, k.load(k["x"], x_at + at * k.index(inner.x_stride)))

        k.for_(begin, end, 1, [], one)

    def row() -> None:
        if inner.is_padded:
            margin(k.index(0), low)
        emit_span(k, low, high, lanes, copy)
        if inner.is_padded:
            margin(high, size)

    if inside is None:
        row()
    else:
        k.if_(inside, row, lambda: margin(k.index(0), size))
