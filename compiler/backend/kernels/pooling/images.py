"""Pools whose vectors lie along a spatial axis (channels first): lanes are neighbouring outputs of a row.

A vector of outputs whose windows all lie inside the input reads whole vectors; at the borders every tap has a mask.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ....ir.types import I32, Dim
from ....kernel_ir.builder import Builder, KValue
from ..nest import Lane
from ..reduction.lines import shifted
from .taps import (
    UNROLLED_TAPS,
    PoolPlan,
    State,
    Taps,
    clip_taps,
    combine,
    counts_padding,
    every_other,
    finish,
    fold_taps,
    initial,
    is_written_out,
    load_vector,
    padded_count,
    position_along,
    window_count,
)

MOST_UNROLLED = 256  # taps of all axes: where windows are never clipped, other axes are written out too


class ImageRow:
    """One row of outputs along the innermost axis."""

    def __init__(self, k: Builder, plan: PoolPlan, index: dict[int, KValue], bases: list[KValue]) -> None:
        """`index`: positions on the other axes. `bases`: offsets of the row per operand."""
        self.k, self.plan, self.index, self.bases = k, plan, index, bases
        g, axis = plan.geometry, plan.vector_axis
        self.last = axis - 2
        self.others = [i for i in range(g.rank) if i != self.last]
        self.outer = {i: clip_taps(k, plan, i, index[i + 2]) for i in self.others}
        self.size = k.index(plan.result.dims[axis])
        # the first of equal elements has the index: then in the tensor's order, else as is fast
        self.visited = list(range(g.rank)) if plan.indices else [*self.others, self.last]
        whole = (k.index(0), k.index(g.kernel[self.last]))
        self.ranges = [(self.outer[i].low, self.outer[i].high) if i != self.last else whole for i in self.visited]
        self.stride = g.strides[self.last]
        self.step: Dim = self.stride * plan.x.strides[axis]
        self.unroll = g.kernel[self.last] <= UNROLLED_TAPS and math.prod(g.kernel) <= MOST_UNROLLED

    def emit(self) -> None:
        """The loop over vectors of outputs."""
        k, plan, lanes, g = self.k, self.plan, self.plan.lanes, self.plan.geometry

        def vector(first: KValue, _: State) -> None:
            steps = tuple(row[plan.vector_axis] for row in plan.rows)
            lane = Lane(shifted(k, self.bases, steps, first), steps, first, (), lanes, None)
            start = first * self.stride - k.index(g.pads_begin[self.last])
            inside = first + lanes <= self.size
            if not plan.never_clipped:
                end = start + ((lanes - 1) * self.stride + g.extent[self.last])
                inside = inside & (start >= 0) & (end <= k.index(g.input[self.last]))
            k.if_(inside, lambda: self._whole(lane, start), lambda: self._clipped(lane, start))

        k.for_(0, self.size, lanes, [], vector)

    def _at_tap(self, lane: Lane, taps: Sequence[KValue], start: KValue) -> tuple[KValue, KValue]:
        """Offset of lane 0's element of a tap, and the positions of all lanes in the image."""
        k, g, lanes = self.k, self.plan.geometry, self.plan.lanes
        offset, where = lane.offsets[0], k.splat(k.const(0, self.plan.position_type), lanes)
        for i, t in zip(self.visited, taps):
            offset = offset + (t * g.dilations[i] - k.index(g.pads_begin[i])) * k.index(self.plan.x.strides[i + 2])
            here = start + k.ramp(lanes) * self.stride if i == self.last else self.outer[i].start
            where = where + k.splat(position_along(k, self.plan, i, here, t), lanes)
        return offset, where

    def _whole(self, lane: Lane, start: KValue) -> None:
        """All lanes exist and all their windows lie inside the input along the row."""
        k, plan, g = self.k, self.plan, self.plan.geometry

        def visit(taps: list[KValue], state: State) -> State:
            offset, where = self._at_tap(lane, taps, start)
            return combine(k, plan, state, load_vector(k, k["x"], offset, self.step, plan.lanes, None), where)

        init = initial(k, plan, is_written_out(self.ranges, self.unroll))
        state = fold_taps(k, self.ranges, init, self.unroll, visit)
        taps = [self.outer.get(i) or Taps(k.index(0), k.index(g.kernel[i]), start >= 0, start) for i in range(g.rank)]
        count = window_count(k, plan, taps, self.ranges)
        finish(k, plan, lane, {**self.index, plan.vector_axis: lane.index}, state, count)

    def _clipped(self, lane: Lane, start: KValue) -> None:
        k, plan, g, lanes = self.k, self.plan, self.plan.geometry, self.plan.lanes
        tail = k.tail_mask(self.size - lane.index, lanes)
        end = k.index(g.input[self.last])
        init = initial(k, plan)
        m, counted = len(init), not plan.never_clipped and not counts_padding(plan)

        def visit(taps: list[KValue], state: State) -> State:
            offset, where = self._at_tap(lane, taps, start)
            first = start + taps[self.visited.index(self.last)] * g.dilations[self.last]
            inside = within(k, first, self.stride, end, lanes) & tail
            element = load_clipped(k, k["x"], offset, self.step, self.stride, first, end, inside)
            new = combine(k, plan, state[:m], element, where)
            if not plan.never_clipped:
                new = [k.select(inside, a, b) for a, b in zip(new, state)]
            return new + [n + k.cast(inside, I32) for n in state[m:]]

        counters = [k.splat(k.const(0, I32), lanes)] * counted
        state = fold_taps(k, self.ranges, [*init, *counters], self.unroll, visit)
        if counted:
            count = k.cast(state[-1], plan.dtype)
        elif counts_padding(plan):
            positions = k.splat(start, lanes) + k.ramp(lanes) * self.stride
            count = padded_count(k, plan, {**{i: self.outer[i].start for i in self.others}, self.last: positions})
        else:
            count = k.const(math.prod(g.kernel), plan.dtype)
        finish(k, plan, replace(lane, mask=tail), {**self.index, plan.vector_axis: lane.index}, state[:m], count)


def within(k: Builder, first: KValue, step: int, end: KValue, lanes: int) -> KValue:
    """Lanes i whose position first + i · step lies in [0, end)."""
    position = k.splat(k.cast(first, I32), lanes) + k.ramp(lanes, I32) * step
    return (position >= 0) & (position < k.splat(k.cast(end, I32), lanes))


def load_clipped(k: Builder, ptr: KValue, offset: KValue, step: Dim, window_step: int, first: KValue, end: KValue,
                 inside: KValue) -> KValue:
    """The lanes `inside`; lane 0 is at position `first` of a row that ends at `end`, which no load may leave."""
    lanes = inside.lanes
    if step == 2 and window_step == 2 and lanes > 1:
        return every_other(k, [k.load(ptr, offset + at, lanes, within(k, first + at, 1, end, lanes))
                                for at in (0, lanes - 1)])
    return load_vector(k, ptr, offset, step, lanes, inside)
