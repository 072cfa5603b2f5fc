"""Operators that are not, or no longer, ONNX's, in terms of those that are: experimental ones, and ONNX Runtime's.

ONNX Runtime writes its own fused operators into the models it optimises.
"""

from __future__ import annotations

import numpy as np

from ..ir.builder import GraphBuilder
from ..ir.graph import Value
from .calls import Call
from .upgrades import ALWAYS, Results, upgrade

_MICROSOFT = "com.microsoft"
_ACTIVATIONS = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "Softplus": (),
    "Softsign": (),
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}


def _scalar(call: Call, g: GraphBuilder, value: float) -> Value:
    return g.const(np.asarray(value), call.need(0).tensor.dtype)


@upgrade("Affine", up_to=ALWAYS)
def affine(call: Call, g: GraphBuilder) -> Results:
    """y = alpha x + beta."""
    alpha, beta = (_scalar(call, g, call.pop(name, 1.0 if name == "alpha" else 0.0)) for name in ("alpha", "beta"))
    return [g.Add(g.Mul(call.need(0), alpha), beta)]


@upgrade("ImageScaler", up_to=ALWAYS)
def image_scaler(call: Call, g: GraphBuilder) -> Results:
    """y = scale x + bias[channel], images in NCHW."""
    x = call.need(0)
    y = g.Mul(x, _scalar(call, g, call.pop("scale", 1.0)))
    bias = call.pop("bias")
    return [y if bias is None else g.Add(y, g.const(np.reshape(bias, (-1, 1, 1)), x.tensor.dtype))]


@upgrade("Crop", up_to=ALWAYS)
def crop(call: Call, g: GraphBuilder) -> Results:
    """Cuts border = (left, top, right, bottom) off, or from (left, top) on takes scale = (height, width)."""
    border, scale = call.pop("border"), call.pop("scale")
    if border is None or len(border) != 4 or (scale and len(scale) != 2) or len(call.shape(0)) != 4:
        call.fail("malformed Crop", expected="border of 4 numbers and an input of 4 axes", found=border)
    left, top, right, bottom = border
    far = np.iinfo(np.int64).max
    ends = [top + scale[0], left + scale[1]] if scale else [-bottom or far, -right or far]
    arguments = [g.const(np.array(values, np.int64)) for values in ([top, left], ends, [2, 3])]
    return [g.Slice(call.need(0), *arguments)]


def _activate(call: Call, g: GraphBuilder, y: Value, name: str, parameters: list[float]) -> Value:
    if name == "Clip" and len(parameters) == 2:
        return g.Clip(y, *(g.const(np.asarray(p), y.tensor.dtype) for p in parameters))
    if name not in _ACTIVATIONS:
        call.unsupported(f"activation {name!r}")
    attributes = dict(zip(_ACTIVATIONS[name], parameters, strict=False))
    return getattr(g, name)(y, **attributes)


@upgrade("FusedConv", up_to=ALWAYS, domain=_MICROSOFT)
def fused_conv(call: Call, g: GraphBuilder) -> Results:
    """activation(Conv(x, w, b) + z)."""
    name, parameters = call.pop("activation", ""), call.pop("activation_params", [])
    y = g.Conv(*call.inputs[:3], **call.attributes)
    if call.input(3) is not None:
        y = g.Add(y, call.need(3))
    return [_activate(call, g, y, name, parameters) if name else y]


@upgrade("FusedGemm", up_to=ALWAYS, domain=_MICROSOFT)
def fused_gemm(call: Call, g: GraphBuilder) -> Results:
    """activation(Gemm(a, b, c))."""
    name = call.pop("activation", "")
    parameters = [call.pop(key) for key in ("activation_alpha", "activation_beta", "activation_gamma")]
    y = g.Gemm(*call.inputs, **call.attributes)
    return [_activate(call, g, y, name, [p for p in parameters if p is not None]) if name else y]
