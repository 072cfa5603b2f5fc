"""The operator base: `@op`, the class every operator derives from, the catalogue, and the base kinds.

An operator class is named after the ONNX operator; its annotations are ONNX's inputs, outputs and attributes in
ONNX's order and spelling (inputs are positional, so their names are free). An instance is the immutable set of
attribute values. Nothing here knows graphs, files or how kernels are made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any as PyAny
from typing import ClassVar, TypeVar

import numpy as np

from ....errors import InternalError, InvalidModel, ParaxError, UnsupportedOp
from ..types import DType, SymDim, TensorType, Type
from .attributes import Floats, Ints, Strs, attribute_key, canonical
from .context import KNOWN_LIMIT, InferContext
from .signature import (
    Any2,
    Any_,
    Attr,
    Body,
    Bool,
    Float,
    Float2,
    In,
    Index,
    Index2,
    Int,
    Int2,
    Int64,
    Mixed,
    Numeric,
    Numeric2,
    NumericOrBool,
    Opt,
    OptOut,
    Out,
    Signature,
    Signed,
    SignedInt,
    Str,
    TypeGroup,
    UnsignedInt,
    Variadic,
    VariadicOut,
    read_signature,
)

Any = Any_

__all__ = [
    "CATALOGUE", "Any", "Any2", "Attr", "Body", "Bool", "Composite", "Contraction", "Control", "Elementwise", "Float",
    "Float2", "Floats", "Fused", "Host", "In", "Index", "Index2", "InferContext", "Int", "Int2", "Int64", "Ints",
    "Mixed", "Movement", "Numeric", "Numeric2", "NumericOrBool", "Operator", "Opt", "OptOut", "Out", "Reduce",
    "Relayout", "Signature", "Signed", "SignedInt", "Str", "Strs", "TypeGroup", "UnsignedInt", "Variadic",
    "VariadicOut", "Window", "lookup", "op",
]  # fmt: skip

CATALOGUE: dict[tuple[str, str], type[Operator]] = {}
"""Every operator class by (domain, ONNX name). The domain "ai.onnx" is written ""."""


class Operator:
    """Attribute values of one operator; immutable, equal and hashable by class and values."""

    name: ClassVar[str]
    domain: ClassVar[str]
    since: ClassVar[int]
    signature: ClassVar[Signature]
    min_variadic: ClassVar[int] = 1
    deterministic: ClassVar[bool] = True
    """False for random operators: never folded, never merged."""

    def __init__(self, **attributes: PyAny) -> None:
        self._bind(attributes, None)

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, PyAny], node_name: str = "") -> Operator:
        """As the constructor; errors name the node."""
        self = cls.__new__(cls)
        self._bind(attributes, f'{cls.name} "{node_name}"' if node_name else None)
        return self

    def _bind(self, attributes: Mapping[str, PyAny], where: str | None) -> None:
        declared = self.signature.attributes
        where = where or self.name
        for name in attributes:
            if name not in declared:
                expected = ", ".join(declared) or "no attributes"
                raise InvalidModel(f"unknown attribute {name}", where=where, expected=expected)
        key: list[PyAny] = [self.domain, self.name]
        for name, spec in declared.items():
            if name not in attributes and spec.required:
                raise InvalidModel(f"required attribute {name} is missing", where=where, expected=spec.kind)
            try:
                value = canonical(spec, attributes.get(name, spec.default))
            except ParaxError as error:
                raise type(error)(
                    error.message, where=where, expected=error.expected, found=error.found, hint=error.hint
                ) from None
            object.__setattr__(self, name, value)
            key.append(attribute_key(spec.kind, value))
        object.__setattr__(self, "_key", tuple(key))
        object.__setattr__(self, "_hash", hash(self._key))

    _key: tuple[PyAny, ...]
    _hash: int

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self.name} operators are immutable")

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Operator) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.explicit_attributes().items())})"

    def key(self) -> tuple[PyAny, ...]:
        """Hashable identity: domain, name and attribute values (arrays by bytes)."""
        return self._key

    def attributes(self) -> dict[str, PyAny]:
        """All attributes with their values, defaults included; None ones left out."""
        values = {name: getattr(self, name) for name in self.signature.attributes}
        return {name: value for name, value in values.items() if value is not None}

    def explicit_attributes(self) -> dict[str, PyAny]:
        """The attributes whose value is not the default."""
        out = {}
        for name, spec in self.signature.attributes.items():
            value = getattr(self, name)
            if spec.required or attribute_key(spec.kind, value) != attribute_key(
                spec.kind, canonical(spec, spec.default)
            ):
                out[name] = value
        return out

    def replace(self, **changes: PyAny) -> Operator:
        """A copy with some attributes changed."""
        return type(self).from_attributes({**self.attributes(), **changes})

    @abstractmethod
    def infer(self, ctx: InferContext) -> Sequence[Type]:
        """Types of the `ctx.n_outputs` outputs (more may be returned). Fails through `ctx.fail`."""
        raise NotImplementedError(f"{self.name}.infer")

    def known(self, ctx: InferContext) -> np.ndarray | list[np.ndarray | None] | None:
        """Integer content of output 0 (or a list, one entry per output) as object arrays of Dims; None if unknown."""
        return None


C = TypeVar("C", bound=type[Operator])


def op(*, since: int = 1, domain: str = "", name: str | None = None) -> Callable[[C], C]:
    """Registers an operator class. `since`: the first opset whose semantics the class has; older ones are upgraded."""

    def register(cls: C) -> C:
        cls.name, cls.domain, cls.since = name or cls.__name__, domain, since
        cls.signature = read_signature(cls, cls.min_variadic)
        key = (domain, cls.name)
        if key in CATALOGUE and CATALOGUE[key].__module__ != cls.__module__:
            raise InternalError("operator defined twice", where=f"{domain}::{cls.name}", found=cls.__module__)
        CATALOGUE[key] = cls
        return cls

    return register


def lookup(domain: str, name: str, where: str | None = None) -> type[Operator]:
    """The class of an operator. Raises UnsupportedOp if the catalogue has none."""
    domain = "" if domain == "ai.onnx" else domain
    found = CATALOGUE.get((domain, name))
    if found is None:
        shown = f"{domain}::{name}" if domain else name
        raise UnsupportedOp(f"operator {shown} is not supported", where=where)
    return found


class Elementwise(Operator):
    """Output element = `compute` of the input elements at the same (numpy-broadcast) index."""

    result_dtype: ClassVar[DType | None] = None
    """Element type of the output; None = that of the first input."""

    folds_sizes_as_floats: ClassVar[bool] = False
    """True if `fold` also holds for symbolic sizes that the model has cast to a float type."""

    @abstractmethod
    def compute(self, e: PyAny, *xs: PyAny) -> PyAny:
        """The result for operands `xs` (kernel-IR scalars or vectors), built with the kernel-IR builder `e`."""
        raise NotImplementedError(f"{self.name}.compute")

    def output_dtype(self, ctx: InferContext) -> DType:
        return self.result_dtype or ctx.tensor(0).dtype

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        given = [i for i in range(ctx.n_inputs) if ctx.has(i)]
        shape = ctx.broadcast(*(ctx.shape(i) for i in given))
        layouts = {ctx.tensor(i).layout for i in given if ctx.shape(i) == shape}
        return [TensorType(self.output_dtype(ctx), shape, layouts.pop() if len(layouts) == 1 else None)]

    def fold(self, *xs: PyAny) -> PyAny:
        """The result for known integer or symbolic scalars, None if not expressible; overriding it enables `known`."""
        return None

    def known(self, ctx: InferContext) -> np.ndarray | None:
        if type(self).fold is Elementwise.fold:
            return None
        operands = [ctx.known(i) for i in range(ctx.n_inputs)]
        present = [k for k in operands if k is not None]
        if len(present) != len(operands):
            return None
        arrays = np.broadcast_arrays(*present)
        out = np.empty(arrays[0].shape, object)
        if out.size > KNOWN_LIMIT:
            return None
        dtype = self.output_dtype(ctx)
        needs_exact = not dtype.is_float
        for i in np.ndindex(out.shape):
            scalars = self._whole([a[i] for a in arrays], dtype)
            if scalars is None:
                return None
            out[i] = _as_element(self.fold(*scalars), dtype)
            if out[i] is None:
                return None
            needs_exact |= not isinstance(out[i], SymDim) and any(isinstance(x, SymDim) for x in scalars)
        if needs_exact and not all(ctx.is_exact(i) for i in range(ctx.n_inputs)):
            return None
        return out

    def _whole(self, scalars: list[PyAny], dtype: DType) -> list[PyAny] | None:
        """Scalars as `fold` takes them: beside a symbol only whole numbers (-0 is none); None if there are others."""
        if not any(isinstance(x, SymDim) for x in scalars):
            return scalars
        if dtype.is_float and not self.folds_sizes_as_floats:
            return None
        if any(isinstance(x, float) and (not x.is_integer() or str(x) == "-0.0") for x in scalars):
            return None
        return [int(x) if isinstance(x, float) else x for x in scalars]


def _as_element(x: PyAny, dtype: DType) -> PyAny:
    """x, rounded as the element type holds it. (Integers that it does not hold are taken for unknown by the graph.)"""
    if isinstance(x, (int, float)) and dtype.is_float and dtype.numpy is not None:
        with np.errstate(over="ignore"):
            return float(np.asarray(x, dtype.numpy))
    return x


class Accumulation(Operator):
    """Combines elements into one: finish(combine over i of map(x_i), count), starting from init."""

    @abstractmethod
    def init(self, e: PyAny, dtype: DType) -> PyAny:
        """The neutral element, a Python number."""
        raise NotImplementedError(f"{self.name}.init")

    def map(self, e: PyAny, x: PyAny) -> PyAny:
        """Applied to each element first."""
        return x

    @abstractmethod
    def combine(self, e: PyAny, acc: PyAny, x: PyAny) -> PyAny:
        """Associative and commutative."""
        raise NotImplementedError(f"{self.name}.combine")

    def finish(self, e: PyAny, acc: PyAny, count: PyAny) -> PyAny:
        """Applied to the result; `count` = number of combined elements in the accumulator's type."""
        return acc


