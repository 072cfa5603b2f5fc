"""Checks a node against its operator's signature and infers its types. Knows values, not how graphs are kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...errors import InvalidModel, ParaxError
from .ops.base import Operator
from .ops.context import InferContext
from .types import DType, TensorType, Type
from .values import Node, Value


def check_operands(
    op: Operator, inputs: Sequence[Value | None], n_outputs: int, bodies: Collection[str], where: str
) -> None:
    """Checks counts, element types and bodies against the operator's signature. Raises InvalidModel."""
    signature = op.signature
    _check_count("inputs", len(inputs), signature.min_inputs, signature.max_inputs, where)
    _check_count("outputs", n_outputs, signature.min_outputs, signature.max_outputs, where)
    if set(bodies) != set(signature.bodies):
        raise InvalidModel("wrong bodies", where=where, expected=list(signature.bodies), found=list(bodies))
    bound: dict[type, tuple[DType, str]] = {}
    for i, value in enumerate(inputs):
        spec = signature.input_spec(i)
        if value is None:
            if spec.kind == "in":
                raise InvalidModel(f"required input {spec.name} is missing", where=where)
            continue
        group = spec.group
        if not group.accepts(value.type):
            message = f"input {spec.name} has the wrong type"
            raise InvalidModel(message, where=where, expected=group.text(), found=f"{value.type} in {value}")
        if group.shared and isinstance(value.type, TensorType):
            dtype, first = bound.setdefault(group, (value.type.dtype, spec.name))
            if dtype != value.type.dtype:
                message = f"inputs {first} and {spec.name} must have the same element type"
                raise InvalidModel(message, where=where, expected=dtype, found=value.type.dtype)


def _check_count(what: str, found: int, low: int, high: int | None, where: str) -> None:
    if found < low or (high is not None and found > high):
        expected = str(low) if low == high else f"at least {low}" if high is None else f"{low} to {high}"
        raise InvalidModel(f"wrong number of {what}", where=where, expected=expected, found=found)


def infer_types(node: Node) -> list[Type]:
    """The types that the node's operator infers for its outputs now; the node is not changed."""
    return infer_with(node.op, node.context())


def infer_with(op: Operator, ctx: InferContext) -> list[Type]:
    """Output types of `op` for the operands in `ctx`; errors name the node. Raises InvalidModel."""
    try:
        types = list(op.infer(ctx))
    except ParaxError as error:
        if error.where is not None:
            raise
        details = {"expected": error.expected, "found": error.found, "hint": error.hint}
        raise type(error)(error.message, where=ctx.where, **details) from error  # type: ignore[arg-type]
    if len(types) < ctx.n_outputs:
        ctx.fail("too many outputs", expected=len(types), found=ctx.n_outputs)
    return types[: ctx.n_outputs]
