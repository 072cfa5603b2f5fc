"""Activation functions of recurrent operators with their slopes, in a kernel. Owns one formula a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....ir.ops.recurrent import Activation
from ....kernel_ir.builder import Builder, KValue

Slope = Callable[[Builder, KValue, KValue, float, float], KValue]
"""Of (builder, x, f(x), alpha, beta)."""


def activated(k: Builder, f: Activation, x: KValue, clip: float | None) -> tuple[KValue, KValue]:
    """f(x) and its slope; x bounded to ±clip where that is given, with slope 0 beyond."""
    bounded = x if clip is None else k.clip(x, -clip, clip)
    y = f(k, bounded)
    slope = _SLOPES[f.name](k, bounded, y, f.alpha, f.beta)
    return y, slope if clip is None else k.select(k.math("abs", x) <= clip, slope, 0.0)


def _either(k: Builder, condition: KValue, x: KValue, yes: KValue | float, no: float) -> KValue:
    """One of two, which may both be numbers, for every lane of x."""
    first = yes if isinstance(yes, KValue) else k.splat(k.const(yes, x), x.lanes)
    return k.select(condition, first, no)


def _scaled(k: Builder, x: KValue, y: KValue, a: float, b: float) -> KValue:
    t = k.math("tanh", x * b)
    return (1.0 - t * t) * (a * b)


def _hard(k: Builder, x: KValue, y: KValue, a: float, b: float) -> KValue:
    line = x * a + b
    return _either(k, (line > 0.0) & (line < 1.0), x, a, 0.0)


def _softsign(k: Builder, x: KValue, y: KValue, a: float, b: float) -> KValue:
    below = k.math("abs", x) + 1.0
    return 1.0 / (below * below)


_SLOPES: Mapping[str, Slope] = {
    "relu": lambda k, x, y, a, b: _either(k, x > 0.0, x, 1.0, 0.0),
    "tanh": lambda k, x, y, a, b: 1.0 - y * y,
    "sigmoid": lambda k, x, y, a, b: y * (1.0 - y),
    "affine": lambda k, x, y, a, b: k.splat(k.const(a, x), x.lanes),
    "leakyrelu": lambda k, x, y, a, b: _either(k, x < 0.0, x, a, 1.0),
    "thresholdedrelu": lambda k, x, y, a, b: _either(k, x > a, x, 1.0, 0.0),
    "scaledtanh": _scaled,
    "hardsigmoid": _hard,
    "elu": lambda k, x, y, a, b: _either(k, x < 0.0, x, y + a, 1.0),
    "softsign": _softsign,
    "softplus": lambda k, x, y, a, b: k.math("sigmoid", x),
}
