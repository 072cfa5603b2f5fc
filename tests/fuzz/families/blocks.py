"""Blocks of models: convolutions and products with their tails, attention, chains, wide graphs, copies."""

from __future__ import annotations

import numpy as np

from ..contents import F32, F64, FLOATS
from ..known import IMPRECISE
from ..maker import Maker, Refused, Value, allowed_types
from ..sizes import ONE, Shape, derived, shape_of, static
from .contraction import hidden, operand
from .registry import BUILDERS, family

TAILS = ("Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "Gelu", "Clip", "Neg", "Abs", "Softplus")


def tail(m: Maker, x: Value, longest: int = 3) -> Value:
    """Element-wise operators behind x, as fusion takes them up."""
    for _ in range(m.rng.randint(0, longest)):
        op = m.choose(TAILS)
        if m.chance(0.4):
            other = m.same_or_broadcast(x)
            x = m.one(m.choose(["Add", "Mul", "Sub"]), [x, other], x.dtype, x.shape, x.bound + other.bound * 2)
        elif op == "Clip":
            x = m.one("Clip", [x, m.scalar(0, x.dtype), m.scalar(6, x.dtype)], x.dtype, x.shape, 6.0)
        elif (
            x.dtype in allowed_types(op, m.opset)[0]
            and (op != "Gelu" or m.opset >= 20)
            and (x.dtype != F64 or op not in IMPRECISE)
        ):
            x = m.one(op, [x], x.dtype, x.shape, x.bound + 1)
    return x


def _conv(m: Maker, x: Value, out: int, k: int, stride: int = 1, group: int = 1) -> Value:
    channels = x.shape[1].value
    w = operand(m, x.dtype, shape_of(out, channels // group, *[k] * (x.rank - 2)), 1.0)
    b = operand(m, x.dtype, shape_of(out), 1.0) if m.chance(0.7) else None
    pad = k // 2
    spatial = tuple(
        derived(f"({{}}+{2 * pad - k})/{stride}", lambda n: (n + 2 * pad - k) // stride + 1, s)
        if stride > 1 or 2 * pad - k != -1
        else s
        for s in x.shape[2:]
    )
    return m.one(
        "Conv",
        [x, w, b],
        x.dtype,
        (x.shape[0], static(out), *spatial),
        x.bound * 2 * (channels * k) ** 0.5,
        pads=[pad] * (2 * (x.rank - 2)),
        strides=[stride] * (x.rank - 2),
        group=group,
    )


@family("convolutional", frequency=3)
def convolutional(m: Maker, op: str) -> None:
    """Convolutions, depthwise and pointwise too, with normalisation, activations, residual sums and pools."""
    sizes = [5, 7, 8, 14, 17] + ([28, 33] if m.large else [])
    channels = m.choose([1, 3, 8, 16, 17, 24] + ([32, 64] if m.large else []))
    side = static(m.choose(sizes))
    shape: Shape = (m.size(0.5), static(channels), side, m.choose([side, static(m.choose(sizes))]))
    if shape[0].most > 4:
        shape = (static(m.choose([1, 2])), *shape[1:])
    x = m.input(m.dtype(FLOATS) if m.chance(0.25) else F32, shape)
    for _ in range(m.rng.randint(1, 4)):
        kind, before, count = m.rng.randrange(6), x, x.shape[1].value
        if kind == 0 and all(s.least >= 1 for s in x.shape):
            x = _conv(m, x, count, 3, m.choose([1, 1, 2]), group=count)
            x = _conv(m, tail(m, x, 1), m.choose([8, 16, 17, 32]), 1)
        elif kind == 1 and all(s.least >= 2 for s in x.shape[2:]):
            out = tuple(derived("{}/2", lambda n: n // 2, s) for s in x.shape[2:])
            x = m.one(
                m.choose(["MaxPool", "AveragePool"]),
                [x],
                x.dtype,
                (*x.shape[:2], *out),
                kernel_shape=[2, 2],
                strides=[2, 2],
            )
        elif kind == 2:
            x = _conv(m, x, count, m.choose([1, 3]))
            x = m.one("Add", [tail(m, x, 1), before], x.dtype, x.shape, x.bound + before.bound)
        else:
            x = _conv(
                m,
                x,
                m.choose([4, 8, 16, 17, 32] + ([64, 96] if m.large else [])),
                m.choose([1, 3, 3, 5]),
                m.choose([1, 1, 1, 2]),
            )
        x = tail(m, x)


@family("perceptron", frequency=2)
def perceptron(m: Maker, op: str) -> None:
    """Products one after the other, with tails and normalisation."""
    x = m.pick(FLOATS if m.chance(0.3) else (F32,), (2, 3), lambda v: v.shape[-1].is_static and v.shape[-1].value > 0)
    for _ in range(m.rng.randint(1, 4)):
        n = m.choose([1, 8, 16, 17, 33, 64] + ([128, 256, 512] if m.large else []))
        w = operand(m, x.dtype, (x.shape[-1], static(n)), 1.0)
        x = m.one("MatMul", [x, w], x.dtype, (*x.shape[:-1], static(n)), x.bound * w.bound * x.shape[-1].value ** 0.5)
        x = m.one("Add", [x, operand(m, x.dtype, shape_of(n), 1.0)], x.dtype, x.shape, x.bound + 2)
        x = tail(m, x)
        if m.chance(0.3) and x.dtype == F32:
            scale, bias = (operand(m, x.dtype, shape_of(n), 1.0) for _ in range(2))
            x = m.one("LayerNormalization", [x, scale, bias], x.dtype, x.shape, 20.0, epsilon=1e-3)


@family("attention", frequency=1.5)
def attention(m: Maker, op: str) -> None:
    """softmax(q kᵀ · scale + mask) v, as exporters write it."""
    heads, d, s = m.choose([1, 2, 3]), m.choose([1, 4, 8, 16, 17]), m.choose([1, 3, 8, 17, 33])
    batch, rows = m.size(0.5), static(m.choose([1, 3, 8, 17, s]))
    dtype = m.dtype(FLOATS[:3]) if m.chance(0.2) else F32
    q = operand(m, dtype, (batch, static(heads), rows, static(d)), 0.2)
    k, v = (operand(m, dtype, (batch, static(heads), static(s), static(d)), 0.2) for _ in range(2))
    turned = m.one("Transpose", [k], dtype, (batch, *shape_of(heads, d, s)), perm=[0, 1, 3, 2])
    scores: Shape = (batch, static(heads), rows, static(s))
    if m.chance(0.3):
        q = m.one("Mul", [q, m.scalar(d**-0.5, dtype)], dtype, q.shape)
    y = m.one("MatMul", [q, turned], dtype, scores, 4.0 * d**0.5)
    if m.chance(0.6):
        y = m.one(m.choose(["Mul", "Div"]), [y, m.scalar(d**0.5, dtype)], dtype, scores, 8.0)
    if dtype == F32 and m.chance(0.3):
        y = m.one("Add", [y, _lowest_mask(m, rows.value, s)], dtype, scores, 10.0)
    elif m.chance(0.5):
        mask = operand(
            m, dtype, m.choose([(rows, static(s)), (batch, ONE, ONE, static(s)), (batch, ONE, rows, static(s))]), 0.2
        )
        y = m.one("Add", [y, mask], dtype, scores, 10.0)
    y = m.one("Softmax", [y], dtype, scores, 1.0, axis=-1)
    y = m.one("MatMul", [y, v], dtype, (batch, static(heads), rows, static(d)), v.bound)
    y = m.one("Transpose", [y], dtype, (batch, rows, *shape_of(heads, d)), perm=[0, 2, 1, 3])
    tail(
        m,
        m.one("Reshape", [y, m.ints([0, 0, heads * d])], dtype, (batch, rows, static(heads * d)))
        if batch.least > 0
        else y,
    )


def _lowest_mask(m: Maker, rows: int, keys: int) -> Value:
    """0, and the lowest number there is for "no attention": here and there, or for all keys of a query."""
    masked = m.numpy.random((rows, keys)) < m.choose([0.2, 0.6])
    masked |= (m.numpy.random(rows) < 0.3)[:, None]
    lowest = np.where(masked, np.finfo(np.float32).min, 0).astype(np.float32)
    return hidden(m, lowest)  # what else is made of it would overflow


@family("chain", frequency=1)
def chain(m: Maker, op: str) -> None:
    """Many element-wise operators one after the other."""
    x = m.pick(FLOATS, where=lambda v: True)
    for _ in range(m.rng.randint(5, 25)):
        x = tail(m, x, 2)


@family("wide", frequency=0.8)
def wide(m: Maker, op: str) -> None:
    """Many branches of one value, joined in the end."""
    x = m.pick((F32,), range(1, 5))
    branches = [tail(m, x, 3) for _ in range(m.rng.randint(3, 8))]
    join = m.choose(["Sum", "Concat", "Max"])
    if join == "Concat":
        axis = m.rng.randrange(x.rank)
        shape = tuple(
            derived(f"{{}}*{len(branches)}", lambda n: n * len(branches), s) if i == axis else s
            for i, s in enumerate(x.shape)
        )
        m.one("Concat", branches, F32, shape, max(b.bound for b in branches), axis=axis)
        return
    m.one(join, branches, F32, x.shape, sum(b.bound for b in branches))


@family("dynamicStack", frequency=0.7)
def dynamic_stack(m: Maker, op: str) -> None:
    """Layers of dynamically quantised products."""
    if m.wild:
        raise Refused("Inf and NaN are no integers")
    for _ in range(m.rng.randint(2, 5)):
        BUILDERS["dynamicMatMul"](m, "dynamicMatMul")
