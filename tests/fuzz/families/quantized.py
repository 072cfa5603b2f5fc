"""Quantised operators alone, and as exporters write them: chains of Quantize and Dequantize, dynamic quantisation."""

from __future__ import annotations

import numpy as np

from ..contents import F16, F32, I8, I32, U8, random_array
from ..maker import Maker, Refused, Value, allowed_types
from ..sizes import ONE, Shape, shape_of, static
from .contraction import columns, hidden, image, window
from .registry import family

STORED = (U8, I8, np.dtype("uint16"), np.dtype("int16"))


def scale_of(m: Maker, count: int | None, dtype: np.dtype = F32) -> Value:
    """A scale, or a vector of them."""
    return hidden(m, m.numpy.uniform(0.01, 0.1, () if count is None else (count,)).astype(dtype))


def _zero_range(dtype: np.dtype) -> tuple[int, int]:
    """What zero points of a type are drawn from."""
    return (100, 156) if dtype == U8 else (-20, 20) if dtype.kind == "i" else (30000, 33000)


def zero_of(m: Maker, count: int | None, dtype: np.dtype) -> Value:
    """A zero point, or a vector of them."""
    shape = () if count is None else (count,)
    low, high = _zero_range(dtype)
    if m.chance(0.4):
        low = high = 128 if dtype == U8 else 0
    return hidden(m, random_array(m.numpy, dtype, shape, low, high))


def bytes_of(m: Maker, shape: Shape, dtype: np.dtype, constant: float = 0.5) -> Value:
    """8-bit integers of that shape, the whole range."""
    low, high = (0, 255) if dtype == U8 else (-128, 127)
    fits = [v for v in m.values if v.dtype == dtype and v.shape == shape]
    if fits and m.chance(0.4):
        return m.choose(fits)
    made = m.fresh(dtype, shape, low, high, constant)
    if made is None:
        raise Refused("a size that no input declares")
    return made


@family("QuantizeLinear", "DequantizeLinear", frequency=2)
def linear(m: Maker, op: str) -> None:
    stored = STORED if m.opset >= 21 else STORED[:2]
    if op == "QuantizeLinear":
        if m.wild:
            raise Refused("Inf and NaN are no integers")
        types = [t for t in allowed_types(op, m.opset)[0] if t in (F32, F16)]
        x, to = m.pick(types), m.dtype(stored)
        if m.opset >= 21 and m.chance(0.3):
            scale, zero, where = _blocks(m, x, x.dtype, to)
            m.one(op, [x, scale, zero], to, x.shape, **where)
            return
        count, axis = _axis(m, x)
        inputs = [x, scale_of(m, count, x.dtype), zero_of(m, count, to)]
        if to == U8 and m.chance(0.3):
            inputs.pop()
        m.one(op, inputs, to, x.shape, axis=axis)
        return
    x = m.pick((*stored, I32))
    if m.opset >= 21 and x.dtype != I32 and m.chance(0.3):
        scale, zero, where = _blocks(m, x, F32, x.dtype)
    else:
        count, axis = _axis(m, x)
        scale, where = scale_of(m, count), {"axis": axis}
        zero = zero_of(m, count, x.dtype) if x.dtype != I32 else None
    m.one(op, [x, scale, zero if m.chance(0.8) else None], F32, x.shape, 10.0 if x.dtype in (U8, I8) else 1e4, **where)


