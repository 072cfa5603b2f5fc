"""Types of values: tensors, and what is none. Knows no graphs; re-exports element types and symbolic dimensions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import InvalidModel
from .dim import (
    Dim,
    SymDim,
    at_least,
    at_most,
    ceil_div,
    dim_max,
    dim_min,
    dim_to_json,
    dims_equal,
    evaluate,
    exact_max,
    exact_min,
    floor_div,
    guessing,
    is_found,
    is_one_or_empty,
    lower_bound,
    noting_positive,
    prod,
    substitute,
    symbol,
    symbols_of,
    taking_found_as_positive,
    upper_bound,
)
from .dim_text import dim_from_json, parse_dim
from .element_types import (
    BF16,
    BOOL,
    C64,
    C128,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    NARROW,
    STR,
    U8,
    U16,
    U32,
    U64,
    DType,
    float_info,
)

__all__ = [
    "BF16", "BOOL", "C64", "C128", "F16", "F32", "F64", "I8", "I16", "I32", "I64", "NARROW", "STR", "U8", "U16", "U32",
    "U64", "DType", "Dim", "MapType", "NO_ELEMENT", "OptionalType", "SequenceType", "Shape", "SymDim", "TensorType",
    "Type", "VARYING", "at_least", "at_most", "ceil_div", "covering", "dim_from_json", "dim_max", "dim_min",
    "dim_to_json", "dims_equal", "evaluate", "exact_max", "exact_min", "float_info", "floor_div", "in_sequence",
    "guessing", "is_found", "is_native", "is_one_or_empty", "lower_bound", "noting_positive", "parse_dim", "parse_type",
    "prod", "substitute", "symbol", "symbols_of", "taking_found_as_positive", "upper_bound",
]  # fmt: skip

Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class TensorType:
    """A tensor's element type, logical shape (ONNX's) and physical axis order.

    `layout` lists the logical axes from the outermost in memory to the innermost; None means ONNX's own order, and
    the identity is always stored as None. `shape` None means unknown rank, allowed for values of Host operators only.
    `within` makes it a window: its elements lie where those of a part of a tensor of that shape lie; printed as
    `f32[N,64|256,28,28]`, 64 channels of 256.
    Raises InvalidModel for a negative dimension, a layout that is no permutation, or a window larger than its tensor.
    """

    dtype: DType
    shape: Shape | None
    layout: tuple[int, ...] | None = None
    within: Shape | None = None

    def __post_init__(self) -> None:
        if self.shape is None:
            if self.layout is not None or self.within is not None:
                raise InvalidModel("a tensor of unknown rank cannot have a layout", found=self.layout or self.within)
            return
        shape = tuple(d if isinstance(d, SymDim) else int(d) for d in self.shape)
        object.__setattr__(self, "shape", shape)
        if any(isinstance(d, int) and d < 0 for d in shape):
            raise InvalidModel("negative dimension", expected="dimensions >= 0", found=shape_text(shape))
        if self.layout is not None:
            layout = tuple(self.layout)
            if sorted(layout) != list(range(len(shape))):
                raise InvalidModel("layout is no permutation of the axes", found=layout, expected=f"rank {len(shape)}")
            object.__setattr__(self, "layout", None if layout == tuple(range(len(shape))) else layout)
        if self.within is not None:
            pairs = list(zip(shape, self.within, strict=True)) if len(shape) == len(self.within) else [(1, 0)]
            if any(isinstance(d, int) and isinstance(w, int) and d > w for d, w in pairs):
                raise InvalidModel("no window of a tensor of that shape", found=self.within, expected=shape_text(shape))
            object.__setattr__(self, "within", None if self.within == shape else tuple(self.within))

    @property
    def dims(self) -> Shape:
        """The shape of a tensor whose rank is known. Raises InvalidModel if it is not."""
        if self.shape is None:
            raise InvalidModel("rank unknown at compile time", found=self)
        return self.shape

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def axis_order(self) -> tuple[int, ...]:
        """Logical axes, outermost in memory first."""
        return self.layout if self.layout is not None else tuple(range(self.rank))

    @property
    def physical_shape(self) -> Shape:
        """Dims in memory order, outermost first."""
        return tuple(self.dims[a] for a in self.axis_order)

    @property
    def strides(self) -> Shape:
        """Strides in elements, one per LOGICAL axis; dense but for a window's."""
        sizes = self.dims if self.within is None else self.within
        out: list[Dim] = [1] * self.rank
        step: Dim = 1
        for axis in reversed(self.axis_order):
            out[axis] = step
            step = step * sizes[axis]
        return tuple(out)

    @property
    def pitch(self) -> Dim:
        """Elements from one run along the innermost axis to the next; see `has_rows`."""
        sizes = self.dims if self.within is None else self.within
        return sizes[self.axis_order[-1]] if sizes else 1

    @property
    def has_rows(self) -> bool:
        """Whether all runs along the innermost axis lie `pitch` apart, so that one number tells where a run is."""
        return self.within is None or self._is_strided(self.pitch)

    @property
    def is_contiguous(self) -> bool:
        """Whether nothing of another tensor lies between the elements."""
        return self.within is None or self._is_strided(self.dims[self.axis_order[-1]])

    def _is_strided(self, pitch: Dim) -> bool:
        strides, step = self.strides, pitch
        for axis in reversed(self.axis_order[:-1]):
            if self.dims[axis] != 1 and strides[axis] != step:
                return False
            step = step * self.dims[axis]
        return True

    @property
    def numel(self) -> Dim:
        return prod(self.dims)

    @property
    def nbytes(self) -> Dim:
        return self.numel * self.dtype.nbytes

    @property
    def is_static(self) -> bool:
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as ints. Raises InvalidModel if a dimension is symbolic."""
        if not self.is_static:
            raise InvalidModel("static shape needed", found=self)
        return tuple(d for d in self.dims if isinstance(d, int))

    def with_layout(self, layout: tuple[int, ...] | None) -> TensorType:
        return TensorType(self.dtype, self.shape, layout)

    def with_window(self, within: Shape) -> TensorType:
        """The window of this shape in a tensor of another, laid out in the same order."""
        return TensorType(self.dtype, self.shape, self.layout, within)

    def with_shape(self, shape: Shape) -> TensorType:
        """Same element type, another shape, ONNX's layout."""
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape, self.layout, self.within)

    def substitute(self, values: Mapping[str, Dim]) -> TensorType:
        """The type with symbols replaced."""
        if self.shape is None:
            return self
        within = None if self.within is None else tuple(substitute(d, values) for d in self.within)
        return TensorType(self.dtype, tuple(substitute(d, values) for d in self.shape), self.layout, within)

    def same_logical(self, other: object) -> bool:
        """Equal element type and logical shape, whatever the layout."""
        return isinstance(other, TensorType) and self.dtype == other.dtype and self.shape == other.shape

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype}[*]"
        layout = "" if self.layout is None else "{" + ",".join(map(str, self.layout)) + "}"
        dims = [str(d) for d in self.shape]
        if self.within is not None:
            dims = [d if d == str(w) else f"{d}|{w}" for d, w in zip(dims, self.within, strict=True)]
        return f"{self.dtype}[{','.join(dims)}]{layout}"


