"""SuppressBoxes: greedy, in one pass over a class's candidates for each box that is kept.

    for batch, class (work items):
        candidates: boxes above the threshold, their corners and area as five vectors, scores as sortable integers
        best = the first of the highest score
        while there is one and fewer than `most` are kept:
            keep it
            for vector of candidates: drop those that overlap it too much; best of those that are left

Nothing is sorted: the pass that drops boxes finds the next one, too. An integer orders as the float whose bits it has
been made of, NaN below all; NONE is what is kept or dropped.
"""

from __future__ import annotations

from collections.abc import Callable

from ....ir.graph import Node
from ....ir.ops.boxes import SuppressBoxes
from ....ir.types import F32, I32, I64, DType, TensorType, prod
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, KType, PtrType
from ...lowering import KernelCall, LowerContext, Scratch, lowers

CORNERS = 4
NO_BOX = -1
LIMITS = ("most", "iou", "least")


@lowers(SuppressBoxes)
def lower_suppress_boxes(ctx: LowerContext, node: Node) -> KernelCall:
    """One work item per class."""
    assert isinstance(node.op, SuppressBoxes)
    op, (boxes, scores) = node.op, node.operands[:2]
    picks, counts = node.outputs
    dtype = boxes.tensor.dtype
    lanes = ctx.lanes * F32.nbytes // dtype.nbytes
    key = I32 if dtype == F32 else I64
    given = {name: v for name, v in zip(LIMITS, node.inputs[2:]) if v is not None}
    room = boxes.tensor.dims[1] + lanes
    scratch = [Scratch(room * key.nbytes), Scratch(room * I32.nbytes), Scratch(room * (CORNERS + 1) * dtype.nbytes)]
    site = ctx.error_site(node, "iou_threshold out of range, which is 0 to 1")

    def build(name: str) -> KFunc:
        typed = [("boxes", dtype), ("scores", dtype), *((n, v.tensor.dtype) for n, v in given.items()),
                 ("keys", key), ("order", I32), ("corners", dtype), ("picks", I32), ("counts", I64)]  # fmt: skip
        k = ctx.kernel(name, [(n, PtrType(t)) for n, t in typed])
        limits = {n: k.load(k[n]) for n in given}
        most, iou = limits.get("most", k.index(0)), limits.get("iou", k.const(0.0, dtype))
        suppress = _Class(k, boxes.tensor, scores.tensor, lanes, key, bool(op.center_point_box))

        def item(work: KValue, _: list[KValue]) -> None:
            classes = k.index(scores.tensor.dims[1])
            found = suppress.candidates(k.udiv(work, classes), k.urem(work, classes), limits.get("least"))
            room_of_class = k.index(picks.tensor.dims[2])
            first = work * room_of_class
            kept = suppress.keep(found, most, iou, first)
            k.store(k["counts"], work, kept)
            suppress.fill(first + kept, room_of_class - kept)

        valid = (iou >= 0.0) & (iou <= 1.0)
        k.if_(valid, lambda: k.for_(k["begin"], k["end"], 1, [], item), lambda: k.fail(site))
        return k.func

    func = ctx.function("suppress_boxes", node, build, site)
    return KernelCall(func, (*node.operands, *scratch, picks, counts), prod(counts.tensor.dims), node.name,
                      nbytes=boxes.tensor.nbytes + scores.tensor.nbytes)


