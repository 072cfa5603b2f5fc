"""What rows of features reach in decision trees: parax's own operator under the ensembles of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence

from ..types import F32, F64, I32, Dim, TensorType, Type, ceil_div
from . import layout_policies, work_rules
from .base import Attr, In, Index, InferContext, Operator, Rows, TypeGroup, op

ROWS = 256  # of a work item: a tree that is in the cache serves them all
STEP_FLOPS = 8  # of a step from a node to its child


class TreeFloat(TypeGroup):
    """What features, thresholds and weights are compared and added up in."""

    dtypes = frozenset({F32, F64})


@op(domain="parax")
class WalkTrees(Operator):
    """[parts, rows, targets]: votes of the leaves that a row reaches, put together in order over each part's trees.

    Operands as `tree_nodes.Forest` has them, nodes packed. A part is so many trees that follow each other, the last one
    of fewer; it is what cores share where rows are few, and its sum does not depend on them.

    Attributes:
        kind: "SUM"; "MIN" or "MAX", which give NaN where a target has no vote.
        test, missing: as `Forest.tests`. one_vote: as `Forest.one_vote`. short: as `Packed.short`.
        features: that x must have. depth: of leaves.
    """

    x: In[TreeFloat]
    nodes: In[Index]
    roots: In[Index]
    firsts: In[Index]
    targets: In[Index]
    weights: In[TreeFloat]
    kind: Attr[str]
    n_targets: Attr[int]
    trees_per_part: Attr[int]
    test: Attr[int]
    missing: Attr[int]
    one_vote: Attr[int]
    short: Attr[int]
    features: Attr[int]
    depth: Attr[int]
    layout_policy = layout_policies.PLAIN
    fusion_root = False

    @staticmethod
    def parts(n_trees: int, trees_per_part: int) -> int:
        """How many there are."""
        return -(-n_trees // trees_per_part)

    def row_axis(self, rows: Rows) -> int:
        """Rows follow the parts."""
        if rows.given[0] != 0 or any(a is not None for a in rows.given[1:]):
            raise rows.interact("rows are not on axis 0")
        return 1

    def work(self, shapes: work_rules.Shapes) -> work_rules.Work:
        """Every row walks every tree."""
        return work_rules.Work("trees", shapes.operand(0)[0] * (shapes.operand(2)[0] - 1) * self.depth * STEP_FLOPS)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if any(ctx.rank(i) != (2 if i == 0 else 1) for i in range(ctx.n_inputs)):
            ctx.fail("x must be [rows, features] and the nodes vectors", found=ctx.types)
        if any(ctx.tensor(i).dtype != I32 for i in (1, 2, 3, 4)):
            ctx.fail("nodes, roots and votes must be counted in i32", found=ctx.types)
        rows, columns = ctx.shape(0)
        if isinstance(columns, int) and columns < self.features:
            ctx.fail("too few features for the trees", expected=f"at least {self.features}", found=columns)
        n_roots = ctx.shape(2)[0]
        assert isinstance(n_roots, int)
        parts = self.parts(n_roots - 1, self.trees_per_part)
        return [TensorType(ctx.tensor(0).dtype, (parts, rows, self.n_targets))]


def row_blocks(rows: Dim) -> Dim:
    """How many blocks so many rows make."""
    return ceil_div(rows, ROWS)
