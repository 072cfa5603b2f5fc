"""The kinds of operators, and everything that a module of operators needs to declare its own.

A kind declares for all of its operators what their interfaces (`interfaces.py`) leave open; an operator that differs
declares its own. Nothing here knows graphs, files or how kernels are made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any as PyAny
from typing import ClassVar

import numpy as np

from ..types import DType, SymDim, TensorType, Type
from . import layout_policies, row_rules, work_rules
from .attributes import Floats, Ints, Strs
from .context import KNOWN_LIMIT, InferContext
from .iterations import Iterations
from .operator import CATALOGUE, Operator, lookup, op
from .row_rules import Rows
from .signature import (
    Any2,
    Any_,
    Attr,
    Body,
    Bool,
    Float,
    Float2,
    Float32,
    In,
    Index,
    Index2,
    Int,
    Int2,
    Int64,
    Mixed,
    Numeric,
    Numeric2,
    NumericBoolOrStr,
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
)
from .work_rules import Effort, Shapes, Work, WorkRule

Any = Any_

__all__ = [
    "Accumulation", "Any", "Any2", "Attr", "Body", "Bool", "CATALOGUE", "Composite", "Contraction", "Control",
    "Effort", "Elementwise", "Float", "Float2", "Float32", "Floats", "Fused", "Host", "HostComposite", "In", "Index",
    "Index2", "InferContext", "Int", "Int2", "Int64", "Ints", "Mixed", "Movement", "Numeric", "Numeric2",
    "NumericBoolOrStr", "NumericOrBool", "Operator", "Opt", "OptOut", "Out", "Reduce", "Relayout", "Rows", "Shapes",
    "Signature", "Signed", "SignedInt", "Str", "Strs", "TypeGroup", "UnsignedInt", "Variadic", "VariadicOut", "Window",
    "Work", "lookup", "op",
]  # fmt: skip


class Elementwise(Operator):
    """Output element = `compute` of the input elements at the same (numpy-broadcast) index."""

    result_dtype: ClassVar[DType | None] = None
    """Element type of the output; None = that of the first input."""

    effort: ClassVar[Effort]
    """What an element costs; every operator declares its own."""

    folds_sizes_as_floats: ClassVar[bool] = False
    """True if `fold` also holds for symbolic sizes that the model has cast to a float type."""
    tie_share: ClassVar[float] = 0.5
    """What of a slope goes to the first operand where it ties with another in a maximum or minimum; 0: as a Relu's."""
    row_axis = row_rules.broadcast
    layout_policy: ClassVar[layout_policies.LayoutPolicy] = layout_policies.Agree()
    work = work_rules.elementwise
    fusion_root = False

    def derivative(self, e: PyAny, i: int, *xs: PyAny) -> PyAny:
        """The derivative with respect to operand `i`, built as `compute`'s result is; None: that of `compute`'s steps.

        Only for expressions whose steps cancel, or have kinks where the whole has none.
        """
        return None

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
    layout_policy = layout_policies.KeptAxes()
    work = work_rules.reduces
    fusion_root = False

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

    def row_axis(self, rows: Rows) -> int:
        a, axes = rows.first("rows in the axes operand"), self.reduced_axes(rows.ctx)
        if a in axes:
            raise rows.interact("reduces over the rows")
        return a if rows.result.rank == rows.ctx.rank(0) else a - sum(r < a for r in axes)


class Movement(Operator):
    """Each output element is a copy of an input element."""

    is_view: ClassVar[bool] = False
    """True if the row-major bytes of output 0 are those of input 0 (Reshape and its kin)."""
    work = work_rules.selects
    fusion_root = False

    @abstractmethod
    def index_map(self, ctx: InferContext, index: Sequence[PyAny]) -> Sequence[PyAny]:
        """Index into input 0 of the element at `index` of output 0.

        Works on anything with + - * // %: ints, Dims and kernel-IR values. Movements that read several inputs, or
        none for some elements (Concat, Pad), have a lowering of their own instead.
        """
        raise NotImplementedError(f"{self.name}.index_map")


class Contraction(Operator):
    """Sums of products over contracted indices: MatMul, Gemm, Conv and kin. The kernel is keyed by class."""

    fusion_root = True


class Window(Accumulation):
    """An accumulation over a sliding window: the pools. `count` is of the elements in the window that are counted."""

    row_axis = row_rules.batch_first
    layout_policy = layout_policies.FollowFirst()
    fusion_root = True


class Composite(Operator):
    """Defined by `expand` into other operators; types and known contents come from the expansion."""

    row_axis = row_rules.unknown
    layout_policy = layout_policies.PLAIN
    work: ClassVar[WorkRule] = work_rules.undecided
    fusion_root = False

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

    def iterations(self, n_operands: int, results: Sequence[Type]) -> Iterations | None:
        """How the body is repeated; None where the first operand chooses which of two bodies runs, once.

        Args:
            n_operands: of the node, captured values included. results: their types.
        """
        return None

    row_axis = row_rules.unknown
    layout_policy = layout_policies.PLAIN
    work = work_rules.in_python
    fusion_root = False


class HostComposite(Composite):
    """Expands into what runs on the host."""


class Host(Operator):
    """Run step by step by the runtime on numpy arrays: data-dependent shapes, strings, sequences."""

    row_axis = row_rules.unknown
    layout_policy = layout_policies.PLAIN
    work = work_rules.in_python
    fusion_root = False


def _apart_from_place(t: Type | None) -> Type | None:
    """The type of a window's elements, wherever they lie: kernels read the node's operands, not the body's inputs."""
    return replace(t, within=None) if isinstance(t, TensorType) else t


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
    row_axis = row_rules.unknown  # rows are followed through the body
    layout_policy = layout_policies.PLAIN
    work = work_rules.none
    fusion_root = False

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        body = ctx.bodies["body"]
        if [_apart_from_place(v.type) for v in body.inputs] != [_apart_from_place(t) for t in ctx.types]:
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
    layout_policy = layout_policies.Fixed()
    work = work_rules.moves
    fusion_root = False

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        ctx.shape(0)
        return [ctx.tensor(0).with_layout(self.layout or None)]

    def known(self, ctx: InferContext) -> np.ndarray | None:
        return ctx.known(0)

    def row_axis(self, rows: Rows) -> int | None:
        return rows.given[0]
