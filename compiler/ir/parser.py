"""Parses the text form of graphs; see `text.py` for the grammar. Everything malformed ends in InvalidModel."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import numpy as np

from ...errors import InvalidModel, ParaxError
from .graph import Graph
from .literals import parse_array, parse_attribute, seeded_array
from .ops.base import Fused, Operator, lookup
from .printer import BARE_NAME
from .types import TensorType, Type, parse_dim, parse_type, split_top
from .values import Node, Value

T = TypeVar("T")
_MAX_NESTING = 50
_STRING = r'"(?:[^"\\]|\\.)*"'
_NAME = re.compile(rf"({BARE_NAME})|({_STRING})")
_TITLE = re.compile(rf"fused<(?P<fused>{BARE_NAME}|{_STRING})>|(?:(?P<domain>[A-Za-z0-9_.-]+)::)?(?P<name>\w+)")
_HEADER = re.compile(rf"(?P<head>graph\s+@(?:{BARE_NAME}|{_STRING})|[A-Za-z_]\w*)\s*\(")
_BRACKETS = {"(": ")", "{": "}", "[": "]"}


def parse_graph(text: str, data: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph written as `text`. Raises InvalidModel that names the line.

    `data`: contents of the constants given by key. Without it they get seeded random contents (`seeded_array`), which
    suits tests of passes. Types after `:` may be left out and are then inferred.
    """
    reader = _Reader(text, data)
    graph = reader.graph(0)
    if reader.at < len(reader.lines):
        reader.fail("text after the graph")
    return graph


