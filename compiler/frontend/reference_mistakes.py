"""What onnx.reference is known to compute wrongly, or less exactly than a type holds: kernels of ours compute it.

Found by comparing it with ONNX Runtime and with float64 (tests/fuzz). The lists should only shrink.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..ir.graph import Node
from ..ir.ops.base import Accumulation, Composite, Contraction
from ..ir.ops.normalization import Normalize
from ..ir.ops.softmax import AlongAxis
from ..ir.types import BF16, F16, F64, STR, TensorType

Arrays = Sequence["np.ndarray | None"]
Test = Callable[[Node, Arrays], bool]


def _is_double(node: Node, arrays: Arrays) -> bool:
    t = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    return isinstance(t, TensorType) and t.dtype == F64


def _is_integer(node: Node, arrays: Arrays) -> bool:
    t = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    return isinstance(t, TensorType) and t.dtype.is_int


def _always(node: Node, arrays: Arrays) -> bool:
    return True


def _leaves_integers(node: Node, arrays: Arrays) -> bool:
    """Whether a quotient is beyond what int32 holds, on its way to a narrower integer."""
    x, scale = arrays[:2]
    to = node.outputs[0].type
    if x is None or scale is None or not isinstance(to, TensorType) or to.dtype.numpy is None:
        return True
    if to.dtype.numpy.kind not in "iu" or x.size == 0:
        return False
    with np.errstate(all="ignore"):
        most = np.abs(x).max().astype(np.float64) / np.abs(scale).min().astype(np.float64)
    return not most < 2.0**30


def _rounds_or_wraps(node: Node, arrays: Arrays) -> bool:
    """Whether a cast takes doubles to bfloat16, floats to integers that do not hold them, or is of texts."""
    x, given, to = arrays[0], node.inputs[0].type if node.inputs[0] is not None else None, node.outputs[0].type
    if any(isinstance(t, TensorType) and t.dtype == STR for t in (given, to)):
        return True
    if x is None or not isinstance(given, TensorType) or not isinstance(to, TensorType) or not given.dtype.is_float:
        return False
    if not to.dtype.is_int:
        return given.dtype == F64 and to.dtype == BF16
    numbers = x.astype(np.float64)
    ends = (numbers.min(), numbers.max()) if x.size else ()
    return not all(np.isfinite(end) and to.dtype.holds(int(end)) for end in ends)


MISTAKES: dict[str, tuple[str, Test]] = {
    **dict.fromkeys(("RNN", "GRU", "LSTM"),
                    ("ignores lengths, functions, clips and directions of recurrent operators", _always)),
    **dict.fromkeys(("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool"),
                    ("has its own way with windows: NaN, what lies between taps, places, biases of groups", _always)),
    **dict.fromkeys(("Erf", "Gelu", "HardSwish"), ("has float32 on the way to float64", _is_double)),
    **dict.fromkeys(("MeanVarianceNormalization", "GroupNormalization"),
                    ("takes a variance as a difference of squares", _always)),
    **dict.fromkeys(("DFT", "STFT"), ("leaves products by 0 out: NaN and infinities reach other results", _always)),
    "LogSoftmax": ("takes the logarithm of what may have become 0", _always),
    "ReduceLogSumExp": ("makes NaN of -inf alone", _always),
    "GlobalMaxPool": ("drops an axis", _always),
    "LpNormalization": ("sums elements instead of magnitudes", _always),
    **dict.fromkeys(("Cast", "CastLike"), ("rounds doubles twice on the way to bfloat16, numbers beyond an integer "
                                          "type wrap, and numbers in texts are Python's", _rounds_or_wraps)),
    "RegexFullMatch": ("reads regular expressions as Python does", _always),
    "StringNormalizer": ("strips accents", _always),
    **dict.fromkeys(("Pow", "Shrink"), ("has integers as floats on the way", _is_integer)),
    "LRN": ("counts images instead of channels", _always),
    "GridSample": ("takes positions in float32, and its cubic pieces at a border are others", _always),
    "Resize": ("has other positions than ONNX Runtime and our kernels", _always),
    "Det": ("is NaN for matrices of infinite elements whose determinant is infinite", _always),
    "RoiAlign": ("multiplies the first element by 0 for samples off the image", _always),
    "AffineGrid": ("gives float32, whatever the type", _always),
    "MelWeightMatrix": ("has edges in float32 on the way", _always),
    "Gemm": ("multiplies integers by alpha as floats", _is_integer),
    "ReduceMean": ("divides integers as floats", _is_integer),
    "PRelu": ("multiplies 0 by slopes, infinite ones too", _always),
    "QuantizeLinear": ("saturates behind a conversion to int32", _leaves_integers),
    "Normalizer": ("divides by the largest magnitude for the largest element", _always),
    "SVMClassifier": ("couples probabilities by sums of products where products are meant", _always),
    **dict.fromkeys(("LinearClassifier", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"),
                    ("has its own first score of two, and row by row walks", _always)),
    "DynamicQuantizeLinear": ("has its own scale for what is all zeros", _always),
}  # fmt: skip
"""By operator: what is wrong, and of which nodes."""


IN_STEPS = ("Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "Mean", "Mish", "Selu", "Softplus", "Softsign", "Sum",
            "Swish")  # fmt: skip
"""Element-wise operators that are several operations, each of which onnx.reference rounds."""


def mistake_of(node: Node, arrays: Arrays) -> str:
    """What onnx.reference does wrong with the node and these values of its operands; "" if nothing is known."""
    if _rounds_halves(node):
        return "rounds halves at every step, where squares and sums are lost"
    mistake, test = MISTAKES.get(node.op.name, ("", _always))
    return mistake if mistake and test(node, arrays) else ""


def _rounds_halves(node: Node) -> bool:
    """Whether it is more than one operation on 16-bit floats: kernels of ours compute it in f32 and round once."""
    halves = any(isinstance(v.type, TensorType) and v.type.dtype in (F16, BF16) for v in node.operands)
    several = isinstance(node.op, (Accumulation, AlongAxis, Composite, Contraction, Normalize))
    return halves and (several or node.op.name in IN_STEPS)