@dataclass(frozen=True)
class SequenceType:
    """An ONNX sequence of `elem`, which lies on the host."""

    elem: Type

    def __str__(self) -> str:
        return f"seq({self.elem})"


@dataclass(frozen=True)
class OptionalType:
    """An ONNX optional of `elem`, which lies on the host."""

    elem: Type

    def __str__(self) -> str:
        return f"opt({self.elem})"


@dataclass(frozen=True)
class MapType:
    """An ONNX map from `key` to one number or text of type `value`, which lies on the host.

    Raises InvalidModel for keys that are neither integers nor texts.
    """

    key: DType
    value: DType

    def __post_init__(self) -> None:
        if not self.key.is_int and self.key != STR:
            raise InvalidModel("a map's keys must be integers or strings", found=self.key)

    def __str__(self) -> str:
        return f"map({self.key},{self.value})"


Type = TensorType | SequenceType | OptionalType | MapType


VARYING = symbol("_")
"""Of a tensor in a sequence or an optional: a size that only the element itself tells. No graph has it as a symbol."""

NO_ELEMENT = (symbol("_none"),)
"""The shape of the elements of a sequence that has none: any other covers it."""


def in_sequence(type_: Type) -> Type:
    """The type of a value as an element: sizes that a graph has symbols for are any."""
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    return TensorType(type_.dtype, tuple(d if isinstance(d, int) else VARYING for d in type_.shape))


