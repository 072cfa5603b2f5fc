"""Pools, normalisations, resizing and sampling."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..contents import F32, F64, I64, is_float
from ..maker import Maker, Refused, Value, allowed_types
from ..sizes import ONE, Shape, Size, derived, numbers, shape_of, static
from .contraction import image, operand, window
from .registry import family


@family("MaxPool", "AveragePool", "LpPool", frequency=1.5)
def pool(m: Maker, op: str) -> None:
    x = image(m, allowed_types(op, m.opset)[0])
    how = window(m, x.shape[2:])
    if how is None:
        raise Refused("the window does not fit")
    given, output = how["attributes"], how["output"]
    if any(p >= k for p, k in zip([*how["begin"], *how["end"]], given["kernel_shape"] * 2)):
        raise Refused("pads must be smaller than the kernel")
    attributes: dict[str, Any] = {}
    if str(given["auto_pad"]).startswith("SAME") and max(given["dilations"] or [1]) > 1:
        raise Refused("others pad for the kernel without its dilations")
    if op == "AveragePool":
        attributes["count_include_pad"] = m.choose([None, 0, 1])
        if m.opset < 19 and given["dilations"] and max(given["dilations"]) > 1:
            raise Refused("newer")
    if op == "LpPool":
        attributes["p"] = m.choose([None, 1, 2, 3])
    if given["auto_pad"] is None and m.chance(0.2):
        attributes["ceil_mode"] = 1
        output = tuple(
            _ceiling(s, e, b, f, (given["strides"] or [1] * 9)[i])
            for i, (s, e, b, f) in enumerate(zip(x.shape[2:], how["extents"], how["begin"], how["end"]))
        )
    results = [(x.dtype, (*x.shape[:2], *output))]
    if op == "MaxPool" and m.chance(0.25) and x.is_float:
        results.append((I64, results[0][1]))
    bound = x.bound * (float(np.prod(given["kernel_shape"])) if op == "LpPool" else 1.0)
    m.node(op, [x], results, bound, **attributes, **given)


def _ceiling(size: Size, extent: int, begin: int, end: int, stride: int) -> Size:
    """The number of windows with ceil_mode: none starts in the padding behind the end."""

    def count(n: int) -> int:
        windows = -(-(n + begin + end - extent) // stride) + 1
        return windows - 1 if (windows - 1) * stride >= n + begin else windows

    return derived(f"ceil({{}},{extent},{begin},{end},{stride})", count, size)


@family("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(m: Maker, op: str) -> None:
    if op == "GlobalLpPool" and m.opset >= 22:
        raise Refused("no other implementation")
    x = image(m, allowed_types(op, m.opset)[0])
    shape = (*x.shape[:2], *[ONE] * (x.rank - 2))
    count = float(np.prod([s.most for s in x.shape[2:]])) if op == "GlobalLpPool" else 1.0
    m.one(op, [x], x.dtype, shape, x.bound * count, p=m.choose([None, 1, 2, 3]) if op == "GlobalLpPool" else None)


@family("MaxUnpool", frequency=0.4)
def max_unpool(m: Maker, op: str) -> None:
    k = m.choose([2, 3])
    n, c, h, w = m.choose([1, 2]), m.choose([1, 3]), k * m.choose([1, 2, 3]), k * m.choose([1, 2])
    x = operand(m, F32, shape_of(n, c, h, w), 0.1)
    attributes = {"kernel_shape": [k, k], "strides": [k, k]}
    small = shape_of(n, c, h // k, w // k)
    values, at = m.node("MaxPool", [x], [(F32, small), (I64, small)], **attributes)
    m.one(op, [values, at], F32, x.shape, x.bound, **attributes)


def channels_of(
    m: Maker, x: Value, size: Size, low: float = -2.0, high: float = 2.0, dtype: np.dtype | None = None
) -> Value:
    """A vector with an element per channel."""
    made = m.fresh(dtype or x.dtype, (size,), low, high, constant=0.8)
    if made is None:
        raise Refused("a size that no input declares")
    return made


@family("BatchNormalization", "InstanceNormalization", "GroupNormalization", frequency=1.2)
def per_channel(m: Maker, op: str) -> None:
    if op == "GroupNormalization" and m.opset < 21:
        raise Refused("newer")
    types = [t for t in allowed_types(op, m.opset)[0] if t != F64 or op != "GroupNormalization"]  # its sums are of f32
    x = image(m, types, (2, 3, 4, 4) if op == "BatchNormalization" else (3, 4, 4))
    channels = x.shape[1]
    scale, bias = channels_of(m, x, channels), channels_of(m, x, channels)
    epsilon = m.choose([None, 1e-3, 0.1])
    if op == "BatchNormalization":
        mean, var = channels_of(m, x, channels), channels_of(m, x, channels, 0.3, 3.0)
        m.one(op, [x, scale, bias, mean, var], x.dtype, x.shape, (x.bound + 2) * 5, epsilon=epsilon)
        return
    groups = m.choose([g for g in (1, 2, 3, 4, channels.value) if channels.value % g == 0])
    if op == "GroupNormalization":
        m.one(op, [x, scale, bias], x.dtype, x.shape, 30.0, epsilon=epsilon or 1e-3, num_groups=groups)
        return
    m.one(op, [x, scale, bias], x.dtype, x.shape, 30.0, epsilon=epsilon or 1e-3)


@family("LayerNormalization", "RMSNormalization", frequency=1.5)
def per_row(m: Maker, op: str) -> None:
    if op == "RMSNormalization" and m.opset < 23:
        raise Refused("newer")
    x = m.pick(allowed_types(op, m.opset)[0], range(1, 5), lambda v: v.shape[-1].least > 0)
    axis = m.rng.randint(max(0, x.rank - 2), x.rank - 1)
    if any(s.least == 0 for s in x.shape[axis:]):
        raise Refused("the mean of nothing")
    shape = x.shape[axis:]
    scale = operand(m, x.dtype, shape, 0.9)
    given = axis - x.rank if m.chance(0.5) else axis
    if op == "RMSNormalization":
        m.one(op, [x, scale], x.dtype, x.shape, 30.0, axis=given, epsilon=1e-3)
        return
    bias = operand(m, x.dtype, shape, 0.9) if m.chance(0.7) else None
    statistics: Shape = (*x.shape[:axis], *[ONE] * (x.rank - axis))
    results: list[tuple[np.dtype, Shape] | None] = [(x.dtype, x.shape)]
    if m.chance(0.2) and x.dtype == F32:
        results += [(F32, statistics), (F32, statistics)][: m.choose([1, 2])]
    m.node(op, [x, scale, bias], results, 30.0, axis=given, epsilon=1e-3)


@family("LpNormalization", "MeanVarianceNormalization", "LRN", frequency=0.8)
def normalized(m: Maker, op: str) -> None:
    types = allowed_types(op, m.opset)[0]
    if op == "LRN":
        x = image(m, types, (4,))
        m.one(
            op,
            [x],
            x.dtype,
            x.shape,
            x.bound,
            size=m.choose([1, 3, 5]),
            alpha=m.choose([None, 0.01]),
            beta=m.choose([None, 0.5]),
            bias=m.choose([None, 2.0]),
        )
        return
    if op == "MeanVarianceNormalization":
        x = image(m, types, (4,))
        axes = m.choose([None, [0, 1, 2, 3], [2, 3], [1]])
        if any(s.least == 0 for s in x.shape):
            raise Refused("the mean of nothing")
        m.one(op, [x], x.dtype, x.shape, 30.0, axes=axes)
        return
    x = m.pick(types, range(1, 5))
    m.one(op, [x], x.dtype, x.shape, 1.0, axis=m.choose([None, *range(x.rank)]), p=m.choose([None, 1, 2]))


@family("Resize")
def resize(m: Maker, op: str) -> None:
    x = m.pick(
        [t for t in allowed_types(op, m.opset)[0] if is_float(t)],
        (3, 4, 4),
        fresh=0.2,
        where=lambda v: all(s.is_static and s.value > 0 for s in v.shape[2:]),
    )
    mode = m.choose(["nearest", "nearest", "linear", "cubic"])
    if mode == "cubic" and x.rank != 4:
        raise Refused("two axes only")
    coordinates = m.choose([None, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
        "nearest_mode": m.choose([None, "floor", "ceil", "round_prefer_ceil"]) if mode == "nearest" else None,
    }
    if m.chance(0.5):
        factors = [m.choose([1.0, 2.0, 0.5, 3.0, 1.5]) for _ in x.shape[2:]]
        out = [max(0, int(np.floor(np.float32(s.value) * np.float32(f)))) for s, f in zip(x.shape[2:], factors)]
        inputs = [x, None, m.constant(np.array([1.0, 1.0, *factors], np.float32))]
        m.values.pop()
    else:
        out = [m.choose([1, 2, s.value, 2 * s.value, 7, 16]) for s in x.shape[2:]]
        if not all(s.is_static for s in x.shape):
            raise Refused("sizes of a symbol")
        inputs = [x, None, None, m.ints([*numbers(x.shape[:2], 0), *out], runtime=False)]
    if 0 in out:
        raise Refused("nothing is left")
    m.one(op, inputs, x.dtype, (*x.shape[:2], *map(static, out)), x.bound * 2, **attributes)


@family("GridSample", frequency=0.5)
def grid_sample(m: Maker, op: str) -> None:
    x = m.pick(
        [t for t in allowed_types(op, m.opset)[0] if is_float(t)],
        (4,),
        fresh=0.2,
        where=lambda v: all(s.least > 0 and (s.is_static or s.symbol) for s in v.shape),
    )
    to = shape_of(m.choose([1, 3, 7]), m.choose([1, 2, 8]), 2)
    grid = m.fresh(x.dtype if x.dtype in allowed_types(op, m.opset)[1] else F32, (x.shape[0], *to), -1.2, 1.2)
    assert grid is not None
    names = ["linear", "nearest", "cubic"] if m.opset >= 20 else ["bilinear", "nearest", "bicubic"]
    m.one(
        op,
        [x, grid],
        x.dtype,
        (*x.shape[:2], *to[:2]),
        x.bound * 2,
        mode=m.choose(names),
        padding_mode=m.choose([None, "zeros", "border", "reflection"]),
        align_corners=m.choose([None, 0, 1]),
    )
