"""In which order the axes of a tensor lie in memory, as far as it makes a difference.

Knows types only, so that operators may use it.
"""

from __future__ import annotations

from .types import Dim, Shape, TensorType, guessing

Order = tuple[int, ...]
"""Every axis, outermost first; unlike `TensorType.layout` never None for ONNX's own order."""


def channels_last(rank: int) -> Order:
    """(0, 2, …, rank-1, 1): batch, space, channels."""
    return (0, *range(2, rank), 1)


def plain(rank: int) -> Order:
    """ONNX's own order."""
    return tuple(range(rank))


def physical_axes(t: TensorType) -> Order:
    """Logical axes in memory order without those of size 1, which have no influence on where an element lies."""
    return tuple(a for a in t.axis_order if t.dims[a] != 1)


def is_row_major(t: TensorType) -> bool:
    """Whether the elements lie in ONNX's order."""
    axes = physical_axes(t)
    return axes == tuple(sorted(axes))


def reshape_order(x: TensorType, dims: Shape) -> Order | None:
    """The memory order in which a Reshape of `x` to `dims` moves nothing, None if there is none.

    The shapes are cut into the smallest groups of neighbouring axes with equal products. An axis may be split wherever
    it lies; axes that are merged must follow one another in memory.
    """
    with guessing():  # what has no elements lies in every order
        groups = _groups(x.dims, dims)
    if groups is None:
        return tuple(range(len(dims))) if is_row_major(x) else None
    place = {a: i for i, a in enumerate(physical_axes(x))}
    placed: list[tuple[int, list[int]]] = []
    for source, target in groups:
        places = [place[a] for a in source]
        if places != list(range(places[0], places[0] + len(places))):
            return None
        placed.append((places[0], target))
    order = [a for _, target in sorted(placed) for a in target]
    for a, d in enumerate(dims):  # axes of size 1 go where they disturb least
        if d == 1:
            order.insert(order.index(a - 1) + 1 if a else 0, a)
    return tuple(order)


def _groups(xs: Shape, ys: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Pairs of axes lists (those of size 1 left out) with equal products, in order; None if the shapes do not match."""
    left = [a for a, d in enumerate(xs) if d != 1]
    right = [a for a, d in enumerate(ys) if d != 1]
    if any(d == 0 for d in (*xs, *ys)):
        return None
    groups: list[tuple[list[int], list[int]]] = []
    while left and right:
        source, target = [left.pop(0)], [right.pop(0)]
        p, q = xs[source[0]], ys[target[0]]
        while p != q:
            if _grows_first(p, q) and left:
                source.append(left.pop(0))
                p = p * xs[source[-1]]
            elif right:
                target.append(right.pop(0))
                q = q * ys[target[-1]]
            else:
                return None
        groups.append((source, target))
    return None if left or right else groups


def _grows_first(p: Dim, q: Dim) -> bool:
    """Whether `p` is the product that lacks a factor."""
    if isinstance(p, int) and isinstance(q, int):
        return p < q
    return q % p == 0 or p % q != 0
