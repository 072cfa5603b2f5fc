"""Tensors whose content is known up to symbolic dimensions: the kernel just writes the numbers.

Serves what is left of shape arithmetic (Shape, Size, Gather of a shape, …) once shapes are inferred with symbols, and
results without elements, so that no other kernel need plan tiles of nothing.
"""

from __future__ import annotations

from typing import Any

from ...ir.graph import Node, Value
from ...ir.types import BOOL, SymDim
from ...kernel_ir.builder import KValue
from ...kernel_ir.loops import KFunc, PtrType
from ..lowering import KernelCall, LowerContext

LIMIT = 64  # elements; longer contents are worth the operator's own kernel


def has_no_elements(node: Node) -> bool:
    """Whether every result is empty, whatever the symbols are."""
    return all(0 in v.tensor.dims for v in node.outputs)


def is_known(node: Node) -> bool:
    """Whether every result is empty, or an integer tensor of known content."""
    return all(0 in v.tensor.dims or _is_known(v) for v in node.outputs)


def _is_known(v: Value) -> bool:
    return (v.known is not None and v.known.size <= LIMIT and (v.tensor.dtype.is_int or v.tensor.dtype == BOOL)
            and all(isinstance(d, (int, bool, SymDim)) for d in v.known.flat))


def _in_memory(v: Value) -> list[Any]:
    """The content in the order that it has in memory."""
    return [] if 0 in v.tensor.dims or v.known is None else list(v.known.transpose(v.tensor.axis_order).flat)


def lower_known(ctx: LowerContext, node: Node) -> KernelCall:
    """Write the contents of all outputs of `node`."""
    outs = [(v, _in_memory(v)) for v in node.outputs]
    contents = [content for _, content in outs]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(f"y{i}", PtrType(v.tensor.dtype)) for i, (v, _) in enumerate(outs)])

        def write(_: KValue, __: list[KValue]) -> None:
            for i, content in enumerate(contents):
                ptr = k[f"y{i}"]
                for at, dim in enumerate(content):
                    number = k.index(dim) if isinstance(dim, SymDim) else k.index(int(dim))
                    k.store(ptr, at, k.cast(number, ptr.dtype))

        k.for_(k["begin"], k["end"], 1, [], write)
        return k.func

    return KernelCall(ctx.function("known", node, build, *map(str, contents)), tuple(v for v, _ in outs), 1, node.name)
