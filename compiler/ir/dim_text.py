"""Reads symbolic dimensions from text and from JSON. Both forms are printed by `dim.py`."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from ...errors import InvalidModel
from .dim import APPLY, NAME_PATTERN, RESERVED, Dim, prod, symbol


def dim_from_json(data: Any) -> Dim:
    """The dim whose `dim_to_json` is `data`. Raises InvalidModel on anything else."""
    if isinstance(data, int) and not isinstance(data, bool):
        return data
    if isinstance(data, str):
        return symbol(data)
    if isinstance(data, list) and len(data) >= 2 and isinstance(data[0], str):
        args = [dim_from_json(a) for a in data[1:]]
        if data[0] == "*":
            return prod(args)
        if data[0] == "+":
            total: Dim = 0
            for a in args:
                total = total + a
            return total
        if data[0] in APPLY and len(args) == 2:
            return APPLY[data[0]](*args)
    raise InvalidModel("malformed JSON form of a dimension", found=repr(data)[:80])


_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][A-Za-z0-9_.]*)|(//|[-+*/%(),]))")
_MAX_DEPTH = 100
_MAX_DIGITS = 40


class _Parser:
    """Recursive descent over `a+b*c//d%e`, `floor(a/b)`, `mod(a,b)`, `max(a,b)`, `min(a,b)`."""

    def __init__(self, text: str) -> None:
        self.text, self.depth = text, 0
        self.tokens: list[str] = []
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if not match:
                self.fail()
            self.tokens.append(match.group().strip())
            position = match.end()
        self.tokens.append("")
        self.at = 0

    def fail(self) -> NoReturn:
        raise InvalidModel("malformed dimension", expected="an integer expression such as 2*S+1", found=self.text[:80])

    def take(self, *options: str) -> str | None:
        if self.tokens[self.at] in options and self.tokens[self.at]:
            self.at += 1
            return self.tokens[self.at - 1]
        return None

    def need(self, token: str) -> None:
        if not self.take(token):
            self.fail()

    def expression(self) -> Dim:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail()
        value = -self.term() if self.take("-") else self.term()
        while sign := self.take("+", "-"):
            value = value + self.term() if sign == "+" else value - self.term()
        self.depth -= 1
        return value

    def term(self) -> Dim:
        value = self.factor()
        while op := self.take("*", "//", "%"):
            right = self.factor()
            if op != "*" and right == 0:
                self.fail()
            value = value * right if op == "*" else APPLY[op](value, right)
        return value

    def factor(self) -> Dim:
        if self.take("("):
            value = self.expression()
            self.need(")")
            return value
        token = self.tokens[self.at]
        self.at += 1 if token else 0
        if token.isdigit():
            return int(token) if len(token) <= _MAX_DIGITS else self.fail()
        if token in RESERVED and self.take("("):
            first = self.expression()
            self.need("/" if token == "floor" else ",")
            second = self.expression()
            self.need(")")
            if second == 0 and token in ("floor", "mod"):
                self.fail()
            return APPLY[{"floor": "//", "mod": "%"}.get(token, token)](first, second)
        return symbol(token) if NAME_PATTERN.match(token) else self.fail()


def parse_dim(text: str) -> Dim:
    """The dim written as text, e.g. `3`, `N`, `2*S+1`, `floor((S+1)/2)`. Raises InvalidModel if malformed."""
    parser = _Parser(text)
    value = parser.expression()
    if parser.tokens[parser.at]:
        parser.fail()
    return value
