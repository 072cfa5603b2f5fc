"""A model run one node after the other, each by the implementation that has it in these types.

ONNX Runtime lacks operators in new operator sets, bfloat16 from Python, and some element types; one such node would
leave a whole model to onnx.reference, which is wrong more often. Here only that node is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

from parax.compiler.frontend.oracle import oracle
from parax.compiler.shrinking.graphs import uses_of
from parax.errors import ParaxError, UnsupportedOp

from . import exact
from .contents import BF16, F32, is_float
from .known import distrusted

Change = Callable[[np.ndarray], np.ndarray]
SIZED = ("Resize", "Upsample", "Range")
"""Operators with floating-point operands that decide how large their results are."""
SETTLED = 21
"""The operator set whose operators ONNX Runtime has nearly all; of newer ones, some only took more types."""


def run_nodes(
    model: onnx.ModelProto, feeds: dict[str, np.ndarray], change: Change | None = None
) -> dict[str, np.ndarray]:
    """The outputs. Raises what the last implementation tried for a node raises.

    Args:
        change: made to every floating-point operand that decides no shape.
    """
    values: dict[str, Any] = dict(feeds)
    values.update({t.name: numpy_helper.to_array(t) for t in model.graph.initializer})
    opset = next(o.version for o in model.opset_import if o.domain == "")
    for node in model.graph.node:
        taken = {name: values[name] for name in sorted(uses_of(node)) if name in values}
        if change is not None and node.op_type not in SIZED:
            taken = {name: change(value) if is_float(value.dtype) else value for name, value in taken.items()}
        values.update(_run_node(node, opset, list(model.opset_import), taken))
    return {o.name: np.asarray(values[o.name]) for o in model.graph.output}


def _run_node(node: onnx.NodeProto, opset: int, imports: list[Any], taken: dict[str, Any]) -> dict[str, Any]:
    attempts = [("onnxruntime", opset), ("onnxruntime", SETTLED), ("reference", opset)]
    if opset <= SETTLED or not _is_old(node):
        attempts.remove(("onnxruntime", SETTLED))
    if node.op_type.startswith("Reduce") and any(np.size(v) == 0 for v in taken.values()):
        attempts.reverse()  # ONNX Runtime leaves an axis of no elements, or all, as it is
    problem: Exception | None = None
    narrow = any(v.dtype == BF16 for v in taken.values()) or _narrow_type(node)
    for wide in (True,) if narrow and not _has_body(node) else (False,):
        for kind, version in attempts:
            reason = distrusted(node, kind)
            if reason:
                problem = problem or UnsupportedOp(reason)
                continue
            try:
                return _evaluate(node, kind, version, imports, taken, wide)
            except ParaxError as error:
                problem = error
            except Exception as error:  # the implementations' errors have no common base
                problem = error
    assert problem is not None
    raise problem


def _is_old(node: onnx.NodeProto) -> bool:
    try:
        defs.get_schema(node.op_type, SETTLED, node.domain)
    except defs.SchemaError:
        return False
    return not _has_body(node)


def _has_body(node: onnx.NodeProto) -> bool:
    return any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute)


def _narrow_type(node: onnx.NodeProto) -> bool:
    """Whether an attribute asks for bfloat16."""
    return any(a.name in ("to", "dtype") and a.i == TensorProto.BFLOAT16 for a in node.attribute)


def _evaluate(node: onnx.NodeProto, kind: str, opset: int, imports: list[Any], taken: dict[str, Any],
              wide: bool) -> dict[str, Any]:  # fmt: skip
    """One node; `wide`: bfloat16 as float32, rounded behind it."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    result = BF16 if wide and (_narrow_type(node) or _gives_narrow(node, taken)) else None
    if wide:
        taken = {k: v.astype(F32) if v.dtype == BF16 else v for k, v in taken.items()}
        for attribute in copy.attribute:
            if attribute.name in ("to", "dtype") and attribute.i == TensorProto.BFLOAT16:
                attribute.i = TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in taken.items()
    ]
    names = [o for o in node.output if o]
    graph = helper.make_graph([copy], "node", inputs, [helper.make_empty_tensor_value_info(o) for o in names])
    others = [i for i in imports if i.domain]
    single = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *others], ir_version=10)
    run = partial(exact.run, single) if kind == "reference" else oracle(single, kind)
    found = run({k: np.array(v) for k, v in taken.items()})
    return {k: _narrowed(np.asarray(v), result) for k, v in found.items()}


def _narrowed(array: np.ndarray, result: np.dtype | None) -> np.ndarray:
    return array.astype(result) if result is not None and array.dtype == F32 else array


def _gives_narrow(node: onnx.NodeProto, taken: dict[str, Any]) -> bool:
    """Whether the first result is bfloat16, where an operand is: the type of the operand with the same variable."""
    if any(a.name in ("to", "dtype", "output_dtype") and a.i for a in node.attribute):
        return False
    schema = defs.get_schema(node.op_type, defs.onnx_opset_version(), node.domain)
    wanted = schema.inputs[0].type_str if node.op_type == "EyeLike" else schema.outputs[0].type_str
    for i, name in enumerate(node.input):
        spec = schema.inputs[min(i, len(schema.inputs) - 1)]
        if spec.type_str == wanted and name in taken:
            return bool(taken[name].dtype == ml_dtypes.bfloat16)
    return False
