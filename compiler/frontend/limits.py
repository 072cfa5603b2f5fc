"""How much of anything an untrusted ONNX file may ask for. Knows nothing of how files are read."""

from __future__ import annotations

import sys
from dataclasses import dataclass

EMPTY_NBYTES = sys.maxsize
"""Size of a tensor without elements, its empty axes left out: beyond it numpy has no such array."""


@dataclass(frozen=True)
class Limits:
    """Upper bounds that the importer holds; going beyond one raises ResourceLimit.

    The defaults are far above every real model and far below what hurts the machine.
    """

    file_nbytes: int = 2**31 - 1
    """Size of the .onnx file itself; protobuf cannot hold more. External data is not counted."""
    tensor_nbytes: int = 2**36
    """Size of one tensor whose shape is known: constants, inputs and results of nodes."""
    constants_nbytes: int = 2**38
    """Size of all constants together."""
    nodes: int = 500_000
    """Nodes after functions are expanded and constant branches are taken."""
    calls: int = 20_000
    """Expansions of functions, of a SequenceMap's body for each element, of a loop's iterations in place."""
    sequence_elements: int = 4_000_000
    """Elements of the sequences that nodes read or make, over all nodes."""
    graph_depth: int = 32
    """Depth of graphs inside graphs (If, Loop, Scan)."""
    rank: int = 32
    """Axes of a tensor."""
    fold_numel: int = 1024
    """Results of constant operands with at most this many elements are computed while importing."""


DEFAULT_LIMITS = Limits()
