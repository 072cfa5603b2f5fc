"""PyTorch as a peer: a model of the list, read from ONNX, as a traced and frozen PyTorch function.

Owns the operators of the model list in PyTorch's own functions, with the same weights, so that results can be
compared. Imported only where PyTorch takes part.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as nnf
from onnx import helper, numpy_helper
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from parax.compiler.commands.peers import words
from parax.compiler.contest import Contestant
from parax.errors import UnsupportedOp

Attributes = Mapping[str, Any]
Function = Callable[..., Any]


def contestants(model: Path, inputs: Mapping[str, np.ndarray], rows: int, n_cores: int) -> list[Contestant]:
    """One caller, on all cores and on one. PyTorch's threads belong to the process, so there are no instances.

    Raises:
        UnsupportedOp: the model has an operator that is not in the table below.
    """
    network = Network(onnx.load(model)).eval()
    values = tuple(torch.from_numpy(inputs[name].copy()) for name in network.names)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sizes may stay fixed in the trace: every request has them
        function = torch.jit.freeze(torch.jit.trace(network, values, check_trace=False))

    def call(threads: int) -> Sequence[np.ndarray]:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            found = function(*values)
        return [each.numpy() for each in found]

    return [Contestant("torch", words(1, n), [partial(call, n)], rows) for n in dict.fromkeys((n_cores, 1))]


class Network(torch.nn.Module):
    """Runs the nodes of an ONNX graph in order; arguments in the order of its inputs, outputs as a tuple."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        graph = model.graph
        self.weights = {w.name: torch.from_numpy(numpy_helper.to_array(w).copy()) for w in graph.initializer}
        self.names = [value.name for value in graph.input if value.name not in self.weights]
        self.results = [value.name for value in graph.output]
        self.steps = [(node, {a.name: helper.get_attribute_value(a) for a in node.attribute}) for node in graph.node]
        missing = sorted({node.op_type for node, _ in self.steps} - set(FUNCTIONS))
        if missing:
            raise UnsupportedOp("operators that the PyTorch peer lacks", found=", ".join(missing))

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """See the class."""
        known: dict[str, Any] = {**self.weights, **dict(zip(self.names, values, strict=True)), "": None}
        for node, attributes in self.steps:
            found = FUNCTIONS[node.op_type](attributes, *(known[name] for name in node.input))
            known.update(zip(node.output, found if isinstance(found, tuple) else (found,), strict=False))
        return tuple(known[name] for name in self.results)


def _ints(value: Tensor) -> list[int]:
    return [int(v) for v in value]


