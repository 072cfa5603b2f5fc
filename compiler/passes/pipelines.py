"""Which passes run, in which order, at each optimisation level: explicit lists, no discovery.

Everything that happens to a graph between the frontend and the kernels stands here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from .base import Item, PartitionPass, Pass, Pipeline
from .block.algebraic_simplification import AlgebraicSimplification
from .block.byte_products import ByteProducts
from .block.decompose_composites import DecomposeComposites
from .block.expand_transposed import ExpandTransposed
from .block.fold_affine import FoldAffine
from .block.fold_batch_norm import FoldBatchNorm
from .block.fold_byte_functions import FoldByteFunctions
from .block.fold_byte_sums import FoldByteSums
from .block.fold_flatten import FoldFlatten
from .block.fold_lookups import FoldLookups
from .block.fold_pad import FoldPad
from .block.fold_steps import FoldSteps
from .block.forward_concat_operands import ForwardConcatOperands
from .block.fuse_attention import FuseAttention
from .block.fuse_depthwise import FuseDepthwise
from .block.fuse_elementwise import FuseElementwise
from .block.fuse_expansion import FuseExpansion
from .block.fuse_normalization import FuseNormalization
from .block.fuse_results import FuseResults
from .block.hoist_elementwise import HoistElementwise
from .block.integer_products import IntegerProducts
from .block.merge_convolutions import MergeConvolutions
from .block.order_pools import OrderPools
from .block.recompute_elementwise import RecomputeElementwise
from .block.round_products import RoundProducts
from .block.simplify_movements import SimplifyMovements
from .block.sink_dequantization import SinkDequantization
from .block.split_projections import SplitProjections
from .block.trim_taps import TrimTaps
from .block.unflatten_gathers import UnflattenGathers
from .block.unflatten_products import UnflattenProducts
from .dataflow.assign_layouts import AssignLayouts
from .dataflow.autodiff import Autodiff
from .dataflow.common_subexpressions import CommonSubexpressions
from .dataflow.dead_code import DeadCode
from .dataflow.name_outputs import NameOutputs
from .dataflow.overwrite_inputs import OverwriteInputs
from .dataflow.read_in_place import ReadInPlace
from .dataflow.rematerialise import Rematerialise
from .dataflow.separate_outputs import SeparateOutputs
from .dataflow.settle_sizes import SettleSizes
from .dataflow.sink_constants import SinkConstants
from .dataflow.stack_grown import StackGrown
from .dataflow.widen_halves import WidenHalves
from .dataflow.write_in_place import WriteInPlace
from .node.constant_folding import ConstantFolding
from .node.no_op_elimination import NoOpElimination
from .node.omit_neutral_operands import OmitNeutralOperands
from .node.split_wide_operators import SplitWideOperators
from .node.zero_size_elimination import ZeroSizeElimination
from .partition.result_nodes import ResultNodes
from .surroundings import Surroundings
from .text import parse_passes

Kind: TypeAlias = "type[Pass] | tuple[type[Pass], ...]"
"""A pass's class, or those of a group that is repeated until none of it changes anything."""

CLEAN = (NoOpElimination, ZeroSizeElimination, ConstantFolding, DeadCode)
SIMPLIFY = (*CLEAN, AlgebraicSimplification, SimplifyMovements, ForwardConcatOperands, UnflattenProducts,
            UnflattenGathers, SplitProjections, HoistElementwise, FoldAffine, FoldPad, TrimTaps, OrderPools,
            FoldLookups, OmitNeutralOperands, CommonSubexpressions)  # fmt: skip
FUSE = (FuseResults, FuseElementwise, FuseDepthwise, FuseExpansion)

NOTHING: tuple[Kind, ...] = (Autodiff, DecomposeComposites, SplitWideOperators, SinkConstants, DeadCode, NameOutputs)
LOCAL: tuple[Kind, ...] = (Autodiff, SinkDequantization, IntegerProducts, CLEAN, DecomposeComposites, ByteProducts,
                           CLEAN, SplitWideOperators, SinkConstants, AssignLayouts, NoOpElimination, DeadCode,
                           NameOutputs)  # fmt: skip
