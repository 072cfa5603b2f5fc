"""Arithmetic that can be had for less: neutral elements, constants that meet, powers, double negations, casts.

Owns the rules for element-wise operators. Results may differ from the model's in the last bit (x / c becomes x · 1/c).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.arithmetic import Abs, Ceil, Floor, Max, Min, Neg, Pow
from ...ir.ops.base import Operator
from ...ir.ops.elementwise import Add, Cast, Div, Mul, Relu, Sub, Where
from ...ir.ops.filling import ConstantOfShape, Expand
from ...ir.ops.logic import And, Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Not, Or
from ...ir.types import BOOL, DType, TensorType, float_info
from ..base import BlockPass
from ..rewrite import Rewriter
from .jumps import MODERATE, may_jump
from .signs import never_negative

Rule = Callable[[Node, Rewriter], "Value | None"]
MODERATE_F16 = 4  # as MODERATE, of the type whose range is short
MOST_ELEMENTS = 1 << 16  # of a constant that is looked through or combined


@dataclass(frozen=True)
class AlgebraicSimplification(BlockPass):
    """Replace element-wise operators by cheaper or fewer ones.

    before: %1 = Mul(%x, 2.0); %2 = Div(%1, 4.0)      after: %2 = Mul(%x, 0.5)
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            for rule in RULES.get(type(node.op), ()) if len(node.outputs) == 1 else ():
                found = rule(node, rw)
                if found is not None and found.tensor.same_logical(node.output.type):
                    rw.replace(node, found)
                    changed = True
                    break
                rw.no_match(f"not {rule.__name__.strip('_').replace('_', ' ')}", node)
        return changed


def uniform(v: Value | None) -> float | int | None:
    """The number that all elements of a small constant are; None if they differ or are not known."""
    if v is None or v.data is None or not 0 < v.data.size <= MOST_ELEMENTS or v.data.dtype.kind not in "fiub":
        return None
    first = v.data.flat[0]
    return first.item() if (v.data == first).all() else None


def _neutral_factor(node: Node, rw: Rewriter) -> Value | None:
    x, c = node.operands
    return x if uniform(c) == 1 else None


def _neutral_summand(node: Node, rw: Rewriter) -> Value | None:
    """x - 0.0 and x + -0.0. Of floats x + 0.0 is another: it makes 0.0 of -0.0, and 1 / x of that another infinity."""
    x, c = node.operands
    if uniform(c) != 0 or c.data is None:
        return None
    leaves_sign = c.data.dtype.kind in "iu" or (np.signbit(c.data) == isinstance(node.op, Add)).all()
    return x if leaves_sign else None


def _constant_on_the_right(node: Node, rw: Rewriter) -> Value | None:
    a, b = node.operands
    if not a.is_constant or b.is_constant:
        return None
    return rw.before(node).add(node.op, [b, a])


def _constants_meet(node: Node, rw: Rewriter) -> Value | None:
    """(x ∘ c1) ∘ c2 = x ∘ (c1 ∘ c2) for ∘ one of + and ·; of floats not where the first step may round to some purpose.

    A large constant added and taken away again rounds to whole numbers, and one so small or large that the product
    leaves the range of numbers makes 0 or infinity.
    """
    inner, c2 = node.operands
    first = inner.producer
    if first is None or first.op != node.op or c2.data is None or len(inner.uses) != 1 or inner.output_uses:
        return None
    x, c1 = first.operands
    if c1.data is None or x.is_constant or max(c1.data.size, c2.data.size) > MOST_ELEMENTS:
        return None
    with np.errstate(all="ignore"):
        together = c1.data + c2.data if isinstance(node.op, Add) else c1.data * c2.data
    if together.size > MOST_ELEMENTS or not np.isfinite(together).all():
        return None
    if c1.data.dtype.kind not in "iub" and (_goes_back(node.op, c1.data, c2.data) or may_jump(node)):
        return None
    if isinstance(node.op, Mul) and _vanishes(together):
        return None
    return rw.before(node).add(node.op, [x, together.astype(c1.data.dtype)])


def _goes_back(op: Operator, c1: np.ndarray, c2: np.ndarray) -> bool:
    """Whether the second constant undoes some of the first's effect: opposite signs, or magnitudes beyond MODERATE."""
    a, b = (c.astype(np.float64) for c in (c1, c2))
    if isinstance(op, Add):
        return bool((a * b < 0).any())
    most = MODERATE_F16 if c1.dtype == np.float16 else MODERATE
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = np.log2(np.abs(a)), np.log2(np.abs(b))
        return bool(((a * b < 0) & (np.maximum(np.abs(a), np.abs(b)) > most)).any())


def _vanishes(product: np.ndarray) -> bool:
    """Whether a constant is too small for its type, so that a large number times it, in two steps, is not."""
    if product.dtype.kind in "iub":
        return False
    return bool((np.abs(product.astype(np.float64)) < float(float_info(product.dtype).tiny)).any())


def _reciprocal_factor(node: Node, rw: Rewriter) -> Value | None:
    """x / c = x · (1 / c) for a floating-point constant; where a rounding error may become more, powers of two only.

    Of other constants the product is rounded twice: where ranges are divided by 255 to quantise, another integer may
    come of it.
    """
    x, c = node.operands
    if c.data is None or c.data.dtype not in (np.float32, np.float64) or not 0 < c.data.size <= MOST_ELEMENTS:
        return None
    with np.errstate(all="ignore"):
        factor = (1 / c.data).astype(c.data.dtype)
    if not (np.isfinite(factor) & (np.abs(factor) >= np.finfo(c.data.dtype).tiny)).all():
        return None
    if (np.abs(np.frexp(c.data)[0]) != 0.5).any() and may_jump(node):
        return None
    return rw.before(node).Mul(x, factor)


