"""Memory orders: which one an operator would like its operands in, and which its results get.

Owns the policies. One looks at types and says orders; the passes that ask (`layout_preferences`, `assign_layouts`) move
data where that is needed. Kernels read any order, so that a policy brings an operand into another one only where that
is much faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..axis_orders import Order, channels_last, is_row_major, physical_axes, plain, reshape_order
from ..types import TensorType
from .attribute_values import AttributeValues
from .context import InferContext

Layout = tuple[int, ...] | None
MOST_DEPTHWISE_RANK = 4  # of the weights that kernels with a filter a channel take
WHOLE_VECTORS = 16  # channels that are whole vectors of any target
PLAIN_CHANNELS = 4
"""A convolution reads an ONNX-ordered input directly up to this many channels."""


@dataclass(frozen=True)
class Site:
    """A node as policies see it: its operands as they lie, and its results, which are tensors of known rank."""

    ctx: InferContext
    results: Sequence[TensorType]

    @property
    def x(self) -> TensorType:
        """The first operand."""
        return self.ctx.tensor(0)

    @property
    def y(self) -> TensorType:
        """The first result."""
        return self.results[0]

    def tensors(self) -> list[tuple[int, TensorType]]:
        """The operands that are tensors of known rank, with their numbers."""
        return [(i, t) for i, t in enumerate(self.ctx.types) if isinstance(t, TensorType) and t.shape is not None]

    def is_constant(self, i: int) -> bool:
        """Whether operand i is one, whose order costs nothing to change."""
        return self.ctx.data(i) is not None


@dataclass(frozen=True)
class Orders:
    """The orders that results get, and those that some operands are brought into for it."""

    results: Sequence[Layout]
    operands: dict[int, Layout] = field(default_factory=dict)


class LayoutPolicy:
    """ONNX's own order, in and out; derived ones know better."""

    def preference(self, op: AttributeValues, site: Site, i: int, wished: Order | None) -> Order | None:
        """The order in which operand i, a tensor, is liked, if the first result shall have the order `wished`."""
        return plain(site.ctx.rank(i))

    def orders(self, op: AttributeValues, site: Site, wished: Sequence[Order | None]) -> Orders:
        """What to do, given the order that the readers of each result wish."""
        laid_out: dict[int, Layout] = {i: None for i, t in site.tensors() if t.layout is not None}
        return Orders([t.layout for t in site.results], laid_out)


PLAIN = LayoutPolicy()


@dataclass(frozen=True)
class ChannelsLast(LayoutPolicy):
    """Convolutions. `reads_few`: an input of few channels is read as it lies. Weights that are computed are read with
    channels innermost where each channel has a filter of its own.
    """

    reads_few: bool = True

    def preference(self, op: AttributeValues, site: Site, i: int, wished: Order | None) -> Order | None:
        if i == 1 and not site.is_constant(1):
            weights = self._weights(op, site)
            return plain(site.ctx.rank(1)) if weights is None else weights
        as_it_lies = self.reads_few and _few_channels(site.x)
        return channels_last(site.ctx.rank(i)) if i == 0 and not as_it_lies else None

    def orders(self, op: AttributeValues, site: Site, wished: Sequence[Order | None]) -> Orders:
        wanted = channels_last(site.y.rank)
        as_it_lies = self.reads_few and _few_channels(site.x) and is_row_major(site.x)
        others: dict[int, Layout] = {} if as_it_lies else {0: wanted}
        if not site.is_constant(1):
            others[1] = self._weights(op, site)
        return Orders([wanted], others)

    def _weights(self, op: AttributeValues, site: Site) -> Layout:
        """Of weights that are computed: kernels copy them as they go, from the model's order."""
        w = site.ctx.tensor(1)
        alone = op.group > 1 and w.dims[1] == 1  # type: ignore[attr-defined]
        return (*range(2, w.rank), 0, 1) if alone and w.rank <= MOST_DEPTHWISE_RANK else None


