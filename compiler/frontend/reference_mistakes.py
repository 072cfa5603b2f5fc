"""What onnx.reference is known to compute wrongly, or less exactly than a type holds: kernels of ours compute it.

Found by comparing it with ONNX Runtime and with float64 (tests/fuzz). The lists should only shrink.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir.graph import Node
from ..ir.types import F64, TensorType

Test = Callable[[Node], bool]


def _is_double(node: Node) -> bool:
    t = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    return isinstance(t, TensorType) and t.dtype == F64


def _is_integer(node: Node) -> bool:
    t = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    return isinstance(t, TensorType) and t.dtype.is_int


def _always(node: Node) -> bool:
    return True


MISTAKES: dict[str, tuple[str, Test]] = {
    **dict.fromkeys(("RNN", "GRU", "LSTM"),
                    ("ignores lengths, functions, clips and directions of recurrent operators", _always)),
    **dict.fromkeys(("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool"),
                    ("has its own way with windows: NaN, what lies between taps, places, biases of groups", _always)),
    **dict.fromkeys(("Erf", "Gelu", "HardSwish"), ("has float32 on the way to float64", _is_double)),
    "GlobalMaxPool": ("drops an axis", _always),
    "LpNormalization": ("sums elements instead of magnitudes", _always),
    "LRN": ("counts images instead of channels", _always),
    "GridSample": ("takes positions in float32, and its cubic pieces at a border are others", _always),
    "Resize": ("has other positions than ONNX Runtime and our kernels", _always),
    "DynamicQuantizeLinear": ("gives what is all zeros a scale", _always),
    "Gemm": ("multiplies integers by alpha as floats", _is_integer),
}  # fmt: skip
"""By operator: what is wrong, and of which nodes."""


def mistake_of(node: Node) -> str:
    """What onnx.reference does wrong with the node; "" if nothing is known."""
    mistake, test = MISTAKES.get(node.op.name, ("", _always))
    return mistake if mistake and test(node) else ""
