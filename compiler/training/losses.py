"""Losses: what a step makes smaller, written as graph operators behind the model's result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, ClassVar

import numpy as np

from ...errors import InvalidModel, UsageError
from ..ir.builder import GraphBuilder
from ..ir.graph import Value
from ..ir.ops.elementwise import Sigmoid
from ..ir.ops.softmax import Softmax
from ..ir.types import F32, I64, TensorType

LABELS = "labels"  # the input that losses compare with


@dataclass(frozen=True)
class Loss:
    """One loss: the mean over all items and places of what `each` gives.

    Attributes:
        name: as users write it. ignore_index: the label that does not count, of losses that have one. Then `write` and
            `metrics` give sums over those that count, as the batch that knows how many they are may be cut in pieces.
    """

    name: ClassVar[str] = ""
    ignore_index: int | None = field(default=None, init=False, repr=False)

    def labels(self, result: TensorType) -> TensorType:
        """The type of the labels for the model's result."""
        return result

    def n_classes(self, result: TensorType) -> int | None:
        """How many classes labels number, from 0 on; None: labels are no classes, or the result does not say."""
        return None

    def write(self, g: GraphBuilder, result: Value, labels: Value) -> Value:
        """The loss, a single number of the result's type."""
        return g.ReduceMean(self.each(g, result, labels), keepdims=0)

    def each(self, g: GraphBuilder, result: Value, labels: Value) -> Value:
        """The loss of every element."""
        raise NotImplementedError

    def metrics(self, g: GraphBuilder, result: Value, labels: Value) -> dict[str, Value]:
        """Single numbers of f32 beside the loss, means over the batch."""
        return {}


@dataclass(frozen=True)
class ClassLoss(Loss):
    """A loss of classes: result [N, C, ...], labels i64 [N, ...]; the mean over all but ignored labels of a batch.

    Metric: accuracy, the share of these labels whose class has the largest result.

    Attributes:
        axis: of the classes; -1 for a model of sequences whose result is [N, T, C].
    """

    ignore_index: int | None = None
    axis: int = 1

    def __post_init__(self) -> None:
        """Raises UsageError: no whole numbers."""
        for name, value in (("ignore_index", self.ignore_index), ("axis", self.axis)):
            if type(value) is not int and not (value is None and name == "ignore_index"):
                raise UsageError("must be a whole number", where=f"loss {self.name}: {name}", found=repr(value)[:60])

    def labels(self, result: TensorType) -> TensorType:
        """i64, without the axis of the classes."""
        axis = self._axis(result)
        return TensorType(I64, tuple(dim for i, dim in enumerate(result.dims) if i != axis))

    def n_classes(self, result: TensorType) -> int | None:
        dim = result.dims[self._axis(result)]
        return dim if isinstance(dim, int) else None

    def write(self, g: GraphBuilder, result: Value, labels: Value) -> Value:
        axis = self._axis(result.tensor)
        of = self.compared(result, axis)
        classes = of.tensor.dims[axis]
        if axis > 1 and axis == of.tensor.rank - 1 and isinstance(classes, int):  # rows of classes: nothing is moved
            of, labels = g.Reshape(of, np.array([-1, classes])), g.Reshape(labels, np.array([-1]))
        elif axis != 1:
            of = g.Transpose(of, perm=[0, axis, *(i for i in range(1, of.tensor.rank) if i != axis)])
        return self.of_classes(g, of, labels)

    def compared(self, result: Value, axis: int) -> Value:
        """What is compared with the labels, of the result's shape: the result, or what it is made of."""
        return result

    def of_classes(self, g: GraphBuilder, result: Value, labels: Value) -> Value:
        """The loss where axis 1 is that of the classes."""
        raise NotImplementedError

    def _axis(self, result: TensorType) -> int:
        """The axis of the classes, from the front. Raises InvalidModel where the result has no such axis."""
        axis = self.axis + result.rank if self.axis < 0 else self.axis
        if not 0 < axis < result.rank:
            raise InvalidModel("the result has no such axis of classes", where=f"loss {self.name}",
                               expected="[N, C, ...]" if self.axis == 1 else f"an axis {self.axis} behind the rows",
                               found=result)  # fmt: skip
        return axis

    def ignoring(self) -> dict[str, Any]:
        """The attributes of the operator that say which label does not count."""
        return {} if self.ignore_index is None else {"ignore_index": self.ignore_index, "reduction": "sum"}

    def metrics(self, g: GraphBuilder, result: Value, labels: Value) -> dict[str, Value]:
        same = g.Equal(g.ArgMax(result, axis=self._axis(result.tensor), keepdims=0), labels)
        return {"accuracy": _share(g, same) if self.ignore_index is None else self._n_same(g, same, labels)}

    def _n_same(self, g: GraphBuilder, same: Value, labels: Value) -> Value:
        """How many labels are met; an ignored one may be a class's number as well."""
        counts = g.Not(g.Equal(labels, self.ignore_index))
        return g.ReduceSum(g.Cast(g.And(same, counts), to=F32), keepdims=0)


