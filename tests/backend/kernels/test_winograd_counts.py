"""The cost model counts the algorithm that the kernels choose, and about as many work items."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.backend.fusion import Fusion
from parax.compiler.backend.host import resolve_target
from parax.compiler.backend.kernels import winograd as kernels
from parax.compiler.backend.kernels.conv_weights import ConvShape
from parax.compiler.backend.lowering import LowerContext, WeightStore
from parax.compiler.ir import winograd as counts
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.machine import Machine
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.types import F32, TensorType


@pytest.mark.parametrize(
    ("ci", "co", "size", "kernel", "stride"),
    [(64, 64, 56, 3, 1), (512, 512, 7, 3, 1), (16, 16, 32, 3, 1), (64, 96, 28, 3, 2), (48, 64, 25, 5, 1),
     (128, 128, 12, 7, 1), (32, 32, 111, 3, 1), (256, 256, 14, 3, 1)],
)  # fmt: skip
def test_the_same_algorithm_is_chosen(ci: int, co: int, size: int, kernel: int, stride: int) -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(F32, (1, ci, size, size), (0, 2, 3, 1)))
    w = graph.add_constant(np.zeros((co, ci, kernel, kernel), np.float32))
    node = graph.add_node(lookup("", "Conv")(pads=(kernel // 2,) * 4, strides=(stride, stride)), [x, w])
    node.output.type = node.output.tensor.with_layout((0, 2, 3, 1))
    fusion = Fusion.of(node)
    context = LowerContext(resolve_target("x86-64-v4"), (), WeightStore())
    direct = {"direct": lambda: pytest.fail("nothing is lowered here")}
    chosen = next(iter(kernels.candidates(context, fusion, ConvShape.of(fusion), direct)))
    out = node.output.tensor.static_shape[2:]
    layer = counts.Layer(1, ci, co, (kernel, kernel), (stride, stride), (out[0], out[1]))
    best = counts.best_algorithm(layer, context.lanes)
    assert (f"winograd{best.tile[0]}x{best.tile[1]}" if best else "direct") == chosen
    if best is None:
        return
    shape = ConvShape.of(fusion)
    assert shape is not None
    axes = next(a for a in kernels.algorithms(shape) if (a[0].outputs, a[1].outputs) == best.tile)
    work = kernels.plan(shape, context.target, axes).work(1)
    assert counts.items(layer, best, context.lanes, 6) == pytest.approx(work, rel=0.34)


def test_weights_that_come_from_memory_count() -> None:
    """A single image reads its weights for few products: fewer points, or no transform, where reading takes longer."""

    def tile(images: int, channels: int, size: int, stride: int = 1) -> tuple[int, int] | None:
        layer = counts.Layer(images, channels, channels, (3, 3), (stride, stride), (size, size))
        best = counts.best_algorithm(layer, 16)
        return best.tile if best else None

    assert tile(1, 512, 7) == (2, 2)
    assert tile(8, 512, 7) == (4, 4)
    assert tile(1, 512, 7, stride=2) is None
    assert tile(1, 64, 8) == (4, 4)  # such few weights stay in the cache


def test_slow_memory_asks_for_fewer_weights() -> None:
    """What a byte costs is the machine's: the faster its arithmetic against its memory, the more."""
    layer = counts.Layer(8, 512, 512, (3, 3), (1, 1), (7, 7))
    usual = Machine("usual", 2, 110e9, 25e9, 32e9)
    starved = Machine("starved", 2, 430e9, 12e9, 14e9)
    assert counts.pace_of(usual, 16).alone == pytest.approx(110 / 32 / 25)
    assert counts.pace_of(usual, 16).shared == pytest.approx(2 * 110 / 32 / 32)
    tiles = [counts.best_algorithm(layer, 16, counts.pace_of(machine, 16)) for machine in (usual, starved, None)]
    assert tiles[0] == tiles[2] and tiles[0] is not None
    assert tiles[1] is None or tiles[1].all_points < tiles[0].all_points
