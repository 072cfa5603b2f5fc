"""Checks that a kernel keeps the promises of the kernel IR: the opcodes' contracts, scopes, what functions return.

Owns what holds between operations; what one operation must be like is in `opcodes`. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import InternalError, attach
from .loops import KFunc, KOp, KType, Region, place_of, print_function
from .opcode_rules import Mismatch, types_text
from .opcodes import OPCODES


def verify_function(f: KFunc) -> None:
    """Check one function, not those that it calls.

    Raises:
        InternalError: the kernel, the line of its text, what was expected there and what was found; with the text as
            a note.
    """
    for o, mismatch in _Scopes(f).mismatches():
        where = f"kernel {f.name}" + (f", {place_of(f, o)}" if o is not None else "")
        error = InternalError(mismatch.what, where=where, expected=mismatch.expected, found=mismatch.found)
        attach(error, print_function(f))
        raise error


Found = Iterator[tuple["KOp | None", Mismatch]]


class _Scopes:
    """One walk over a function: what is defined where it is at."""

    def __init__(self, f: KFunc) -> None:
        self.f = f
        self.seen: set[int] = set()  # of the region at hand and those around it
        self.defined: set[int] = set()  # anywhere before

    def mismatches(self) -> Found:
        """Every broken rule with its operation, None for the function itself, the outermost and first one first."""
        names = [p.name for p in self.f.params]
        if len(set(names)) != len(names):
            yield None, Mismatch("parameters", "a name each", " ".join(names))
        yield from self.region(self.f.body, self.f.params, None)
        wanted = [] if self.f.returns is None else [self.f.returns]
        if [y.type for y in self.f.body.yields] != wanted:
            found = types_text(self.f.body.yields)
            yield None, Mismatch("what a function returns", f"({', '.join(map(str, wanted))})", found)

    def region(self, region: Region, params: list[Any], owner: KOp | None) -> Found:
        outer, self.seen = self.seen, set(self.seen)
        for p in params:
            yield from self.define(p, owner)
        for o in region.ops:
            yield from self.operation(o)
        for y in region.yields:
            if not self.knows(y):
                yield owner, Mismatch("what a region yields", "values defined in it or around it", "another one")
        self.seen = outer

    def operation(self, o: KOp) -> Found:
        opcode = OPCODES.get(o.opcode)
        if opcode is None:
            yield o, Mismatch("opcode", "one of the table's", o.opcode)
            return
        for i, v in enumerate(o.operands):
            if not self.knows(v):
                yield o, Mismatch(f"operand {i}", "a value that is defined here", "another one")
        for mismatch in opcode.mismatches(o):
            yield o, mismatch
        callee = o.attrs.get("callee")
        if callee is not None and self.f.callees.get(callee.name) is not callee:
            yield o, Mismatch("callees", f"@{callee.name} among them", " ".join(self.f.callees) or "none")
        for r in o.regions:
            yield from self.region(r, r.params, o)
        for v in o.results:
            yield from self.define(v, o)

    def knows(self, v: Any) -> bool:
        return (isinstance(v.type, KType) and v.const is not None) or id(v) in self.seen

    def define(self, v: Any, o: KOp | None) -> Found:
        if v.const is not None:
            yield o, Mismatch("what is defined", "no constant", v.const)
        if id(v) in self.defined:
            yield o, Mismatch("what is defined", "a value that is not defined before", "one that is")
        self.defined.add(id(v))
        self.seen.add(id(v))
