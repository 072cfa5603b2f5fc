"""How far rounding may change what a model gives.

The bounds come from the model in float64: run again with every floating-point operand changed by a few units of
rounding of the type that it has in the model, the results move by about as much as rounding errors may move them.
Where they jump (a comparison of nearly equal numbers, a rounding near a half), any of the values met is right.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
import onnx

from . import exact
from .contents import F16, F32, F64, MANTISSA, is_float
from .exact_windows import NOWHERE
from .generate import Feeds
from .halves import kept_wide, overflown
from .jumps import Poles, any_of_the_greatest
from .known import NONE, Freedom, window_size
from .others import NoOracle, limited, run_other
from .summing import error_in_blocks, error_in_sequence, magnitudes, terms_of
from .widening import SECONDS, Unknown, types_of, widened

MIXING = 8.0
"""Units of rounding of the sum of magnitudes by which one noise of a fast product is off."""
TILE_ERROR = 2e-5
"""What kernels/conv/winograd/lower.py promises of a tile, times its greatest element and the norm of the weights."""
TILE_MOST = 1e33
"""Beyond it the transforms of a tile may overflow."""
FAR = 1e3
"""Positions of GridSample whose place among the elements float32 does not give: implementations differ."""
PRODUCTS = ("Conv", "MatMul", "Gemm")
SUMS = (*PRODUCTS, "Add", "Sub", "Sum", "Mean", "ReduceSum", "ReduceMean", "CumSum", "Einsum", "ConvTranspose",
        "AveragePool", "GlobalAveragePool", "BatchNormalization")  # fmt: skip
"""Operators that add terms, which may cancel; what is not a float only says which."""


def _finite(x: Any) -> np.ndarray:
    return np.where(np.isfinite(x), np.abs(x), 0.0)


def _below_zero(node: Any, x: Any) -> np.ndarray:
    """alpha (e^x - 1), by a difference of numbers near alpha."""
    return abs(getattr(node, "alpha", 1.0) or 0.0) * abs(getattr(node, "gamma", 1.0) or 0.0) * (x < 0)


def _steps(node: Any, x: Any) -> float:
    """Each step adds an error of tanh or sigmoid, which are accurate to units of 1; those of many partly cancel."""
    steps = x.shape[1 if getattr(node, "layout", 0) else 0]
    return float(min(steps, 4.0 * steps**0.5))


def _image(node: Any, x: Any) -> Any:
    """The greatest element of each image and channel: what is summed may cancel."""
    axes = tuple(range(min(2, x.ndim - 1), x.ndim))
    return np.abs(_finite(x)).max(axes, keepdims=True, initial=0)


def _partly_overflows(node: Any, inputs: list[Any], dtype: np.dtype | None) -> np.ndarray:
    """Where a sum of products, or a product, overflows (or underflows) or not by the order of its terms."""
    most = float(np.finfo(F64 if dtype is not None and dtype == F64 else F32).max) / 4
    if node.op_type == "ReduceProd":
        (size,) = node.run(np.maximum(np.abs(inputs[0]), 1), *inputs[1:])
        (least,) = node.run(np.minimum(np.abs(inputs[0]), 1), *inputs[1:])
        return np.asarray(~(size < most) | ~(least > 1e3 / most))
    (size,) = node.run(*(np.abs(x) for x in inputs if x is not None))
    return np.asarray(~(size < most)) | _wild_channels(node, inputs, size)


def _wild_channels(node: Any, inputs: list[Any], like: np.ndarray) -> Any:
    """Channels of a convolution by weights that are not finite: they may be multiplied by the padding's zeros."""
    wild = ~np.isfinite(inputs[1]).all(axis=tuple(range(1, inputs[1].ndim))) if node.op_type == "Conv" else np.zeros(1)
    return _by_channel(wild, like) if wild.any() else False


def _by_channel(vector: np.ndarray, like: np.ndarray) -> np.ndarray:
    """A vector so that it broadcasts along axis 1."""
    return vector.reshape(-1, *[1] * (like.ndim - 2))


def _cancels(node: Any, inputs: list[Any], value: np.ndarray, dtype: np.dtype | None) -> np.ndarray:
    """Where a sum is so small beside its terms that their rounding errors may make it 0."""
    terms = magnitudes(node, inputs)
    few = np.abs(value) <= 4 * _unit(dtype if dtype in MANTISSA else F32) * terms
    return np.asarray(few & np.isfinite(terms))  # an infinity is no error of rounding


