"""Nodes and bodies written out in place, one after the other, in frames of their own: what has no graph of its own.

Serves operators of sequences that are made of others, bodies of SequenceMap and the iterations of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import GraphProto, NodeProto

from ...errors import InvalidModel, ResourceLimit
from ..ir.graph import Value
from .frames import Binding, Frame, Unsupported, Written, node_where
from .importing import Importing
from .order import in_order

OPSET = 18
"""The operator set in which operators of sequences are written out by others."""
_IN_PLACE = ("", "ai.onnx::in place", "parax")
Finish = Callable[[Sequence[Binding]], None]


def inline_nodes(
    importer: Importing,
    frame: Frame,
    node: NodeProto,
    nodes: Sequence[NodeProto],
    given: Mapping[str, Value | np.ndarray],
    results: Sequence[str],
    finish: Finish,
) -> None:
    """Imports `nodes`, of operator set 18 and written for `node`, before the next node of the frame.

    Args:
        given: what their names stand for.
        results: names whose values `finish` gets.
    """
    where = node_where(node)
    written = frame.culprit or Written("", node.op_type, frame.opsets.get(""), where)
    inner = Frame(frame.graph, nodes, {**frame.opsets, "": OPSET},
                  lambda done: finish([done.resolve(name, where) for name in results]),
                  calls=(*frame.calls, _IN_PLACE), depth=frame.depth, culprit=written)  # fmt: skip
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            inner.define_array(name, value, where)
        else:
            inner.define(name, value, where)
    importer.stack.append(inner)


def inline_body(
    importer: Importing, frame: Frame, node: NodeProto, body: GraphProto, inputs: Sequence[Binding], finish: Finish
) -> None:
    """Imports a body in place, its inputs bound; `finish` gets its outputs.

    Raises:
        InvalidModel: it has another number of inputs.
        ResourceLimit: graphs are nested too deeply, or bodies are written out too often.
    """
    where = node_where(node)
    if len(body.input) != len(inputs):
        raise InvalidModel("the body has the wrong number of inputs", where=where, expected=len(inputs),
                           found=len(body.input))  # fmt: skip
    if frame.depth >= importer.limits.graph_depth:
        raise ResourceLimit("graphs are nested too deeply", where=where, expected=importer.limits.graph_depth)
    importer.count_call(where)
    inner = Frame(frame.graph, in_order(body.node), frame.opsets,
                  lambda done: finish([done.resolve(output.name, where) for output in body.output]),
                  parent=frame, bound=frame.bound, calls=(*frame.calls, _IN_PLACE), depth=frame.depth + 1,
                  culprit=frame.culprit)  # fmt: skip
    for declared, value in zip(body.input, inputs, strict=True):
        inner.define(declared.name, value, where)
    importer.add_initializers(inner, body)
    importer.stack.append(inner)


def known_number(value: Binding) -> int | None:
    """The only element of a tensor of integers or bools, where it is known; else None."""
    content = None if not isinstance(value, Value) else value.known if value.data is None else value.data
    if content is None or content.size != 1:
        return None
    number = content.reshape(-1)[0]
    return int(number) if isinstance(number, (int, np.integer, np.bool_)) else None


def is_usable(results: Sequence[Binding]) -> bool:
    """Whether parax supports what all results come from."""
    return not any(isinstance(value, Unsupported) for value in results)
