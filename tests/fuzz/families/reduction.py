"""Reductions, arg-extremes, running sums, softmaxes, TopK."""

from __future__ import annotations

from ..contents import I32, I64, INTS, UNSIGNED
from ..maker import Maker, Refused, Value, allowed_types
from ..sizes import ONE, Shape, static
from .registry import family


def some_axes(m: Maker, rank: int) -> list[int]:
    """Some axes, unsorted, some counted from the end."""
    axes = m.rng.sample(range(rank), m.rng.randint(1, rank)) if rank else []
    return [a - rank if m.chance(0.4) else a for a in axes]


def declared(m: Maker, shape: Shape) -> Shape:
    """As near to the shape as an input's may be: sizes that only a run decides are others."""
    return tuple(s if s.is_static or s.symbol else m.size(0) for s in shape)


def reduced(shape: Shape, axes: list[int], keep: bool) -> Shape:
    """The shape without the axes, or with size 1 there."""
    positive = {a % len(shape) for a in axes} if shape else set()
    if keep:
        return tuple(ONE if i in positive else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in positive)


@family(
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
)
def reduce_(m: Maker, op: str) -> None:
    types = allowed_types(op, m.opset)[0]
    if op in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"):
        types = tuple(t for t in types if t not in INTS or op == "ReduceMean")
    if op in ("ReduceMax", "ReduceMin"):
        x = m.pick(types, where=lambda v: all(s.least > 0 for s in v.shape))
    else:
        x = m.pick(types)
    if op in ("ReduceLogSum", "ReduceProd") and x.is_float and not m.wild:
        x = m.one("Abs", [x], x.dtype, x.shape)
        x = m.one("Add", [x, m.scalar(0.25, x.dtype)], x.dtype, x.shape, x.bound + 1)
        if op == "ReduceProd":
            x = m.within(x, 0.5, 1.5)
    if op == "ReduceLogSumExp":
        x = m.within(x, -20.0, 20.0)
    axes = some_axes(m, x.rank)
    keep = m.choose([None, 0, 1])
    given: list[Value | None]
    noop = None
    if m.chance(0.15):
        given, noop = [], m.choose([None, 1])
        axes = [] if noop else list(range(x.rank))
        shape = x.shape if noop else reduced(x.shape, axes, keep != 0)
        if noop and op not in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd"):
            raise Refused("implementations differ in what is done to each element")
    else:
        runtime = m.chance(0.06)
        given, shape = [m.ints(axes, runtime=runtime)], reduced(x.shape, axes, keep != 0)
        shape = tuple(m.opaque(s.at) for s in shape) if runtime else shape
    count = 1.0
    for a in axes:
        count *= max(1, x.shape[a].most)
    if op == "ReduceMean" and (any(x.shape[a].least == 0 for a in axes) or (x.dtype in INTS and m.wild)):
        raise Refused("the mean of nothing")
    bound = {
        "ReduceMax": x.bound,
        "ReduceMin": x.bound,
        "ReduceMean": x.bound,
        "ReduceProd": 1.5 ** min(count, 60.0),
        "ReduceL2": x.bound * count**0.5,
        "ReduceSumSquare": x.bound * x.bound * count,  # ** would not make an infinity
        "ReduceLogSum": 20.0,
        "ReduceLogSumExp": x.bound + 10,
    }.get(op, x.bound * count)
    if op == "ReduceProd" and count > 60 and x.is_float:
        raise Refused("too many factors")
    m.one(op, [x, *given], x.dtype, shape, bound, keepdims=keep, noop_with_empty_axes=noop)


@family("ArgMax", "ArgMin")
def arg_extreme(m: Maker, op: str) -> None:
    x = m.pick(allowed_types(op, m.opset)[0], range(1, 7), lambda v: all(s.least > 0 for s in v.shape))
    axis = m.rng.randrange(x.rank)
    keep = m.choose([None, 0, 1])
    m.one(
        op,
        [x],
        I64,
        reduced(x.shape, [axis], keep != 0),
        axis=axis - x.rank if m.chance(0.3) else axis,
        keepdims=keep,
        select_last_index=m.choose([None, 0, 1]),
    )


@family("CumSum", "CumProd")
def cumulative(m: Maker, op: str) -> None:
    x = m.pick([t for t in allowed_types(op, m.opset)[0]], range(1, 6))
    if op == "CumProd":
        x = m.within(x, -1.0, 1.0) if x.is_float else m.input(x.dtype, declared(m, x.shape), 0, 1)
    axis = m.rng.randrange(x.rank)
    index = m.ints(axis - x.rank if m.chance(0.3) else axis, m.choose([I32, I64]), runtime=m.chance(0.1))
    m.one(
        op,
        [x, index],
        x.dtype,
        x.shape,
        1.0 if op == "CumProd" else x.bound * max(1, x.shape[axis].most),
        exclusive=m.choose([None, 1]),
        reverse=m.choose([None, 1]),
    )


@family("Softmax", "LogSoftmax", "Hardmax", frequency=1.5)
def softmax(m: Maker, op: str) -> None:
    x = m.pick(allowed_types(op, m.opset)[0], range(1, 6))
    axis = m.choose([None, *range(-x.rank, x.rank)])
    m.one(op, [x], x.dtype, x.shape, 1.0 if op != "LogSoftmax" else 2 * x.bound + 10, axis=axis)


@family("TopK")
def top_k(m: Maker, op: str) -> None:
    x = m.pick(allowed_types(op, m.opset)[0], range(1, 5))
    axis = m.rng.randrange(x.rank)
    k = (
        m.rng.randint(0, min(x.shape[axis].least, 20))
        if m.chance(0.1)
        else min(1 + m.rng.randrange(9), x.shape[axis].least)
    )
    runtime = m.chance(0.1)
    size = m.opaque([k] * len(x.shape[axis].at)) if runtime else static(k)
    shape = tuple(size if i == axis else s for i, s in enumerate(x.shape))
    if x.dtype in UNSIGNED and x.dtype.itemsize == 8:
        raise Refused("no other implementation")
    m.node(
        op,
        [x, m.ints([k], runtime=runtime)],
        [(x.dtype, shape), (I64, shape)],
        axis=axis - x.rank if m.chance(0.4) else axis,
        largest=m.choose([None, 0, 1]),
        sorted=m.choose([None, 1]),
    )
