"""ONNX's operators as a list: the versions of each, and what those are made of that ONNX defines by others.

Knows what ONNX has; what of it parax supports is not known here.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import onnx
from onnx import TensorProto, defs, helper

from .bodies import with_inner_nodes
from .parse import normal_domain
from .schemas import find_schema, function_body

ONNX_VERSION: str = onnx.__version__
Key = tuple[str, str]
"""(domain, name)"""


@cache
def versions_of() -> dict[Key, tuple[int, ...]]:
    """The versions of every operator that ONNX has, ascending, without those that take it out."""
    found: dict[Key, set[int]] = defaultdict(set)
    for schema in defs.get_all_schemas_with_history():
        if not schema.deprecated:
            found[normal_domain(schema.domain), schema.name].add(schema.since_version)
    return {key: tuple(sorted(versions)) for key, versions in found.items()}


def defined_by(domain: str, name: str, version: int) -> set[Key]:
    """The operators of ONNX's definition of another one, those of branches included; none where there is none.

    Some definitions depend on the node: then that of one with f32 operands of rank 4, and 1 for what must be given.
    """
    schema = find_schema(domain, name, version)
    if schema is None or not schema.has_function:
        return set()
    examples: dict[str, Any] = {"INT": 1, "FLOAT": 1.0, "STRING": "", "INTS": [1]}
    given = {key: examples.get(schema.raw.attributes[key].type.name) for key in schema.required}
    if None in given.values():  # a graph, say
        return set()
    node = helper.make_node(name, [f"x{i}" for i in range(schema.inputs[0])], ["y"], None, None, domain, **given)
    operand = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 3, 4, 5])
    body = function_body(schema, version, node, [operand] * schema.inputs[0])
    nodes = with_inner_nodes([] if body is None else body.node)
    return {(normal_domain(inner.domain), inner.op_type) for inner in nodes}
