"""A graph with its layers in 8 bits, and whether it has any to quantise. Decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from ...errors import UsageError
from ..ir.graph import Graph
from ..ir.ops.quantization import QuantizeLinear
from ..ir.types import noting_positive
from ..passes.base import Pipeline
from ..passes.dataflow.dead_code import DeadCode
from ..passes.quantize.affine import ValueRange
from ..passes.quantize.layers import layers_of
from ..passes.quantize.quantize import Quantize


def quantized(
    graph: Graph, ranges: Mapping[str, ValueRange], means: Mapping[str, np.ndarray], left_out: Collection[str],
    light: Collection[str] = (),
) -> Graph:  # fmt: skip
    """A copy of a graph with all layers but some in 8 bits; see the pass `Quantize`."""
    copy = graph.clone()
    with noting_positive(copy.positive):
        Pipeline([Quantize(ranges, means, frozenset(left_out), frozenset(light)), DeadCode()]).run(copy)
    return copy


def check_quantizable(graph: Graph) -> None:
    """Raises UsageError for a model that is quantised already, or that has no layer to quantise."""
    refuse_quantized(graph)
    if not layers_of(graph):
        raise UsageError("nothing to quantise", where="--precision", expected="Conv, Gemm or MatMul of f32 with "
                         "constant weights", found="none", hint="compile it at fp32")  # fmt: skip


def refuse_quantized(graph: Graph) -> None:
    """Raises UsageError if activations of the model are rounded already."""
    if any(isinstance(node.op, QuantizeLinear) for node in graph):
        raise UsageError("the model is quantised already", where="--precision", hint="compile it as it is")


__all__ = ["check_quantizable", "quantized", "refuse_quantized"]
