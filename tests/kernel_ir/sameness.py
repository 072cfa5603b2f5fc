"""Whether two kernels are the same, found without their text."""

from __future__ import annotations

from typing import Any

from parax.compiler.kernel_ir.loops import KFunc, Region


def difference(a: KFunc, b: KFunc) -> str:
    """The first thing in which two functions differ, what they call included; "" where they are the same."""
    return _Pairs().functions(a, b)


class _Pairs:
    """Which value of one function is which of the other."""

    def __init__(self) -> None:
        self.pairs: dict[int, int] = {}

    def functions(self, a: KFunc, b: KFunc) -> str:
        for name in ("name", "returns", "inline", "noalias", "exact", "exported"):
            if getattr(a, name) != getattr(b, name):
                return f"{name}: {getattr(a, name)} {getattr(b, name)}"
        if list(a.callees) != list(b.callees) or [p.name for p in a.params] != [p.name for p in b.params]:
            return "names of callees or parameters"
        for mine, other in zip(a.callees.values(), b.callees.values()):
            if found := difference(mine, other):
                return found
        return self.defined(a.params, b.params) or self.regions(a.body, b.body)

    def defined(self, a: list[Any], b: list[Any]) -> str:
        if [v.type for v in a] != [v.type for v in b]:
            return f"types {[str(v.type) for v in a]} {[str(v.type) for v in b]}"
        self.pairs.update((id(v), id(w)) for v, w in zip(a, b))
        return ""

    def used(self, a: Any, b: Any) -> str:
        if len(a) != len(b):
            return f"{len(a)} and {len(b)} values"
        for v, w in zip(a, b):
            constant = v.const is not None
            if v.type != w.type or repr(v.const) != repr(w.const) or type(v.const) is not type(w.const):
                return f"{v.const} of {v.type}, {w.const} of {w.type}"
            if not constant and self.pairs[id(v)] != id(w):
                return "another value"
        return ""

    def regions(self, a: Region, b: Region) -> str:
        if found := self.defined(a.params, b.params):
            return found
        if [o.opcode for o in a.ops] != [o.opcode for o in b.ops]:
            return "opcodes"
        for o, p in zip(a.ops, b.ops):
            if found := self.used(o.operands, p.operands) or self.attributes(o.attrs, p.attrs):
                return f"{o.opcode}: {found}"
            if len(o.regions) != len(p.regions):
                return f"{o.opcode}: regions"
            for r, s in zip(o.regions, p.regions):
                if found := self.regions(r, s):
                    return found
            if found := self.defined(o.results, p.results):
                return f"{o.opcode}: {found}"
        return self.used(a.yields, b.yields)

    def attributes(self, a: dict[str, Any], b: dict[str, Any]) -> str:
        """None is as good as nothing; a callee's name has been compared."""
        left, right = ({k: v.name if isinstance(v, KFunc) else v for k, v in attrs.items() if v is not None}
                       for attrs in (a, b))  # fmt: skip
        return "" if repr(sorted(left.items())) == repr(sorted(right.items())) else f"{left} {right}"
