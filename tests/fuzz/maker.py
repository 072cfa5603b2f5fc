"""Builds one random model: its values so far, fresh inputs and constants, and nodes whose result the caller knows.

Owns the state of a graph that grows. What operators demand of their operands is the families' business.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from .contents import ALL, BF16, BOOL, F32, I64, WEIGHTS, ceiling, is_float, limits, random_array
from .sizes import ONE, RUNS, Shape, Size, most_elements, numbers, static

SIZES = (1, 1, 2, 3, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 65)
MOST_ELEMENTS = 6000
SYMBOLS = ("N", "M", "S")


@dataclass(frozen=True)
class Value:
    """A tensor of the graph. `bound`: about the greatest magnitude of its floats; `kind`: input, constant or node."""

    name: str
    dtype: np.dtype
    shape: Shape
    bound: float = 4.0
    kind: str = "node"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return is_float(self.dtype)


@cache
def allowed_types(op: str, opset: int, domain: str = "") -> tuple[tuple[np.dtype, ...], ...]:
    """The element types that ONNX allows for each input of an operator, of those that graphs are made of."""
    schema = defs.get_schema(op, opset, domain)
    variables = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    known = {_type_text(d): d for d in ALL}
    return tuple(tuple(known[t] for t in variables.get(i.type_str, [i.type_str]) if t in known) for i in schema.inputs)


@cache
def attribute_names(op: str, opset: int, domain: str = "") -> frozenset[str]:
    """The attributes of an operator in one operator set."""
    return frozenset(defs.get_schema(op, opset, domain).attributes)


def _type_text(dtype: np.dtype) -> str:
    names = {"float32": "float", "float64": "double"}
    return f"tensor({names.get(dtype.name, dtype.name)})"


def tensor_code(dtype: np.dtype) -> int:
    """onnx.TensorProto's number of an element type."""
    return helper.np_dtype_to_tensor_dtype(dtype)


