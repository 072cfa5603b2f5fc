"""A model with a new last layer, for another number of classes: what fine-tuning begins with.

Owns where the last layer is found and what depends on its width; the rest of the model stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ...errors import InvalidModel, UnsupportedOp, UsageError
from .initializers import whole
from .parse import Settled

INITS = ("glorot", "he")
# between the last layer and the result; they work on scores one by one, along the classes, or on other axes
_THROUGH = {
    "AveragePool", "Cast", "Clip", "Dropout", "Elu", "Flatten", "GlobalAveragePool", "GlobalMaxPool", "Identity",
    "LeakyRelu", "LogSoftmax", "MaxPool", "ReduceMax", "ReduceMean", "Relu", "Reshape", "Sigmoid", "Softmax", "Squeeze",
    "Tanh", "Transpose", "Unsqueeze",
}  # fmt: skip
_LAYERS = {"Conv", "Gemm", "MatMul"}


@dataclass(frozen=True)
class Head:
    """A new last layer.

    Attributes:
        classes: it has. init: of its weights: glorot (uniform; Glorot and Bengio, 2010) or he (normal; He and others,
            2015); its bias begins as zeros. seed: of them. alone: nothing else is trained, unless patterns name it.
    """

    classes: int
    init: str = "glorot"
    seed: int = 0
    alone: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError: a setting out of range."""
        if isinstance(self.classes, bool) or not isinstance(self.classes, int) or self.classes < 1:
            raise UsageError("must be a whole number above 0", where="head.classes", found=repr(self.classes)[:60])
        if self.init not in INITS:
            raise UsageError("no such way to begin", where="head.init", expected=", ".join(INITS),
                             found=repr(self.init)[:60])  # fmt: skip
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise UsageError("must be a whole number, 0 or above", where="head.seed", found=repr(self.seed)[:60])

    def weights(self, shape: tuple[int, ...], axis: int) -> np.ndarray:
        """f32 of that shape, whose `axis` counts the classes and whose others are what a score is made of."""
        rng = np.random.default_rng(self.seed)
        fan_in = int(np.prod(shape, dtype=np.int64)) // shape[axis]
        if self.init == "he":
            return (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
        bound = np.sqrt(6 / (fan_in + shape[axis]))
        return rng.uniform(-bound, bound, shape).astype(np.float32)


class Renewed(NamedTuple):
    """A model with a new head. parameters: names of the head's own."""

    model: ModelProto
    parameters: tuple[str, ...]


class _Weight(NamedTuple):
    """An initializer of the layer, and its axis of the classes."""

    name: str
    axis: int


def with_head(source: Settled, head: Head, result: str | None = None) -> Renewed:
    """The model with a new last layer under the old one's names.

    before: %y = Softmax(%s)    %s = Gemm(%x, %fc.weight: f32[1000,512], %fc.bias: f32[1000])
    after:  %y = Softmax(%s)    %s = Gemm(%x, %fc.weight: f32[10,512], %fc.bias: f32[10])

    The last Gemm, MatMul (with the Add of a bias) or Conv before the result is taken.

    Args:
        source: imported before, or to be imported after; not changed. result: name of the output; None: the first.

    Raises:
        UsageError: no such output. UnsupportedOp: there is no such layer, something between it and the result is tied
            to the number of classes, or its weights are used elsewhere or are no f32 initializers.
    """
    model = whole(source)
    return Renewed(model, _Replacement(model.graph, head).at(_result(model.graph, result)))


def _result(graph: GraphProto, result: str | None) -> str:
    names = [v.name for v in graph.output]
    if not names:
        raise InvalidModel("the model has no output")
    if result is not None and result not in names:
        raise UsageError("the model has no such output", where="result", expected=", ".join(names), found=result)
    return names[0] if result is None else result


class _Replacement:
    """One replacement in a graph, which it changes."""

    def __init__(self, graph: GraphProto, head: Head) -> None:
        self.graph, self.head = graph, head
        self.producers = {name: node for node in graph.node for name in node.output if name}
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}

    def at(self, result: str) -> tuple[str, ...]:
        """The names of the head's parameters."""
        node, bias, reshapes = self._found(result)
        weight, own_bias = self._weights(node)
        old = int(self.initializers[weight.name].dims[weight.axis])
        biases = [self._bias(name, old) for name in (own_bias, bias) if name is not None]
        parameters = [weight, *(found for found in biases if found is not None)]
        for parameter in parameters:
            self._require_own(parameter.name)
        for reshape in reshapes:
            self._reshape(reshape, old)
        for number, parameter in enumerate(parameters):
            self._renew(parameter, is_bias=number > 0)
        self._retype(node, result, old)
        return tuple(parameter.name for parameter in parameters)

    def _found(self, result: str) -> tuple[NodeProto, str | None, list[NodeProto]]:
        """The last layer, the bias that an Add behind it adds, and every Reshape on the way."""
        name, bias = result, None
        reshapes: list[NodeProto] = []
        while True:
            node = self.producers.get(name)
            if node is None:
                raise UnsupportedOp("no last layer that could be replaced", where=f"output {result!r}",
                                    expected=", ".join(sorted(_LAYERS)),
                                    found=f"{name!r}, which no node makes")  # fmt: skip
            if node.op_type in _LAYERS:
                return node, bias, reshapes
            added = [at for at in node.input if at in self.initializers] if node.op_type == "Add" else []
            if len(added) == 1 and bias is None:
                bias = added[0]
                name = next(at for at in node.input if at != bias)
                if getattr(self.producers.get(name), "op_type", None) not in _LAYERS:
                    raise _unfit(node, "an Add behind the last layer that is not its bias")
            elif node.op_type in _THROUGH:
                reshapes += [node] if node.op_type == "Reshape" else []
                name = node.input[0]
            else:
                raise _unfit(node, "it is not known whether this goes with another number of classes")

    def _weights(self, node: NodeProto) -> tuple[_Weight, str | None]:
        """Of the layer: its weight, and the name of the bias that is its own input."""
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Conv" and attributes.get("group", 1) != 1:
            raise _unfit(node, "a grouped convolution is no last layer of classes")
        axis = {"Conv": 0, "Gemm": 0 if attributes.get("transB", 0) else 1, "MatMul": -1}[node.op_type]
        name = node.input[1]
        while (made := self.producers.get(name)) is not None and made.op_type in ("Identity", "Transpose"):
            perm = {a.name: list(a.ints) for a in made.attribute}.get("perm")
            rank = len(self.initializers[made.input[0]].dims) if made.input[0] in self.initializers else 2
            if made.op_type == "Transpose":
                axis = (perm or list(range(rank))[::-1])[axis]
            name = made.input[0]
        tensor = self.initializers.get(name)
        if tensor is None or tensor.data_type != TensorProto.FLOAT or len(tensor.dims) < 2:
            raise _unfit(node, f"its weight {name!r} is no initializer of f32 with two axes or more")
        return _Weight(name, axis % len(tensor.dims)), node.input[2] if len(node.input) > 2 and node.input[2] else None

    def _bias(self, name: str, old: int) -> _Weight | None:
        """The bias and its axis of the classes; None where it is one number for all of them."""
        tensor = self.initializers.get(name)
        if tensor is None or tensor.data_type != TensorProto.FLOAT:
            raise UnsupportedOp("the last layer's bias is no initializer of f32", where=f"tensor {name!r}")
        sizes = list(tensor.dims)
        if np.prod(sizes, dtype=np.int64) == 1 != old:
            return None
        axes = [axis for axis, size in enumerate(sizes) if size == old]
        if np.prod(sizes, dtype=np.int64) != old or not axes:
            raise UnsupportedOp("the last layer's bias is not one number a class", where=f"tensor {name!r}",
                                expected=f"{old} numbers", found=sizes)  # fmt: skip
        return _Weight(name, axes[-1])

    def _require_own(self, name: str) -> None:
        """Refuse a parameter that others use, too."""
        users = [node.name or node.op_type for node in self.graph.node for used in node.input if used == name]
        if len(users) != 1:
            raise UnsupportedOp("the last layer shares a parameter", where=f"tensor {name!r}", expected="one user",
                                found=", ".join(users[:4]) or "none in the main graph")  # fmt: skip

    def _reshape(self, node: NodeProto, old: int) -> None:
        """The number of classes in a Reshape's target."""
        target = self.initializers.get(node.input[1])
        made = self.producers.get(node.input[1])
        if target is None and made is not None and made.op_type == "Constant":
            target = next((a.t for a in made.attribute if a.name == "value"), None)
        if target is None:
            raise _unfit(node, "its target is computed")
        sizes = numpy_helper.to_array(target).copy()
        if np.count_nonzero(sizes == old) > 1 or (old not in sizes and not ({-1, 0} & set(sizes.tolist()))):
            raise _unfit(node, f"it is not clear which of {sizes.tolist()} counts the classes")
        if old not in sizes:
            return
        name = f"{node.output[0]}.target"
        sizes[sizes == old] = self.head.classes
        self.graph.initializer.append(numpy_helper.from_array(sizes, name))
        node.input[1] = name

    def _renew(self, parameter: _Weight, is_bias: bool) -> None:
        tensor = self.initializers[parameter.name]
        shape = tuple(self.head.classes if axis == parameter.axis else size for axis, size in enumerate(tensor.dims))
        array = np.zeros(shape, np.float32) if is_bias else self.head.weights(shape, parameter.axis)
        tensor.CopyFrom(numpy_helper.from_array(array, parameter.name))
        for given in self.graph.input:  # of old models, whose initializers are inputs as well
            if given.name == parameter.name:
                given.CopyFrom(helper.make_tensor_value_info(parameter.name, TensorProto.FLOAT, shape))

    def _retype(self, node: NodeProto, result: str, old: int) -> None:
        """Shapes that the file tells of what lies behind the layer."""
        behind = set(self._behind(node))
        kept = [v for v in self.graph.value_info if v.name not in behind]
        del self.graph.value_info[:]
        self.graph.value_info.extend(kept)
        for output in (v for v in self.graph.output if v.name in behind):
            dims = output.type.tensor_type.shape.dim
            axes = [axis for axis, dim in enumerate(dims) if dim.HasField("dim_value") and dim.dim_value == old]
            if output.name != result or len(axes) > 1:
                output.type.tensor_type.ClearField("shape")  # the importer finds it
            elif axes:
                dims[axes[0]].dim_value = self.head.classes

    def _behind(self, layer: NodeProto) -> Iterator[str]:
        """Names of all tensors that the layer's results go into, its own first; nodes stand in order."""
        reached = set(layer.output)
        yield from layer.output
        for node in self.graph.node:
            if reached & set(node.input):
                reached |= set(node.output)
                yield from node.output


def _unfit(node: NodeProto, why: str) -> UnsupportedOp:
    return UnsupportedOp("the last layer cannot be replaced", where=f"node {node.name or node.output[0]!r}",
                         found=f"{node.op_type}: {why}")  # fmt: skip
