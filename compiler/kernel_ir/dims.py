"""Symbolic dimensions as instructions of a kernel. Owns how a polynomial becomes index arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.dim import Atom, Dim, SymDim, lower_bound
from .loops import INDEX

if TYPE_CHECKING:
    from .builder import Builder, KValue

_OPCODES = {"//": "udiv", "%": "urem", "max": "max", "min": "min"}


def dim_value(k: Builder, dim: Dim, dims: str) -> KValue:
    """The value of a dimension; `dims`: the parameter with the symbols' values."""
    if not isinstance(dim, SymDim):
        return k.index(dim)
    known = k.entry.sizes
    if (dims, dim) in known:
        return known[dims, dim]
    parts = [_monomial(k, mono, coefficient, dims) for mono, coefficient in dim.terms]
    value = parts[0]
    for part in parts[1:]:
        value = k.binary("add", value, part)
    if k.entry.holds(value):
        known[dims, dim] = value
    return value


def _monomial(k: Builder, atoms: tuple[Atom, ...], coefficient: int, dims: str) -> KValue:
    value = k.index(coefficient)
    for atom in atoms:
        value = k.binary("mul", value, _atom(k, atom, dims))
    return value


def _atom(k: Builder, atom: Atom, dims: str) -> KValue:
    if atom.op == "sym":
        place = k.params[dims], k.index(k.symbols[atom.args[0]])
        return k.entry.value("load", place, INDEX, {"align": None})
    dividend = atom.args[0]
    a, b = (dim_value(k, arg, dims) for arg in atom.args)
    if atom.op in ("//", "%") and lower_bound(dividend, least=0) < 0:
        return _floored(k, atom.op, a, b)
    return k.binary(_OPCODES[atom.op], a, b)


def _floored(k: Builder, op: str, a: KValue, b: KValue) -> KValue:
    """a // b or a % b as Python rounds them, for b > 0 and any a; hardware rounds towards zero."""
    down = k.binary("div", k.select(a < 0, a - (b - 1), a), b)
    return down if op == "//" else a - down * b