def _blocks(m: Maker, x: Value, dtype: np.dtype, stored: np.dtype) -> tuple[Value, Value, dict[str, int]]:
    """Scales and zero points of blocks along an axis, and which."""
    if not x.rank or not all(s.is_static and s.value > 0 for s in x.shape):
        raise Refused("sizes that are not known")
    axis, block = m.rng.randrange(x.rank), m.choose([1, 2, 3, 5])
    shape = tuple(-(-s.value // block) if i == axis else s.value for i, s in enumerate(x.shape))
    scale = hidden(m, m.numpy.uniform(0.01, 0.1, shape).astype(dtype))
    zero = hidden(m, random_array(m.numpy, stored, shape, *_zero_range(stored)))
    return scale, zero, {"axis": axis - x.rank if m.chance(0.4) else axis, "block_size": block}


def _axis(m: Maker, x: Value) -> tuple[int | None, int | None]:
    """How many scales along which axis; none for one of the whole tensor."""
    axes = [i for i, s in enumerate(x.shape) if s.is_static and s.value > 0]
    if not axes or m.chance(0.6):
        return None, None if x.rank > 1 or m.chance(0.5) else 0
    axis = m.choose(axes)
    return x.shape[axis].value, axis - x.rank if m.chance(0.3) else axis


@family("DynamicQuantizeLinear")
def dynamic(m: Maker, op: str) -> None:
    x = m.pick((F32,), where=lambda v: all(s.least > 0 for s in v.shape))
    if m.wild:
        raise Refused("Inf and NaN are no integers")
    m.node(op, [x], [(U8, x.shape), (F32, ()), (U8, ())])


def _spread(m: Maker, x: Value) -> tuple[Value, Value, Value]:
    """x dynamically quantised: values, scale and zero point."""
    if m.wild or any(s.least == 0 for s in x.shape):
        raise Refused("nothing to measure")
    q, scale, zero = m.node("DynamicQuantizeLinear", [x], [(U8, x.shape), (F32, ()), (U8, ())])
    return q, scale, zero


@family("MatMulInteger", "QLinearMatMul", "dynamicMatMul", frequency=1.5)
def product(m: Maker, op: str) -> None:
    a = m.pick((U8, I8) if op != "dynamicMatMul" else (F32,), (2, 2, 3, 4), lambda v: v.shape[-1].is_static)
    k, n = a.shape[-1], columns(m)
    if k.value == 0 or m.wild:
        raise Refused("nothing to sum")
    right = m.choose([U8, I8])
    b, shape = bytes_of(m, (k, n), right, 0.8), (*a.shape[:-1], n)
    if op == "QLinearMatMul":
        to = m.choose([U8, I8])
        m.one(
            op,
            [
                a,
                scale_of(m, None),
                zero_of(m, None, a.dtype),
                b,
                scale_of(m, None),
                zero_of(m, None, right),
                scale_of(m, None),
                zero_of(m, None, to),
            ],
            to,
            shape,
        )
        return
    scale = None
    if op == "dynamicMatMul":
        a, scale, a_zero = _spread(m, a)
    else:
        a_zero = zero_of(m, None, a.dtype) if m.chance(0.6) else None
    b_zero = zero_of(m, n.value if m.chance(0.2) else None, right) if m.chance(0.6) else None
    total = m.one("MatMulInteger", [a, b, a_zero, b_zero], I32, shape)
    if scale is not None or m.chance(0.5):
        _scaled(m, total, scale, k.value)


def _scaled(m: Maker, total: Value, scale: Value | None, terms: int) -> None:
    """The sums as floats, times their scale, and an activation."""
    y = m.one("Cast", [total], F32, total.shape, 65025.0 * terms**0.5 if scale is None else 4.0, to=1)
    if scale is not None:
        y = m.one("Mul", [y, m.one("Mul", [scale, m.scalar(0.02, F32)], F32, (), 0.01)], F32, total.shape, 40.0)
    m.one(m.choose(["Relu", "Sigmoid", "Tanh", "Neg"]), [y], F32, y.shape)


@family("ConvInteger", "QLinearConv", frequency=1.2)
def convolution(m: Maker, op: str) -> None:
    x = image(m, (U8, I8) if op == "QLinearConv" else (U8,), (3, 4, 4))
    how = window(m, x.shape[2:])
    if how is None or m.wild:
        raise Refused("the window does not fit")
    channels = x.shape[1].value
    group = m.choose([1, 1, channels])
    out = group * m.choose([1, 2]) if group > 1 else m.choose([1, 3, 8, 17])
    right = m.choose([U8, I8]) if op == "QLinearConv" else U8
    given, shape = how["attributes"], (x.shape[0], static(out), *how["output"])
    w = bytes_of(m, shape_of(out, channels // group, *given["kernel_shape"]), right, 1.0)
    if op == "ConvInteger":
        zeros = [
            zero_of(m, None, x.dtype) if m.chance(0.6) else None,
            zero_of(m, None, right) if m.chance(0.5) else None,
        ]
        m.one(op, [x, w, *zeros], I32, shape, group=group, **given)
        return
    to = x.dtype
    count = out if m.chance(0.4) else None
    w_zero = hidden(m, np.zeros(() if count is None else (count,), right)) if count else zero_of(m, None, right)
    bias = m.constant(random_array(m.numpy, I32, (out,), -1000, 1000)) if m.chance(0.6) else None
    m.one(
        op,
        [
            x,
            scale_of(m, None),
            zero_of(m, None, x.dtype),
            w,
            scale_of(m, count),
            w_zero,
            scale_of(m, None),
            zero_of(m, None, to),
            bias,
        ],
        to,
        shape,
        group=group,
        **given,
    )


def quantized_and_back(m: Maker, x: Value, stored: np.dtype | None = None) -> Value:
    """x through Quantize and Dequantize of one scale, as a quantised model has it between its operators."""
    stored = stored or m.choose([U8, I8])
    scale, zero = scale_of(m, None), zero_of(m, None, stored)
    q = m.one("QuantizeLinear", [x, scale, zero], stored, x.shape)
    return m.one("DequantizeLinear", [q, scale, zero], F32, x.shape, 15.0)


@family("qdqChain", frequency=2)
def qdq_chain(m: Maker, op: str) -> None:
    """Products and element-wise operators between Quantize and Dequantize."""
    if m.wild:
        raise Refused("Inf and NaN are no integers")
    x = quantized_and_back(m, m.pick((F32,), (2, 3, 4)))
    for _ in range(m.rng.randint(1, 4)):
        kind = m.rng.randrange(5)
        if kind == 0 and x.rank >= 2 and x.shape[-1].is_static and x.shape[-1].value:
            x = _quantized_product(m, x)
        elif kind == 1:
            x = m.one("Add", [x, quantized_and_back(m, m.same_or_broadcast(x))], F32, x.shape)
        elif kind == 2:
            x = m.one(m.choose(["Relu", "Sigmoid", "HardSwish", "LeakyRelu"]), [x], F32, x.shape)
        elif kind == 3 and x.rank:
            perm = m.rng.sample(range(x.rank), x.rank)
            x = m.one("Transpose", [x], F32, tuple(x.shape[p] for p in perm), perm=perm)
        else:
            keep = tuple(ONE if i == x.rank - 1 else s for i, s in enumerate(x.shape))
            if any(s.least == 0 for s in x.shape):
                raise Refused("nothing to reduce")
            x = m.one("ReduceMax", [x, m.ints([x.rank - 1])], F32, keep, keepdims=1)
        x = quantized_and_back(m, x)


def _quantized_product(m: Maker, x: Value) -> Value:
    k, n = x.shape[-1].value, columns(m)
    w = hidden(m, random_array(m.numpy, I8, (k, n.value), -100, 100))
    per = n.value if m.chance(0.5) else None
    back = m.one(
        "DequantizeLinear",
        [w, scale_of(m, per), zero_of(m, per, I8) if m.chance(0.5) else None],
        F32,
        shape_of(k, n.value),
        10.0,
        axis=1 if per else None,
    )
    return m.one("MatMul", [x, back], F32, (*x.shape[:-1], n), 20.0)