def _spatial(a: Attributes, kernel: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Strides, padding before, padding after."""
    n = len(kernel)
    pads = a.get("pads", [0] * 2 * n)
    return list(a.get("strides", [1] * n)), list(pads[:n]), list(pads[n:])


def _padded(x: Tensor, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> Tensor:
    """Padding that is not the same on both sides, which PyTorch's operators do not take."""
    return nnf.pad(x, [p for pair in reversed(list(zip(before, after, strict=True))) for p in pair], value=value)


def _conv(a: Attributes, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    strides, before, after = _spatial(a, w.shape[2:])
    if before != after:
        x, before = _padded(x, before, after), [0] * len(before)
    return torch.conv2d(x, w, b, strides, before, list(a.get("dilations", [1, 1])), a.get("group", 1))


def _conv_transpose(a: Attributes, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    strides, before, after = _spatial(a, w.shape[2:])
    if before != after:
        raise UnsupportedOp("padding that differs between sides", where="ConvTranspose in the PyTorch peer")
    return torch.conv_transpose2d(x, w, b, strides, before)


def _max_pool(a: Attributes, x: Tensor) -> Tensor:
    strides, before, after = _spatial(a, a["kernel_shape"])
    if before != after:
        x, before = _padded(x, before, after, -torch.inf), [0, 0]
    return nnf.max_pool2d(x, a["kernel_shape"], strides, before, ceil_mode=bool(a.get("ceil_mode", 0)))


def _average_pool(a: Attributes, x: Tensor) -> Tensor:
    strides, before, after = _spatial(a, a["kernel_shape"])
    if before != after:
        raise UnsupportedOp("padding that differs between sides", where="AveragePool in the PyTorch peer")
    return nnf.avg_pool2d(x, a["kernel_shape"], strides, before, False, bool(a.get("count_include_pad", 0)))


def _gemm(a: Attributes, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    weights = w if a.get("transB", 0) else w.T
    return nnf.linear(x, weights * a.get("alpha", 1.0), b * a.get("beta", 1.0))


def _lstm(a: Attributes, x: Tensor, w: Tensor, r: Tensor, b: Tensor, *more: Tensor | None) -> tuple[Tensor, ...]:
    """x: f32[T,N,I]; ONNX orders the gates i, o, f, c; PyTorch i, f, c, o."""
    lengths, h, c = (*more, None, None, None)[:3]
    if a.get("direction", b"forward") == b"reverse" or len(more) > 3:
        raise UnsupportedOp("peepholes or reverse", where="LSTM in the PyTorch peer")
    directions, hidden, n_rows = int(w.shape[0]), int(r.shape[2]), int(x.shape[1])

    def ordered(gates: Tensor) -> Tensor:
        i, o, f, g = gates.split(hidden)
        return torch.cat([i, f, g, o])

    weights = [
        ordered(part) for d in range(directions) for part in (w[d], r[d], b[d, : 4 * hidden], b[d, 4 * hidden :])
    ]
    zeros = x.new_zeros(directions, n_rows, hidden)
    state = [zeros if h is None else h, zeros if c is None else c]
    if lengths is None:
        y, h, c = torch.lstm(x, state, weights, True, 1, 0.0, False, directions == 2, False)
    else:
        rows = pack_padded_sequence(x, lengths.long(), enforce_sorted=False)
        state = [each.index_select(1, rows.sorted_indices) for each in state]
        packed, h, c = torch.lstm(rows.data, rows.batch_sizes, state, weights, True, 1, 0.0, False, directions == 2)
        y, _ = pad_packed_sequence(rows._replace(data=packed), total_length=int(x.shape[0]))
        h, c = (each.index_select(1, rows.unsorted_indices) for each in (h, c))
    return y.unflatten(2, (directions, hidden)).transpose(1, 2), h, c


def _reduce_mean(a: Attributes, x: Tensor, axes: Tensor | None = None) -> Tensor:
    return x.mean(a["axes"] if axes is None else _ints(axes), keepdim=bool(a.get("keepdims", 1)))


def _slice(a: Attributes, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor, steps: Tensor | None = None) -> Tensor:
    strides = _ints(steps) if steps is not None else [1] * len(starts)
    for start, end, axis, step in zip(_ints(starts), _ints(ends), _ints(axes), strides, strict=True):
        index = [slice(None)] * x.dim()
        index[axis] = slice(start, end, step)
        x = x[tuple(index)]
    return x


def _resize(a: Attributes, x: Tensor, roi: Tensor | None, scales: Tensor | None, sizes: Tensor | None = None) -> Tensor:
    where = {b"half_pixel": False, b"pytorch_half_pixel": False, b"align_corners": True}
    mode, corners = a.get("mode", b"nearest"), where.get(a.get("coordinate_transformation_mode", b"half_pixel"))
    if mode != b"linear" or corners is None:
        raise UnsupportedOp("not bilinear", where="Resize in the PyTorch peer")
    if sizes is not None:
        return nnf.interpolate(x, size=_ints(sizes)[2:], mode="bilinear", align_corners=corners)
    assert scales is not None
    factors = [float(s) for s in scales][2:]
    return nnf.interpolate(x, scale_factor=factors, mode="bilinear", align_corners=corners)


def _pad(a: Attributes, x: Tensor, pads: Tensor, value: Tensor | None = None, axes: Tensor | None = None) -> Tensor:
    if a.get("mode", b"constant") != b"constant" or axes is not None:
        raise UnsupportedOp("not constant", where="Pad in the PyTorch peer")
    each, n = _ints(pads), x.dim()
    return _padded(x, each[:n], each[n:], 0.0 if value is None else float(value))


def _reshape(a: Attributes, x: Tensor, shape: Tensor) -> Tensor:
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(_ints(shape))])


def _unsqueeze(a: Attributes, x: Tensor, axes: Tensor) -> Tensor:
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in _ints(axes)):
        x = x.unsqueeze(axis)
    return x


def _gather(a: Attributes, x: Tensor, index: Tensor) -> Tensor:
    axis = a.get("axis", 0) % x.dim()
    found = x.index_select(axis, index.reshape(-1).long())
    return found.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


def _constant(a: Attributes) -> Tensor:
    return torch.from_numpy(numpy_helper.to_array(a["value"]).copy())


def _filled(a: Attributes, shape: Tensor) -> Tensor:
    value = _constant(a).reshape(()) if "value" in a else torch.tensor(0.0)
    return torch.full(_ints(shape), value.item(), dtype=value.dtype)


def _cast(a: Attributes, x: Tensor) -> Tensor:
    return x.to(torch.from_numpy(np.zeros(0, helper.tensor_dtype_to_np_dtype(a["to"]))).dtype)


FUNCTIONS: dict[str, Function] = {
    "Add": lambda a, x, y: x + y, "Sub": lambda a, x, y: x - y, "Mul": lambda a, x, y: x * y,
    "Div": lambda a, x, y: x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc"),
    "AveragePool": _average_pool,
    "BatchNormalization": lambda a, x, s, b, m, v: torch.batch_norm(x, s, b, m, v, False, 0.0, a["epsilon"], False),
    "Cast": _cast,
    "Clip": lambda a, x, low=None, high=None: torch.clamp(x, low, high),
    "Concat": lambda a, *xs: torch.cat(xs, a["axis"]),
    "Constant": _constant, "ConstantOfShape": _filled, "Conv": _conv, "ConvTranspose": _conv_transpose,
    "Erf": lambda a, x: torch.erf(x),
    "Expand": lambda a, x, shape: x.expand(torch.broadcast_shapes(tuple(x.shape), tuple(_ints(shape)))),
    "Flatten": lambda a, x: x.flatten(a.get("axis", 1)),
    "Gather": _gather, "Gemm": _gemm,
    "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdim=True),
    "GreaterOrEqual": lambda a, x, y: x >= y,
    "LayerNormalization": lambda a, x, s, b=None: torch.layer_norm(x, s.shape, s, b, a.get("epsilon", 1e-5)),
    "LSTM": _lstm,
    "MatMul": lambda a, x, y: torch.matmul(x, y),
    "MaxPool": _max_pool, "Pad": _pad,
    "Pow": lambda a, x, y: torch.pow(x, y), "ReduceMean": _reduce_mean, "Sqrt": lambda a, x: torch.sqrt(x),
    "Range": lambda a, start, limit, delta: torch.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype),
    "Relu": lambda a, x: torch.relu(x),
    "Reshape": _reshape, "Resize": _resize,
    "Shape": lambda a, x: torch.tensor(x.shape),
    "Sigmoid": lambda a, x: torch.sigmoid(x),
    "Slice": _slice,
    "Softmax": lambda a, x: torch.softmax(x, a.get("axis", -1)),
    "Squeeze": lambda a, x, axes: x.squeeze(_ints(axes)),
    "Tanh": lambda a, x: torch.tanh(x),
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "Unsqueeze": _unsqueeze,
    "Where": lambda a, c, x, y: torch.where(c, x, y),
}  # fmt: skip
