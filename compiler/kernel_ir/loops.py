"""Kernel IR: typed SSA with structured regions (loops, conditionals), the form every kernel is written in.

Owns the data structures, their printer and verifier. `builder` builds it, `backend.emit_llvm` turns it
into LLVM. It must not know of graphs, operators or LLVM.

A kernel function has one calling convention: `kernel(ptr operands..., dims: ptr i64, sync: ptr i8, begin, end)`; it
does the work items [begin, end) of its parallel range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...errors import InternalError
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
    callees: dict[str, KFunc] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)

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
    """The text form, for dumps and golden files."""
    names: dict[int, str] = {}

    def name(v: Any) -> str:
        if v.const is not None:
            return str(v.const)
        return names.setdefault(id(v), f"%{v.name or len(names)}")

    lines = [f"kernel @{f.name}({', '.join(f'{name(p)}: {p.type}' for p in f.params)})"
             + (f" -> {f.returns}" if f.returns else "") + " {"]

    def block(region: Region, depth: int) -> None:
        pad = "  " * depth
        for o in region.ops:
            args = ", ".join(name(v) for v in o.operands)
            attrs = " ".join(f"{k}={getattr(v, 'name', v)}" for k, v in o.attrs.items())
            res = ", ".join(name(r) for r in o.results)
            types = ", ".join(str(r.type) for r in o.results)
            head = f"{pad}{res + ' = ' if res else ''}{o.opcode}({args})" + (f" {{{attrs}}}" if attrs else "")
            lines.append(head + (f" : {types}" if types else "") + (" {" if o.regions else ""))
            for i, r in enumerate(o.regions):
                if r.params:
                    lines.append(f"{pad}  ^({', '.join(f'{name(p)}: {p.type}' for p in r.params)})")
                block(r, depth + 1)
                if r.yields:
                    lines.append(f"{pad}  yield {', '.join(name(y) for y in r.yields)}")
                lines.append(pad + ("} else {" if i + 1 < len(o.regions) else "}"))

    block(f.body, 1)
    if f.body.yields:
        lines.append(f"  return {', '.join(name(y) for y in f.body.yields)}")
    return "\n".join([*lines, "}"])


def verify_function(f: KFunc) -> None:
    """Check that every operand is defined before its use in an enclosing region and that carried types match.

    Raises:
        InternalError: with the printed kernel attached.
    """

    def fail(message: str) -> None:
        error = InternalError(message, where=f"kernel {f.name}")
        error.add_note(print_function(f)) if hasattr(error, "add_note") else None
        raise error

    def check(region: Region, seen: set[int]) -> None:
        seen = seen | {id(p) for p in region.params}
        for o in region.ops:
            for v in o.operands:
                if v.const is None and id(v) not in seen:
                    fail(f"{o.opcode} uses a value that is not defined here")
            if o.opcode == "for":
                init = [v.type for v in o.operands[3:]]
                if init != [y.type for y in o.regions[0].yields]:
                    fail(f"a loop carries {init} but yields {[str(y.type) for y in o.regions[0].yields]}")
            if o.opcode == "if" and [y.type for y in o.regions[0].yields] != [y.type for y in o.regions[1].yields]:
                fail("the branches of a conditional yield different types")
            for r in o.regions:
                check(r, seen)
            seen.update(id(r) for r in o.results)
        for y in region.yields:
            if y.const is None and id(y) not in seen:
                fail("a region yields a value that is not defined in it")

    check(f.body, {id(p) for p in f.params})
