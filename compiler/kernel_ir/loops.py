"""Kernel IR: typed SSA with structured regions (loops, conditionals), the form every kernel is written in.

Owns the data structures and their text. `opcodes` says what operations there are, `builder` builds kernels, `verifier`
checks them, `parser` reads their text, `backend.emit_llvm` turns them into LLVM. It must not know of graphs, operators
or LLVM.

A kernel function has one calling convention: `kernel(ptr operands..., dims: ptr i64, sync: ptr i8, begin, end)`; it
does the work items [begin, end) of its parallel range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir.types import I64, DType


@dataclass(frozen=True)
class KType:
    """A register type: `lanes` elements of `dtype` (1 lane = a scalar). Bool lanes are single bits."""

    dtype: DType
    lanes: int = 1

    def __str__(self) -> str:
        return self.dtype.name if self.lanes == 1 else f"{self.lanes}x{self.dtype.name}"


@dataclass(frozen=True)
class PtrType:
    """A pointer to elements of `dtype` in memory (bool is one byte there)."""

    dtype: DType

    def __str__(self) -> str:
        return f"ptr<{self.dtype.name}>"


INDEX = KType(I64)


class KOp:
    """One operation: an opcode, operands, attributes, regions and results."""

    __slots__ = ("attrs", "opcode", "operands", "regions", "results")

    def __init__(self, opcode: str, operands: tuple, attrs: dict[str, Any], regions: list[Region]) -> None:
        self.opcode, self.operands, self.attrs, self.regions = opcode, operands, attrs, regions
        self.results: list = []


@dataclass
class Region:
    """A block of operations with parameters (loop variable, carried values) and the values it yields."""

    params: list = field(default_factory=list)
    ops: list[KOp] = field(default_factory=list)
    yields: list = field(default_factory=list)


@dataclass
class KFunc:
    """A kernel or a micro-kernel.

    Attributes:
        name: unique in its module. params: values with a `.name`. returns: type of the result or None.
        inline: "always", "never" or "" (a call; the functions are too long to pay for copies).
        exported: whoever loads the code finds it by its name.
        callees: functions it calls, in order of first use.
        noalias: operands never overlap (in-place operands load an index before they store it).
        exact: every operation rounds by itself: a * b + c is not contracted to a fused multiply-add.
    """

    name: str
    params: list
    body: Region
    returns: KType | None = None
    inline: str = ""
    noalias: bool = True
    exact: bool = False
    exported: bool = False
    callees: dict[str, KFunc] = field(default_factory=dict)

    def walk(self) -> Iterator[KOp]:
        """Every operation, outer before inner, without recursion over straight-line code."""
        stack: list[Iterator[KOp]] = [iter(self.body.ops)]
        while stack:
            o = next(stack[-1], None)
            if o is None:
                stack.pop()
                continue
            yield o
            stack.extend(iter(region.ops) for region in reversed(o.regions))

    def __str__(self) -> str:
        return print_function(self)


def all_functions(roots: list[KFunc]) -> list[KFunc]:
    """The functions reachable from `roots`, callees before callers, each once by name."""
    done: dict[str, KFunc] = {}
    stack = [(f, False) for f in reversed(roots)]
    while stack:
        f, ready = stack.pop()
        if f.name in done:
            continue
        if ready:
            done[f.name] = f
        else:
            stack.append((f, True))
            stack.extend((c, False) for c in f.callees.values() if c.name not in done)
    return list(done.values())


def print_function(f: KFunc) -> str:
    """The text form, for dumps and golden files; `parser.py` reads it."""
    return "\n".join(_Printer(f).lines)


def print_functions(functions: Sequence[KFunc]) -> str:
    """The text of several functions, which have what they call before them."""
    return "\n\n".join(map(print_function, functions)) + "\n"


def place_of(f: KFunc, o: KOp) -> str:
    """Where an operation of a function stands: the line of the function's text and what is there."""
    printer = _Printer(f)
    at = printer.places[id(o)]
    return f"line {at + 1}: {printer.lines[at].strip()}"


class _Printer:
    """One function's lines, and the line of each operation, by its identity."""

    def __init__(self, f: KFunc) -> None:
        self.names: dict[int, str] = {}
        self.lines: list[str] = []
        self.places: dict[int, int] = {}
        self.lines.append(f"kernel @{f.name}({self._declared(f.params)})" + (f" -> {f.returns}" if f.returns else "")
                          + "".join(f" {word}" for word in _words(f)) + " {")
        self._block(f.body, 1)
        if f.body.yields:
            self.lines.append(f"  return {self._uses(f.body.yields)}")
        self.lines.append("}")

    def _name(self, v: Any) -> str:
        if v.const is not None:
            return constant_text(v)
        return self.names.setdefault(id(v), f"%{v.name or len(self.names)}")

    def _uses(self, values: Iterable[Any]) -> str:
        return ", ".join(map(self._name, values))

    def _declared(self, values: Iterable[Any]) -> str:
        return ", ".join(f"{self._name(v)}: {v.type}" for v in values)

    def _block(self, region: Region, depth: int) -> None:
        pad = "  " * depth
        for o in region.ops:
            self.places[id(o)] = len(self.lines)
            self.lines.append(pad + self._head(o))
            for i, r in enumerate(o.regions):
                if r.params:
                    self.lines.append(f"{pad}  ^({self._declared(r.params)})")
                self._block(r, depth + 1)
                if r.yields:
                    self.lines.append(f"{pad}  yield {self._uses(r.yields)}")
                self.lines.append(pad + (f"}} {between(o.opcode)} {{" if i + 1 < len(o.regions) else "}"))

    def _head(self, o: KOp) -> str:
        attributes = " ".join(f"{k}={_attribute_text(v)}" for k, v in o.attrs.items() if v is not None)
        operation = f"{o.opcode}({self._uses(o.operands)})" + (f" {{{attributes}}}" if attributes else "")
        if o.results:
            types = ", ".join(str(r.type) for r in o.results)
            operation = f"{self._uses(o.results)} = {operation} : {types}"
        return operation + (" {" if o.regions else "")


def between(opcode: str) -> str:
    """The word between two regions: what a loop does while its first one says so, or a conditional's other branch."""
    return "do" if opcode == "while" else "else"


def constant_text(v: Any) -> str:
    """A constant: its number, and its type unless that is an index."""
    number = str(v.const).lower() if isinstance(v.const, bool) else str(v.const)
    return number if v.type == INDEX else f"{number}:{v.type}"


def _attribute_text(value: Any) -> str:
    if isinstance(value, KFunc):
        return f"@{value.name}"
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _words(f: KFunc) -> Iterator[str]:
    """What a function is besides its signature; nothing of what is usual."""
    if f.inline:
        yield f"inline={f.inline}"
    if not f.noalias:
        yield "aliases"
    if f.exact:
        yield "exact"
    if f.exported:
        yield "exported"
