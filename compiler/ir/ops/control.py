"""If, Loop and Scan: operators that own bodies. Types, and how often bodies run; the runtime walks them step by step,
or native code where all of their steps are (`passes/dataflow/native_control.py`).

Operands and body inputs both end with the captured values (see `Control`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..types import (
    BOOL,
    I64,
    Dim,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    covering,
    parse_type,
    symbols_of,
)
from .base import Attr, Body, Bool, Control, Host, In, InferContext, Ints, Mixed, Opt, Strs, Variadic, VariadicOut, op
from .iterations import Iterations, Slices


def _body_outputs(ctx: InferContext, name: str) -> list[Type]:
    return [value.type for value in ctx.bodies[name].outputs]


def _check_inputs(ctx: InferContext, name: str, expected: Sequence[Type | None]) -> None:
    """Every body input must have the operand's type, or a wider one: a symbol where the operand has a size."""
    inputs = [value.type for value in ctx.bodies[name].inputs]
    if len(inputs) != len(expected):
        ctx.fail(f"{name} has the wrong number of inputs", expected=len(expected), found=len(inputs))
    for i, (given, wanted) in enumerate(zip(inputs, expected, strict=True)):
        if wanted is not None and not _is_wider(given, wanted):
            ctx.fail(f"input {i} of {name} has the wrong type", expected=wanted, found=given)


def _is_wider(wide: Type, narrow: Type) -> bool:
    if wide == narrow:
        return True
    if isinstance(wide, (SequenceType, OptionalType)):
        return covering(wide, narrow) == wide
    if not isinstance(wide, TensorType) or not isinstance(narrow, TensorType) or wide.dtype != narrow.dtype:
        return False
    if wide.shape is None:
        return True
    if narrow.shape is None or len(wide.shape) != len(narrow.shape):
        return False
    return all(a == b or not isinstance(a, int) for a, b in zip(wide.shape, narrow.shape, strict=True))


def _join(ctx: InferContext, a: Type, b: Type, hint: str) -> Type:
    """The type that covers both: a fresh symbol where sizes differ, no shape where ranks do."""
    if a == b:
        return a
    both = covering(a, b)
    if isinstance(both, (SequenceType, OptionalType)):
        return both
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.dtype != b.dtype:
        ctx.fail(f"{hint} has two types", expected=a, found=b)
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return TensorType(a.dtype, None)
    pairs = enumerate(zip(a.shape, b.shape, strict=True))
    return TensorType(a.dtype, tuple(x if x == y else ctx.fresh(f"{hint}_{i}") for i, (x, y) in pairs))


def _stacked(ctx: InferContext, elements: Sequence[Type], length: object, axes: Sequence[int]) -> list[Type]:
    """Types of scan outputs: a new axis of `length` in each element type."""
    out: list[Type] = []
    for i, element in enumerate(elements):
        if not isinstance(element, TensorType):
            ctx.fail("a scan output must be a tensor", found=element)
        if element.shape is None:
            out.append(element)
            continue
        axis = ctx.axis(axes[i] if axes else 0, len(element.shape) + 1, "scan output axis")
        out.append(TensorType(element.dtype, (*element.shape[:axis], length, *element.shape[axis:])))  # type: ignore[arg-type]
    return out


def _opened(inputs: Sequence[Type], operands: Sequence[Type | None]) -> frozenset[str]:
    """The symbols of dims that change from one iteration to the next: those in which a body is wider than its operands.

    They have a value inside only, and a new one in each iteration.
    """
    pairs = [pair for inner, outer in zip(inputs, operands, strict=True) for pair in _sizes(inner, outer)]
    return symbols_of(a for a, b in pairs if a != b)


def _sizes(a: Type, b: Type | None) -> Iterable[tuple[Dim, Dim | None]]:
    if not isinstance(a, TensorType) or a.shape is None:
        return ()
    other = b.shape if isinstance(b, TensorType) and b.shape is not None else (None,) * len(a.shape)
    return zip(a.shape, other, strict=True)


def _outside(ctx: InferContext, types: Sequence[Type], opened: frozenset[str], hint: str) -> list[Type]:
    """Types of a body's values as results of the node: a fresh symbol for each size that iterations change."""
    found: list[Type] = []
    for i, type_ in enumerate(types):
        if isinstance(type_, TensorType) and type_.shape is not None and symbols_of(type_.shape) & opened:
            dims = (ctx.fresh(f"{hint}{i}_{axis}") if symbols_of((dim,)) & opened else dim
                    for axis, dim in enumerate(type_.shape))  # fmt: skip
            type_ = TensorType(type_.dtype, tuple(dims))
        found.append(type_)
    return found


@op(since=13)
class If(Control):
    """The outputs of one of two bodies, chosen by a bool; the bodies have no inputs but captured ones."""

    condition: In[Bool]
    captured: Variadic[Mixed]
    outputs: VariadicOut
    then_branch: Body
    else_branch: Body
    min_variadic = 0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        _check_scalar(ctx, ctx.types[0], "the condition")
        for name in ("then_branch", "else_branch"):
            _check_inputs(ctx, name, ctx.types[1:])
        taken, other = _body_outputs(ctx, "then_branch"), _body_outputs(ctx, "else_branch")
        if len(taken) != len(other) or len(taken) != ctx.n_outputs:
            found = f"{len(taken)} and {len(other)}"
            ctx.fail("the branches must have as many outputs as the node", expected=ctx.n_outputs, found=found)
        return [_join(ctx, a, b, f"If_{i}") for i, (a, b) in enumerate(zip(taken, other, strict=True))]


