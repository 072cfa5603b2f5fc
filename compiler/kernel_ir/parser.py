"""Parses the text form of kernels, as `loops` prints it. What is malformed ends in InternalError with line and column.

    kernel @NAME(%p: ptr<f32>, %n: i64) -> f32 inline=never aliases exact {
      %1 = for(0, %n, 1, 0.0:f32) : f32 {         operands are values, indices or typed constants
        ^(%2: i64, %3: f32)                       what the region takes
        %4 = load(%p, %2) {align=4} : f32         attributes; types of results
        %5 = add(%3, %4) : f32
        yield %5
      }                                           a conditional has another region behind `} else {`, and a `while`
                                                  behind `} do {`; its first one yields whether to go on, and values
      return %1
    }

What a function calls stands before it. The parser knows the form only: whether a kernel is a right one, the verifier
says.
"""

from __future__ import annotations

import re
from typing import Any

from ...errors import ParaxError
from ..ir.types import DType
from .builder import Builder, KValue, Number
from .loops import INDEX, KFunc, KOp, KType, PtrType, Region, between
from .text_cursor import Cursor, Lines

_NAME = re.compile(r"[\w.$/-]+")
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf|nan)|true|false")
_WORD = re.compile(r"[a-z_]\w*")
_POINTER = re.compile(r"ptr<(\w+)>")
_REGISTER = re.compile(r"(?:(\d+)x)?([a-z]\w*)")
Values = dict[str, KValue]


def parse_functions(text: str) -> dict[str, KFunc]:
    """The functions of a text, by name in its order; equal text is printed of them.

    Raises:
        InternalError: the line and column, what is expected there and what is found.
    """
    lines = Lines(text)
    functions: dict[str, KFunc] = {}
    while lines.skip_empty():
        start = lines.cursor()
        f = _Function(lines, functions).func
        if f.name in functions:
            start.fail("another name", f"@{f.name}, which is there before")
        functions[f.name] = f
    return functions


def parse_function(text: str) -> KFunc:
    """The last function of a text, which has those that it calls before it. Raises InternalError as above."""
    functions = parse_functions(text)
    if not functions:
        Lines(text).cursor().fail("kernel", "nothing")
    return list(functions.values())[-1]


def _type(c: Cursor) -> KType | PtrType:
    c.skip()
    start = c.at
    pointer = _POINTER.match(c.text, c.at)
    found = pointer or c.match(_REGISTER, "a type")
    c.at = found.end()
    try:
        dtype = DType.from_name(found[1] if pointer else found[2])
    except ParaxError:
        c.at = start
        c.fail("a type")
    return PtrType(dtype) if pointer else KType(dtype, int(found[1] or 1))


def _register(c: Cursor) -> KType:
    c.skip()
    start = c.at
    t = _type(c)
    if not isinstance(t, KType):
        c.at = start
        c.fail("the type of a register")
    return t


def _number(text: str) -> Number:
    if text in ("true", "false"):
        return text == "true"
    return float(text) if re.search(r"[.en]", text) else int(text)