@dataclass(frozen=True)
class SoftmaxCrossEntropy(ClassLoss):
    """-log softmax(scores)[label]. A model that ends in Softmax over the classes is trained by its scores."""

    name = "softmax_cross_entropy"

    def compared(self, result: Value, axis: int) -> Value:
        node = result.producer
        return _operand(result, Softmax) if node is not None and getattr(node.op, "axis", None) in (
            axis, axis - result.tensor.rank) else result  # fmt: skip

    def of_classes(self, g: GraphBuilder, result: Value, labels: Value) -> Value:
        return g.SoftmaxCrossEntropyLoss(result, labels, **self.ignoring(), n_outputs=1)


@dataclass(frozen=True)
class NegativeLogLikelihood(ClassLoss):
    """-logs[label] of logarithms of probabilities."""

    name = "nll"

    def of_classes(self, g: GraphBuilder, result: Value, labels: Value) -> Value:
        return g.NegativeLogLikelihoodLoss(result, labels, **self.ignoring())


@dataclass(frozen=True)
class MeanSquaredError(Loss):
    """(result - label)²; labels of the result's type."""

    name = "mse"

    def each(self, g: GraphBuilder, result: Value, labels: Value) -> Value:
        miss = g.Sub(result, labels)
        return g.Mul(miss, miss)


@dataclass(frozen=True)
class MeanAbsoluteError(Loss):
    """|result - label|; labels of the result's type."""

    name = "mae"

    def each(self, g: GraphBuilder, result: Value, labels: Value) -> Value:
        return g.Abs(g.Sub(result, labels))


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """-(label · log σ(score) + (1 - label) · log(1 - σ(score))) of scores, as log(1 + e^score) - label · score.

    Labels of the result's type, from 0 to 1. A model that ends in Sigmoid is trained by its scores. Metric: accuracy,
    score > 0 against label > 1/2.
    """

    name = "binary_cross_entropy"

    def each(self, g: GraphBuilder, result: Value, labels: Value) -> Value:
        scores = _operand(result, Sigmoid)
        return g.Sub(g.Softplus(scores), g.Mul(labels, scores))

    def metrics(self, g: GraphBuilder, result: Value, labels: Value) -> dict[str, Value]:
        same = g.Equal(g.Greater(_operand(result, Sigmoid), 0.0), g.Greater(labels, 0.5))
        return {"accuracy": _share(g, same)}


@dataclass(frozen=True)
class OwnLoss(Loss):
    """The model computes its loss itself: the result is the loss, or a tensor whose mean is; there are no labels."""

    name = "own"

    def write(self, g: GraphBuilder, result: Value, labels: Value) -> Value:
        return g.ReduceMean(result, keepdims=0) if result.tensor.dims else result


LOSSES: Mapping[str, type[Loss]] = {
    cls.name: cls
    for cls in (SoftmaxCrossEntropy, NegativeLogLikelihood, MeanSquaredError, MeanAbsoluteError, BinaryCrossEntropy,
                OwnLoss)
}  # fmt: skip


def loss_named(name: str | Loss, **options: Any) -> Loss:
    """The loss of that name with its options, or the loss itself.

    Raises:
        UsageError: there is none.
    """
    if isinstance(name, Loss):
        return name
    if name not in LOSSES:
        near = get_close_matches(str(name), LOSSES, 1)
        raise UsageError("no such loss", where="loss", expected=", ".join(LOSSES), found=str(name)[:60],
                         hint=f"did you mean {near[0]}?" if near else None)  # fmt: skip
    try:
        return LOSSES[name](**options)
    except TypeError as error:
        raise UsageError("the loss has no such option", where=f"loss {name}", found=str(error)) from error


def _operand(result: Value, op: type) -> Value:
    """What the result is made of, where an operator of that kind makes it; else the result."""
    node = result.producer
    made = node is not None and isinstance(node.op, op) and node.inputs[0] is not None
    return node.inputs[0] if made else result  # type: ignore[union-attr, return-value]


def _share(g: GraphBuilder, same: Value) -> Value:
    return g.ReduceMean(g.Cast(same, to=F32), keepdims=0)
