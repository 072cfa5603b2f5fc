"""Which passes run, in which order, at each optimisation level: explicit lists, no discovery."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.ops.base import Operator
from .base import Pass, Pipeline
from .block.algebraic_simplification import AlgebraicSimplification
from .block.decompose_composites import DecomposeComposites
from .block.fold_affine import FoldAffine
from .block.fold_batch_norm import FoldBatchNorm
from .block.fold_flatten import FoldFlatten
from .block.fold_lookups import FoldLookups
from .block.fold_pad import FoldPad
from .block.forward_concat_operands import ForwardConcatOperands
from .block.fuse_attention import FuseAttention
from .block.fuse_depthwise import FuseDepthwise
from .block.fuse_elementwise import FuseElementwise
from .block.fuse_expansion import FuseExpansion
from .block.fuse_normalization import FuseNormalization
from .block.hoist_elementwise import HoistElementwise
from .block.order_pools import OrderPools
from .block.simplify_movements import SimplifyMovements
from .block.split_projections import SplitProjections
from .block.unflatten_gathers import UnflattenGathers
from .block.unflatten_products import UnflattenProducts
from .dataflow.assign_layouts import AssignLayouts
from .dataflow.common_subexpressions import CommonSubexpressions
from .dataflow.dead_code import DeadCode
from .dataflow.sink_constants import SinkConstants
from .node.constant_folding import ConstantFolding, Evaluate
from .node.no_op_elimination import NoOpElimination
from .node.omit_neutral_operands import OmitNeutralOperands
from .node.split_wide_operators import SplitWideOperators
from .node.zero_size_elimination import ZeroSizeElimination


def pipeline(
    opt_level: int, has_kernel: Callable[[Operator], bool], evaluate: Evaluate | None = None, cache_nbytes: float = 0.0
) -> Pipeline:
    """The passes of an optimisation level.

    Args:
        opt_level: 0 only what is needed to run, 1 local clean-up and layouts, 2 and 3 everything.
        has_kernel: whether the backend serves an operator directly. evaluate: computes one node on constants.
        cache_nbytes: of the last-level cache, a core's share.
    """
    decompose, narrow = DecomposeComposites(has_kernel), SplitWideOperators()
    if opt_level == 0:
        return Pipeline([decompose, narrow, SinkConstants(), DeadCode()])
    clean: list[Pass] = [NoOpElimination(), ZeroSizeElimination(), ConstantFolding(evaluate), DeadCode()]
    if opt_level == 1:
        return Pipeline([clean, decompose, clean, narrow, SinkConstants(), AssignLayouts(), NoOpElimination(),
                         DeadCode()])  # fmt: skip
    return Pipeline([
        clean,
        FoldBatchNorm(),
        decompose,
        narrow,
        [*clean, AlgebraicSimplification(), SimplifyMovements(), ForwardConcatOperands(), UnflattenProducts(),
         UnflattenGathers(), SplitProjections(), HoistElementwise(), FoldAffine(), FoldPad(), OrderPools(),
         FoldLookups(), OmitNeutralOperands(), CommonSubexpressions()],
        FuseNormalization(),
        FuseAttention(),
        DeadCode(),
        SinkConstants(),
        AssignLayouts(),
        FoldFlatten(),
        DeadCode(),
        FuseElementwise(),
        FuseDepthwise(cache_nbytes=cache_nbytes),
        FuseExpansion(),
        DeadCode(),
    ])  # fmt: skip
