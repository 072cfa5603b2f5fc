"""Which products of whole numbers multiply bytes: what passes and the choice of targets ask of the tiles of quads; and
what else targets have for bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..ir.graph import Graph, Node
from ..ir.ops.byte_tables import ByteTable
from ..ir.ops.contraction import Conv
from ..ir.ops.quantised_products import is_depthwise, takes_quads
from ..ir.ops.widening import ByteConv, ByteMatMul, WideningConv, WideningMatMul
from ..ir.types import U8
from ..targets.target import EXTENSIONS, Target
from .kernels.conv.winograd.whole import is_filtered
from .kernels.matmul.widening import multiplies
from .llvm_memory import LOOKUP_FEATURE
from .microkernels.table import emitter_of, features_of, tiles, without_matrices


def byte_features() -> frozenset[str]:
    """What targets may have beyond their names for products of bytes."""
    return features_of(U8).intersection(EXTENSIONS)


def multiplies_bytes(targets: Iterable[Target]) -> Callable[[Node], bool]:
    """Whether bytes in the place of i16 make a product by constant weights faster, and exact, on all targets."""
    every = tuple(targets)
    return lambda node: all(_serves(target, node) for target in every)


def adds_quads(targets: Iterable[Target]) -> bool:
    """Whether all targets add four products of bytes in one instruction, of vectors.

    Those of an image's few channels would fill a part of matrix registers.
    """
    rows = [next(tiles(without_matrices(target), U8), None) for target in targets]
    return all(row is not None and row.emitter.heaviest_pair is None for row in rows)


def _serves(target: Target, node: Node) -> bool:
    """Three instructions for a quad are more than what Winograd's algorithm of i16 takes, one is less."""
    w = node.operands[1].data
    assert w is not None and isinstance(node.op, (WideningConv, WideningMatMul))
    if not isinstance(node.op, WideningConv):
        return multiplies(target, U8, w)
    if is_depthwise(node.op.group, node.operands[1].tensor):
        return True  # by no instruction of their own: bytes are half of what i16 read
    columns = w.reshape(*w.shape[:2], -1).transpose(2, 1, 0)
    if not multiplies(target, U8, columns):
        return False
    single = emitter_of(target, U8).heaviest_pair is None
    x = node.operands[0].tensor
    return single or not is_filtered(node.op.geometry(x, node.operands[1].tensor), w, target, x.dims[0])


def prefers_light(targets: Iterable[Target]) -> Callable[[Node], bool]:
    """Whether a product by constant weights, of f32 yet, will be faster if its bytes are light, on all targets.

    That is where no target adds four products in one instruction, and all add two in i16.
    """
    rows = [(target, next(tiles(target, U8), None)) for target in targets]

    def prefers(node: Node) -> bool:
        w, conv = node.operands[1], node.op if isinstance(node.op, Conv) else None
        if any(row is None or row.emitter.heaviest_pair is None for _, row in rows) or w.data is None:
            return False
        if conv is None:
            return w.tensor.rank == 2
        x = node.operands[0].tensor
        geometry, n = conv.geometry(x, w.tensor), x.dims[0]
        return takes_quads(conv.group, w.tensor) and not any(is_filtered(geometry, w.data, each, n) for each, _ in rows)

    return prefers


def features_for(graph: Graph) -> frozenset[str]:
    """What targets may have beyond their names for what operators of a graph, or of bodies in it, do with bytes."""
    found: frozenset[str] = frozenset()
    for node in graph:
        if isinstance(node.op, (ByteConv, ByteMatMul)):
            found |= byte_features()
        elif isinstance(node.op, ByteTable):
            found |= {LOOKUP_FEATURE}
        found = found.union(*map(features_for, node.bodies.values()))
    return found