@op(domain="parax")
class CannotRun(Host):
    """What is left of an If's branch that the sizes given when compiling do not fit: it is an error to take it.

    `reason`: what does not fit. `types`: those of the other branch's results.
    """

    outputs: VariadicOut
    reason: Attr[str]
    types: Attr[Strs]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        return [parse_type(text) for text in self.types]


@op(since=13)
class Loop(Control):
    """Runs a body up to `trips` times while its condition holds.

    body(iteration, condition, states…, captured…) → condition, states…, scan outputs…
    """

    trips: Opt[Mixed]
    condition: Opt[Mixed]
    states: Variadic[Mixed]
    outputs: VariadicOut
    body: Body
    min_variadic = 0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.has(0):
            _check_scalar(ctx, ctx.types[0], "the trip count", I64)
        if ctx.has(1):
            _check_scalar(ctx, ctx.types[1], "the condition")
        n_states = max(ctx.n_inputs - 2 - self.captures, 0)
        _check_inputs(ctx, "body", [None, None, *ctx.types[2:]])
        _check_scalar(ctx, ctx.bodies["body"].inputs[0].type, "the body's iteration number", I64)
        _check_scalar(ctx, ctx.bodies["body"].inputs[1].type, "the body's condition")
        results = _body_outputs(ctx, "body")
        if len(results) < 1 + n_states:
            ctx.fail("the body has too few outputs", expected=f"at least {1 + n_states}", found=len(results))
        _check_scalar(ctx, results[0], "the condition that the body returns")
        carried = [value.type for value in ctx.bodies["body"].inputs[2 : 2 + n_states]]
        opened = _opened(carried, ctx.types[2 : 2 + n_states])
        scanned = _outside(ctx, results[1 + n_states :], opened, "Loop_scan")
        return [*_outside(ctx, carried, opened, "Loop_"), *_stacked(ctx, scanned, ctx.fresh("Loop"), ())]

    def iterations(self, n_operands: int, results: Sequence[Type]) -> Iterations:
        n_states = max(n_operands - 2 - self.captures, 0)
        return Iterations(True, n_states, stacked=tuple(Slices() for _ in results[n_states:]))


@op(since=9)
class Scan(Control):
    """Runs a body over the slices of some operands, carrying states along.

    body(states…, slices…, captured…) → states…, scan outputs…
    """

    operands: Variadic[Mixed]
    outputs: VariadicOut
    body: Body
    num_scan_inputs: Attr[int]
    scan_input_axes: Attr[Ints] = ()
    scan_input_directions: Attr[Ints] = ()
    scan_output_axes: Attr[Ints] = ()
    scan_output_directions: Attr[Ints] = ()

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        n_states = ctx.n_inputs - self.captures - self.num_scan_inputs
        if self.num_scan_inputs < 1 or n_states < 0:
            ctx.fail("num_scan_inputs does not fit the operands", found=self.num_scan_inputs)
        slices: list[Type | None] = []
        length = None
        for i in range(self.num_scan_inputs):
            tensor = ctx.tensor(n_states + i)
            axis = ctx.axis(self.scan_input_axes[i] if self.scan_input_axes else 0, tensor.rank, "scan axis")
            found = tensor.dims[axis]
            length = found if length is None else ctx.equal(length, found, "scan inputs of different lengths")
            slices.append(TensorType(tensor.dtype, (*tensor.dims[:axis], *tensor.dims[axis + 1 :])))
        captured = ctx.types[n_states + self.num_scan_inputs :]
        _check_inputs(ctx, "body", [*ctx.types[:n_states], *slices, *captured])
        results = _body_outputs(ctx, "body")
        if len(results) < n_states:
            ctx.fail("the body has too few outputs", expected=f"at least {n_states}", found=len(results))
        for what, values, expected in (
            ("scan_input_axes", self.scan_input_axes, self.num_scan_inputs),
            ("scan_input_directions", self.scan_input_directions, self.num_scan_inputs),
            ("scan_output_axes", self.scan_output_axes, len(results) - n_states),
            ("scan_output_directions", self.scan_output_directions, len(results) - n_states),
        ):
            if values and len(values) != expected:
                ctx.fail(f"{what} has the wrong length", expected=expected, found=len(values))
        carried = [value.type for value in ctx.bodies["body"].inputs[:n_states]]
        opened = _opened(carried, ctx.types[:n_states])
        scanned = _outside(ctx, results[n_states:], opened, "Scan_scan")
        return [*_outside(ctx, carried, opened, "Scan_"), *_stacked(ctx, scanned, length, self.scan_output_axes)]

    def iterations(self, n_operands: int, results: Sequence[Type]) -> Iterations:
        n_states = n_operands - self.captures - self.num_scan_inputs
        n_stacked = len(results) - n_states
        return Iterations(
            False, n_states, _slices(self.num_scan_inputs, self.scan_input_axes, self.scan_input_directions),
            _slices(n_stacked, self.scan_output_axes, self.scan_output_directions),
        )  # fmt: skip


def _slices(count: int, axes: Sequence[int], directions: Sequence[int]) -> tuple[Slices, ...]:
    """Of so many tensors; what is left out is 0. Negative axes count from a tensor's last."""
    pairs = zip(axes or (0,) * count, directions or (0,) * count, strict=True)
    return tuple(Slices(axis, bool(is_backward)) for axis, is_backward in pairs)


def _check_scalar(ctx: InferContext, type_: Type | None, what: str, dtype: object = BOOL) -> None:
    dims = type_.shape or () if isinstance(type_, TensorType) else ()
    if not isinstance(type_, TensorType) or type_.dtype != dtype or any(isinstance(d, int) and d != 1 for d in dims):
        ctx.fail(f"{what} must be one {dtype}", found=type_)
