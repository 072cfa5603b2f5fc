"""Which values of float16 parax keeps in float32, where they may be greater than float16's greatest.

By docs/data-types.md (f16): unless `--fp strict` asks for a rounding behind every operator, what is computed of float16
is rounded to it only where the model's outputs and its casts are, and what is no float16 is computed of. Written down
here once more, from operators of ONNX alone, as what is judged must not judge.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx

from .contents import F16, F64

NARROW = ("Cast", "CastLike", "If", "Loop", "Scan")
"""Operators whose results are float16 where the model says so: conversions, and what runs bodies."""
MOVES = ("Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
         "Pad", "Reshape", "ReverseSequence", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split",
         "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where")  # fmt: skip
"""Operators that only move values: in float32 where all were computed in it, else in float16."""


def kept_wide(
    model: onnx.ModelProto, types: Mapping[str, np.dtype], weights: Collection[str] = ()
) -> frozenset[str]:
    """The names of the float16 values of the graph that are kept in float32; of bodies none are.

    Args:
        types: the element types of the model's values, by name. weights: inputs that are constant.
    """
    constants = {*weights, *(t.name for t in model.graph.initializer)}
    constants.update(name for node in model.graph.node if node.op_type == "Constant" for name in node.output)
    wide: set[str] = set()
    for node in model.graph.node:
        operands = [name for name in node.input if types.get(name) == F16]
        if not operands or node.op_type in NARROW:
            continue
        given = [name for name in operands if name not in constants]
        if node.op_type in MOVES and not (given and wide.issuperset(given)):
            continue
        wide.update(name for name in node.output if types.get(name) == F16)
    return frozenset(wide)


def overflown(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers of float64 with those that are infinite in another type made so."""
    return np.where(np.isinf(value.astype(dtype).astype(F64)), np.sign(value) * np.inf, value)