class _Function:
    """One function while it is read."""

    def __init__(self, lines: Lines, functions: dict[str, KFunc]) -> None:
        self.lines, self.functions = lines, functions
        c = self.next_line()
        c.need("kernel")
        c.need("@")
        name = c.match(_NAME, "a function's name")[0]
        c.need("(")
        params = self.declarations(c, ")")
        returns = _register(c) if c.take("->") else None
        self.builder = Builder(name, params, returns=returns)
        self.func = self.builder.func
        self.words(c)
        self.values: Values = dict(self.builder.params)
        self.region(self.func.body, "return")
        c = self.next_line()
        c.need("}")
        c.end()

    def next_line(self) -> Cursor:
        c = self.lines.cursor()
        if not self.lines.skip_empty():
            c.fail("more lines", "the end of the text")
        c = self.lines.cursor()
        self.lines.at += 1
        return c

    def words(self, c: Cursor) -> None:
        """What follows the signature, and the opening brace."""
        while not c.take("{"):
            if c.take("inline="):
                self.func.inline = c.match(re.compile("always|never"), "always or never")[0]
            elif c.take("aliases"):
                self.func.noalias = False
            elif c.take("exact"):
                self.func.exact = True
            elif c.take("exported"):
                self.func.exported = True
            else:
                c.fail("inline=, aliases, exact, exported or '{'")
        c.end()

    def declarations(self, c: Cursor, closing: str) -> list[tuple[str, KType | PtrType]]:
        """Names with their types, up to a bracket."""
        found: list[tuple[str, KType | PtrType]] = []
        if c.take(closing):
            return found
        while True:
            c.need("%")
            name = c.match(_NAME, "a value's name")[0]
            c.need(":")
            found.append((name, _type(c)))
            if not c.separated(closing):
                return found

    def define(self, c: Cursor, name: str, t: KType | PtrType) -> KValue:
        if name in self.values:
            c.fail("a name that is not in use", f"%{name}")
        self.values[name] = KValue(t, self.builder)
        return self.values[name]

    def use(self, c: Cursor) -> KValue:
        """A value that is defined in the text before, or a constant."""
        if not c.take("%"):
            value = _number(c.match(_NUMBER, "a value or a constant")[0])
            t = _register(c) if c.take(":") else INDEX
            return KValue(t, self.builder, const=float(value) if t.dtype.is_float else value)
        name = c.match(_NAME, "a value's name")[0]
        if name not in self.values:
            c.at -= len(name) + 1
            c.fail("a value that is defined", f"%{name}")
        return self.values[name]

    def uses(self, c: Cursor) -> list[KValue]:
        found = [self.use(c)]
        while c.take(","):
            found.append(self.use(c))
        return found

    def region(self, region: Region, ending: str) -> None:
        """Operations up to the closing brace, which is left; `ending` is the word before what the region yields."""
        outer = dict(self.values)
        if ending == "yield" and self.lines.starts("^"):
            c = self.next_line()
            c.need("^(")
            region.params = [self.define(c, name, t) for name, t in self.declarations(c, ")")]
            c.end()
        while not self.lines.starts("}", ending + " "):
            region.ops.append(self.operation())
        if self.lines.starts(ending):
            c = self.next_line()
            c.need(ending)
            region.yields = self.uses(c)
            c.end()
        self.values = outer

    def operation(self) -> KOp:
        c = self.next_line()
        names = self.result_names(c)
        opcode = c.match(_WORD, "an opcode")[0]
        c.need("(")
        operands = [] if c.take(")") else self.uses(c)
        if operands:
            c.need(")")
        o = KOp(opcode, tuple(operands), self.attributes(c), [])
        types = self.result_types(c, len(names))
        if c.take("{"):
            c.end()
            self.regions(o)
        c.end()
        o.results = [self.define(c, name, t) for name, t in zip(names, types)]
        return o

    def result_names(self, c: Cursor) -> list[str]:
        names: list[str] = []
        while c.take("%"):
            names.append(c.match(_NAME, "a value's name")[0])
            if not c.take(","):
                c.need("=")
                break
        return names

    def result_types(self, c: Cursor, n: int) -> list[KType | PtrType]:
        types: list[KType | PtrType] = []
        for i in range(n):
            c.need("," if i else ":")
            types.append(_type(c))
        return types

    def regions(self, o: KOp) -> None:
        """The regions of an operation whose brace is open, up to the last closing one."""
        more = True
        while more:
            o.regions.append(Region())
            self.region(o.regions[-1], "yield")
            c = self.next_line()
            c.need("}")
            more = c.take(f"{between(o.opcode)} {{")
            c.end()

    def attributes(self, c: Cursor) -> dict[str, Any]:
        """`{a=1 b=[1,2] c=word d=@function}`; an open brace at the line's end begins a region instead."""
        found: dict[str, Any] = {}
        if c.text[c.at :].strip() == "{" or not c.take("{"):
            return found
        while not c.take("}"):
            name = c.match(_WORD, "an attribute's name")[0]
            c.need("=")
            found[name] = self.attribute(c)
        return found

    def attribute(self, c: Cursor) -> Any:
        if c.take("["):
            return self.whole_numbers(c)
        if c.take("@"):
            name = c.match(_NAME, "a function's name")[0]
            if name not in self.functions:
                c.at -= len(name) + 1
                c.fail("a function that stands before", f"@{name}")
            return self.func.callees.setdefault(name, self.functions[name])
        c.skip()
        number = _NUMBER.match(c.text, c.at)
        if number is None:
            return c.match(_WORD, "an attribute's value")[0]
        c.at = number.end()
        return _number(number[0])

    def whole_numbers(self, c: Cursor) -> tuple[int, ...]:
        found: list[int] = []
        while not found or c.separated("]"):
            found.append(int(c.match(re.compile(r"\d+"), "a whole number")[0]))
        return tuple(found)
