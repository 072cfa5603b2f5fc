"""What ONNX itself says about its operators: versions, defaults, attribute types, arities, function bodies.

The one place that asks onnx.defs; knows nothing of the catalogue or the IR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto, defs, helper

from ...errors import InvalidModel


@dataclass(frozen=True)
class Schema:
    """One version of an ONNX operator.

    Attributes:
        since: the operator set that introduced this version.
        types: attribute → AttributeProto type.
        defaults: attribute → value, where the default is not that of the newest version.
        inputs, outputs: (least, most) numbers.
        has_function: whether ONNX defines the operator by others.
        removed: whether this version takes the operator out of ONNX, and no later one brings it back.
        raw: onnx's own object, whose type stubs lag behind.
    """

    domain: str
    name: str
    since: int
    types: dict[str, int]
    defaults: dict[str, Any]
    required: frozenset[str]
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    has_function: bool
    removed: bool
    raw: Any


_NEWEST = 2**31 - 1
_EXPERIMENTAL = frozenset({"Affine", "Crop", "ImageScaler"})
"""Operators that parax has of those that were experiments: onnx.defs has forgotten them."""
_END_OF_EXPERIMENTS = 10
"""The operator set without them, as in ONNX Runtime."""


@cache
def find_schema(domain: str, name: str, opset: int) -> Schema | None:
    """The version of an operator that operator set `opset` of `domain` has, None if it has none."""
    try:
        raw: Any = defs.get_schema(name, opset, domain)
    except defs.SchemaError:
        return None
    last: Any = defs.get_schema(name, _NEWEST, domain)
    defaults, newest = _defaults(raw), _defaults(last)
    return Schema(
        domain,
        name,
        raw.since_version,
        {key: int(attribute.type.value) for key, attribute in raw.attributes.items()},
        {key: value for key, value in defaults.items() if newest.get(key) != value},
        frozenset(key for key, attribute in raw.attributes.items() if attribute.required),
        (raw.min_input, raw.max_input),
        (raw.min_output, raw.max_output),
        raw.has_function or raw.has_context_dependent_function,
        raw.deprecated and last.deprecated,
        raw,
    )


def _defaults(raw: Any) -> dict[str, Any]:
    defaults = {}
    for key, attribute in raw.attributes.items():
        if attribute.default_value.type != AttributeProto.UNDEFINED:
            value = helper.get_attribute_value(attribute.default_value)
            defaults[key] = value.decode() if isinstance(value, bytes) else value
    return defaults


def is_known(domain: str, name: str) -> bool:
    """Whether any version of ONNX has this operator."""
    return bool(defs.has(name, domain))


def check_version(domain: str, name: str, opset: int, where: str) -> None:
    """Raises InvalidModel if the operator was removed by operator set `opset` or one before."""
    schema = find_schema(domain, name, opset)
    removed = schema.since if schema is not None and schema.removed else None
    if schema is None and domain == "" and name in _EXPERIMENTAL and opset >= _END_OF_EXPERIMENTS:
        removed = _END_OF_EXPERIMENTS
    if removed is not None:
        raise InvalidModel(f"{name} was removed from operator set {removed}", where=where,
                           expected=f"operator set {removed - 1} or older", found=opset,
                           hint="export the model for an older operator set")  # fmt: skip


def check_node(schema: Schema, node: NodeProto, types: dict[str, int], where: str) -> None:
    """Raises InvalidModel if the node's arity or its attributes' types break the schema."""
    _check_count("inputs", len(node.input), schema.inputs, where)
    _check_count("outputs", len(node.output), schema.outputs, where)
    for name, found in types.items():
        expected = schema.types.get(name)
        if expected is None:
            known = ", ".join(sorted(schema.types)) or "no attributes"
            raise InvalidModel(f"unknown attribute {name[:60]}", where=where, expected=known)
        if expected != found:
            raise InvalidModel(
                f"attribute {name} has the wrong type",
                where=where,
                expected=AttributeProto.AttributeType.Name(expected),
                found=AttributeProto.AttributeType.Name(found),
            )
    missing = schema.required - types.keys()
    if missing:
        raise InvalidModel(f"required attribute {min(missing)} is missing", where=where)


def _check_count(what: str, found: int, bounds: tuple[int, int], where: str) -> None:
    least, most = bounds
    if not least <= found <= most:
        expected = str(least) if least == most else f"{least} to {most}" if most < 2**31 - 1 else f"at least {least}"
        raise InvalidModel(f"wrong number of {what}", where=where, expected=expected, found=found)


def function_body(schema: Schema, opset: int, node: NodeProto, types: Sequence[TypeProto]) -> FunctionProto | None:
    """ONNX's own definition of an operator by other operators, in terms of operator set `opset` or the nearest below.

    Some definitions depend on the node's attributes and its operands' types. None if there is no definition.
    """
    raw = schema.raw
    data = b""
    if raw.has_context_dependent_function:
        version = _nearest(raw.context_dependent_function_opset_versions, opset)
        operands = [t.SerializeToString() for t in types]
        if version is not None:
            data = raw.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), operands)
    elif raw.has_function:
        version = _nearest(raw.function_opset_versions, opset)
        if version is not None:
            data = raw.get_function_with_opset_version(version)
    return FunctionProto.FromString(data) if data else None


def _nearest(versions: Sequence[int], opset: int) -> int | None:
    fitting = [v for v in versions if v <= opset]
    return max(fitting) if fitting else min(versions, default=None)
