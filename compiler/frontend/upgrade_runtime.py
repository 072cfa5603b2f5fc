"""Operators whose result shape only the run can tell, because a parameter is computed: handed to the runtime."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np

from ..ir.builder import GraphBuilder
from ..ir.graph import Value
from ..ir.ops.affine_grid import affine_grid
from ..ir.ops.mel import OPERANDS, check_datatype, mel_weights
from ..ir.ops.shape import Concat
from ..ir.types import F32, DType, SymDim, prod
from .calls import Call
from .upgrades import ALWAYS, Results, upgrade

PARAMETERS: dict[str, Sequence[int]] = {
    "Slice": (1, 2, 3, 4), "Pad": (1, 3), "Expand": (1,), "Tile": (1,), "Reshape": (1,), "Squeeze": (1,),
    "Unsqueeze": (1,), "Range": (0, 1, 2), "TopK": (1,), "OneHot": (1,), "Split": (1,), "Resize": (2, 3),
    "Col2Im": (1, 2), "MaxUnpool": (2,), "DFT": (1, 2), "STFT": (1, 3),
}  # fmt: skip
"""Operator → the operands that decide the result's shape."""


def _is_open(value: Value | None) -> bool:
    return value is not None and value.known is None and value.data is None


@upgrade("Resize", up_to=ALWAYS)
def crop_of_few_axes(call: Call, g: GraphBuilder) -> None:
    """Of a crop that is computed, the axes that it is known to leave alone need no samples."""
    roi, sizes = call.input(1), call.input(3)
    if str(call.attributes.get("coordinate_transformation_mode")) != "tf_crop_and_resize" or not _is_open(roi):
        return
    if sizes is None or sizes.known is None or str(call.attributes.get("keep_aspect_ratio_policy", "")) not in _FREE:
        return
    shape, lengths, ends = call.shape(0), list(sizes.known.flat), _elements(call.need(1))
    axes = [int(a) % max(len(shape), 1) for a in call.attributes.get("axes") or range(len(shape))]
    count = len(axes)
    if len(lengths) != count or len(ends) != 2 * count or any(a >= len(shape) for a in axes):
        return  # Resize says what is wrong
    kept = [i for i, a in enumerate(axes) if shape[a] != lengths[i] or (ends[i], ends[i + count]) != (0, 1)]
    if kept and len(kept) < count:
        call.attributes["axes"] = [axes[i] for i in kept]
        call.set_input(1, g.Gather(call.need(1), np.array([*kept, *(i + count for i in kept)], np.int64)))
        call.set_input(3, g.Gather(sizes, np.array(kept, np.int64)))


_FREE = ("", "stretch")
"""Policies by which an axis is resized whatever the others are."""
_DEEPEST = 8
"""Joined parts of joined parts that are looked into."""


def _elements(v: Value, depth: int = 0) -> list[float | None]:
    """The elements of a vector that is joined of parts, None for those of parts that are computed."""
    if v.data is not None:
        return list(np.asarray(v.data, np.float64).flat)
    shape = v.tensor.shape
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int):
        return []
    if v.producer is not None and isinstance(v.producer.op, Concat) and depth < _DEEPEST:
        return [element for part in v.producer.operands for element in _elements(part, depth + 1)]
    return [None] * shape[0]


@upgrade(*PARAMETERS, up_to=ALWAYS)
def at_runtime(call: Call, g: GraphBuilder) -> Results:
    """Parameters that are neither constant nor arithmetic on shapes."""
    if call.op == "Resize" and str(call.attributes.get("coordinate_transformation_mode")) != "tf_crop_and_resize":
        call.set_input(1, None)
    computed = any(_is_open(call.input(i)) for i in PARAMETERS[call.op])
    if not (computed or _is_antialiased(call) or _is_of_any_length(call)):
        return None
    settings = {name: _plain(value) for name, value in call.attributes.items()}
    made = g.AtRuntime(*call.inputs, n_outputs=call.n_outputs, kind=call.op, settings=json.dumps(settings))
    return made if isinstance(made, list) else [made]


def _is_antialiased(call: Call) -> bool:
    return call.op == "Resize" and bool(call.attributes.get("antialias", 0))


def _is_of_any_length(call: Call) -> bool:
    """Whether it is a transform of a length that is a symbol, or windows that are computed of such a signal."""
    if call.op not in ("DFT", "STFT") or call.need(0).tensor.shape is None:
        return False
    shape = call.shape(0)
    numbers = [v.known.reshape(-1)[0] for i in PARAMETERS[call.op]
               if (v := call.input(i)) is not None and v.known is not None and v.known.size == 1]
    if any(isinstance(n, SymDim) for n in numbers):
        return True
    if call.op == "STFT":
        window = call.input(2)
        return window is not None and window.data is None and any(
            isinstance(d, SymDim) for d in (*shape[1:2], *(window.tensor.shape or ())))
    axis = -2 if call.input(2) is None else numbers[-1]
    return -len(shape) <= axis < len(shape) and isinstance(shape[axis], SymDim)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode()
    return list(value) if isinstance(value, (tuple, list)) else value


def _counted(g: GraphBuilder) -> Callable[[Value], Value]:
    """From a scalar n that only the run knows to 0, 1, …, n - 1."""
    zero, one = (g.const(np.array(i, np.int64)) for i in (0, 1))
    return lambda n: g.AtRuntime(zero, n, one, kind="Range")


@upgrade("AffineGrid", up_to=ALWAYS)
def affine_grid_of_any_size(call: Call, g: GraphBuilder) -> Results:
    """The grid of an image whose size is computed; whatever is wrong besides that the operator itself says."""
    theta, size = call.need(0), call.need(1)
    if not _is_open(size) or size.tensor.shape is None or theta.tensor.shape is None:
        return None
    if theta.tensor.shape[1:] not in ((2, 3), (3, 4)) or size.tensor.shape != (theta.tensor.shape[1] + 2,):
        return None
    return [affine_grid(g, theta, size, bool(call.attributes.get("align_corners", 0)), _counted(g))]


@upgrade("MelWeightMatrix", up_to=ALWAYS)
def mel_weights_of_any_size(call: Call, g: GraphBuilder) -> Results:
    """The matrix where the number of its rows or columns is computed."""
    operands = [call.need(i) for i in range(len(OPERANDS))]
    if not any(map(_is_open, operands[:2])):
        return None
    if any(v.tensor.shape is None or prod(v.tensor.shape) != 1 for v in operands):
        return None
    dtype = DType.from_code(int(call.attributes.get("output_datatype", F32.code)))
    check_datatype(call.fail, dtype)
    return [mel_weights(g, operands, dtype, _counted(g))]


@upgrade("ConstantOfShape", up_to=ALWAYS)
def constant_of_shape(call: Call, g: GraphBuilder) -> Results:
    """A scalar expanded."""
    if not _is_open(call.input(0)):
        return None
    value = np.asarray(call.attributes.get("value", np.zeros(1, np.float32))).reshape(())
    return [g.AtRuntime(g.const(value), call.need(0), kind="Expand")]