def covering(a: Type, b: Type) -> Type | None:
    """The type of elements that are of one or the other; None where no sequence holds both."""
    if a == b:
        return a
    if isinstance(a, TensorType) and isinstance(b, TensorType) and a.dtype == b.dtype:
        if NO_ELEMENT in (a.shape, b.shape):
            return a if b.shape == NO_ELEMENT else b
        if a.shape is None or b.shape is None or a.rank != b.rank:
            return TensorType(a.dtype, None)
        return TensorType(a.dtype, tuple(x if x == y else VARYING for x, y in zip(a.dims, b.dims, strict=True)))
    for kind in (SequenceType, OptionalType):
        if isinstance(a, kind) and isinstance(b, kind):
            elem = covering(a.elem, b.elem)
            return None if elem is None else kind(elem)
    return None


def is_native(type_: Type) -> bool:
    """Whether native code holds values of the type: tensors of numbers. All others lie on the host."""
    return isinstance(type_, TensorType) and type_.dtype != STR


def shape_text(shape: Shape) -> str:
    """`[N,64,56,56]`"""
    return "[" + ",".join(map(str, shape)) + "]"


def split_top(text: str) -> list[str]:
    """Splits at the commas outside of brackets and quotes; '' gives no parts."""
    parts, depth, start, quoted = [], 0, 0, False
    skip = False
    for i, ch in enumerate(text):
        if skip:
            skip = False
        elif quoted:
            quoted, skip = ch != '"', ch == "\\"
        elif ch == '"':
            quoted = True
        elif ch in "([{":
            depth += 1
        elif ch in ")]}":
            depth -= 1
        elif ch == "," and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*parts, last] if last or parts else []


_WRAPPERS: dict[str, type[SequenceType] | type[OptionalType]] = {"seq(": SequenceType, "opt(": OptionalType}
_MAX_WRAPPERS = 100  # brackets of dims count too, which is generous enough
_TYPE = re.compile(r"([a-z][a-z0-9]*)\[(.*)\](?:\{([0-9,]{0,400})\})?\Z", re.S)


def parse_type(text: str) -> Type:
    """The type printed as `text`: `f32[N,3]`, `f32[N,3]{1,0}`, `f32[N,3|8]`, `f32[*]`, or one that is no tensor.

    The others are `seq(...)` and `opt(...)` of a type, and `map(i64,f32)`.
    """
    text = text.strip()
    if text.startswith("map(") and text.endswith(")"):
        names = split_top(text[4:-1])
        if len(names) != 2:
            raise InvalidModel("malformed type", expected="e.g. map(i64,f32)", found=text[:80])
        return MapType(*map(DType.from_name, names))
    wrapper = _WRAPPERS.get(text[:4])
    if wrapper and text.endswith(")"):
        if text.count("(") > _MAX_WRAPPERS:
            raise InvalidModel("type nested too deeply", found=text[:80])
        return wrapper(parse_type(text[4:-1]))
    match = _TYPE.match(text)
    if not match:
        raise InvalidModel("malformed type", expected="e.g. f32[N,64,56,56]", found=text[:80])
    dtype, dims, layout = DType.from_name(match[1]), match[2].strip(), match[3]
    if dims == "*":
        return TensorType(dtype, None)
    order = tuple(int(a) for a in layout.split(",") if a) if layout is not None else None
    sizes = [d.partition("|") for d in split_top(dims)]
    shape = tuple(parse_dim(d) for d, _, _ in sizes)
    within = tuple(parse_dim(w) if bar else d for d, (_, bar, w) in zip(shape, sizes, strict=True))
    return TensorType(dtype, shape, order, within)
