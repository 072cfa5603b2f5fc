"""What a row costs in an ensemble, in cycles of a core, by what the core loads and computes in one.

A walk takes three loads a step: a node's word, its threshold and the row's feature. Sixteen walks side by side wait for
none of them while the tree lies in the first cache, so that the loads are its limit: 1.5 cycles a step where two start
in a cycle. Steps are those of the longest of the walks, rounded up to what lies between two looks.

A node of a top takes three loads for what it is and one of each vector of features, a comparison and a masked
intersection: with AVX-512 and two loads a cycle 3.5 cycles of 64 rows. Nodes are read one behind the other, 12 bytes
each, once for a tile, and no branch depends on a row. A tree of depth 4 takes 16 rows 14 cycles so, where their walks
take 96; measured on Zen 5 (1,000 trees, 100,000 rows, two cores) 18 and 180.

Ranks of thresholds in bytes instead of f32 would double or quadruple the rows of a vector, but cost a search of each
row's features, of log2(thresholds) steps each: more than all comparisons of a thousand trees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ....ir.ops.tree_walk import WalkTrees
from ....ir.types import DType
from ....targets.target import Target
from .node_test import has_own_bits
from .tops import EXITS, Shape, Tops
from .walk import STEPS

STEP_LOADS, NODE_LOADS = 3, 3  # of a step of a walk; of a node of a top, whatever the rows
NARROWEST = 128  # bits of a vector: a core starts as many loads of scalars as of these
NUMBER_OPERATIONS = 8  # from the bits that are left to the number of the first, and a sum
TESTED = {True: 6, False: 2}  # operations of a test by whether a node has bits of its own


@dataclass(frozen=True)
class Tile:
    """Rows that a node of a top is compared with, one behind the other.

    Attributes:
        lanes: rows of a vector. vectors: of a tile. permutes: whether a tree's exits are looked up in registers.
        node_operations: of a node and a vector. load, operation: cycles of one. step: cycles of a step of a walk.
    """

    lanes: int
    vectors: int
    permutes: bool
    node_operations: int
    load: float
    operation: float
    step: float

    @property
    def rows(self) -> int:
        """Of a whole tile."""
        return self.lanes * self.vectors

    def node(self, vectors: int) -> float:
        """Cycles of a node and so many vectors."""
        return max((NODE_LOADS + vectors) * self.load, vectors * self.node_operations * self.operation)

    @property
    def exit(self) -> float:
        """Cycles of a tree and a vector beside its nodes."""
        lookups = EXITS // self.lanes * (self.load + self.operation) if self.permutes else self.lanes * self.step / 3
        return NUMBER_OPERATIONS * self.operation + lookups

    @property
    def least_share(self) -> float:
        """Of a tree's rows, for which a step is dearer than a node that spares it."""
        return self.node(self.vectors) / self.rows / self.step


def tile_of(target: Target, op: WalkTrees, dtype: DType) -> Tile:
    """That of a target."""
    core, bits = target.core, target.vector_bits
    masked = "avx512f" in target.abilities
    return Tile(
        lanes=bits // dtype.bits, vectors=max(1, target.n_registers // 8), permutes=masked and bits == 512,
        node_operations=TESTED[has_own_bits(op)] + (0 if masked else 1), load=1 / core.loads[bits],
        operation=1 / core.vector_operations[bits], step=STEP_LOADS / core.loads[NARROWEST],
    )  # fmt: skip


def walked(tile: Tile, shape: Shape, roots: np.ndarray) -> float:
    """Cycles of a row whose walks begin at the roots."""
    steps = shape.steps[roots[:-1]] / shape.leaves[roots[:-1]]
    return float(np.sum(_looked(steps))) * tile.step


def with_tops(tile: Tile, shape: Shape, tops: Tops, features: int) -> float:
    """Cycles of a row of which there are many: to the exits, from there to the leaves, and the features' turning."""
    entries, trees = len(tops.nodes), tops.n_trees
    compared = entries * tile.node(tile.vectors) / tile.rows + trees * tile.exit / tile.lanes
    turned = features * (math.log2(tile.lanes) * tile.operation + 2 * tile.load) / tile.lanes
    if tops.whole:
        return compared + turned
    shares, steps = tops.shares(shape)
    return compared + turned + float(np.sum(shares * _looked(steps))) * tile.step + trees * 2 * tile.load


def least_rows(tile: Tile, tops: Tops, walking: float) -> int:
    """Rows of a vector for which it is no dearer than their walks are."""
    vector = len(tops.nodes) * tile.node(1) + tops.n_trees * tile.exit
    return min(tile.lanes, max(1, math.ceil(vector / max(walking, 1e-9))))


def _looked(steps: np.ndarray) -> np.ndarray:
    """Steps between looks, about: half of what lies between two is walked in vain."""
    return np.where(steps > 0, steps + STEPS / 2, 0)

