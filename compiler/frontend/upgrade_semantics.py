"""Upgrades in which the old form computes something else: its meaning is spelled out in new operators."""

from __future__ import annotations

import json

import numpy as np

from ..ir.builder import GraphBuilder
from ..ir.graph import Value
from ..ir.types import SymDim, prod
from .calls import Call
from .upgrades import ALWAYS, Results, upgrade


@upgrade("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less", up_to=6)
def limited_broadcast(call: Call, g: GraphBuilder) -> None:
    """broadcast=1, axis=k: B's axes stand against A's from k on (from the end without axis)."""
    broadcast, axis = call.pop("broadcast", 0), call.pop("axis")
    if not broadcast or axis is None:
        return
    a, b = len(call.shape(0)), len(call.shape(1))
    axis = axis + a if axis < 0 else axis
    trailing = a - axis - b
    if not 0 <= axis <= a or trailing < 0:
        call.fail("axis does not fit the shapes", found=axis)
    if trailing:
        axes = g.const(np.arange(b, b + trailing, dtype=np.int64))
        call.inputs[1] = g.Unsqueeze(call.need(1), axes)


@upgrade("Softmax", "LogSoftmax", "Hardmax", up_to=12)
def softmax_of_matrix(call: Call, g: GraphBuilder) -> Results:
    """All axes from `axis` on are one: Flatten, softmax along the rows, Reshape back."""
    x, axis, rank = call.need(0), call.attributes.get("axis", 1), len(call.shape(0))
    if not -rank <= axis <= rank:
        call.fail("axis out of range", expected=f"[{-rank}, {rank})", found=axis)
    axis = axis + rank if axis < 0 else axis
    if axis < rank and prod(call.shape(0)[axis + 1 :]) == 1:
        call.attributes["axis"] = axis
        return None
    build = getattr(g, call.op)
    rows = build(g.Flatten(x, axis=axis), axis=-1)
    return [g.Reshape(rows, g.Shape(x))]


@upgrade("PRelu", up_to=6)
def prelu_channels(call: Call, g: GraphBuilder) -> None:
    """One slope per channel, channels being axis 1."""
    rank, slope = len(call.shape(0)), call.need(1)
    if len(call.shape(1)) == 1 and rank > 2 and slope.tensor.dims != (1,):
        call.inputs[1] = g.Unsqueeze(slope, g.const(np.arange(1, rank - 1, dtype=np.int64)))


@upgrade("BatchNormalization", up_to=8)
def batch_norm_spatial(call: Call, g: GraphBuilder) -> Results:
    """is_test is gone; spatial=0 normalises every element on its own: all axes but the first become channels."""
    call.pop("is_test")
    if call.pop("spatial", 1) or len(call.shape(0)) == 2:
        return None
    flat = [g.Reshape(call.need(i), g.const(np.array([-1], np.int64))) for i in range(1, 5)]
    x = call.need(0)
    y = g.BatchNormalization(g.Flatten(x, axis=1), *flat, epsilon=call.attributes.get("epsilon", 1e-5))
    return [g.Reshape(y, g.Shape(x))]


@upgrade("BatchNormalization", up_to=13)
def batch_norm_outputs(call: Call, g: GraphBuilder) -> None:
    """The further outputs belonged to training; a model that uses them is refused where it does."""
    call.n_outputs = 1


@upgrade("GroupNormalization", up_to=20)
def group_norm_channels(call: Call, g: GraphBuilder) -> None:
    """scale and bias had one entry per group; now one per channel."""
    channels, groups = call.shape(0)[1], call.attributes.get("num_groups", 0)
    if isinstance(channels, SymDim) or groups < 1 or channels % groups:
        call.fail("num_groups must divide the channels", expected=channels, found=groups)
    repeat = g.const(np.array([groups, channels // groups], np.int64))
    for index in (1, 2):
        column = g.Unsqueeze(call.need(index), g.const(np.array([1], np.int64)))
        call.inputs[index] = g.Reshape(g.Expand(column, repeat), g.const(np.array([-1], np.int64)))


@upgrade("Dropout", up_to=11)
def dropout_attributes(call: Call, g: GraphBuilder) -> None:
    """The ratio was an attribute, and nothing is dropped (is_test); the mask of old versions had the data's type."""
    call.pop("is_test")
    ratio = call.pop("ratio")
    if ratio is not None:
        call.inputs = [call.need(0), g.const(np.float32(ratio))]


@upgrade("Dropout", up_to=9)
def dropout_mask(call: Call, g: GraphBuilder) -> Results:
    """A mask of the data's type."""
    if call.n_outputs < 2:
        return None
    x = call.need(0)
    return [g.Identity(x), g.Expand(g.const(1, x.tensor.dtype), g.Shape(x))]


@upgrade("Resize", up_to=10)
def resize_scales(call: Call, g: GraphBuilder) -> None:
    """Version 10 had scales only, x_old = x_new / scale, and rounded down, up along axes that shrink (ONNX Runtime)."""
    x, scales = call.need(0), call.need(1)
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if str(call.attributes.get("mode", "nearest")) == "nearest":
        x, scales = _shrunk(g, x, scales, {"mode": "nearest", **how, "nearest_mode": "ceil"})
    call.attributes |= how
    call.inputs = [x, None, scales]


def _shrunk(g: GraphBuilder, x: Value, scales: Value, how: dict[str, str]) -> tuple[Value, Value]:
    """x resized along the axes that shrink, and the scales of the others."""
    content = scales.data if scales.data is not None else scales.known
    if content is None:
        one = g.const(np.ones((), np.float32))
        shrunk = g.AtRuntime(x, None, g.Min(scales, one), kind="Resize", settings=json.dumps(how))
        return shrunk, g.Max(scales, one)
    if any(isinstance(factor, SymDim) for factor in content.flat):
        return x, scales  # Resize says what it needs
    factors = np.asarray(content, np.float32)
    if not (factors < 1).any():
        return x, scales
    return g.Resize(x, None, g.const(np.minimum(factors, 1)), **how), g.const(np.maximum(factors, 1))


@upgrade("Upsample", up_to=ALWAYS)
def upsample_to_resize(call: Call, g: GraphBuilder) -> None:
    """Upsample is Resize by factors of at least one, with x_old = floor(x_new / scale)."""
    mode = str(call.pop("mode", "nearest"))
    if call.version < 7:
        factors = [1.0, 1.0, call.pop("height_scale", 1.0), call.pop("width_scale", 1.0)]
        call.inputs = [call.need(0), g.const(np.array(factors, np.float32))]
    elif call.version < 9:
        call.inputs = [call.need(0), g.const(np.array(call.pop("scales", []), np.float32))]
    call.inputs = [call.need(0), None, call.need(1)]
    mode = "linear" if mode == "bilinear" else mode
    call.become("Resize", 11, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@upgrade("Scatter", up_to=ALWAYS)
def scatter_elements(call: Call, g: GraphBuilder) -> None:
    """Renamed."""
    call.become("ScatterElements", 11, axis=call.attributes.get("axis", 0))


@upgrade("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
         "ReduceLogSum", "ReduceLogSumExp", up_to=ALWAYS)
def reduce_along_unknown_axes(call: Call, g: GraphBuilder) -> Results:
    """Axes that only the run knows leave the result's shape open: the runtime reduces."""
    axes = call.input(1)
    if axes is None or axes.known is not None or axes.tensor.shape == (0,):
        return None
    return [g.ReduceAtRuntime(call.need(0), axes, kind=call.op, keepdims=call.attributes.get("keepdims", 1))]
