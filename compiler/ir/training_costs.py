"""What a node costs in a training step: forward, backward and the update of its weights, from its forward cost.

Owns the factors. They are those of the textbook backward pass, not of kernels: parax's own training graphs have nodes
that are counted one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .costs import Cost, node_cost
from .graph import Node


def training_cost(node: Node, symbols: Mapping[str, int]) -> Cost:
    """Forward, backward and update of a node, as one cost.

    Contractions: dX = dY·Wᵀ and dW = Xᵀ·dY take the forward's arithmetic each, so 3 times the flops; x and w are read
    twice, dy twice, dx and dw written. Normalisations read x for the statistics and again to scale, x and dy twice in
    the backward pass. Anything else: once more the flops, x or y and dy read, dx written. Weights are read forward and
    backward; gradients of weights are results. Update: w and its gradient read, w written, two flops a weight.
    """
    forward = node_cost(node, symbols)
    if forward.kind == "view":
        return forward
    read, written = forward.read_nbytes, forward.written_nbytes
    parameters = 0.0 if forward.kind == "lookup" else _distinct_weights(node)
    update = 3 * parameters
    flops = 2 * forward.flops + 2 * parameters / 4
    passes_in, passes_out = (2, 2)
    if forward.kind in CONTRACTIONS:
        flops = 3 * forward.flops + 2 * parameters / 4
        passes_in, passes_out = (3, 3)  # in: x, x, dx written; out: y written, dy, dy
    elif forward.kind == "norm":
        passes_in, passes_out = (5, 3)  # in: x twice, x twice, dx written; out: y written, dy twice
    elif forward.kind == "lookup":
        passes_in, passes_out = (1, 4)  # out: y written, dy read, rows of w read and written
    return replace(
        forward,
        flops=flops,
        kernel_flops=None,
        kernel_weight_nbytes=None,
        kind="conv" if forward.kind == "winograd" else forward.kind,
        read_nbytes=passes_in * read,
        written_nbytes=passes_out * written + parameters,
        weight_nbytes=(1 if forward.kind == "lookup" else 2) * forward.weight_nbytes + update,
    )


CONTRACTIONS = frozenset({"conv", "conv1x1", "winograd", "grouped", "few-channels", "depthwise", "conv-transpose",
                          "matmul", "batched-matmul", "recurrent"})  # fmt: skip


def _distinct_weights(node: Node) -> float:
    """Bytes of the node's constants."""
    return float(sum(v.data.nbytes for v in set(node.operands) if v.data is not None and v.data.ndim > 0))
