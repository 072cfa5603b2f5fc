"""Upgrades in which only the place or spelling of a parameter changed: attributes that became inputs, old names."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ..ir.builder import GraphBuilder
from ..ir.graph import Value
from ..ir.types import STR
from .calls import Call
from .upgrades import ALWAYS, upgrade


def _ints_to_input(call: Call, g: GraphBuilder, name: str, index: int) -> None:
    values = call.pop(name)
    if values is not None:
        call.set_input(index, g.const(np.array(values, np.int64)))


@upgrade("Squeeze", "Unsqueeze", "ReduceSum", up_to=12)
@upgrade("ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
         "ReduceLogSumExp", "ReduceSumSquare", up_to=17)  # fmt: skip
def axes_to_input(call: Call, g: GraphBuilder) -> None:
    """axes attribute → second input."""
    _ints_to_input(call, g, "axes", 1)


@upgrade("Reshape", up_to=4)
def reshape_shape(call: Call, g: GraphBuilder) -> None:
    """shape attribute → second input."""
    _ints_to_input(call, g, "shape", 1)


@upgrade("Slice", up_to=9)
def slice_bounds(call: Call, g: GraphBuilder) -> None:
    """starts, ends, axes attributes → inputs."""
    for index, name in enumerate(("starts", "ends", "axes"), 1):
        _ints_to_input(call, g, name, index)


@upgrade("Split", up_to=12)
def split_sizes(call: Call, g: GraphBuilder) -> None:
    """split attribute → second input."""
    _ints_to_input(call, g, "split", 1)


@upgrade("Split", up_to=17)
def split_count(call: Call, g: GraphBuilder) -> None:
    """Without sizes, the number of outputs says into how many equal parts."""
    if call.input(1) is None:
        call.attributes["num_outputs"] = len(call.present)


@upgrade("TopK", up_to=9)
def topk_count(call: Call, g: GraphBuilder) -> None:
    """k attribute → second input."""
    call.set_input(1, g.const(np.array([call.pop("k")], np.int64)))


@upgrade("Pad", up_to=1)
def pad_paddings(call: Call, g: GraphBuilder) -> None:
    """The attribute was first called paddings."""
    call.attributes["pads"] = call.pop("paddings")


@upgrade("Pad", up_to=10)
def pad_widths(call: Call, g: GraphBuilder) -> None:
    """pads and value attributes → inputs."""
    _ints_to_input(call, g, "pads", 1)
    value = call.pop("value", 0.0)
    if value:
        call.set_input(2, _like(call, g, value))


@upgrade("Clip", up_to=10)
def clip_bounds(call: Call, g: GraphBuilder) -> None:
    """min and max attributes → inputs; the old defaults are the ends of f32, which bound infinities."""
    for index, (name, end) in enumerate((("min", -3.4028234663852886e38), ("max", 3.4028234663852886e38)), 1):
        call.set_input(index, _like(call, g, call.pop(name, end)))


def _like(call: Call, g: GraphBuilder, value: float) -> Value:
    dtype = call.need(0).tensor.dtype
    if dtype.numpy is None:
        call.unsupported(f"element type {dtype}")
    with np.errstate(over="ignore"):
        return g.const(np.array(value, np.float32).astype(dtype.numpy))


@upgrade("QuantizeLinear", up_to=21)
def quantize_precision(call: Call, g: GraphBuilder) -> None:
    """Quotients by a 16-bit scale were computed in f32, as ONNX Runtime does, before the scale's type said so."""
    call.attributes["precision"] = TensorProto.FLOAT


@upgrade("Cast", up_to=5)
def cast_name(call: Call, g: GraphBuilder) -> None:
    """The type was first given by name."""
    name = str(call.attributes.get("to", ""))
    if name not in TensorProto.DataType.keys():  # noqa: SIM118  an enum wrapper, not a dict
        call.fail("unknown element type", found=name)
    call.attributes["to"] = TensorProto.DataType.Value(name)


@upgrade("Tile", up_to=5)
def tile_repeats(call: Call, g: GraphBuilder) -> None:
    """tiles and axis inputs → one input with a count for every axis."""
    tiles, axis = call.need(1).known, call.need(2).known
    if tiles is None or axis is None or tiles.size != 1 or axis.size != 1:
        call.unsupported("tiles and axis must be constants")
    repeats = [1] * len(call.shape(0))
    index = int(axis.reshape(-1)[0])
    if not 0 <= index < len(repeats):
        call.fail("axis out of range", expected=f"0 to {len(repeats) - 1}", found=index)
    repeats[index] = int(tiles.reshape(-1)[0])
    call.inputs = [call.need(0), g.const(np.array(repeats, np.int64))]


@upgrade("DFT", up_to=19)
def dft_axis(call: Call, g: GraphBuilder) -> None:
    """axis attribute → third input."""
    call.set_input(2, g.const(np.array(call.pop("axis", 1), np.int64)))


@upgrade("LpPool", "GlobalLpPool", up_to=1)
def lp_order(call: Call, g: GraphBuilder) -> None:
    """p was a float."""
    p = call.attributes.get("p", 2.0)
    if p != int(p):
        call.unsupported(f"p = {p}")
    call.attributes["p"] = int(p)


@upgrade("RNN", "GRU", "LSTM", up_to=6)
def recurrent_output(call: Call, g: GraphBuilder) -> None:
    """output_sequence said whether Y is wanted; its name in the outputs does that now."""
    call.pop("output_sequence")


@upgrade("Gemm", up_to=6)
def gemm_broadcast(call: Call, g: GraphBuilder) -> None:
    """C is broadcast without being asked now."""
    call.pop("broadcast")


@upgrade("GridSample", up_to=19)
def grid_sample_mode(call: Call, g: GraphBuilder) -> None:
    """The modes lost their dimension: bilinear → linear, bicubic → cubic."""
    mode = call.attributes.get("mode")
    call.attributes["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(str(mode), mode)


@upgrade("RoiAlign", up_to=15)
def roi_align_pixels(call: Call, g: GraphBuilder) -> None:
    """The one mode there was before it had a name."""
    call.attributes["coordinate_transformation_mode"] = "output_half_pixel"


@upgrade("Resize", up_to=ALWAYS)
def resize_empty(call: Call, g: GraphBuilder) -> None:
    """Version 11 wanted all inputs: empty tensors stand for omitted ones, and exporters still write them."""
    for index in (1, 2, 3):
        value = call.input(index)
        if value is not None and value.data is not None and value.data.size == 0:
            call.inputs[index] = None


@upgrade("Concat", up_to=3)
def concat_axis(call: Call, g: GraphBuilder) -> None:
    """The axis was 1 if not given."""
    call.attributes.setdefault("axis", 1)


@upgrade("LabelEncoder", up_to=1, domain="ai.onnx.ml")
def label_classes(call: Call, g: GraphBuilder) -> None:
    """classes_strings → keys and values: strings become their places in it, and places strings."""
    classes = call.pop("classes_strings") or []
    from_strings = call.need(0).tensor.dtype == STR
    places = list(range(len(classes)))
    call.attributes |= {"keys_strings": classes, "values_int64s": places} if from_strings else {
        "keys_int64s": places, "values_strings": classes}  # fmt: skip