class _Cursor:
    """A position in one line."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at] == " ":
            self.at += 1

    def take(self, token: str) -> bool:
        self.skip()
        found = self.text.startswith(token, self.at)
        self.at += len(token) if found else 0
        return found

    def need(self, token: str) -> None:
        if not self.take(token):
            raise InvalidModel(f"{token!r} missing", found=self.text[self.at : self.at + 40])

    def match(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        self.skip()
        match = pattern.match(self.text, self.at)
        if not match:
            raise InvalidModel(f"{what} missing", found=self.text[self.at : self.at + 40])
        self.at = match.end()
        return match

    def name(self) -> str:
        match = self.match(_NAME, "name")
        return match[1] if match[1] is not None else json.loads(match[2])

    def value_name(self) -> str:
        self.need("%")
        return self.name()

    def bracketed(self, opening: str) -> str:
        """The text up to the bracket that closes the one here."""
        self.need(opening)
        start, depth, closing = self.at, 1, _BRACKETS[opening]
        for match in re.compile(rf"{_STRING}|[{re.escape(opening + closing)}]").finditer(self.text, start):
            if match[0] == opening:
                depth += 1
            elif match[0] == closing:
                depth -= 1
                if depth == 0:
                    self.at = match.end()
                    return self.text[start : match.start()]
        raise InvalidModel(f"{closing!r} missing", found=self.text[start : start + 40])

    def rest(self) -> tuple[str, str]:
        """What is left of the line, and the comment after it."""
        text = self.text[self.at :]
        self.at = len(self.text)
        for match in re.compile(rf"{_STRING}|(?:^|\s)#\s").finditer(text):
            if match[0].endswith("#" + match[0][-1]) and not match[0].startswith('"'):
                comment = text[match.end() :].strip()
                return text[: match.start()].strip(), json.loads(comment) if comment.startswith('"') else comment
        return text.strip(), ""


class _Reader:
    """The lines of a text, and the graph that is being built."""

    def __init__(self, text: str, data: Mapping[str, np.ndarray] | None) -> None:
        numbered = [(i, line.strip()) for i, line in enumerate(text.split("\n"), 1)]
        self.lines = [(i, line) for i, line in numbered if line and not line.startswith("#")]
        self.at = 0
        self.data = data

    def fail(self, message: str) -> NoReturn:
        number, line = self.lines[min(self.at, len(self.lines) - 1)] if self.lines else (1, "")
        raise InvalidModel(message, where=f"line {number}", found=line[:80])

    def graph(self, depth: int) -> Graph:
        """Reads a graph or body from its header to its closing brace."""
        if depth > _MAX_NESTING:
            self.fail(f"bodies nested deeper than {_MAX_NESTING}")
        if self.at >= len(self.lines):
            self.fail("graph header missing")
        graph = self.guarded(self._header)
        while True:
            if self.at >= len(self.lines):
                self.fail("'}' missing at the end of the text")
            line = self.lines[self.at][1]
            if line == "}":
                self.at += 1
                return graph
            self._statement(graph, line, depth)

    def guarded(self, function: Callable[..., T], *args: Any) -> T:
        """Runs a step that reads the current line; errors without a place get the line's number."""
        number = self.lines[self.at][0]
        try:
            return function(*args)
        except ParaxError as error:
            if error.where is not None:
                raise
            raise type(error)(
                error.message, where=f"line {number}", expected=error.expected, found=error.found, hint=error.hint
            ) from None
        except json.JSONDecodeError:
            self.fail("malformed string")

    def _header(self) -> Graph:
        cursor = _Cursor(self.lines[self.at][1])
        head = cursor.match(_HEADER, "graph header")["head"]
        cursor.at -= 1
        inputs = cursor.bracketed("(")
        cursor.need("{")
        if cursor.rest()[0]:
            self.fail("text after '{'")
        name = head.split("@", 1)[1] if "@" in head else head
        graph = Graph(json.loads(name) if name.startswith('"') else name)
        for item in split_top(inputs):
            part = _Cursor(item)
            value_name = part.value_name()
            part.need(":")
            graph.add_input(value_name, parse_type(part.rest()[0]))
        self.at += 1
        return graph

    def _statement(self, graph: Graph, line: str, depth: int) -> None:
        cursor = _Cursor(line)
        if line.startswith("%"):
            self._definition(graph, cursor, depth)
            return
        if cursor.take("return"):
            self.guarded(self._return, graph, cursor)
        elif cursor.take("assume"):
            self.guarded(self._assume, graph, cursor)
        else:
            self.fail("unknown statement")
        self.at += 1

    def _return(self, graph: Graph, cursor: _Cursor) -> None:
        values, names = [], []
        for item in split_top(cursor.rest()[0]):
            part = _Cursor(item)
            value = self._value(graph, part.value_name())
            names.append(part.name() if part.take("as") else value.name)
            values.append(value)
        graph.set_outputs(values, names)

    def _assume(self, graph: Graph, cursor: _Cursor) -> None:
        equation, where = cursor.rest()
        left, _, right = equation.partition("==")
        graph.add_constraint(parse_dim(left), parse_dim(right), where)

    def _definition(self, graph: Graph, cursor: _Cursor, depth: int) -> None:
        names = self.guarded(self._output_names, graph, cursor)
        if cursor.take("const "):
            self.guarded(self._constant, graph, names[0], cursor)
            self.at += 1
            return
        op, operands, types, name = self.guarded(self._node, graph, cursor)
        start = self.at
        self.at += 1
        bodies: dict[str, Graph] = {}
        while self.at < len(self.lines) and self._is_body(self.lines[self.at][1]):
            body = self.graph(depth + 1)
            bodies[body.name] = body
        resume, self.at = self.at, start
        self.guarded(_add_node, graph, op, operands, names, name, types, bodies)
        self.at = resume

    def _is_body(self, line: str) -> bool:
        return line.endswith("{") and not line.startswith("%")

    def _output_names(self, graph: Graph, cursor: _Cursor) -> list[str]:
        names = [cursor.value_name()]
        while cursor.take(","):
            names.append(cursor.value_name())
        cursor.need("=")
        taken = [n for n in names if graph.has_value(n)]
        if taken or len(set(names)) != len(names):
            raise InvalidModel(f"%{(taken or names)[0]} is defined twice")
        return names

    def _constant(self, graph: Graph, name: str, cursor: _Cursor) -> None:
        text, _ = cursor.rest()
        type_text, _, content = _split_type(text)
        type_ = parse_type(type_text)
        if not isinstance(type_, TensorType):
            raise InvalidModel("a constant must be a tensor", found=type_text)
        if content.startswith('"') and not (type_.dtype.kind == "s" and type_.shape == ()):
            array = self._lookup(json.loads(content), type_)
        else:
            array = parse_array(content, type_)
        graph.add_constant(array, name).type = type_

    def _lookup(self, key: str, type_: TensorType) -> np.ndarray:
        if self.data is None:
            return seeded_array(key, type_)
        if key not in self.data:
            raise InvalidModel(f"no data for the constant {key!r}")
        array = self.data[key]
        if array.shape != type_.shape:
            raise InvalidModel(f"data of the constant {key!r} have another shape", expected=type_, found=array.shape)
        return array

    def _node(self, graph: Graph, cursor: _Cursor) -> tuple[Operator, list[Value | None], list[Type] | None, str]:
        title = cursor.match(_TITLE, "operator")
        operands = [self._operand(graph, item) for item in split_top(cursor.bracketed("("))]
        cursor.skip()
        braces = cursor.bracketed("{") if cursor.text.startswith("{", cursor.at) else ""
        typed = cursor.take(":")
        rest, name = cursor.rest()
        if rest and not typed:
            raise InvalidModel("':' missing before the types", found=rest[:40])
        types = [parse_type(t) for t in split_top(rest)] if typed else None
        if title["fused"] is not None:
            kind = title["fused"]
            return Fused(kind=json.loads(kind) if kind.startswith('"') else kind), operands, types, name
        cls = lookup(title["domain"] or "", title["name"])
        return cls.from_attributes(_attributes(cls, braces), name), operands, types, name

    def _operand(self, graph: Graph, item: str) -> Value | None:
        return None if item == "_" else self._value(graph, _Cursor(item).value_name())

    def _value(self, graph: Graph, name: str) -> Value:
        if not graph.has_value(name):
            raise InvalidModel(f"%{name} is not defined")
        return graph.value(name)


def _add_node(
    graph: Graph,
    op: Operator,
    operands: list[Value | None],
    names: list[str],
    name: str,
    types: list[Type] | None,
    bodies: dict[str, Graph],
) -> Node:
    if types is not None and len(types) != len(names):
        raise InvalidModel("one type per output is needed", expected=len(names), found=len(types))
    return graph.add_node(op, operands, names, name=name, types=types, bodies=bodies)


def _attributes(cls: type[Operator], braces: str) -> dict[str, object]:
    out: dict[str, object] = {}
    for item in split_top(braces):
        key, _, value = item.partition("=")
        spec = cls.signature.attributes.get(key.strip())
        out[key.strip()] = parse_attribute(spec.kind, value.strip()) if spec else value
    return out


def _split_type(text: str) -> tuple[str, str, str]:
    """A type, a blank, and what follows; blanks inside the type's brackets do not count."""
    depth = 0
    for i, ch in enumerate(text):
        depth += (ch in "[({") - (ch in "])}")
        if ch == " " and depth == 0:
            return text[:i], " ", text[i + 1 :].strip()
    return text, "", ""