def _small_power(node: Node, rw: Rewriter) -> Value | None:
    x, exponent = node.operands
    power, g = uniform(exponent), rw.before(node)
    whole = x.tensor.dtype.is_int and exponent.tensor.dtype.is_int and power in (1, 2, 3)
    if power is None or not (x.tensor.dtype.is_float or whole):
        return None
    build: dict[float, Callable[[], Value]] = {
        1: lambda: x, 2: lambda: g.Mul(x, x), 3: lambda: g.Mul(g.Mul(x, x), x), -1: lambda: g.Reciprocal(x),
    }  # fmt: skip
    if power in (0.5, -0.5) and never_negative(x):  # else the power of -0 and -inf is not their root
        build |= {0.5: lambda: g.Sqrt(x), -0.5: lambda: g.Reciprocal(g.Sqrt(x))}
    made: Value | None = build[power]() if power in build and x.tensor.dims == node.output.tensor.dims else None
    return made


def _twice_is_never(node: Node, rw: Rewriter) -> Value | None:
    """f(f(x)) = x"""
    inner = node.operands[0].producer
    return inner.operands[0] if inner is not None and inner.op == node.op else None


def _twice_is_once(node: Node, rw: Rewriter) -> Value | None:
    """f(f(x)) = f(x)"""
    inner = node.operands[0].producer
    return node.operands[0] if inner is not None and inner.op == node.op else None


def _constant_condition(node: Node, rw: Rewriter) -> Value | None:
    condition, x, y = node.operands
    chosen = uniform(condition)
    return None if chosen is None else x if chosen else y


def holds_all(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    if narrow in (wide, BOOL):
        return narrow == wide or wide.is_int or wide.is_float
    if narrow.is_int and wide.is_int:
        positive = narrow.bits - narrow.is_signed
        return wide.holds(-(1 << positive) if narrow.is_signed else 0) and wide.holds((1 << positive) - 1)
    mantissa = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
    if narrow.is_int:
        return narrow.bits <= mantissa.get(wide.name, 0)
    exponents = {"f64": 11, "f32": 8, "bf16": 8, "f16": 5}
    return (narrow.name in mantissa and wide.name in mantissa and mantissa[narrow.name] <= mantissa[wide.name]
            and exponents[narrow.name] <= exponents[wide.name])


def _cast_of_a_wider_cast(node: Node, rw: Rewriter) -> Value | None:
    inner = node.operands[0].producer
    if inner is None or not isinstance(inner.op, Cast):
        return None
    x, to = inner.operands[0], node.output.tensor.dtype
    if not isinstance(x.type, TensorType) or not holds_all(inner.output.tensor.dtype, x.tensor.dtype):
        return None
    if inner.output.tensor.dtype.is_float and x.tensor.dtype.is_int and to.is_int and not holds_all(to, x.tensor.dtype):
        return None  # floats beyond a narrower integer saturate, integers wrap
    return x if x.tensor.dtype == to else rw.before(node).add(node.op, [x])


def _fill_is_a_number(node: Node, rw: Rewriter) -> Value | None:
    """A tensor of one repeated number broadcasts as well as the number itself; so does what was only expanded."""
    for v in node.inputs:
        maker = v.producer if v is not None else None
        if maker is None or not isinstance(maker.op, (ConstantOfShape, Expand)):
            continue
        g = rw.before(node)
        if isinstance(maker.op, Expand):
            small = maker.operands[0]
        else:
            content = maker.op.value
            small = g.const(np.zeros((), np.float32) if content is None else np.asarray(content).reshape(()))
        rest = [o.tensor.dims for o in node.operands if o is not v] + [small.tensor.dims]
        if _broadcast(rest) == node.output.tensor.dims:
            return g.add(node.op, [small if o is v else o for o in node.inputs])
    return None


def _broadcast(shapes: list) -> tuple | None:
    """The numpy broadcast where equal dims are plainly equal, else None."""
    rank = max(map(len, shapes))
    out: list = [1] * rank
    for shape in shapes:
        for i, d in enumerate(shape, rank - len(shape)):
            if out[i] != 1 and d != 1 and d != out[i]:
                return None
            out[i] = d if out[i] == 1 else out[i]
    return tuple(out)


RULES: dict[type[Operator], tuple[Rule, ...]] = {
    Add: (_constant_on_the_right, _neutral_summand, _constants_meet, _fill_is_a_number),
    Mul: (_constant_on_the_right, _neutral_factor, _constants_meet, _fill_is_a_number),
    Sub: (_neutral_summand, _fill_is_a_number),
    Div: (_neutral_factor, _reciprocal_factor, _fill_is_a_number),
    Pow: (_small_power,),
    Neg: (_twice_is_never,), Not: (_twice_is_never,),
    Relu: (_twice_is_once,), Abs: (_twice_is_once,), Floor: (_twice_is_once,), Ceil: (_twice_is_once,),
    Where: (_constant_condition, _fill_is_a_number),
    Cast: (_cast_of_a_wider_cast,),
    **dict.fromkeys((Equal, Less, Greater, LessOrEqual, GreaterOrEqual, And, Or, Max, Min), (_fill_is_a_number,)),
}  # fmt: skip
