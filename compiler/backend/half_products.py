"""Which convolutions by computed filters, of few channels, and transposed, are worth rounding to bf16: what the pass
that rounds asks of the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from ..ir.graph import Node
from ..ir.ops.contraction import Conv, ConvTranspose
from ..ir.ops.quantised_products import takes_columns
from ..ir.types import BF16
from ..targets.target import EXTENSIONS, Target
from .kernels.conv.images import serves_image
from .kernels.conv.transposed_matrices import serves_lines
from .kernels.matmul.cost import LANES
from .microkernels.table import emitter_of, features_of

LEAST_OUTPUTS = 64  # of a convolution of few channels
LEAST_SAVED = 10  # multiply-adds of vectors for a pixel of its input


def half_features() -> frozenset[str]:
    """What targets may have beyond their names for products of bf16."""
    return features_of(BF16).intersection(EXTENSIONS)


def gains_by_halves(targets: Iterable[Target]) -> Callable[[Node], bool]:
    """Whether bf16 makes a convolution by computed filters, of few channels, or a transposed one, faster on all
    targets; of other nodes it is true.

    Not where a target's tiles are of no vectors that an instruction multiplies in pairs (matrix registers read packed
    filters alone, and of few channels those of images whose rows fill them), nor where Winograd's algorithm serves f32,
    which saves more: 3 × 3 filters of 64, 256 and 512 channels took 1.43, 1.15 and 1.00 times as long in bf16, those of
    stride 2 0.72 times (Zen 5, one core, medians of 8 in turn, 2026-11-28).
    """
    every = tuple(targets)
    able = all(emitter_of(target, BF16).weave is not None for target in every)

    def gains(node: Node) -> bool:
        if isinstance(node.op, ConvTranspose):
            return all(_gains_transposed(node, node.op, target) for target in every)
        if not isinstance(node.op, Conv):
            return True
        few = takes_columns(node.op, node.operands[1].tensor)
        return all(_gains_few(node, target) for target in every) if few else able and not _is_transformed(node)

    return gains


def _gains_few(node: Node, target: Target) -> bool:
    """Whether a convolution of few channels does, by matrix registers or vectors."""
    emitter, op, (x, w) = emitter_of(target, BF16), node.op, node.operands[:2]
    assert isinstance(op, Conv)
    if emitter.matrices:
        return serves_image(op.geometry(x.tensor, w.tensor), *w.tensor.static_shape[1::-1])
    return emitter.weave is not None and _saves_steps(node)


def _gains_transposed(node: Node, op: ConvTranspose, target: Target) -> bool:
    """Whether a transposed one does."""
    emitter, (x, w) = emitter_of(target, BF16), node.operands[:2]
    if emitter.matrices:
        return op.group == 1 and serves_lines(op.geometry(x.tensor, w.tensor))
    return emitter.weave is not None


def _saves_steps(node: Node) -> bool:
    """Whether pairs of columns of a filter save more than the copy of pairs costs.

    By the multiply-adds of vectors saved for each pixel of the input: 7 × 7 filters of stride 2 to 64 channels (21)
    take 0.64 times as long as in f32, 16 × 16 of stride 16 to 768 (24) 0.51, 5 × 5 of stride 2 to 64 (10) 0.62, 3 × 3
    to 64 (12) 0.77; 4 × 4 of stride 4 to 96 (3) 1.09. Of fewer outputs others serve f32: 5 × 5 of one channel to 32
    (20) 1.10, 3 × 3 of stride 2 to 32 (1.5) 1.06 (Zen 5, two cores, 2026-11-28, `parax profile` of one layer, with its
    rounding).
    """
    op, (outputs, _, *kernel) = node.op, node.operands[1].tensor.static_shape
    assert isinstance(op, Conv)
    saved = math.prod(kernel[:-1]) * (kernel[-1] // 2) * math.ceil(outputs / LANES)
    return outputs >= LEAST_OUTPUTS and saved >= LEAST_SAVED * math.prod(op.strides or (1,))


def _is_transformed(node: Node) -> bool:
    """Whether Winograd's algorithm serves it in f32, at its best: of stride 1."""
    op, w = node.op, node.operands[1].tensor.static_shape
    assert isinstance(op, Conv)
    plain = all(set(given or (1,)) == {1} for given in (op.strides, op.dilations))
    return plain and len(w) == 4 and math.prod(w[2:]) > 1 and w[0] % LANES == w[1] % LANES == 0