@dataclass
class Maker:
    """One graph under construction; a body's maker shares counters, inputs and constants with that of its graph."""

    rng: random.Random
    numpy: np.random.Generator
    opset: int = 22
    wild: bool = False
    symbols: dict[str, Size] = field(default_factory=dict)
    large: bool = False
    values: list[Value] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    feeds: list[dict[str, np.ndarray]] = field(default_factory=lambda: [{} for _ in range(RUNS)])
    used: set[str] = field(default_factory=set)
    counter: list[int] = field(default_factory=lambda: [0])
    outer: Maker | None = None
    ends: list[Value] = field(default_factory=list)
    types: dict[str, np.dtype] = field(default_factory=dict)

    # --- choices

    def chance(self, share: float) -> bool:
        """True that often."""
        return self.rng.random() < share

    def choose(self, options: Sequence[Any]) -> Any:
        return self.rng.choice(options)

    def size(self, symbolic: float = 0.15) -> Size:
        """A random dimension, now and then one of the graph's symbols."""
        if self.symbols and self.chance(symbolic):
            return self.choose(list(self.symbols.values()))
        if self.chance(0.01):
            return static(0)
        return static(self.choose(SIZES))

    def shape(self, rank: int | None = None, symbolic: float = 0.15) -> Shape:
        """A random shape of few elements."""
        if rank is None:
            rank = self.rng.choices(range(7), [2, 4, 8, 8, 6, 2, 1])[0]
        while True:
            found = tuple(self.size(symbolic) for _ in range(rank))
            if most_elements(found) <= MOST_ELEMENTS:
                return found

    def dtype(self, options: Iterable[np.dtype] = ALL) -> np.dtype:
        """One of these types, common ones more often."""
        options = list(options)
        return self.rng.choices(options, [WEIGHTS.get(d, 1.0) for d in options])[0]

    def name(self, stem: str) -> str:
        """A name that no other value has."""
        self.counter[0] += 1
        return f"{stem}{self.counter[0]}"

    # --- values

    def root(self) -> Maker:
        """The maker of the whole model's graph."""
        return self.outer.root() if self.outer else self

    def input(
        self,
        dtype: np.dtype,
        shape: Shape,
        low: float = -2.0,
        high: float = 2.0,
        contents: Sequence[np.ndarray] | None = None,
    ) -> Value:
        """A model's input of random content, or of the one given for each run."""
        root, wild = self.root(), self.wild and contents is None
        if contents is None:
            contents = [random_array(self.numpy, dtype, numbers(shape, r), low, high, wild) for r in range(RUNS)]
        value = Value(self.name("x"), dtype, shape, max(abs(low), abs(high)), "input")
        root.inputs.append(value)
        for feed, array in zip(root.feeds, contents):
            feed[value.name] = array
        return self._keep(value, root)

    def constant(self, array: np.ndarray, stem: str = "c") -> Value:
        """A constant: an initializer, or a node Constant."""
        array = np.asarray(array)
        floats = array.astype(np.float64) if is_float(array.dtype) else None
        bound = float(np.abs(floats).max(initial=0, where=np.isfinite(floats))) if floats is not None else 4.0
        value = Value(self.name(stem), array.dtype, tuple(map(static, array.shape)), bound, "constant")
        tensor = numpy_helper.from_array(array, value.name)
        if self.chance(0.15) and array.dtype != BF16:
            self.nodes.append(helper.make_node("Constant", [], [value.name], value=tensor))
            return self._keep(value, self)
        self.root().initializers.append(tensor)
        return self._keep(value, self.root())

    def ints(self, numbers_: Sequence[int] | int, dtype: np.dtype = I64, runtime: bool = False) -> Value:
        """A small constant of integers, for shapes and axes; `runtime`: an input of that content instead."""
        array = np.array(numbers_, dtype)
        if runtime:
            return self.input(dtype, tuple(map(static, array.shape)), contents=[array] * RUNS)
        value = Value(self.name("k"), dtype, tuple(map(static, array.shape)), kind="constant")
        self.root().initializers.append(numpy_helper.from_array(array, value.name))
        self.root().types[value.name] = dtype
        return value

    def _keep(self, value: Value, home: Maker) -> Value:
        """Make a value known where it lives, and here, so that later nodes take it up."""
        self.root().types[value.name] = value.dtype
        home.values.append(value)
        if home is not self:
            self.values.append(value)
        return value

    def fresh(
        self, dtype: np.dtype, shape: Shape, low: float = -2.0, high: float = 2.0, constant: float = 0.5
    ) -> Value | None:
        """An input or a constant of that shape; None where the shape can be declared by neither."""
        if all(s.is_static for s in shape) and self.chance(constant):
            array = random_array(self.numpy, dtype, numbers(shape, 0), low, high, self.wild and self.chance(0.3))
            return self.constant(array)
        if all(s.is_static or s.symbol for s in shape):
            return self.input(dtype, shape, low, high)
        return None

    def pick(
        self,
        dtypes: Sequence[np.dtype] = ALL,
        ranks: Sequence[int] | None = None,
        where: Callable[[Value], bool] = lambda v: True,
        fresh: float = 0.1,
    ) -> Value:
        """A value of the graph that suits, late ones more often; else a fresh one."""
        suits = [v for v in self.values if v.dtype in dtypes and (ranks is None or v.rank in ranks) and where(v)]
        if suits and not self.chance(fresh):
            last = len(suits) - 1 - min(int(self.rng.expovariate(0.5)), len(suits) - 1)
            return suits[last]
        if not suits and self.values and self.chance(0.7):
            turned = self._converted(dtypes, ranks, where)
            if turned is not None:
                return turned
        for _ in range(40):
            shape = self.shape(self.choose(ranks) if ranks is not None else None)
            dtype = self.dtype(dtypes)
            if where(Value("", dtype, shape)):
                made = self.fresh(dtype, shape, constant=0.25)
                if made is not None:
                    return made
        raise Refused("no such value")

    def _converted(
        self, dtypes: Sequence[np.dtype], ranks: Sequence[int] | None, where: Callable[[Value], bool]
    ) -> Value | None:
        """A late value of another type, cast."""
        candidates = [v for v in self.values[-6:] if ranks is None or v.rank in ranks]
        if not candidates:
            return None
        value, dtype = self.choose(candidates), self.dtype(dtypes)
        if not where(Value("", dtype, value.shape)):
            return None
        return self.cast(value, dtype)

    # --- nodes

    def node(
        self,
        op: str,
        inputs: Sequence[Value | None],
        results: Sequence[tuple[np.dtype, Shape] | None],
        bound: float | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """A node and its outputs, given their types (None: an optional output left out).

        Attributes that are None, or that the operator set does not have, are left out.
        """
        for shape in (r[1] for r in results if r is not None):
            if most_elements(shape) > (400_000 if self.large else 8 * MOST_ELEMENTS):
                raise Refused("too large")
            if any(s.least < 0 for s in shape):
                raise Refused("a negative size")
        opset = self.opset if not domain else 3
        has = attribute_names(op, opset, domain)
        given = {k: v for k, v in attributes.items() if v is not None and k in has}
        names = [self.name("v") if r is not None else "" for r in results]
        operands = [v.name if v is not None else "" for v in inputs]
        while operands and not operands[-1]:
            operands.pop()
        self.nodes.append(helper.make_node(op, operands, names, domain=domain, name=f"{op}_{self.counter[0]}", **given))
        self.used.update(o for o in operands if o)
        size = max((v.bound for v in inputs if v is not None and v.is_float), default=4.0) if bound is None else bound
        made = [Value(n, r[0], r[1], size) for n, r in zip(names, results) if r is not None]
        for value in made:
            self.types[value.name] = self.root().types[value.name] = value.dtype
            self.values.append(value)
        return [self.settle(v) for v in made]

    def one(
        self,
        op: str,
        inputs: Sequence[Value | None],
        dtype: np.dtype,
        shape: Shape,
        bound: float | None = None,
        **attributes: Any,
    ) -> Value:
        """A node with one output."""
        return self.node(op, inputs, [(dtype, shape)], bound, **attributes)[0]

    def settle(self, value: Value) -> Value:
        """The value itself, or a bounded version where its floats may have grown too large."""
        if not value.is_float or value.bound <= ceiling(value.dtype):
            return value
        if self.chance(0.5):
            factor = 2.0 / value.bound
            if factor > 1e-7:
                return self.one("Mul", [value, self.scalar(factor, value.dtype)], value.dtype, value.shape, 2.0)
        return self.within(value, -4.0, 4.0)

    def scalar(self, number: float, dtype: np.dtype) -> Value:
        """A constant of rank 0."""
        return self.constant(np.array(number, np.float64).astype(dtype))

    def within(self, value: Value, low: float, high: float) -> Value:
        """The value clipped to a range; not in wild graphs."""
        if self.wild or (value.kind == "node" and value.bound <= min(high, -low)):
            return value
        if value.dtype not in allowed_types("Clip", self.opset)[0]:
            value_ = self.one("Tanh", [value], value.dtype, value.shape, 1.0)
            if low >= 0:
                raise Refused("no Clip")
            return value_
        bounds = [self.scalar(low, value.dtype), self.scalar(high, value.dtype)]
        return self.one("Clip", [value, *bounds], value.dtype, value.shape, max(abs(low), abs(high)))

    def cast(self, value: Value, dtype: np.dtype) -> Value:
        """The value in another type; floats are bounded first, so that integers hold them."""
        if value.dtype == dtype:
            return value
        if value.is_float and not is_float(dtype) and dtype != BOOL:
            if self.wild:
                raise Refused("Inf and NaN are no integers")
            low, high = limits(dtype)
            value = self.within(value, max(low, -100.0), min(high, 100.0))
        bound = value.bound if value.is_float else float(2.0**value.dtype.itemsize) if value.dtype != BOOL else 1.0
        if not value.is_float and value.dtype.itemsize > 1:
            bound = ceiling(dtype) if is_float(dtype) else 4.0
            if is_float(dtype) and dtype in (BF16, np.dtype("float16")):
                raise Refused("integers may be too large")
        elif not value.is_float:
            bound = 256.0 if value.dtype != BOOL else 1.0
        return self.one("Cast", [value], dtype, value.shape, bound, to=tensor_code(dtype))

    def opaque(self, at: Sequence[int]) -> Size:
        """A size that only the run knows, with its value in each."""
        return Size(f"<{self.name('run')}>", tuple(at))

    def tensor(self, array: np.ndarray) -> onnx.TensorProto:
        """An attribute's tensor."""
        return numpy_helper.from_array(array, "value")

    def retire(self, count: int) -> None:
        """The last values are outputs of the graph that nothing else uses."""
        for _ in range(count):
            self.ends.append(self.values.pop())

    def same_or_broadcast(self, value: Value, dtype: np.dtype | None = None, **range_: float) -> Value:
        """An operand that broadcasts against `value`: one of the graph's, or a fresh one with axes of size 1."""
        dtype = dtype or value.dtype
        others = [v for v in self.values if v.dtype == dtype and _fits(v.shape, value.shape)]
        if others and not range_ and self.chance(0.6):
            return self.choose(others[-8:])
        shape = tuple(ONE if self.chance(0.25) or not (s.is_static or s.symbol) else s for s in value.shape)
        shape = shape[self.rng.randint(0, len(shape)) if self.chance(0.4) else 0 :]
        made = self.fresh(dtype, shape, **range_)
        assert made is not None
        return made


def _fits(shape: Shape, into: Shape) -> bool:
    if len(shape) > len(into):
        return False
    return all(a in (b, ONE) for a, b in zip(reversed(shape), reversed(into)))


class Refused(Exception):
    """What a family wanted cannot be built here: another operator takes its turn."""


__all__ = ["BOOL", "F32", "Maker", "Refused", "Value", "allowed_types", "attribute_names", "tensor_code"]
