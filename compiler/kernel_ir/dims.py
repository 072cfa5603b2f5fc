"""Symbolic dimensions as instructions of a kernel. Owns how a polynomial's JSON form becomes index arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ir.dim import lower_bound
from ..ir.dim_text import dim_from_json

if TYPE_CHECKING:
    from .builder import Builder, KValue

_OPCODES = {"+": "add", "*": "mul", "//": "udiv", "%": "urem", "max": "max", "min": "min"}


def dim_value(k: Builder, form: Any, dims: str) -> KValue:
    """The value of a dimension's JSON form (`SymDim.to_json`); `dims`: the parameter with the symbols' values."""
    if isinstance(form, int):
        return k.index(form)
    if isinstance(form, str):
        return k.load(k.params[dims], k.symbols[form])
    op, *args = form
    out, *rest = [dim_value(k, a, dims) for a in args]
    if op in ("//", "%") and lower_bound(dim_from_json(args[0]), least=0) < 0:
        return _floored(k, op, out, *rest)
    for v in rest:
        out = k.binary(_OPCODES[op], out, v)
    return out


def _floored(k: Builder, op: str, a: KValue, b: KValue) -> KValue:
    """a // b or a % b as Python rounds them, for b > 0 and any a; hardware rounds towards zero."""
    down = k.binary("div", k.select(a < 0, a - (b - 1), a), b)
    return down if op == "//" else a - down * b