class Reduce(Accumulation):
    """An accumulation along some axes. Declares `keepdims`; the axes come from `reduced_axes`."""

    keepdims: Attr[int] = 1

    def output_dtype(self, ctx: InferContext) -> DType:
        return ctx.tensor(0).dtype

    def reduced_axes(self, ctx: InferContext) -> tuple[int, ...]:
        """Reduced axes, ascending: operand 1 (`axes`), all if empty unless `noop_with_empty_axes`."""
        rank = ctx.rank(0)
        axes = ctx.ints(1, "axes") if ctx.has(1) and ctx.shape(1) != (0,) else []
        if not axes:
            return () if getattr(self, "noop_with_empty_axes", 0) else tuple(range(rank))
        return tuple(sorted(ctx.axes(axes, rank)))

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        axes = self.reduced_axes(ctx)
        shape = ctx.shape(0)
        if self.keepdims:
            kept = tuple(1 if i in axes else d for i, d in enumerate(shape))
        else:
            kept = tuple(d for i, d in enumerate(shape) if i not in axes)
        return [TensorType(self.output_dtype(ctx), kept)]


class Movement(Operator):
    """Each output element is a copy of an input element."""

    is_view: ClassVar[bool] = False
    """True if the row-major bytes of output 0 are those of input 0 (Reshape and its kin)."""

    @abstractmethod
    def index_map(self, ctx: InferContext, index: Sequence[PyAny]) -> Sequence[PyAny]:
        """Index into input 0 of the element at `index` of output 0.

        Works on anything with + - * // %: ints, Dims and kernel-IR values. Movements that read several inputs, or
        none for some elements (Concat, Pad), have a lowering of their own instead.
        """
        raise NotImplementedError(f"{self.name}.index_map")


