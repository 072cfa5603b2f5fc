"""From the shapes of a request to its dimensions: values of symbols, checks, shapes of results, sizes of arenas.

Owns the messages about wrong shapes. Pure arithmetic on a manifest; knows nothing of threads or native code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..errors import InvalidInput, ResourceLimit
from .dims import Dim, dim_text, evaluate, shape_text, symbols_of
from .manifest import Constraint, Manifest, NativeStep, Symbol
from .memory import ALIGNMENT

MAX_NBYTES = 1 << 46
MOST_EMPTY = 1 << 32
"""Of a tensor without elements, the product of its other lengths: native code runs through rows of nothing, too."""
TIMED_CALLS = 8
Shape = tuple[int, ...]

HOLDS = {
    "==": lambda a, b: a == b,
    "<=": lambda a, b: a <= b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
}


def _whole_lines(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def check_size(shape: Shape, where: str) -> None:
    """Check the number of elements, or of rows of nothing.

    Raises:
        ResourceLimit: more than any machine holds, or goes through.
    """
    if prod(shape) > MAX_NBYTES:
        raise ResourceLimit("a tensor is too large", where=where, found=shape)
    if 0 in shape and prod(length for length in shape if length) > MOST_EMPTY:
        expected = f"at most {MOST_EMPTY} beside the empty dimensions"
        raise ResourceLimit("a tensor without elements is too large", where=where, expected=expected, found=shape)


class Timing:
    """What is known of how long native calls of one shape take.

    Attributes:
        is_brief: whether a call takes so little that it need not release the GIL; brief.py times `n_untimed` calls
            more to find out, of which the quickest took `least` seconds until now, and later the one after `n_brief`.
    """

    __slots__ = ("is_brief", "least", "n_brief", "n_untimed")

    def __init__(self) -> None:
        self.is_brief, self.n_brief, self.n_untimed, self.least = False, 0, TIMED_CALLS, float("inf")


class Binding(Timing):
    """The dimensions of requests of one shape, and how long their native calls take.

    Attributes:
        values: value per symbol that is known before the run.
        dims: the native array of all symbols' values (0 where a host step binds it), and its address.
        outputs: (shape, dtype) per output, or None where a host step decides.
        arena_nbytes: the largest arena of the steps, and `scratch_nbytes` more per thread; 0 where a host step decides.
        rows: rows along the batch axis, 0 for a plan that must not be cut.
        cuts: ways to cut the request by number of instances, and of short pieces at the end; cuts.py fills it.
        steps: what steps need of the sizes, by block; step_records.py fills it.
        ways: in which a lone request may be served; the session fills it, None: on its own instances only.
    """

    __slots__ = (
        "arena_nbytes", "cuts", "dims", "dims_address", "outputs", "rows", "scratch_nbytes", "steps", "values", "ways",
    )

    def __init__(
        self,
        values: dict[str, int],
        dims: ctypes.Array[ctypes.c_int64],
        outputs: list[tuple[Shape, np.dtype]] | None,
        memory: tuple[int, int],
        rows: int,
    ) -> None:
        super().__init__()
        self.values, self.dims, self.outputs, self.rows = values, dims, outputs, rows
        self.arena_nbytes, self.scratch_nbytes = memory
        self.dims_address = ctypes.addressof(dims)
        self.cuts: dict[tuple[int, int], Any] = {}
        self.ways: Any = None
        self.steps: list[Any] | None = None


class Signature:
    """Turns the shapes of a plan's inputs into bindings."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._dims_type = ctypes.c_int64 * max(1, len(manifest.symbols))
        known = {s.name for s in manifest.symbols if s.input is not None}
        self._told = [c for c in manifest.constraints if symbols_of(c.left) | symbols_of(c.right) <= known]
        native = manifest.native_steps()
        self._native = native
        shapes = [spec.dims for spec in manifest.outputs]
        self._static_outputs = all(dims is not None and symbols_of(("+", *dims)) <= known for dims in shapes)
        self._static_arena = all(symbols_of(("+", step.arena, step.scratch)) <= known for step in native)

    def bind(self, shapes: Sequence[Shape]) -> Binding:
        """The binding of a request whose inputs have these shapes, in the order of the manifest.

        Raises:
            InvalidInput: a shape that the plan does not allow.
            ResourceLimit: inputs, results or scratch memory beyond any machine's.
        """
        manifest = self.manifest
        values: dict[str, int] = {}
        for spec, shape in zip(manifest.inputs, shapes, strict=True):
            if spec.dims is not None and len(shape) != len(spec.dims):
                raise self._wrong_shape(spec.name, spec.dims, shape)
        for symbol in manifest.symbols:
            if symbol.input is not None and symbol.axis is not None:
                values[symbol.name] = self.checked(symbol, shapes[symbol.input][symbol.axis])
        for spec, shape in zip(manifest.inputs, shapes, strict=True):
            if spec.dims is not None and tuple(evaluate(dim, values) for dim in spec.dims) != shape:
                raise self._wrong_shape(spec.name, spec.dims, shape, values)
            check_size(shape, f"input {spec.name!r}")
        for c in self._told:
            self.check(c, values)
        return self.from_values(values)

    def from_values(self, values: dict[str, int]) -> Binding:
        """The binding of symbols' values that are already checked."""
        manifest = self.manifest
        outputs, memory = None, (0, 0)
        if self._static_outputs:
            outputs = [(self.shape(spec.dims or (), values), spec.numpy) for spec in manifest.outputs]
        if self._static_arena:
            sizes = [self.memory(step, values) for step in self._native]
            memory = max((a for a, _ in sizes), default=0), max((s for _, s in sizes), default=0)
        rows = values[manifest.batch.symbol] if manifest.batch else 0
        return Binding(values, self.dims_array(values), outputs, memory, rows)

    def dims_array(self, values: dict[str, int]) -> ctypes.Array[ctypes.c_int64]:
        """The native array of all symbols' values; symbols without one are 0."""
        return self._dims_type(*(values.get(symbol.name, 0) for symbol in self.manifest.symbols))

    def checked(self, symbol: Symbol, value: int) -> int:
        """The value, if it lies within the symbol's bounds.

        Raises:
            InvalidInput: it does not.
        """
        most = MAX_NBYTES if symbol.max is None else symbol.max
        if value < symbol.min or value > most:
            expected = f"{symbol.min} to {symbol.max}" if symbol.max is not None else f"{symbol.min} or more"
            where = f"dimension {symbol.name}"
            if symbol.input is not None:
                where += f", axis {symbol.axis} of input {self.manifest.inputs[symbol.input].name!r}"
            raise InvalidInput("out of bounds", where=where, expected=expected, found=value)
        return value

    @staticmethod
    def check(constraint: Constraint, values: dict[str, int]) -> None:
        """Check a constraint whose symbols all have a value.

        Raises:
            InvalidInput: it does not hold.
        """
        left, right = evaluate(constraint.left, values), evaluate(constraint.right, values)
        if not HOLDS[constraint.op](left, right):
            expected = constraint.text or f"{dim_text(constraint.left)} {constraint.op} {dim_text(constraint.right)}"
            raise InvalidInput("the inputs' shapes do not fit together", expected=expected, found=values)

    @staticmethod
    def shape(dims: Sequence[Dim], values: dict[str, int]) -> Shape:
        """Dimensions as numbers.

        Raises:
            InvalidInput: one is negative.
            ResourceLimit: see `check_size`.
        """
        shape = tuple(evaluate(dim, values) for dim in dims)
        if min(shape, default=0) < 0:
            expected = f"{shape_text(tuple(dims))} with no negative dimension"
            raise InvalidInput("the inputs are too small for this model", expected=expected, found=shape)
        if 0 in shape or prod(shape) > MAX_NBYTES:  # texts take longer than sizes
            check_size(shape, shape_text(tuple(dims)))
        return shape

    @staticmethod
    def memory(step: NativeStep, values: dict[str, int]) -> tuple[int, int]:
        """Bytes of a step's arena and, per thread, of its scratch memory, in whole cache lines.

        Raises:
            ResourceLimit: negative or beyond any machine's memory.
        """
        sizes = evaluate(step.arena, values), evaluate(step.scratch, values)
        for size in sizes:
            if not 0 <= size <= MAX_NBYTES:
                raise ResourceLimit("scratch memory too large", expected=f"at most {MAX_NBYTES} bytes", found=size)
        return _whole_lines(sizes[0]), _whole_lines(sizes[1])

    def _wrong_shape(
        self, name: str, dims: tuple[Dim, ...], shape: Shape, values: dict[str, int] | None = None
    ) -> InvalidInput:
        expected = shape_text(dims)
        used = sorted(symbols_of(("+", *dims))) if values else []
        if used and values:
            expected += " with " + ", ".join(f"{s}={values[s]}" for s in used)
        return InvalidInput("wrong shape", where=f"input {name!r}", expected=expected, found=list(shape))
