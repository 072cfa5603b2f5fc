"""Operators that read or write by index, and those whose result sizes only the data decide."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..contents import BOOL, F32, I32, I64, UNSIGNED, is_float, random_array
from ..maker import Maker, Refused, Value, allowed_types
from ..sizes import RUNS, Shape, Size, numbers, shape_of, static
from .registry import family


def indices(
    m: Maker, shape: Shape, size: Size, dtype: np.dtype | None = None, unique_along: int | None = None
) -> Value:
    """Indices into an axis of that size: an input, or a constant; negative ones count from the end."""
    if size.least == 0:
        raise Refused("nothing to index")
    dtype = dtype or m.choose([I32, I64])
    low = 0 if m.chance(0.5) else -size.least

    def content(run: int) -> np.ndarray:
        full = numbers(shape, run)
        if unique_along is None:
            return m.numpy.integers(low, size.least, full).astype(dtype)
        order = m.numpy.random((*full[:unique_along], size.at[run], *full[unique_along + 1 :])).argsort(unique_along)
        return order.take(range(full[unique_along]), unique_along).astype(dtype)

    if all(s.is_static for s in shape) and (size.is_static or unique_along is None) and m.chance(0.5):
        return m.constant(content(0))
    if not all(s.is_static or s.symbol for s in shape):
        raise Refused("a size that no input declares")
    return m.input(dtype, shape, contents=[content(run) for run in range(RUNS)])


@family("Gather", frequency=2)
def gather(m: Maker, op: str) -> None:
    x = m.pick(ranks=range(1, 5), where=lambda v: any(s.least > 0 for s in v.shape))
    axis = m.choose([i for i, s in enumerate(x.shape) if s.least > 0])
    index = indices(m, m.shape(m.choose([0, 1, 1, 2])), x.shape[axis])
    m.one(
        op,
        [x, index],
        x.dtype,
        (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]),
        axis=axis - x.rank if m.chance(0.3) else axis,
    )


@family("GatherElements", "ScatterElements")
def elements(m: Maker, op: str) -> None:
    x = m.pick(
        allowed_types(op, m.opset)[0],
        range(1, 5),
        lambda v: all(s.least > 0 and (s.is_static or s.symbol) for s in v.shape),
    )
    axis = m.rng.randrange(x.rank)
    smaller = tuple(static(m.rng.randint(1, s.value)) if s.is_static and m.chance(0.4) else s for s in x.shape)
    attributes: dict[str, Any] = {"axis": axis - x.rank if m.chance(0.3) else axis}
    if op == "GatherElements":
        shape = tuple(m.size(0.0) if i == axis and m.chance(0.5) else s for i, s in enumerate(smaller))
        index = indices(m, shape, x.shape[axis])
        m.one(op, [x, index], x.dtype, shape, **attributes)
        return
    reduction = _reduction(m, x)
    index = indices(m, smaller, x.shape[axis], unique_along=axis if reduction == "none" else None)
    updates = m.fresh(x.dtype, smaller)
    assert updates is not None
    m.one(
        op,
        [x, index, updates],
        x.dtype,
        x.shape,
        max(x.bound, updates.bound) * (16 if reduction != "none" else 1),
        reduction=None if reduction == "none" and m.chance(0.5) else reduction,
        **attributes,
    )


def _reduction(m: Maker, x: Value) -> str:
    if x.dtype == BOOL:
        return "none"
    return m.choose(["none", "none", "add", "mul", "max", "min"] if not m.wild else ["none"])


@family("GatherND", "ScatterND")
def coordinates(m: Maker, op: str) -> None:
    x = m.pick(allowed_types(op, m.opset)[0], range(1, 5), lambda v: all(s.least > 0 for s in v.shape))
    batch = m.rng.randint(0, min(1, x.rank - 1)) if op == "GatherND" else 0
    length = m.rng.randint(1, x.rank - batch)
    rows = m.shape(m.choose([0, 1, 2]), symbolic=0.0)
    if any(s.least == 0 for s in rows) or not all(s.is_static for s in x.shape[:batch]):
        raise Refused("no rows")
    lead = numbers((*x.shape[:batch], *rows), 0)
    columns = [
        m.numpy.integers(0 if m.chance(0.6) else -s.least, s.least, lead) for s in x.shape[batch : batch + length]
    ]
    index = np.stack(columns, -1).astype(np.int64)
    if op == "ScatterND" and any(s.is_static is False for s in x.shape[:length]):
        raise Refused("coordinates of a symbol")
    if op == "ScatterND":
        _scatter(m, x, index, length)
        return
    given = (
        m.constant(index) if m.chance(0.5) else m.input(I64, tuple(map(static, index.shape)), contents=[index] * RUNS)
    )
    m.one(op, [x, given], x.dtype, (*x.shape[:batch], *rows, *x.shape[batch + length :]), batch_dims=batch or None)


def _scatter(m: Maker, x: Value, index: np.ndarray, length: int) -> None:
    reduction = _reduction(m, x)
    if reduction == "none":  # the order of equal rows is nobody's promise
        flat = index.reshape(-1, length) % np.array([s.value for s in x.shape[:length]])
        index = np.unique(flat, axis=0)
    given = (
        m.constant(index) if m.chance(0.5) else m.input(I64, tuple(map(static, index.shape)), contents=[index] * RUNS)
    )
    updates = m.fresh(x.dtype, (*given.shape[:-1], *x.shape[length:]))
    if updates is None:
        raise Refused("a size that no input declares")
    m.one(
        "ScatterND",
        [x, given, updates],
        x.dtype,
        x.shape,
        max(x.bound, updates.bound) * (16 if reduction != "none" else 1),
        reduction=None if reduction == "none" and m.chance(0.5) else reduction,
    )


@family("ReverseSequence")
def reverse_sequence(m: Maker, op: str) -> None:
    x = m.pick(ranks=range(2, 5), where=lambda v: all(s.least > 0 for s in v.shape[:2]))
    time, batch = m.choose([(0, 1), (1, 0)])
    size = x.shape[batch]
    if not (size.is_static or size.symbol):
        raise Refused("a size that no input declares")
    contents = [m.numpy.integers(1, x.shape[time].least, size.at[r], endpoint=True) for r in range(RUNS)]
    lengths = m.input(I64, (size,), contents=contents)
    m.one(op, [x, lengths], x.dtype, x.shape, time_axis=time, batch_axis=batch)


@family("NonZero", "Compress", "Unique", frequency=0.4)
def chosen_by_data(m: Maker, op: str) -> None:
    if op == "NonZero":
        x = m.pick(allowed_types(op, m.opset)[0], range(1, 5))
        x = _known(m, x)
        counts = [int(np.count_nonzero(f[x.name])) for f in m.root().feeds]
        m.one(op, [x], I64, (static(x.rank), m.opaque(counts)))
        return
    x = m.pick(allowed_types(op, m.opset)[0], range(1, 4))
    if op == "Compress":
        axis = m.choose([None, *range(x.rank)])
        if (axis is not None and not x.shape[axis].is_static) or (
            axis is None and not all(s.is_static for s in x.shape)
        ):
            raise Refused("a size that no input declares")
        size = x.shape[axis] if axis is not None else static(int(np.prod(numbers(x.shape, 0))))
        condition = m.input(BOOL, (static(min(size.value, 64)),))
        kept = m.opaque([int(f[condition.name].sum()) for f in m.root().feeds])
        shape = (kept,) if axis is None else (*x.shape[:axis], kept, *x.shape[axis + 1 :])
        m.one(op, [x, condition], x.dtype, shape, axis=axis)
        return
    x = _known(m, x)
    if m.wild or x.dtype == BOOL or any(s.least == 0 for s in x.shape):
        raise Refused("NaN differs from itself")
    counts = [len(np.unique(f[x.name])) for f in m.root().feeds]
    out = (m.opaque(counts),)
    flat: Shape = (
        (static(int(np.prod(numbers(x.shape, 0)))),)
        if all(s.is_static for s in x.shape)
        else (m.opaque([int(np.prod(numbers(x.shape, r))) for r in range(RUNS)]),)
    )
    m.node(op, [x], [(x.dtype, out), (I64, out), (I64, flat), (I64, out)][: m.rng.randint(1, 4)])


def _known(m: Maker, like: Value) -> Value:
    """An input like the value, whose content decides sizes."""
    shape = tuple(s if s.is_static or s.symbol else m.size() for s in like.shape)
    low = 0 if like.dtype in UNSIGNED else -2
    contents = [random_array(m.numpy, like.dtype, numbers(shape, r), low, 3) for r in range(RUNS)]
    if is_float(like.dtype):
        contents = [np.round(c.astype(np.float64)).astype(like.dtype) for c in contents]
    return m.input(like.dtype, shape, contents=contents)


@family("NonMaxSuppression", frequency=0.2)
def non_max_suppression(m: Maker, op: str) -> None:
    """Its number of boxes is not known here, so it ends its branch of the graph."""
    n, boxes, classes = m.choose([1, 2]), m.choose([1, 5, 12]), m.choose([1, 2])
    corner = m.numpy.uniform(0, 8, (n, boxes, 2))
    content = np.concatenate([corner, corner + m.numpy.uniform(1, 5, (n, boxes, 2))], -1).astype(np.float32)
    x = m.input(F32, shape_of(n, boxes, 4), contents=[content] * RUNS)
    scores = m.input(F32, shape_of(n, classes, boxes), 0.0, 1.0)
    kept, overlap, least = m.ints([m.choose([1, 3, 20])]), m.scalar(0.5, F32), m.scalar(0.1, F32)
    m.node(op, [x, scores, kept, overlap, least], [(I64, (m.opaque([0] * RUNS), static(3)))])
    m.retire(1)
