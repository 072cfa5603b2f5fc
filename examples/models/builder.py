"""A small writer of ONNX graphs with seeded random weights. Owns node, weight and value names; knows no model.

Names follow what PyTorch's exporter writes, so that dumps read the same as those of exported models: inside the scope
`layer1.0` the layer `conv1` gives the node `/layer1.0/conv1/Conv`, the value `/layer1.0/conv1/Conv_output_0` and the
weight `layer1.0.conv1.weight`. Values are plain strings: their ONNX names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 10

RECTIFIED = 2.5
"""Variance times fan-in of zero-sum weights behind a ReLU. 1 / Var(max(z, 0)) = 2.93 would keep the variance of normal
z, but lets differences between inputs, and rounding errors, grow with depth; 2 (He et al. 2015) lets the variance fade.
"""

Size = int | str
"""A number, or the name of an int64 scalar in the graph that holds it (see `ModelBuilder.size`)."""


class ModelBuilder:
    """Collects nodes, weights, inputs and outputs of one model, then `model()` gives the ModelProto.

    Args:
        name: graph name.
        batch: the first dimension of every input: a number, or a symbol such as "N".
        seed: all weights come from one generator seeded with it.
    """

    def __init__(self, name: str, batch: int | str = "N", seed: int = 0) -> None:
        self.name, self.batch = name, batch
        self.rng = np.random.default_rng(seed)
        self._scope: list[str] = []
        self._taken: Counter[str] = Counter()
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    # ---- structure

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix the names given inside the block with `name`."""
        self._scope.append(name)
        yield
        self._scope.pop()

    def input(self, name: str, shape: Sequence[int | str], dtype: np.dtype | type) -> str:
        """Declare a graph input; strings in `shape` are symbolic dimensions."""
        self._inputs.append(helper.make_tensor_value_info(name, _code(dtype), list(shape)))
        return name

    def output(self, value: str, name: str, shape: Sequence[int | str], dtype: np.dtype | type = np.float32) -> None:
        """Make `value` the graph output `name`: the node that makes it is renamed, no Identity is added."""
        for node in self._nodes:
            for operands in (node.input, node.output):
                for i, operand in enumerate(operands):
                    if operand == value:
                        operands[i] = name
        self._outputs.append(helper.make_tensor_value_info(name, _code(dtype), list(shape)))

    def model(self) -> onnx.ModelProto:
        """The finished model, opset 17."""
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, self._weights)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="parax examples")

    def op(self, op_type: str, *inputs: str | None, layer: str = "", n_outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return its first output; an input of None is an omitted optional one."""
        return self.ops(op_type, *inputs, layer=layer, n_outputs=n_outputs, **attributes)[0]

    def ops(
        self, op_type: str, *inputs: str | None, layer: str = "", n_outputs: int = 1, **attributes: Any
    ) -> list[str]:
        """Add a node and return all its outputs."""
        name = self._unique("/" + "/".join([*self._scope, *([layer] if layer else []), op_type]))
        outputs = [f"{name}_output_{i}" for i in range(n_outputs)]
        names = ["" if value is None else value for value in inputs]
        self._nodes.append(helper.make_node(op_type, names, outputs, name=name, **attributes))
        return outputs

    def weight(self, name: str, array: np.ndarray) -> str:
        """Add an initializer, named inside the current scope."""
        full = self._unique(".".join([*self._scope, name]))
        self._weights.append(numpy_helper.from_array(np.ascontiguousarray(array), full))
        return full

    def constant(self, value: object, dtype: np.dtype | type = np.float32) -> str:
        """Add a Constant node, as exporters do for scalars, axes and shapes."""
        return self.op("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def _unique(self, name: str) -> str:
        self._taken[name] += 1
        return name if self._taken[name] == 1 else f"{name}_{self._taken[name] - 1}"

    # ---- random numbers

    def normal(self, *shape: int, std: float = 1.0, mean: float = 0.0) -> np.ndarray:
        """f32 of the given shape, normally distributed."""
        values = self.rng.standard_normal(shape, dtype=np.float32)
        values *= np.float32(std)
        if mean:
            values += np.float32(mean)
        return values

    def uniform(self, n: int, low: float, high: float) -> np.ndarray:
        """f32[n], uniform in [low, high)."""
        return self.rng.uniform(low, high, n).astype(np.float32)

    # ---- shapes that follow the batch, in the operators that exporters write

    def size(self, value: str, axis: int, known: int | str) -> Size:
        """The size of one axis: `known` itself if it is a number, else Shape + Gather on `value`."""
        if isinstance(known, int):
            return known
        return self.op("Gather", self.op("Shape", value), self.constant(axis, np.int64), axis=0)

    def shape_vector(self, sizes: Sequence[Size]) -> str:
        """int64[len(sizes)]: one Constant if all sizes are numbers, else Unsqueeze + Concat."""
        if all(isinstance(size, int) for size in sizes):
            return self.constant(sizes, np.int64)
        axes = self.constant([0], np.int64)
        parts = [
            self.constant([size], np.int64) if isinstance(size, int) else self.op("Unsqueeze", size, axes)
            for size in sizes
        ]
        return self.op("Concat", *parts, axis=0)

    def reshape(self, value: str, sizes: Sequence[Size]) -> str:
        """Reshape to sizes that may be values of the graph."""
        return self.op("Reshape", value, self.shape_vector(sizes))

    # ---- layers

    def conv(
        self, x: str, layer: str, cin: int, cout: int, kernel: int | tuple[int, int], *, stride: int = 1,
        pad: int | tuple[int, int] | None = None, group: int = 1, bias: bool = False, gain: float | None = None,
        centred: bool = True,
    ) -> str:  # fmt: skip
        """Conv of NCHW with weights of variance gain / fan-in, zero-sum if `centred`. pad None keeps the size."""
        kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
        ph, pw = (kh // 2, kw // 2) if pad is None else (pad, pad) if isinstance(pad, int) else pad
        if gain is None:
            gain = RECTIFIED if centred else 2.0
        std = (gain * group / (cin * kh * kw)) ** 0.5
        values = self.normal(cout, cin // group, kh, kw, std=std)
        if centred:  # rectified inputs have a mean, which must not swamp what differs between images
            values -= values.mean(axis=(1, 2, 3), keepdims=True)
        w = self.weight(f"{layer}.weight", values)
        b = [self.weight(f"{layer}.bias", self.normal(cout, std=0.05))] if bias else []
        return self.op(
            "Conv", x, w, *b, layer=layer, kernel_shape=[kh, kw], strides=[stride, stride], dilations=[1, 1],
            pads=[ph, pw, ph, pw], group=group,
        )  # fmt: skip

    def batch_norm(self, x: str, layer: str, channels: int, *, epsilon: float = 1e-5, gamma: float = 1.0) -> str:
        """BatchNormalization in evaluation mode with statistics near those of a unit-variance input."""
        arrays = {
            "weight": gamma * self.uniform(channels, 0.7, 1.3),
            "bias": self.normal(channels, std=0.2),
            "running_mean": self.normal(channels, std=0.2),
            "running_var": self.uniform(channels, 0.8, 1.7),
        }
        weights = [self.weight(f"{layer}.{name}", array) for name, array in arrays.items()]
        return self.op("BatchNormalization", x, *weights, layer=layer, epsilon=epsilon)

    def gemm(self, x: str, layer: str, fan_in: int, fan_out: int, *, gain: float = 1.0) -> str:
        """A fully connected layer on [N, fan_in]: Gemm with transB = 1, as nn.Linear is exported; zero-sum weights."""
        values = self.normal(fan_out, fan_in, std=(gain / fan_in) ** 0.5)
        values -= values.mean(axis=1, keepdims=True)
        w = self.weight(f"{layer}.weight", values)
        b = self.weight(f"{layer}.bias", self.normal(fan_out, std=0.1))
        return self.op("Gemm", x, w, b, layer=layer, alpha=1.0, beta=1.0, transB=1)

    def linear(self, x: str, layer: str, fan_in: int, fan_out: int, *, bias: bool = True, gain: float = 1.0) -> str:
        """A fully connected layer on the last axis of a tensor of any rank: MatMul + Add."""
        w = self.weight(f"{layer}.weight", self.normal(fan_in, fan_out, std=(gain / fan_in) ** 0.5))
        y = self.op("MatMul", x, w, layer=layer)
        if not bias:
            return y
        return self.op("Add", self.weight(f"{layer}.bias", self.normal(fan_out, std=0.05)), y, layer=layer)

    def global_pool(self, x: str) -> str:
        """[N, C, H, W] → [N, C]."""
        return self.op("Flatten", self.op("GlobalAveragePool", x), axis=1)

    def max_pool(self, x: str, kernel: int, stride: int, pad: int = 0, *, ceil: bool = False) -> str:
        """MaxPool with a square window."""
        return self.op(
            "MaxPool", x, kernel_shape=[kernel, kernel], strides=[stride, stride], pads=[pad] * 4, ceil_mode=int(ceil)
        )

    def average_pool(self, x: str, kernel: int, stride: int, pad: int = 0) -> str:
        """AveragePool with a square window; the padding counts, as in PyTorch and MXNet."""
        return self.op(
            "AveragePool", x, kernel_shape=[kernel, kernel], strides=[stride, stride], pads=[pad] * 4,
            count_include_pad=1,
        )  # fmt: skip


def _code(dtype: np.dtype | type) -> int:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    assert code != TensorProto.UNDEFINED
    return code
