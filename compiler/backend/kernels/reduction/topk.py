"""TopK: few by insertion into a sorted buffer, many by a merge sort of the line.

Insertion: `for each element: if it beats the last of the buffer: shift what it beats by one`. After the first elements
the test fails nearly always, so that a line costs one comparison an element. Merge sort (bottom-up, stable): runs of
1, 2, 4, … elements, two buffers of (value, index) in scratch; a merge takes from the first run unless the second's
element is strictly better, so that of equal elements the lower index comes first. NaN beats every number if the largest
are asked for, and nothing otherwise, as in numpy.
"""

from __future__ import annotations

from ....ir.graph import Node
from ....ir.ops.topk import TopK
from ....ir.types import BOOL, I64, Dim, DType, prod
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import register_dtype
from ...lowering import KernelCall, LowerContext, Scratch, lowers
from ..nest import decode

INSERTED = 24  # more than this are sorted


@lowers(TopK)
def lower_topk(ctx: LowerContext, node: Node) -> KernelCall:
    """One work item per line."""
    assert isinstance(node.op, TopK)
    x, (values, indices) = node.operands[0], node.outputs
    axis, t = node.op.axis % x.tensor.rank, x.tensor
    few = values.tensor.dims[axis]
    size, largest = t.dims[axis], bool(node.op.largest)
    others = [a for a in range(t.rank) if a != axis]
    wide = register_dtype(t.dtype)
    by_insertion = isinstance(few, int) and few <= INSERTED
    length: Dim = few if by_insertion else size * 2
    scratch = (Scratch(length * wide.nbytes), Scratch(length * 8))
    site = ctx.error_site(node, "k is larger than the axis")

    def build(name: str) -> KFunc:
        params = [("x", t.dtype), ("v", wide), ("i", I64), ("values", t.dtype), ("indices", I64)]
        k = ctx.kernel(name, [(n, PtrType(d)) for n, d in params])

        def line(work: KValue, _: list[KValue]) -> None:
            at = [k.index(0)] * 3
            index = decode(k, work, [t.dims[a] for a in others]) if others else ()
            for a, i in zip(others, index):
                strides = (t.strides[a], values.tensor.strides[a], indices.tensor.strides[a])
                at = [p + i * k.index(s) for p, s in zip(at, strides)]
            sort = _Line(k, wide, largest, k.index(size), at[0], k.index(t.strides[axis]))
            from_ = sort.insert(k.index(few)) if by_insertion else sort.merge_sort()

            def put(j: KValue, _: list[KValue]) -> None:
                k.store(k["values"], at[1] + j * k.index(values.tensor.strides[axis]),
                        k.cast(k.load(k["v"], from_ + j), t.dtype))
                k.store(k["indices"], at[2] + j * k.index(indices.tensor.strides[axis]), k.load(k["i"], from_ + j))

            k.for_(0, k.index(few), 1, [], put)

        enough = k.index(size) >= k.index(few)
        k.if_(enough, lambda: k.for_(k["begin"], k["end"], 1, [], line), lambda: k.fail(site))
        return k.func

    func = ctx.function("topk", node, build, site)
    return KernelCall(func, (x, *scratch, values, indices), prod(t.dims[a] for a in others), node.name,
                      nbytes=t.nbytes)


class _Line:
    """One line of x at `at`, `step` elements apart, sorted into the scratch buffers v and i."""

    def __init__(self, k: Builder, dtype: DType, largest: bool, size: KValue, at: KValue, step: KValue) -> None:
        self.k, self.dtype, self.largest, self.size, self.at, self.step = k, dtype, largest, size, at, step

    def read(self, position: KValue) -> KValue:
        return self.k.cast(self.k.load(self.k["x"], self.at + position * self.step), self.dtype)

    def better(self, a: KValue, b: KValue) -> KValue:
        """Whether a stands strictly before b."""
        k = self.k
        if not self.largest:
            return a < b if not self.dtype.is_float else (a < b) | (~k.is_nan(a) & k.is_nan(b))
        return a > b if not self.dtype.is_float else (a > b) | (k.is_nan(a) & ~k.is_nan(b))

    def insert(self, few: KValue) -> KValue:
        """The best `few` in order; returns where they start."""
        k = self.k
        v, i = k["v"], k["i"]

        def shift(value: KValue, index: KValue, count: KValue) -> None:
            """Put the element into v[0:count], sorted; the last one falls out if count is `few` already."""

            def down(step: KValue, carried: list[KValue]) -> list[KValue]:
                j, open_ = count - 1 - step, carried[0]
                before = k.load(v, k.max(j - 1, 0))
                goes_here = open_ & ((j == 0) | ~self.better(value, before))
                k.store(v, j, value, goes_here)
                k.store(i, j, index, goes_here)
                moves = open_ & ~goes_here
                k.store(v, j, before, moves)
                k.store(i, j, k.load(i, k.max(j - 1, 0)), moves)
                return [moves]

            k.for_(0, count, 1, [k.const(True, BOOL)], down)

        def element(position: KValue, _: list[KValue]) -> None:
            value = self.read(position)
            full = position >= few
            worst = k.load(v, few - 1)
            enters = ~full | self.better(value, worst)
            k.if_(enters, lambda: shift(value, position, k.min(position + 1, few)))

        k.if_(few > 0, lambda: k.for_(0, self.size, 1, [], element))
        return k.index(0)

    def merge_sort(self) -> KValue:
        """The whole line in order; returns where it starts in the buffers."""
        k, n = self.k, self.size
        v, i = k["v"], k["i"]

        def copy(position: KValue, _: list[KValue]) -> None:
            k.store(v, position, self.read(position))
            k.store(i, position, position)

        k.for_(0, n, 1, [], copy)

        def stage(_: KValue, carried: list[KValue]) -> list[KValue]:
            source, width = carried
            target = n - source
            runs = k.udiv(n + width * 2 - 1, width * 2)
            k.for_(0, k.select(width < n, runs, 0), 1, [], lambda run, _: self._merge(source, target, width, run))
            return [k.select(width < n, target, source), width * 2]

        return k.for_(0, 40, 1, [k.index(0), k.index(1)], stage)[0]

    def _merge(self, source: KValue, target: KValue, width: KValue, run: KValue) -> None:
        """Merge two neighbouring runs of the buffer that starts at `source`."""
        k, n = self.k, self.size
        v, i = k["v"], k["i"]
        first = run * width * 2
        middle, last = k.min(first + width, n), k.min(first + width * 2, n)

        def take(position: KValue, carried: list[KValue]) -> list[KValue]:
            a, b = carried
            at_a, at_b = source + k.min(a, n - 1), source + k.min(b, n - 1)
            from_b = (a >= middle) | ((b < last) & self.better(k.load(v, at_b), k.load(v, at_a)))
            at = k.select(from_b, at_b, at_a)
            k.store(v, target + position, k.load(v, at))
            k.store(i, target + position, k.load(i, at))
            taken = k.cast(from_b, I64)
            return [a + 1 - taken, b + taken]

        k.for_(first, last, 1, [first, middle], take)