class Contraction(Operator):
    """Sums of products over contracted indices: MatMul, Gemm, Conv and kin. The kernel is keyed by class."""


class Window(Accumulation):
    """An accumulation over a sliding window: the pools. `count` is of the elements in the window that are counted."""


class Composite(Operator):
    """Defined by `expand` into other operators; types and known contents come from the expansion."""

    @abstractmethod
    def expand(self, g: PyAny, *inputs: PyAny) -> PyAny:
        """The output value (or list of values), built with the GraphBuilder `g`; omitted inputs are None."""
        raise NotImplementedError(f"{self.name}.expand")

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        return [value.type for value in ctx.expansion(self)]

    def known(self, ctx: InferContext) -> list[np.ndarray | None] | None:
        return [value.known for value in ctx.expansion(self)]


class Control(Operator):
    """If, Loop, Scan: owns bodies, which see nothing of the outer graph.

    Outer values that a body uses are the node's last `captures` operands and the last `captures` inputs of every
    body, in the same order.
    """

    captures: Attr[int] = 0


class Host(Operator):
    """Run step by step by the runtime on numpy arrays: data-dependent shapes, strings, sequences."""


@op(domain="parax")
class Fused(Operator):
    """A block run as one kernel: `body`'s inputs and outputs are the node's, one to one.

    The first node of the body is the root (Conv, MatMul, a reduction, or any element-wise one), the rest Elementwise;
    in a block of kind DepthwisePointwise a second Conv with its own Elementwise tail follows, in one of kind
    InvertedResidual a second and a third.
    """

    xs: Variadic[Mixed]
    ys: VariadicOut
    body: Body
    kind: Attr[str]
    min_variadic = 0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        body = ctx.bodies["body"]
        if [v.type for v in body.inputs] != ctx.types:
            ctx.fail(
                "the body's inputs do not match the node's operands",
                expected=[str(v.type) for v in body.inputs],
                found=[str(x) for x in ctx.types],
            )
        return [v.type for v in body.outputs]


@op(domain="parax")
class Relayout(Operator):
    """Copies a tensor into another physical axis order; the logical tensor is unchanged. () = ONNX's own order."""

    x: In[Any]
    layout: Attr[Ints] = ()

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        ctx.shape(0)
        return [ctx.tensor(0).with_layout(self.layout or None)]

    def known(self, ctx: InferContext) -> np.ndarray | None:
        return ctx.known(0)