class WeightGradient(LayoutPolicy):
    """Sums over pixels: both operands channels-last, but an image of few channels, whose lines are copied as they lie.

    The result is row-major where kernels turn it round in the cache (of whole vectors of channels in one group); else
    its output channels are innermost, its taps outermost.
    """

    def preference(self, op: AttributeValues, site: Site, i: int, wished: Order | None) -> Order | None:
        return None if i == 0 and self.reads_lines(op, site) else channels_last(site.ctx.rank(i))

    def reads_lines(self, op: AttributeValues, site: Site) -> bool:
        """Whether the first operand is left as it lies."""
        return _few_channels(site.x) and is_row_major(site.x) and op.group == 1  # type: ignore[attr-defined]

    def orders(self, op: AttributeValues, site: Site, wished: Sequence[Order | None]) -> Orders:
        rank, last = site.x.rank, channels_last(site.x.rank)
        outputs, inputs = site.y.dims[:2]
        whole = all(isinstance(n, int) and n % WHOLE_VECTORS == 0 for n in (outputs, inputs))
        group, strides, dilations = (getattr(op, name) for name in ("group", "strides", "dilations"))
        turned = whole and rank == 4 and group == 1 and max(strides) <= 2 and set(dilations) == {1}
        operands: dict[int, Layout] = {1: last} if self.reads_lines(op, site) else {0: last, 1: last}
        return Orders([None if turned else (*range(2, rank), 1, 0)], operands)


class AllChannelsLast(LayoutPolicy):
    """Images in, images out: all of them channels-last, but those of few channels, which all lie as ONNX has them."""

    def preference(self, op: AttributeValues, site: Site, i: int, wished: Order | None) -> Order | None:
        return plain(site.x.rank) if _few_channels(site.x) else channels_last(site.x.rank)

    def orders(self, op: AttributeValues, site: Site, wished: Sequence[Order | None]) -> Orders:
        order = None if _few_channels(site.x) else channels_last(site.x.rank)
        return Orders([order] * len(site.results), {i: order for i, _ in site.tensors()})


def _few_channels(x: TensorType) -> bool:
    return x.rank < 3 or (isinstance(x.dims[1], int) and x.dims[1] <= PLAIN_CHANNELS)


class Fixed(LayoutPolicy):
    """What says itself which order its result has: Relayout."""

    def preference(self, op: AttributeValues, site: Site, i: int, wished: Order | None) -> Order | None:
        return None

    def orders(self, op: AttributeValues, site: Site, wished: Sequence[Order | None]) -> Orders:
        return Orders([t.layout for t in site.results])


class Agree(LayoutPolicy):
    """Element by element: the result takes the order of most full-size operands; the others are brought into line."""

    def preference(self, op: AttributeValues, site: Site, i: int, wished: Order | None) -> Order | None:
        return wished if site.ctx.shape(i) == site.y.dims else None

    def orders(self, op: AttributeValues, site: Site, wished: Sequence[Order | None]) -> Orders:
        y, full = site.y, [(i, t) for i, t in site.tensors() if t.dims == site.y.dims]
        seen = [t for i, t in full if not site.is_constant(i)]
        counted = Counter(map(physical_axes, seen))
        layout: Layout = None
        if counted:
            most = max(counted.values())
            liked = physical_axes(y.with_layout(wished[0])) if wished[0] is not None else None
            best = liked if liked in counted else next(o for o in reversed(counted) if counted[o] == most)
            layout = next(t.layout for t in seen if physical_axes(t) == best)
        wanted = physical_axes(y.with_layout(layout))
        others = {i: layout for i, t in full if physical_axes(t) != wanted}
        return Orders([layout] * len(site.results), others)


class FollowFirst(LayoutPolicy):
    """Results lie as the first operand does: pools, softmax, normalisations per channel."""

    def preference(self, op: AttributeValues, site: Site, i: int, wished: Order | None) -> Order | None:
        return wished if site.ctx.rank(i) == site.y.rank else None

    def orders(self, op: AttributeValues, site: Site, wished: Sequence[Order | None]) -> Orders:
        return Orders([site.x.layout if t.rank == site.x.rank else t.layout for t in site.results])


class LikeFirst(LayoutPolicy):
    """Sums over several operands at once: those of the first one's shape are read as it lies, results are plain."""

    def preference(self, op: AttributeValues, site: Site, i: int, wished: Order | None) -> Order | None:
        return None

    def orders(self, op: AttributeValues, site: Site, wished: Sequence[Order | None]) -> Orders:
        alike = {i: site.x.layout for i, t in site.tensors()
                 if i and t.dims == site.x.dims and physical_axes(t) != physical_axes(site.x)}
        return Orders([None] * len(site.results), alike)


