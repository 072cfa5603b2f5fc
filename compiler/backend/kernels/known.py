"""Tensors whose content is known up to symbolic dimensions: the kernel just writes the numbers.

Serves what is left of shape arithmetic (Shape, Size, Gather of a shape, …) once shapes are inferred with symbols.
"""

from __future__ import annotations

from ...ir.graph import Node, Value
from ...ir.kernel_builder import KValue
from ...ir.loops import KFunc, PtrType
from ...ir.types import BOOL, SymDim
from ..lowering import KernelCall, LowerContext

LIMIT = 64  # elements; longer contents are worth the operator's own kernel


def is_known(node: Node) -> bool:
    """Whether every result is an integer tensor of known content."""
    return all(v.known is not None and v.known.size <= LIMIT and (v.tensor.dtype.is_int or v.tensor.dtype == BOOL)
               and all(isinstance(d, (int, bool, SymDim)) for d in v.known.flat) for v in node.outputs)


def lower_known(ctx: LowerContext, node: Node) -> KernelCall:
    """Write the contents of all outputs of `node`."""
    outs: list[Value] = list(node.outputs)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(f"y{i}", PtrType(v.tensor.dtype)) for i, v in enumerate(outs)])

        def write(_: KValue, __: list[KValue]) -> None:
            for i, v in enumerate(outs):
                assert v.known is not None
                ptr = k[f"y{i}"]
                for at, dim in enumerate(v.known.flat):
                    number = k.index(dim) if isinstance(dim, SymDim) else k.index(int(dim))
                    k.store(ptr, at, k.cast(number, ptr.dtype))

        k.for_(k["begin"], k["end"], 1, [], write)
        return k.func

    contents = tuple(str(list(v.known.flat)) for v in outs if v.known is not None)
    return KernelCall(ctx.function("known", node, build, contents), tuple(outs), 1, node.name)
