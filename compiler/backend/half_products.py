"""Which convolutions by computed filters are worth rounding to bf16: what the pass that rounds asks of the kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from ..ir.graph import Node
from ..ir.ops.contraction import Conv
from ..ir.types import BF16
from ..targets.target import Target
from .kernels.matmul.cost import LANES
from .microkernels.table import emitter_of


def gains_by_halves(targets: Iterable[Target]) -> Callable[[Node], bool]:
    """Whether bf16 makes a convolution by computed filters faster on all targets; of other nodes it is true.

    Not where a target's tiles read packed filters alone, nor where Winograd's algorithm serves f32, which saves more:
    3 × 3 filters of 64, 256 and 512 channels took 1.43, 1.15 and 1.00 times as long in bf16, those of stride 2 0.72
    times (Zen 5, one core, medians of 8 in turn, 2026-11-28).
    """
    able = all(emitter_of(target, BF16).weave is not None for target in targets)
    return lambda node: not isinstance(node.op, Conv) or (able and not _is_transformed(node))


def _is_transformed(node: Node) -> bool:
    """Whether Winograd's algorithm serves it in f32, at its best: of stride 1."""
    op, w = node.op, node.operands[1].tensor.static_shape
    assert isinstance(op, Conv)
    plain = all(set(given or (1,)) == {1} for given in (op.strides, op.dilations))
    return plain and len(w) == 4 and math.prod(w[2:]) > 1 and w[0] % LANES == w[1] % LANES == 0
