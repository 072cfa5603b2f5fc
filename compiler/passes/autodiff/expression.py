"""The expression that an element-wise operator computes, seen from the graph: its parts as graph values on demand.

`compute` writes straight-line kernel IR, one operation after the other. Owns running it on the types of a node and
writing any part of what came out as nodes; what its derivative is, is `slopes`' affair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....errors import UnsupportedOp
from ...ir.graph import Node, Value
from ...ir.ops.base import Elementwise
from ...ir.types import BOOL, DType
from ...kernel_ir.builder import Builder, KValue
from ...kernel_ir.loops import KOp, KType

_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "min": "Min", "max": "Max", "pow": "Pow"}
_COMPARE = {"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "eq": "Equal"}
_LOGIC = {"and": ("And", "BitwiseAnd"), "or": ("Or", "BitwiseOr"), "xor": ("Xor", "BitwiseXor")}
_MATH = {
    "exp": "Exp", "log": "Log", "tanh": "Tanh", "erf": "Erf", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin",
    "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "sqrt": "Sqrt", "abs": "Abs", "floor": "Floor", "ceil": "Ceil", "round_even": "Round",
    "sigmoid": "Sigmoid",
}  # fmt: skip


class Expression:
    """What a function of kernel values writes for graph values.

    Attributes:
        params: per operand, its kernel value; a constant where the operand is a known number; None if omitted.
        ops: the operations, in order. result: of the last one, as the kernel has it.
        tie_share: see `Elementwise`. where: what errors name.

    Args:
        result: the value that the function's result has in the graph, where it is there.
    """

    def __init__(self, g: Any, inputs: Sequence[Value | None], compute: Callable[..., Any], result: Value | None = None,
                 where: str = "", tie_share: float = 0.5) -> None:  # fmt: skip
        self.g, self.where, self.tie_share = g, where, tie_share
        given = [(f"x{i}", KType(v.tensor.dtype)) for i, v in enumerate(inputs) if v is not None]
        builder = Builder("expression", given)
        self._values: dict[KValue, Value] = {}
        self.params: list[KValue | None] = []
        for i, v in enumerate(inputs):
            number = None if v is None else _number(v)
            param = None if v is None else builder[f"x{i}"] if number is None else builder.const(number, v.tensor.dtype)
            self.params.append(param)
            if param is not None and v is not None:
                self._values[param] = v
        self.result: KValue = compute(builder, *self.params)
        self.ops: list[KOp] = builder.func.body.ops
        self._of = {made: op for op in self.ops for made in op.results}
        if result is not None and self.result.dtype == result.tensor.dtype and self.result.const is None:
            self._values.setdefault(self.result, result)

    @classmethod
    def of_node(cls, g: Any, node: Node, op: Elementwise) -> Expression:
        """What an element-wise node computes."""
        return cls(g, node.inputs, op.compute, node.output, node.where, op.tie_share)

    def value(self, k: KValue) -> Value:
        """A part of the expression as a graph value, written where it is not there yet."""
        found = self._values.get(k)
        if found is None:
            found = self._values[k] = self.number(k.const, k.dtype) if k.const is not None else self._written(k)
        return found

    def number(self, x: float, dtype: DType) -> Value:
        """A scalar constant."""
        return self.g.const(np.asarray(x), dtype)

    def _written(self, k: KValue) -> Value:
        """The operation that makes it; what it needs is written first, without recursing over long expressions."""
        pending = [k]
        while pending:
            last = pending[-1]
            op = self._of[last]
            missing = [o for o in op.operands if o not in self._values and o.const is None]
            if missing:
                pending += missing
                continue
            self._values[last] = self._write(op, [self.value(o) for o in op.operands])
            pending.pop()
        return self._values[k]

    def _write(self, op: KOp, xs: list[Value]) -> Value:
        write = _WRITE.get(op.opcode)
        if write is None:
            raise UnsupportedOp(f"no operator does what the kernel's {op.opcode} does", where=self.where)
        result: Value = write(self.g, op, *xs)
        return result


def _number(v: Value) -> Any:
    """The content of a constant of one element and rank 0."""
    return v.data.item() if v.data is not None and v.data.shape == () and v.data.dtype.isbuiltin else None


def _write_compare(g: Any, op: KOp, a: Value, b: Value) -> Value:
    pred = op.attrs["pred"]
    result: Value = g.Not(g.Equal(a, b)) if pred == "ne" else getattr(g, _COMPARE[pred])(a, b)
    return result


def _write_logic(g: Any, op: KOp, a: Value, b: Value) -> Value:
    logical, bitwise = _LOGIC[op.opcode]
    result: Value = getattr(g, logical if a.tensor.dtype == BOOL else bitwise)(a, b)
    return result


def truncated(g: Any, x: Value) -> Value:
    """x rounded towards zero."""
    result: Value = g.Mul(g.Sign(x), g.Floor(g.Abs(x)))
    return result


def _write_math(g: Any, op: KOp, x: Value) -> Value:
    fn = op.attrs["fn"]
    if fn in _MATH:
        result: Value = getattr(g, _MATH[fn])(x)
    elif fn == "log1p":
        result = g.Log(g.Add(x, 1.0))  # of e^-|x| only, where the sum loses nothing that its users would see
    elif fn == "trunc":
        result = truncated(g, x)
    else:
        result = g.Pow(g.const(np.asarray(2.0), x.tensor.dtype), x)
    return result


def _write_rounding(g: Any, op: KOp, x: Value) -> Value:
    to = op.results[0].dtype
    zero = g.const(np.asarray(op.attrs["zero"], to.numpy))
    result: Value = g.RoundTo(x, zero, to=to)
    return result


_WRITE: Mapping[str, Callable[..., Value]] = {
    **{opcode: lambda g, op, a, b, name=name: getattr(g, name)(a, b) for opcode, name in _BINARY.items()},
    **dict.fromkeys(_LOGIC, _write_logic),
    "rem": lambda g, op, a, b: g.Mod(a, b, fmod=1),
    "neg": lambda g, op, a: g.Neg(a),
    "cmp": _write_compare,
    "select": lambda g, op, c, a, b: g.Where(c, a, b),
    "fma": lambda g, op, a, b, c: g.Add(g.Mul(a, b), c),
    "cast": lambda g, op, a: g.Cast(a, to=op.results[0].dtype),
    "round_to": _write_rounding,
    "math": _write_math,
}
