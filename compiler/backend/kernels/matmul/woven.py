"""Panels of a B that only a run knows, for tiles that take several inputs in a step: [k / step][width][step].

    for inputs of B, some at a time:
        copy them as f32, [input][width], in the core's scratch       # `pack.copy_function`
        for tap:  weave the inputs of each step, rounded to the tile's elements

Owns that copy. A step's inputs are those of one tap; rows of B are [input][tap], as a convolution's filters lie.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.types import Dim
from ....kernel_ir.builder import F32, F32PTR, Builder, KValue
from ....kernel_ir.loops import INDEX, KFunc, PtrType
from ...lowering import LowerContext, Scratch
from ...microkernels.emitter import Emitter
from .pack import copy_function

ROWS = 256  # of B at a time: 64 KiB of f32 at 64 columns, which stay in the second cache; chosen, not measured


@dataclass(frozen=True)
class Columns:
    """The columns of B that a panel is of.

    Attributes:
        at: the first one's first element. count: how many there are, `width` at most.
        row, column: elements from one row of B to the next, and from one column. mode: see `copy_function`.
    """

    at: KValue
    count: KValue
    row: Dim
    column: Dim
    mode: str


def inputs_at_once(taps: int, emitter: Emitter) -> int:
    """Inputs, whole steps, that are copied at a time."""
    return max(1, ROWS // (taps * emitter.k_step)) * emitter.k_step


def rows_scratch(taps: int, width: int, emitter: Emitter) -> Scratch:
    """Room for the copy of rows as f32, and zeros that fill up the last step."""
    return Scratch(4 * (inputs_at_once(taps, emitter) + emitter.k_step - 1) * taps * width)


def weave_panel(
    k: Builder, ctx: LowerContext, columns: Columns, depth: KValue, taps: int, width: int, lanes: int,
    emitter: Emitter, rows: KValue, place: KValue,
) -> None:  # fmt: skip
    """Write the panel of `depth` inputs of each tap to `place`, tap after tap.

    Args:
        width: columns of the panel, whole vectors. rows: see `rows_scratch`.
    """
    step, each, several = emitter.k_step, taps * width, inputs_at_once(taps, emitter)
    copy = copy_function(ctx, columns.at.dtype, columns.mode, lanes)
    weave = weave_function(ctx, lanes, emitter)
    zero = k.splat(k.const(0.0, F32), lanes)
    n_steps = k.udiv(depth + (step - 1), step)

    def some(first: KValue, _: list[KValue]) -> None:
        count = k.min(depth - first, several)
        source = k.gep(columns.at, first * (k.index(columns.row) * taps))
        k.call(copy, [source, rows, count * taps, columns.count, k.index(columns.row), k.index(columns.column),
                      k.index(width), k.index(width), k.const(1.0, F32)])  # fmt: skip
        k.for_(0, (step - 1) * each, lanes, [], lambda c, _: k.store(rows, count * each + c, zero))
        steps = k.udiv(count + (step - 1), step)
        done = k.udiv(first, step)

        def tap(t: KValue, _: list[KValue]) -> None:
            target = k.gep(place, (t * n_steps + done) * (width * emitter.width))
            k.call(weave, [k.gep(rows, t * width), target, steps, k.index(width), k.index(each)])

        k.for_(0, taps, 1, [], tap)

    k.for_(0, depth, several, [], some)


def weave_function(ctx: LowerContext, lanes: int, emitter: Emitter) -> KFunc:
    """A function that writes dst[(s · columns + c) · step + i] = src[(s · step + i) · apart + c], rounded.

    For s in [0, steps), c in [0, columns), whole vectors, and i in [0, step), the inputs of a tile's step.
    """
    key = ("weave", lanes, emitter)
    if key not in ctx.functions:
        numbers = [(n, INDEX) for n in ("steps", "columns", "apart")]
        k = Builder(f"weave_{emitter.element}_{len(ctx.functions)}",
                    [("src", F32PTR), ("dst", PtrType(emitter.b_element)), *numbers], inline="never")  # fmt: skip
        assert emitter.weave is not None
        weave = emitter.weave

        def one(s: KValue, _: list[KValue]) -> None:
            source = k.gep(k["src"], s * emitter.k_step * k["apart"])
            place = k.gep(k["dst"], s * k["columns"] * emitter.width)

            def vectors(c: KValue, _: list[KValue]) -> None:
                inputs = [k.load(source, c + k["apart"] * i, lanes) for i in range(emitter.k_step)]
                k.store(place, c * emitter.width, k.bitcast(weave(k, inputs), emitter.b_element))

            k.for_(0, k["columns"], lanes, [], vectors)

        k.for_(0, k["steps"], 1, [], one)
        ctx.functions[key] = k.func
    return ctx.functions[key]
