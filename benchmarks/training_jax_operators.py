"""ONNX's operators, as far as the trained models have them, in JAX. Owns how each is written; knows no model.

What is known while tracing (shapes and what follows from them) stays numpy's, so that it costs nothing at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from onnx import helper, numpy_helper

_KEPT = 0.9
"""ONNX's momentum of running statistics."""


@dataclass(frozen=True)
class Layer:
    """A node's attributes, and whether tensors of four axes are pictures, which are channels last here."""

    attributes: Mapping[str, Any]
    pictures: bool

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or what it is where the node has none."""
        return self.attributes.get(name, default)

    def axis(self, axis: int, rank: int) -> int:
        """Where an axis of the model is in what it is here."""
        axis %= rank
        return (0, 3, 1, 2)[axis] if self.pictures and rank == 4 else axis


def _of(*values: Any) -> Any:
    """numpy where all that is known while tracing, else jax.numpy."""
    return np if all(isinstance(v, (np.ndarray, np.generic)) or v is None for v in values) else jnp


def _conv(layer: Layer, x: Any, w: Any, b: Any = None) -> Any:
    pads = layer.get("pads")
    y = lax.conv_general_dilated(x, w, layer.get("strides"), list(zip(pads[:2], pads[2:])),
                                 dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                 feature_group_count=layer.get("group", 1))  # fmt: skip
    return y if b is None else y + b


def _conv_transpose(layer: Layer, x: Any, w: Any, b: Any = None) -> Any:
    assert not any(layer.get("pads"))
    y = lax.conv_transpose(x, w, layer.get("strides"), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y if b is None else y + b


def _batch_norm(layer: Layer, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
    """The result, and both running statistics after it."""
    axes = tuple(range(x.ndim - 1))
    own, spread = jnp.mean(x, axes), jnp.var(x, axes)
    y = (x - own) * (lax.rsqrt(spread + layer.get("epsilon", 1e-5)) * scale) + bias
    kept = layer.get("momentum", _KEPT)
    return y, *(kept * a + (1 - kept) * lax.stop_gradient(b) for a, b in ((mean, own), (variance, spread)))


def _max_pool(layer: Layer, x: Any) -> Any:
    pads, strides = layer.get("pads"), layer.get("strides")
    padding = ((0, 0), *zip(pads[:2], pads[2:]), (0, 0))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, *layer.get("kernel_shape"), 1), (1, *strides, 1), padding)


def _flatten(layer: Layer, x: Any) -> Any:
    """Rows of the model's own order: channels first."""
    return (x.transpose(0, 3, 1, 2) if layer.pictures and x.ndim == 4 else x).reshape(x.shape[0], -1)


def _gemm(layer: Layer, x: Any, w: Any, b: Any) -> Any:
    return x @ (w.T if layer.get("transB") else w) + b


def _layer_norm(layer: Layer, x: Any, scale: Any, bias: Any) -> Any:
    centred = x - jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(centred * centred, -1, keepdims=True)
    return centred * lax.rsqrt(variance + layer.get("epsilon", 1e-5)) * scale + bias


def _lstm(layer: Layer, x: Any, w: Any, r: Any, b: Any, lengths: Any = None, h0: Any = None, c0: Any = None) -> Any:
    """Every direction's inputs are multiplied at once, then one scan goes over the steps; past a row's length its state
    stays and its results are 0."""
    steps, rows, _ = x.shape
    directions, _, hidden = r.shape
    inside = None if lengths is None else (np.arange(steps)[:, None] < lengths)[..., None]
    results = []
    for d in range(directions):
        first = tuple(jnp.zeros((rows, hidden)) if s is None else jnp.asarray(s[d], x.dtype) for s in (h0, c0))
        at_once = x @ w[d].T + b[d, : 4 * hidden] + b[d, 4 * hidden :]

        def cell(state: Any, now: Any, r: Any = r[d]) -> Any:
            h, c = state
            gates, is_inside = now
            i, o, f, g = jnp.split(gates + h @ r.T, 4, axis=1)
            c_next = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h_next = jax.nn.sigmoid(o) * jnp.tanh(c_next)
            if is_inside is None:
                return (h_next, c_next), h_next
            return (jnp.where(is_inside, h_next, h), jnp.where(is_inside, c_next, c)), h_next * is_inside

        results.append(lax.scan(cell, first, (at_once, inside), reverse=d == 1)[1])
    return jnp.stack(results, axis=1)


def _slice(layer: Layer, x: Any, starts: Any, ends: Any, axes: Any, steps: Any = None) -> Any:
    steps = np.ones(len(starts), int) if steps is None else steps
    where = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        where[axis] = slice(int(start), int(min(end, np.iinfo(np.int32).max)), int(step))
    return x[tuple(where)]


def _reshape(layer: Layer, x: Any, shape: Any) -> Any:
    return x.reshape([x.shape[i] if n == 0 else int(n) for i, n in enumerate(shape)])


def _cast(layer: Layer, x: Any) -> Any:
    dtype = helper.tensor_dtype_to_np_dtype(layer.get("to"))
    return x.astype(np.int32 if dtype == np.int64 else dtype)


def _filled(layer: Layer, shape: Any) -> Any:
    value = layer.get("value")
    return np.full(tuple(shape), 0.0 if value is None else numpy_helper.to_array(value)[0], np.float32)


def _concat(layer: Layer, *parts: Any) -> Any:
    return _of(*parts).concatenate(parts, axis=layer.axis(layer.get("axis"), parts[0].ndim))


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": lambda layer, a, b: a + b,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": lambda layer, x, low, high: jnp.clip(x, low, high),
    "Concat": _concat,
    "Constant": lambda layer: numpy_helper.to_array(layer.get("value")),
    "ConstantOfShape": _filled,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": lambda layer, a, b: a / b,
    "Erf": lambda layer, x: jax.scipy.special.erf(x),
    "Flatten": _flatten,
    "Gather": lambda layer, x, ids: _of(x, ids).take(x, ids, axis=layer.get("axis", 0)),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda layer, x: jnp.mean(x, (1, 2), keepdims=True),
    "GreaterOrEqual": lambda layer, a, b: a >= b,
    "LSTM": _lstm,
    "LayerNormalization": _layer_norm,
    "MatMul": lambda layer, a, b: a @ b,
    "MaxPool": _max_pool,
    "Mul": lambda layer, a, b: a * b,
    "Range": lambda layer, start, end, step: np.arange(start, end, step),
    "Relu": lambda layer, x: jax.nn.relu(x),
    "Reshape": _reshape,
    "Shape": lambda layer, x: np.array(x.shape),
    "Slice": _slice,
    "Softmax": lambda layer, x: jax.nn.softmax(x, axis=layer.get("axis", -1)),
    "Squeeze": lambda layer, x, axes: _of(x).squeeze(x, tuple(map(int, axes))),
    "Sub": lambda layer, a, b: a - b,
    "Tanh": lambda layer, x: jnp.tanh(x),
    "Transpose": lambda layer, x: x.transpose(layer.get("perm")),
    "Unsqueeze": lambda layer, x, axes: _of(x).expand_dims(x, tuple(map(int, np.atleast_1d(axes)))),
    "Where": lambda layer, condition, a, b: jnp.where(condition, a, b),
}
"""By ONNX's name: (layer, inputs) → the result; of BatchNormalization with its running statistics."""
