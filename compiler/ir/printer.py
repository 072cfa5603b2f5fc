"""Prints graphs in the text form that `parser.py` reads; see `text.py` for the grammar. Changes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice

import numpy as np

from .graph import Graph
from .literals import INLINE_LIMIT, array_text, attribute_text
from .ops.base import Fused
from .values import Node, Value

BARE_NAME = r"[A-Za-z0-9_./-]+"
_BARE = re.compile(BARE_NAME + r"\Z")


def print_graph(graph: Graph) -> str:
    """The text of a graph; large constants appear by key only (see `graph_data`)."""
    lines: list[str] = []
    _print_into(lines, graph, f"graph @{_name(graph.name)}", "", "")
    return "\n".join(lines) + "\n"


def graph_data(graph: Graph) -> dict[str, np.ndarray]:
    """Contents of the constants that `print_graph` shows by key only, bodies included."""
    return {key: value.data for key, value in _large_constants(graph, "") if value.data is not None}


def _large_constants(graph: Graph, prefix: str) -> Iterator[tuple[str, Value]]:
    for value in graph.constants:
        if not _is_inline(value):
            yield prefix + value.name, value
    for node in graph:
        for name, body in node.bodies.items():
            yield from _large_constants(body, _body_prefix(prefix, node, name))


def _body_prefix(prefix: str, node: Node, body_name: str) -> str:
    return f"{prefix}{node.outputs[0].name}.{body_name}."


def _is_inline(value: Value) -> bool:
    return value.data is not None and value.data.size <= INLINE_LIMIT


def _name(name: str) -> str:
    return name if _BARE.match(name) else json.dumps(name)


def _ref(value: Value | None) -> str:
    return "_" if value is None else "%" + _name(value.name)


def _print_into(lines: list[str], graph: Graph, head: str, indent: str, prefix: str) -> None:
    inputs = ", ".join(f"{_ref(v)}: {v.type}" for v in graph.inputs)
    lines.append(f"{indent}{head}({inputs}) {{")
    inner = indent + "  "
    for (a, b), where in graph.constraints.items():
        lines.append(f"{inner}assume {a} == {b}{_comment(where)}")
    for value in graph.constants:
        data = value.data
        shown = array_text(data) if data is not None and _is_inline(value) else json.dumps(prefix + value.name)
        lines.append(f"{inner}{_ref(value)} = const {value.type} {shown}")
    for node in islice(graph, len(graph)):  # a damaged list may be endless, and the verifier prints it
        lines.append(inner + _node_line(node))
        for name, body in node.bodies.items():
            _print_into(lines, body, name, inner + "  ", _body_prefix(prefix, node, name))
    names = zip(graph.outputs, graph.output_names, strict=False)
    returned = ", ".join(_ref(v) + ("" if n == v.name else f" as {json.dumps(n)}") for v, n in names)
    lines.append(f"{inner}return {returned}".rstrip())
    lines.append(indent + "}")


def _node_line(node: Node) -> str:
    op = node.op
    attributes = op.explicit_attributes()
    if isinstance(op, Fused):
        title = f"fused<{_name(attributes.pop('kind'))}>"
    else:
        title = f"{op.domain}::{op.name}" if op.domain else op.name
    kinds = op.signature.attributes
    shown = ", ".join(f"{k}={attribute_text(kinds[k].kind, v)}" for k, v in attributes.items())
    outputs = ", ".join(map(_ref, node.outputs))
    operands = ", ".join(map(_ref, node.inputs))
    types = ", ".join(str(v.type) for v in node.outputs)
    braces = f" {{{shown}}}" if shown else ""
    return f"{outputs} = {title}({operands}){braces} : {types}{_comment(node.name)}"


def _comment(name: str) -> str:
    if not name:
        return ""
    plain = name.isprintable() and name == name.strip() and not name.startswith('"')
    return f"  # {name if plain else json.dumps(name)}"