def _is_open(node: Any, inputs: list[Any], value: np.ndarray, dtype: np.dtype | None) -> Any:
    """Which elements implementations may make differently, beyond rounding."""
    if node.op_type == "Resize":  # a weight of 0 may multiply an infinity; the reference makes a large number of one
        return ~(np.abs(value) < 1e300)
    if node.op_type == "GridSample":
        return ~(np.abs(inputs[1]) < FAR).all(-1)[:, None] | ~np.isfinite(value)
    if node.op_type in CENTRED:
        return _overflows(inputs[0], dtype)
    if node.op_type == "BatchNormalization":  # x·s + t has no place for infinite factors
        return _by_channel(~np.isfinite(np.stack(inputs[1:])).all(axis=0), value)
    if node.op_type in POWERS:
        return _overflows(inputs[0], dtype, getattr(node, "p", 2) or 2)
    if node.op_type in PRODUCTS or node.op_type == "ReduceProd":
        return _partly_overflows(node, inputs, dtype)
    return False


def _centred(node: Any, x: Any) -> Any:
    """The greatest element by the deviation, over all: what is left of the mean's rounding error."""
    spread = (x - x.mean(_axes_of(node, x), keepdims=True)).std(_axes_of(node, x), keepdims=True)
    return np.minimum(_finite(x).max(initial=0) / np.maximum(spread, 1e-9), 1e6)


def _axes_of(node: Any, x: Any) -> tuple[int, ...]:
    if node.op_type == "MeanVarianceNormalization":
        return tuple(getattr(node, "axes", None) or (0, 2, 3))
    return tuple(range(2, x.ndim))


def _of_many(node: Any, x: Any) -> Any:
    """Each number of a window is added to the sum of those before it, with an error of that: those partly cancel."""
    return math.sqrt(window_size(node.onnx_node)) * _finite(x).max(initial=0)


INNER: dict[str, Callable[[Any, Any], Any]] = {
    "Gelu": lambda node, x: _finite(x),
    "GridSample": _image,
    "Resize": _image,
    "Mish": lambda node, x: _finite(x),
    "Celu": _below_zero,
    "Elu": _below_zero,
    "Selu": _below_zero,
    "Softplus": lambda node, x: (x < 0).astype(F64),
    "LogSoftmax": lambda node, x: 1.0,  # the logarithm of a sum that begins with 1
    "ReduceLogSumExp": lambda node, x: 1.0,
    "MeanVarianceNormalization": _centred,
    "InstanceNormalization": _centred,
    "RNN": _steps,
    "GRU": _steps,
    "LSTM": _steps,
    "Loop": lambda node, m: 4.0,  # what their bodies round
    "Scan": lambda node, x: 4.0,
}
"""The size of a number inside an operator, by a unit of which the result may be off: it may cancel to a small one."""


BOUNDED = {"Tanh": -1.0, "Erf": -1.0, "Sin": -1.0, "Cos": -1.0, "Sigmoid": 0.0, "Softmax": 0.0}
"""Operators whose results lie between this and 1, however they are rounded."""

CENTRED = ("MeanVarianceNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization",
           "RMSNormalization", "LRN")  # fmt: skip
"""Operators that sum squares, which may overflow where the result does not."""
POWERS = ("LpNormalization", "LpPool", "GlobalLpPool", "ReduceL2")
"""Operators that sum p-th powers, which may likewise."""


def _overflows(x: np.ndarray, dtype: np.dtype | None, power: int = 2) -> bool:
    most = 1e300 if dtype is not None and dtype == F64 else 1e38  # numpy takes None for float64
    return float(_finite(x).max(initial=0)) > (most / max(x.size, 1)) ** (1 / power)


def noisy_nodes(model: onnx.ModelProto, feeds: Feeds, noise: float, seed: int) -> Feeds:
    """What "nodes" gives with every floating-point operand off by so many units of its type, for models that cannot be
    run in float64. Raises NoOracle."""
    rng = np.random.default_rng(seed)

    def change(value: np.ndarray) -> np.ndarray:
        return np.asarray(value * (1.0 + noise * _unit(value.dtype) * _signs(rng, value))).astype(value.dtype)

    return run_other(model, "nodes", feeds, change)


