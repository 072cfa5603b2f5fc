"""Random inputs of a model whose mistake may be that it does not compile: by its plan, or by what it declares."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from ...errors import UsageError
from ...runtime.manifest import TensorSpec
from .. import api
from ..ir.types import DType
from ..options import CompileOptions
from ..samples import random_inputs
from ..sizes import DEFAULT_SIZE, symbol_sizes


def by_plan(
    data: bytes, options: CompileOptions, sizes: Mapping[str, int], batch: int, seed: int
) -> dict[str, np.ndarray]:  # fmt: skip
    """An array for every input of the compiled model, of sizes that fit together; indices are within their tables.

    Args:
        data: the model's bytes. sizes: symbol → size. batch: rows.

    Raises:
        ParaxError: see parax.compile; UsageError: no sizes fit.
    """
    plan = api.compile(data, options=options)
    known = {symbol.name for symbol in plan.manifest.symbols if symbol.input is not None}
    fitting = symbol_sizes(plan.manifest, {k: n for k, n in sizes.items() if k in known}, batch)
    return random_inputs(plan.inputs, fitting, np.random.default_rng(seed), plan.manifest.samples.ranges)


def by_declaration(data: bytes, sizes: Mapping[str, int], batch: int, seed: int) -> dict[str, np.ndarray]:
    """An array for every input as the model declares it: `batch` rows on a first axis that is open.

    Raises:
        UsageError, UnsupportedOp: an input has no rank, or a type that parax has not.
    """
    model = onnx.ModelProto.FromString(data)
    constants, specs = {t.name for t in model.graph.initializer}, []
    for value in model.graph.input:
        tensor = value.type.tensor_type
        if value.name in constants:
            continue
        if not tensor.HasField("shape"):
            raise UsageError("an input that is no tensor of known rank cannot be made", where=value.name)
        dims = tuple(
            d.dim_value if d.HasField("dim_value") else sizes.get(d.dim_param, DEFAULT_SIZE if axis else batch)
            for axis, d in enumerate(tensor.shape.dim)
        )
        specs.append(TensorSpec(value.name, DType.from_code(tensor.elem_type).name, dims))
    return random_inputs(specs, {}, np.random.default_rng(seed))