@dataclass(frozen=True)
class AnyOrder(LayoutPolicy):
    """Strided copies write whatever order is wished, else that of most of their operands.

    `like_result`: operands are liked in the order of the result. `picks`: what is picked from says nothing of it.
    """

    like_result: bool = False
    picks: bool = False

    def preference(self, op: AttributeValues, site: Site, i: int, wished: Order | None) -> Order | None:
        if self.like_result:
            return wished if site.ctx.rank(i) == site.y.rank else None
        return None if self.picks else plain(site.ctx.rank(i))

    def orders(self, op: AttributeValues, site: Site, wished: Sequence[Order | None]) -> Orders:
        return Orders([self._order(site, t, order) for t, order in zip(site.results, wished, strict=True)])

    def _order(self, site: Site, y: TensorType, wished: Order | None) -> Layout:
        if wished is not None or self.picks:
            return wished
        alike = [t for _, t in site.tensors() if t.rank == y.rank and t.dtype == y.dtype]
        counted = Counter(t.axis_order for t in alike if len(physical_axes(t)) > 1)
        return counted.most_common(1)[0][0] if counted else None


class LastAxisInnermost(LayoutPolicy):
    """Normalisation over the last axes: much faster where the innermost axis is one of them."""

    def preference(self, op: AttributeValues, site: Site, i: int, wished: Order | None) -> Order | None:
        rank = site.ctx.rank(i)
        return wished if wished is not None and i == 0 and wished[-1] == rank - 1 else plain(rank)

    def orders(self, op: AttributeValues, site: Site, wished: Sequence[Order | None]) -> Orders:
        turned = site.x.axis_order[-1] != site.x.rank - 1
        first = None if turned else site.x.layout
        return Orders([first, *(t.layout for t in site.results[1:])], {0: None} if turned else {})


class KeepsInner(LayoutPolicy):
    """Matrix products and recurrent layers write rows at any distance, but each row in one piece."""

    def preference(self, op: AttributeValues, site: Site, i: int, wished: Order | None) -> Order | None:
        return None

    def orders(self, op: AttributeValues, site: Site, wished: Sequence[Order | None]) -> Orders:
        order, y = wished[0], site.y
        writes = order is not None and self.has_rows(site) and order[-1] == y.rank - 1
        return Orders([order if writes else y.layout, *(t.layout for t in site.results[1:])])

    def has_rows(self, site: Site) -> bool:
        """Whether the last axis of the result is the columns'."""
        return True


class KeepsColumns(KeepsInner):
    """A product whose second operand may be a vector."""

    def has_rows(self, site: Site) -> bool:
        return site.ctx.rank(1) > 1


@dataclass(frozen=True)
class KeptAxes(LayoutPolicy):
    """Reductions: the axes that are kept stay in the order they had. `reads_any`: no order is read faster."""

    reads_any: bool = False

    def preference(self, op: AttributeValues, site: Site, i: int, wished: Order | None) -> Order | None:
        return None if self.reads_any else plain(site.ctx.rank(i))

    def orders(self, op: AttributeValues, site: Site, wished: Sequence[Order | None]) -> Orders:
        x, y = site.x, site.y
        layout: Layout = y.layout
        if x.layout is not None and y.rank == x.rank:
            layout = x.layout
        elif x.layout is not None:
            axes = op.reduced_axes(site.ctx)  # type: ignore[attr-defined]
            kept = [a for a in range(x.rank) if a not in axes]
            layout = tuple(kept.index(a) for a in x.layout if a in kept) if len(kept) == y.rank else layout
        return Orders([layout])


class Permuted(LayoutPolicy):
    """Transpose: the order in memory is the operand's, so that nothing moves."""

    def preference(self, op: AttributeValues, site: Site, i: int, wished: Order | None) -> Order | None:
        perm = op.order(site.x.rank)  # type: ignore[attr-defined]
        return None if wished is None else tuple(perm[a] for a in wished)

    def orders(self, op: AttributeValues, site: Site, wished: Sequence[Order | None]) -> Orders:
        place = {a: i for i, a in enumerate(op.order(site.x.rank))}  # type: ignore[attr-defined]
        return Orders([tuple(place[a] for a in site.x.axis_order)])


class Reinterpreted(LayoutPolicy):
    """Reshape and its kin move nothing where the axes they merge follow one another in memory."""

    def preference(self, op: AttributeValues, site: Site, i: int, wished: Order | None) -> Order | None:
        t = site.ctx.tensor(i)
        back = reshape_order(site.y.with_layout(wished), t.dims) if wished is not None and i == 0 else None
        return back or plain(t.rank)

    def orders(self, op: AttributeValues, site: Site, wished: Sequence[Order | None]) -> Orders:
        order = reshape_order(site.x, site.y.dims)
        return Orders([plain(site.y.rank)], {0: None}) if order is None else Orders([order])
