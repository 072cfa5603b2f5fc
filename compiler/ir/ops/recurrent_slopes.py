"""Activation functions of recurrent operators as graph nodes, with their slopes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any as PyAny
from typing import Protocol


class Function(Protocol):
    """An activation function with its parameters."""

    @property
    def name(self) -> str: ...
    @property
    def alpha(self) -> float: ...
    @property
    def beta(self) -> float: ...


def activated(g: PyAny, f: Function, x: PyAny, clip: float | None = None) -> tuple[PyAny, PyAny]:
    """f(x) and its slope, of the shape of x; x bounded to ±clip where that is given, with slope 0 beyond."""
    bounded = x if clip is None else g.Min(g.Max(x, -clip), clip)
    value, slope = _FUNCTIONS[f.name]
    y = value(g, bounded, f.alpha, f.beta)
    dy = slope(g, bounded, y, f.alpha, f.beta)
    return y, dy if clip is None else g.Where(g.LessOrEqual(g.Abs(x), clip), dy, 0.0)


def _where(g: PyAny, condition: PyAny, a: PyAny, b: PyAny, like: PyAny) -> PyAny:
    """Numbers or tensors picked by condition, of the type of `like`."""
    numbers = [g.const(v, like.tensor.dtype) if isinstance(v, float) else v for v in (a, b)]
    return g.Where(condition, *numbers)


def _hard(g: PyAny, x: PyAny, a: float, b: float) -> PyAny:
    return g.Add(g.Mul(x, a), b)


def _hard_slope(g: PyAny, x: PyAny, y: PyAny, a: float, b: float) -> PyAny:
    line = _hard(g, x, a, b)
    return _where(g, g.And(g.Greater(line, 0.0), g.Less(line, 1.0)), a, 0.0, x)


def _softplus(g: PyAny, x: PyAny, a: float, b: float) -> PyAny:
    return g.Add(g.Max(x, 0.0), g.Log(g.Add(g.Exp(g.Neg(g.Abs(x))), 1.0)))


def _softsign_slope(g: PyAny, x: PyAny, y: PyAny, a: float, b: float) -> PyAny:
    below = g.Add(g.Abs(x), 1.0)
    return g.Reciprocal(g.Mul(below, below))


def _elu(g: PyAny, x: PyAny, a: float, b: float) -> PyAny:
    return g.Where(g.Less(x, 0.0), g.Mul(g.Sub(g.Exp(g.Min(x, 0.0)), 1.0), a), x)


def _scaled_slope(g: PyAny, x: PyAny, y: PyAny, a: float, b: float) -> PyAny:
    t = g.Tanh(g.Mul(x, b))
    return g.Mul(g.Sub(1.0, g.Mul(t, t)), a * b)


def _alike(g: PyAny, x: PyAny, number: float) -> PyAny:
    """A number for every element of x."""
    return g.Expand(g.const(number, x.tensor.dtype), g.Shape(x))


_FUNCTIONS: Mapping[str, tuple[Callable[..., PyAny], Callable[..., PyAny]]] = {
    "relu": (lambda g, x, a, b: g.Relu(x), lambda g, x, y, a, b: _where(g, g.Greater(x, 0.0), 1.0, 0.0, x)),
    "tanh": (lambda g, x, a, b: g.Tanh(x), lambda g, x, y, a, b: g.Sub(1.0, g.Mul(y, y))),
    "sigmoid": (lambda g, x, a, b: g.Sigmoid(x), lambda g, x, y, a, b: g.Mul(y, g.Sub(1.0, y))),
    "affine": (_hard, lambda g, x, y, a, b: _alike(g, x, a)),
    "leakyrelu": (lambda g, x, a, b: g.Where(g.Less(x, 0.0), g.Mul(x, a), x),
                  lambda g, x, y, a, b: _where(g, g.Less(x, 0.0), a, 1.0, x)),
    "thresholdedrelu": (lambda g, x, a, b: _where(g, g.Greater(x, a), x, 0.0, x),
                        lambda g, x, y, a, b: _where(g, g.Greater(x, a), 1.0, 0.0, x)),
    "scaledtanh": (lambda g, x, a, b: g.Mul(g.Tanh(g.Mul(x, b)), a), _scaled_slope),
    "hardsigmoid": (lambda g, x, a, b: g.Min(g.Max(_hard(g, x, a, b), 0.0), 1.0), _hard_slope),
    "elu": (_elu, lambda g, x, y, a, b: _where(g, g.Less(x, 0.0), g.Add(y, a), 1.0, x)),
    "softsign": (lambda g, x, a, b: g.Div(x, g.Add(g.Abs(x), 1.0)), _softsign_slope),
    "softplus": (_softplus, lambda g, x, y, a, b: g.Sigmoid(x)),
}  # fmt: skip