EVERYTHING: tuple[Kind, ...] = (Autodiff, SettleSizes, StackGrown, WidenHalves, SinkDequantization, IntegerProducts,
                                CLEAN, FoldBatchNorm, DecomposeComposites, ByteProducts, SplitWideOperators,
                                ExpandTransposed, SIMPLIFY, DeadCode, FoldByteFunctions, FoldByteSums,
                                FuseNormalization, FuseAttention, DeadCode, SinkConstants, AssignLayouts, FoldFlatten,
                                RecomputeElementwise, DeadCode, *FUSE, DeadCode, NameOutputs)  # fmt: skip
LEVELS = (NOTHING, LOCAL, EVERYTHING, EVERYTHING)
"""By the number behind -O: the passes of a graph and its bodies. 3 differs from 2 in what is measured."""
STEP_LEVELS: tuple[tuple[Kind, ...], ...] = (
    (SeparateOutputs, OverwriteInputs), (SeparateOutputs, OverwriteInputs),
    (SeparateOutputs, WriteInPlace, ReadInPlace, OverwriteInputs),
    (SeparateOutputs, WriteInPlace, ReadInPlace, OverwriteInputs),
)  # fmt: skip
"""The same: the passes of each native step, which is the whole graph where no operator runs on the host."""
SCHEDULED: tuple[type[PartitionPass], ...] = (ResultNodes,)
"""The passes of the only native step, where it runs by a schedule, which they are handed; the same at every level."""

ON_REQUEST = (FoldSteps, MergeConvolutions, Rematerialise, RoundProducts)
"""Passes of no level: the planner and the trainer run them where they pay, --precision bf16, and whoever names them."""


PREPARATION: tuple[Kind, ...] = (WidenHalves, CLEAN, FoldBatchNorm, (*CLEAN, FoldAffine, FoldPad))
"""What a graph goes through before its weights are quantised: whatever moves into them must be there already."""


def preparation(surroundings: Surroundings) -> Pipeline:
    """The passes before quantisation; what they leave are operators of ONNX's own."""
    return Pipeline(_made(PREPARATION, surroundings))


def pipeline(
    opt_level: int, surroundings: Surroundings, text: str | None = None, *, rounds: bool = False
) -> Pipeline:
    """The passes of an optimisation level: 0 only what is needed to run, 1 local clean-up and layouts, 2 and 3 all.

    Args:
        text: passes in the place of the level's; those of native steps stay where it names none (see `text.py`).
        rounds: whether products are to be of bf16, which the level's passes then make of them.

    Raises:
        UsageError: the text is no pipeline.
    """
    steps, scheduled = _made(STEP_LEVELS[opt_level], surroundings), [kind() for kind in SCHEDULED]
    if text is None:
        kinds = LEVELS[opt_level]
        if rounds:  # once the products are as they are computed, and before layouts are chosen for what they read
            at = kinds.index(SinkConstants)
            kinds = (*kinds[:at], RoundProducts, ConstantFolding, DeadCode, *kinds[at:])
        return Pipeline(_made(kinds, surroundings), steps, scheduled)
    passes, own = parse_passes(text, known_passes(), surroundings)
    return Pipeline(passes, steps if own is None else own, scheduled)


def known_passes() -> dict[str, type[Pass]]:
    """Every pass that a text may name, in the order of the levels, by its name."""
    listed: list[type[Pass]] = [*_flat((*EVERYTHING, *STEP_LEVELS[-1], *LOCAL, *NOTHING)), *ON_REQUEST]
    return {kind.pass_name(): kind for kind in dict.fromkeys(listed)}


def _flat(kinds: Sequence[Kind]) -> Iterator[type[Pass]]:
    for kind in kinds:
        if isinstance(kind, tuple):
            yield from kind
        else:
            yield kind


def _made(kinds: Sequence[Kind], surroundings: Surroundings) -> list[Item]:
    make = surroundings.make
    return [[make(k) for k in kind] if isinstance(kind, tuple) else make(kind) for kind in kinds]


__all__ = ["LEVELS", "SCHEDULED", "STEP_LEVELS", "known_passes", "pipeline", "preparation"]