class Rounding:
    """The model in float64, as it is and with noise of the size of rounding errors. Raises NoOracle, MemoryError."""

    def __init__(self, model: onnx.ModelProto, freedom: Freedom = NONE, weights: Collection[str] = ()) -> None:
        self.unbounded, self.without_nan = freedom.unbounded, freedom.without_nan
        self.error_of_sums = (error_in_sequence if freedom.in_sequence else error_in_blocks if freedom.in_blocks
                              else None)  # fmt: skip
        self.inner = {**INNER, **dict.fromkeys(freedom.loose, lambda node, x: 1.0),
                      **dict.fromkeys(freedom.sequential, _of_many)}  # fmt: skip
        self.vanishing = freedom.vanishing
        self.poles = Poles()
        try:
            declared = types_of(model)
        except Unknown as error:
            raise NoOracle(str(error)) from error
        narrowed = freedom.as_float32 or freedom.coarse
        self.types = {k: F32 if narrowed and t == F64 else t for k, t in declared.items()}
        self.ranges = self.types if freedom.as_float32 else declared  # types of numbers as great as results may be
        self.wide = kept_wide(model, self.types, weights) if freedom.kept_wide else frozenset()
        self.outputs = [o.name for o in model.graph.output]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self.evaluator: Any = exact.evaluator(widened(model))
            except MemoryError:
                raise
            except Exception as error:  # as in run_other
                raise NoOracle(f"{type(error).__name__}: {error}"[:300]) from error
        self._watch_bodies(self.evaluator)

    def _watch_bodies(self, evaluator: Any) -> None:
        """Have branches and loops' bodies run step by step here, too: they round as all else does."""
        for node in evaluator.rt_nodes_:
            for attribute in node.onnx_node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    body = getattr(node, attribute.name)
                    body.run = partial(self._run_body, body)
                    self._watch_bodies(body)

    def _run_body(self, body: Any, _: None, feeds: dict[str, Any], **__: Any) -> list[Any]:
        results = {"": None, **body.rt_inits_, **feeds}
        for node in body.rt_nodes_:
            self._step(node, results, self.noise, self.rng)
        return [results[name] for name in body.output_names]

    def run(self, feeds: Feeds, noise: float = 0.0, seed: int = 0, fp: str = "strict") -> Feeds:
        """The outputs; floats in float64. Raises NoOracle.

        Args:
            noise: how many units of rounding every operand of every node is off by.
            fp: "strict", or products may be off by more: algorithms of fewer multiplications mix neighbouring elements;
                of "fast" ones all elements of an image.
            seed: of the noise. With an even one floats are rounded to their types too: that makes ties, which decide
                indices, and numbers that are as large as a type's precision of others vanish.
        """
        self.noise, self.rng = noise, np.random.default_rng(seed)
        self.rounding = seed > 0 and seed % 2 == 0
        self.fp = fp if noise > 0 else "strict"
        self.bounded: dict[str, float] = {}  # value → what it is no less than
        self.poles.begin(exact=seed == 0)
        self.blank = 0.0 if seed % 2 else np.nan  # what nobody can say: not the same in any two runs
        self.mixed_blanks = seed % 4 == 3  # some of each: a maximum may be any of several that nobody can say
        results: dict[str, Any] = {"": None, **self.evaluator.rt_inits_}
        results.update({k: _wide(v) for k, v in feeds.items()})
        with limited(SECONDS), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                for node in self.evaluator.rt_nodes_:
                    self._step(node, results, noise, self.rng)
                return {name: np.asarray(self._read(name, results[name])) for name in self.outputs}
            except (NoOracle, MemoryError):
                raise
            except Exception as error:  # as in run_other
                raise NoOracle(f"{type(error).__name__}: {error}"[:300]) from error

    def _step(self, node: Any, results: dict[str, Any], noise: float, rng: np.random.Generator) -> None:
        inputs = [self._noisy(name, results[name], noise, rng) for name in node.input]
        if node.op_type == "Range":  # its operands decide the result's shape
            inputs = [results[name] for name in node.input]
        if node.op_type in ("Resize", "Upsample"):  # scales decide the result's shape
            inputs[1:] = [results[name] for name in node.input[1:]]
            unit = _unit(F64 if self.types.get(node.input[0]) == F64 else F32)
            node.shift = (lambda at: noise * unit * _signs(rng, at)) if noise else None
        if noise and node.op_type == "GridSample":
            inputs[1] = self._moved(node.input[1], inputs[1], noise, rng)
        if noise and node.op_type in self.without_nan and self.blank == 0 and _is_floats(inputs[0]):
            inputs[0] = np.where(np.isnan(inputs[0]), np.inf if node.op_type.endswith("Min") else -np.inf, inputs[0])
        if not self.wide.intersection(node.output):
            inputs = [self._read(name, x) for name, x in zip(node.input, inputs, strict=True)]
        if node.need_context():
            outer = {k: self._noisy(k, self._read(k, v), noise, rng) for k, v in results.items()}
            outputs = node.run(*inputs, context=outer)
        else:
            outputs = node.run(*inputs)
        if noise and node.op_type in ("ArgMax", "ArgMin") and _is_floats(inputs[0]):
            dtype = self.types.get(node.input[0], F64)
            unit = _unit(dtype if dtype in MANTISSA else F32)
            outputs = (any_of_the_greatest(node, inputs[0], unit, self.blank == 0),)
        if self.fp != "strict" and node.op_type in PRODUCTS and _is_floats(outputs[0]):
            outputs = (self._mixed(node, inputs, outputs[0], noise, rng),)
        for name, value in zip(node.output, outputs, strict=False):
            value = _wide(value)
            dtype, ranges = self.types.get(name), self.ranges.get(name)
            if noise and node.op_type == "Cast" and not _is_floats(value) and _is_floats(inputs[0]):
                value = self._overflown(value, inputs[0])
            if noise and node.op_type == "MaxPool" and not _is_floats(value):
                value = np.where(value == NOWHERE, NOWHERE if self.blank == 0 else -NOWHERE - 1, value)
            if noise and node.op_type in SUMS and self.blank == 0 and _is_floats(value):
                value = np.where(_cancels(node, inputs, value, dtype), 0.0, value)
            if noise and _is_floats(value):
                value = np.where(_is_open(node, inputs, value, ranges), self._blanks(value.shape, rng), value)
            if noise and self.error_of_sums is not None and node.op_type in SUMS and _is_floats(value):
                value = value + self._of_order(node, inputs, value, dtype) * _signs(rng, value)
            if noise and dtype is not None and dtype in MANTISSA and node.op_type in self.inner and _is_floats(value):
                amount = noise * _unit(dtype) * self.inner[node.op_type](node, inputs[0]) * _signs(rng, value)
                vanishes = (np.abs(value) < np.abs(amount)) & ((amount > 0) | (self.blank == 0))
                value = np.where(vanishes, 0.0, value + amount)
            if node.op_type == "Tan" and _is_floats(value):
                value = np.where(self.poles.passed(name, inputs[0]), self._blanks(value.shape, rng), value)
            if noise and node.op_type != "Constant" and _is_floats(value):
                self.bounded.update({name: BOUNDED[node.op_type]} if node.op_type in BOUNDED else {})
                value = self._noisy(name, value, noise, rng)
            if noise and node.op_type in self.vanishing and self.blank == 0 and ranges in (F32, F64):
                value = np.where(np.abs(value) < 1 / np.finfo(ranges).max, 0.0, value)
            results[name] = self._stored(name, value)

    def _stored(self, name: str, value: Any) -> Any:
        """A result as its type has it: rounded in every other run, infinite beyond its greatest number."""
        dtype, ranges = self.types.get(name), self.ranges.get(name)
        if dtype not in MANTISSA or not _is_floats(value) or name in self.wide:
            return value
        if self.rounding and dtype == ranges:
            value = np.asarray(value).astype(dtype).astype(F64)
        return value if ranges == F64 or (self.unbounded and ranges == F16) else overflown(np.asarray(value), ranges)

    def _read(self, name: str, value: Any) -> Any:
        """A value of float16 that was kept in float32, by who takes it in float16."""
        return overflown(np.asarray(value), F16) if name in self.wide else value

    def _blanks(self, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        """What stands where nobody can say."""
        return np.where(rng.random(shape) < 0.5, 0.0, np.nan) if self.mixed_blanks else self.blank

    def _mixed(self, node: Any, inputs: list[Any], value: Any, noise: float, rng: np.random.Generator) -> Any:
        """A product off by units of the sum of its terms' magnitudes; of a convolution, of the image's greatest sum."""
        (size,) = node.run(*(np.abs(x) for x in inputs if x is not None))
        if node.op_type != "MatMul" and size.ndim > 2:
            size = size.max(axis=tuple(range(1, size.ndim)), keepdims=True, initial=0)
        dtype = self.types.get(node.output[0], F64)
        amount = noise * MIXING * 2.0 ** -MANTISSA[dtype] * _finite(size)
        blank = amount if self.blank == 0 else np.nan  # every other run rounds only, so that what that does is met too
        if node.op_type != "Gemm" and self.fp == "fast":
            within = tuple(range(1, inputs[0].ndim)) or None  # a vector is one row
            wild = ~np.isfinite(inputs[0]).all(axis=within, keepdims=True)
            amount = np.where(wild, blank, amount) if inputs[0].ndim == value.ndim else amount
        if node.op_type == "Conv" and dtype == F32 and value.ndim == 4:
            greatest = _finite(np.abs(inputs[0])).max(axis=(1, 2, 3), keepdims=True, initial=0)
            weights = np.sqrt((_finite(inputs[1]) ** 2).sum(axis=(1, 2, 3)))[:, None, None]
            amount = np.maximum(amount, TILE_ERROR / 2 * greatest * weights)
            wild = ~np.isfinite(inputs[0]).all(axis=(1, 2, 3), keepdims=True)  # reaches its whole tile
            blank = amount if self.blank == 0 else np.nan
            amount = np.where(wild | (greatest * np.maximum(weights, 1) > TILE_MOST), blank, amount)
        noisy = value + amount * _signs(rng, value)
        if self.blank != 0 or self.mixed_blanks:
            return noisy
        return np.where(np.abs(value) < amount, 0.0, noisy)  # what large numbers cancel to may be 0, as in `_cancels`

    def _of_order(self, node: Any, inputs: list[Any], value: Any, dtype: np.dtype | None) -> np.ndarray:
        """How far a sum may be off by the order of its terms; half precisions are summed in f32."""
        assert self.error_of_sums is not None
        unit = _unit(F64 if dtype is not None and dtype == F64 else F32)
        return self.error_of_sums(terms_of(node, inputs, value)) * unit * _finite(magnitudes(node, inputs))

    def _overflown(self, value: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Integers made of infinities, of NaN and of numbers beyond their type: ONNX leaves open which.

        In one run they are the least, in one the greatest (so is what is NaN there because nobody can say what it is);
        in one the greatest of those above and the least of others, and of NaN 0, as some instruction sets have it.
        """
        if value.dtype.kind not in "iu":
            return value
        limits = np.iinfo(value.dtype)
        inside = (x > float(limits.min) - 1) & (x < float(limits.max))
        above = (x > 0) if self.mixed_blanks else np.full(x.shape, self.blank != 0)
        beyond = np.array([limits.min, limits.max], value.dtype)[above.astype(int)]
        return np.where(inside, value, np.where(np.isnan(x) & self.mixed_blanks, 0, beyond).astype(value.dtype))

    def _moved(self, name: str, grid: Any, noise: float, rng: np.random.Generator) -> Any:
        """Positions off by units of 1: they become places by adding 1, in float32 at least."""
        dtype = self.types.get(name, F64)
        return grid + noise * _unit(F64 if dtype == F64 else F32) * _signs(rng, grid)

    def _noisy(self, name: str, value: Any, noise: float, rng: np.random.Generator) -> Any:
        dtype = self.types.get(name)
        if not noise or dtype is None or dtype not in MANTISSA or not _is_floats(value):
            return value
        noisy = value * (1.0 + noise * _unit(dtype) * _signs(rng, value))
        return np.clip(noisy, self.bounded[name], 1.0) if name in self.bounded else noisy


def _unit(dtype: np.dtype) -> float:
    """The largest relative error of one rounding."""
    return max(2.0 ** -MANTISSA[dtype], 2.0**-50) / 2


def _signs(rng: np.random.Generator, like: Any) -> np.ndarray:
    return rng.choice([-1.0, 1.0], np.shape(like))


def _is_floats(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype == F64


def _wide(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)) and is_float(value.dtype):
        return np.asarray(value).astype(F64)
    return value
