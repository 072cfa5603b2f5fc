"""Element types and tensor types. Knows nothing of graphs or operators; re-exports the symbolic dimensions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from ...errors import InvalidModel, UnsupportedOp
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
    lower_bound,
    noting_positive,
    prod,
    substitute,
    symbol,
    symbols_of,
    upper_bound,
)
from .dim_text import dim_from_json, parse_dim

# onnx brings ml_dtypes along for the types that numpy lacks, of which np.finfo raises ValueError
_ml = import_module("ml_dtypes") if find_spec("ml_dtypes") else None
float_info = (_ml or np).finfo

__all__ = [
    "BF16", "BOOL", "C64", "C128", "F16", "F32", "F64", "I8", "I16", "I32", "I64", "NARROW", "STR", "U8", "U16", "U32",
    "U64", "DType", "Dim", "OptionalType", "SequenceType", "Shape", "SymDim", "TensorType", "Type", "at_least",
    "at_most", "ceil_div", "dim_from_json", "dim_max", "dim_min", "dim_to_json", "dims_equal", "evaluate", "exact_max",
    "exact_min", "float_info", "floor_div", "lower_bound", "noting_positive", "parse_dim", "parse_type", "prod",
    "substitute", "symbol", "symbols_of", "upper_bound",
]  # fmt: skip

Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class DType:
    """An ONNX element type: `name` as printed, `code` = onnx.TensorProto.DataType, `bits` per element."""

    name: str
    code: int
    bits: int
    kind: str
    """One of f (float), i (signed), u (unsigned), b (bool), c (complex), s (string)."""
    numpy: np.dtype[Any] | None
    """The numpy type (object for str), None if neither numpy nor ml_dtypes has it."""

    _by_code: ClassVar[dict[int, DType]] = {}
    _by_name: ClassVar[dict[str, DType]] = {}
    _by_numpy: ClassVar[dict[np.dtype[Any], DType]] = {}

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "iu"  # a bool is none

    @property
    def is_signed(self) -> bool:
        return self.kind in "fic"

    @property
    def whole_range(self) -> tuple[int, int]:
        """The least and the greatest of the whole numbers that this integer or float type holds without gaps."""
        if self.is_float:
            most = 1 << (float_info(self.numpy).nmant + 1)
            return -most, most
        low = -(1 << (self.bits - 1)) if self.is_signed else 0
        return low, low + (1 << self.bits) - 1

    def holds(self, x: int) -> bool:
        """True iff this integer type can represent x."""
        return self.whole_range[0] <= x <= self.whole_range[1]

    @property
    def nbytes(self) -> int:
        """Bytes of one element in memory (sub-byte types stand unpacked, one a byte)."""
        return max(1, self.bits // 8)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return self.code

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DType) and self.code == other.code)

    @staticmethod
    def from_code(code: int) -> DType:
        """The type with ONNX's integer code. Raises UnsupportedOp if there is none."""
        if code not in DType._by_code:
            raise UnsupportedOp("unknown element type", expected="an onnx.TensorProto.DataType", found=code)
        return DType._by_code[code]

    @staticmethod
    def from_name(name: str) -> DType:
        """The type printed as `name`. Raises UnsupportedOp if there is none."""
        if name not in DType._by_name:
            raise UnsupportedOp("unknown element type", expected=" ".join(DType._by_name), found=repr(name))
        return DType._by_name[name]

    @staticmethod
    def from_numpy(dtype: Any) -> DType:
        """The type of a numpy dtype; str and object count as `str`. Raises UnsupportedOp if there is none."""
        dtype = np.dtype(dtype)
        if dtype.kind in "USO":
            return STR
        found = DType._by_numpy.get(dtype) or DType._by_numpy.get(dtype.newbyteorder("="))
        if found is None:
            raise UnsupportedOp("unsupported numpy type", found=dtype)
        return found


def _define(name: str, code: int, bits: int, kind: str, numpy: str | None) -> DType:
    """`numpy` names a type of numpy, or of ml_dtypes if it starts with a colon."""
    resolved: np.dtype[Any] | None = None
    if numpy is not None:
        scalar = getattr(_ml, numpy[1:], None) if numpy.startswith(":") else numpy
        resolved = None if scalar is None else np.dtype(scalar)
    dtype = DType(name, code, bits, kind, resolved)
    DType._by_code[code] = DType._by_name[name] = dtype
    if resolved is not None:
        DType._by_numpy.setdefault(resolved, dtype)
    return dtype


F32 = _define("f32", 1, 32, "f", "float32")
U8 = _define("u8", 2, 8, "u", "uint8")
I8 = _define("i8", 3, 8, "i", "int8")
U16 = _define("u16", 4, 16, "u", "uint16")
I16 = _define("i16", 5, 16, "i", "int16")
I32 = _define("i32", 6, 32, "i", "int32")
I64 = _define("i64", 7, 64, "i", "int64")
STR = _define("str", 8, 64, "s", "object")
BOOL = _define("bool", 9, 8, "b", "bool")
F16 = _define("f16", 10, 16, "f", "float16")
F64 = _define("f64", 11, 64, "f", "float64")
U32 = _define("u32", 12, 32, "u", "uint32")
U64 = _define("u64", 13, 64, "u", "uint64")
C64 = _define("c64", 14, 64, "c", "complex64")
C128 = _define("c128", 15, 128, "c", "complex128")
BF16 = _define("bf16", 16, 16, "f", ":bfloat16")
F8E4M3FN = _define("f8e4m3fn", 17, 8, "f", ":float8_e4m3fn")
F8E4M3FNUZ = _define("f8e4m3fnuz", 18, 8, "f", ":float8_e4m3fnuz")
F8E5M2 = _define("f8e5m2", 19, 8, "f", ":float8_e5m2")
F8E5M2FNUZ = _define("f8e5m2fnuz", 20, 8, "f", ":float8_e5m2fnuz")
U4 = _define("u4", 21, 4, "u", ":uint4")
I4 = _define("i4", 22, 4, "i", ":int4")
F4E2M1 = _define("f4e2m1", 23, 4, "f", ":float4_e2m1fn")
F8E8M0 = _define("f8e8m0", 24, 8, "f", ":float8_e8m0fnu")
U2, I2 = _define("u2", 25, 2, "u", ":uint2"), _define("i2", 26, 2, "i", ":int2")
F6E2M3 = _define("f6e2m3", 27, 6, "f", ":float6_e2m3fn")
F6E3M2 = _define("f6e3m2", 28, 6, "f", ":float6_e3m2fn")
NARROW = tuple(d for d in DType._by_code.values() if d.bits < 8 or (d.is_float and d.bits == 8))  # only converted


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
    """An ONNX sequence of `elem`; Host operators only."""

    elem: Type

    def __str__(self) -> str:
        return f"seq({self.elem})"


@dataclass(frozen=True)
class OptionalType:
    """An ONNX optional of `elem`; Host operators only."""

    elem: Type

    def __str__(self) -> str:
        return f"opt({self.elem})"


Type = TensorType | SequenceType | OptionalType


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
    """The type printed as `text`: `f32[N,3]`, `f32[N,3]{1,0}`, `f32[N,3|8]`, `f32[*]`, `seq(...)`, `opt(...)`."""
    text = text.strip()
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