class _Class:
    """The candidates of one class, in scratch: keys, numbers of the boxes, and low ends, high ends and areas."""

    def __init__(self, k: Builder, boxes: TensorType, scores: TensorType, lanes: int, key: DType, center: bool) -> None:
        self.k, self.boxes, self.scores, self.lanes, self.key, self.center = k, boxes, scores, lanes, key, center
        self.length, self.none = k.index(boxes.dims[1]), -(2 ** (key.bits - 1))

    def candidates(self, batch: KValue, label: KValue, least: KValue | None) -> KValue:
        """Writes them, and a vector of none behind them; returns how many there are."""
        k = self.k
        of_batch, of_class, step = (k.index(s) for s in self.scores.strides)
        first, box = batch * of_batch + label * of_class, batch * k.index(self.boxes.strides[0])

        def look(i: KValue, carried: list[KValue]) -> list[KValue]:
            score, n = k.load(k["scores"], first + i * step), carried[0]

            def take() -> list[KValue]:
                k.store(k["keys"], n, self.sortable(score))
                k.store(k["order"], n, k.cast(i, I32))
                for axis, x in enumerate(self.measured(box + i * k.index(self.boxes.strides[1]))):
                    k.store(k["corners"], self.place(axis) + n, x)
                return [n + 1]

            return take() if least is None else k.if_(score > least, take, lambda: [n])

        found = k.for_(0, self.length, 1, [k.index(0)], look)[0]
        k.store(k["keys"], found, k.splat(k.const(self.none, self.key), self.lanes))
        return found

    def place(self, axis: int) -> KValue:
        """Where the candidates' low ends (0, 1), high ends (2, 3) or areas (4) begin."""
        return (self.length + self.lanes) * axis

    def sortable(self, score: KValue) -> KValue:
        """An integer for each float, in the same order; the zeros are equal."""
        k, bits = self.k, self.key.bits
        word = k.bitcast(k.select(score == 0.0, k.const(0.0, score), score), self.key)
        ordered = word ^ ((word >> (bits - 1)) & k.const(2 ** (bits - 1) - 1, self.key))
        return k.select(k.is_nan(score), k.const(self.none + 1, self.key), ordered)

    def measured(self, at: KValue) -> list[KValue]:
        """Low and high ends of both axes of the box there, and its area."""
        k = self.k
        step = k.index(self.boxes.strides[2])
        a, b, c, d = (k.load(k["boxes"], at + step * i) for i in range(CORNERS))
        if self.center:
            wide, high = c / 2.0, d / 2.0
            ends = [a - wide, b - high, a + wide, b + high]
        else:
            ends = [k.min(a, c), k.min(b, d), k.max(a, c), k.max(b, d)]
        return [*ends, (ends[2] - ends[0]) * (ends[3] - ends[1])]

    def keep(self, found: KValue, most: KValue, iou: KValue, picks: KValue) -> KValue:
        """Writes the numbers of the boxes that are kept from `picks` on; returns how many they are."""
        k = self.k

        def look(seen: list[KValue]) -> tuple[KValue, list[KValue]]:
            return (seen[0] < most) & (seen[1] > self.none), seen

        def take(seen: list[KValue]) -> list[KValue]:
            kept, _, at = seen
            k.store(k["picks"], picks + kept, k.load(k["order"], at))
            k.store(k["keys"], at, k.const(self.none, self.key))
            best = [k.load(k["corners"], self.place(axis) + at) for axis in range(CORNERS + 1)]
            return [kept + 1, *self.best(found, lambda j: self.dropped(j, best, iou))]

        return k.while_([k.index(0), *self.best(found, None)], look, take)[0]

    def fill(self, first: KValue, count: KValue) -> None:
        """Writes NO_BOX so many times."""
        k, lanes = self.k, self.lanes
        nothing = k.splat(k.const(NO_BOX, I32), lanes)
        k.for_(0, count, lanes, [],
               lambda i, _: k.store(k["picks"], first + i, nothing, k.tail_mask(count - i, lanes)))

    def best(self, found: KValue, dropped: Callable[[KValue], KValue] | None) -> list[KValue]:
        """The highest key and where it is first, after keys that are `dropped` have been made none."""
        k, t = self.k, KType(self.key, self.lanes)

        def step(j: KValue, carried: list[KValue]) -> list[KValue]:
            best, where = carried
            keys = k.load(k["keys"], j, self.lanes)
            if dropped is not None:
                keys = k.select(dropped(j), k.const(self.none, t), keys)
                k.store(k["keys"], j, keys)
            better = keys > best
            here = k.splat(k.cast(j, self.key), self.lanes) + k.ramp(self.lanes, self.key)
            return [k.select(better, keys, best), k.select(better, here, where)]

        start = [k.splat(k.const(x, self.key), self.lanes) for x in (self.none, 0)]
        best, where = k.for_(0, found, self.lanes, start, step)
        top = k.reduce("max", best)
        last = k.const(2 ** (self.key.bits - 1) - 1, t)
        return [top, k.cast(k.reduce("min", k.select(best == k.splat(top, self.lanes), where, last)), I64)]

    def dropped(self, j: KValue, best: list[KValue], iou: KValue) -> KValue:
        """Which of the candidates from `j` on overlap a box too much. A NaN among its ends makes none of them do."""
        k = self.k
        ends = [k.load(k["corners"], self.place(axis) + j, self.lanes) for axis in range(CORNERS + 1)]
        box = [k.splat(x, self.lanes) for x in best]
        sides = []
        for low, high in ((0, 2), (1, 3)):
            begin = k.select(ends[low] > box[low], ends[low], box[low])
            side = k.select(ends[high] < box[high], ends[high], box[high]) - begin
            sides.append(k.select(side > 0.0, side, k.const(0.0, side)))
        common = sides[0] * sides[1]
        union = box[CORNERS] + ends[CORNERS] - common
        return (union > 0.0) & (common / union > k.splat(iou, self.lanes))
