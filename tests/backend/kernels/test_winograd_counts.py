"""The cost model counts the algorithm that the kernels choose, and about as many work items."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parax.compiler.backend.algorithm import candidates
from parax.compiler.backend.fusion import Fusion
from parax.compiler.backend.host import resolve_target
from parax.compiler.backend.kernels.conv.conv import ALGORITHMS
from parax.compiler.backend.kernels.conv.layer import ConvLayer
from parax.compiler.backend.kernels.conv.weights import ConvShape
from parax.compiler.backend.kernels.conv.winograd import counts
from parax.compiler.backend.kernels.conv.winograd import lower as kernels
from parax.compiler.backend.lowering import LowerContext, WeightStore
from parax.compiler.ir.call_rows import ANY
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.types import F32, Dim, TensorType, symbol, symbols_of
from parax.compiler.targets.machine import Machine


@pytest.mark.parametrize(
    ("ci", "co", "size", "kernel", "stride"),
    [(64, 64, 56, 3, 1), (512, 512, 7, 3, 1), (16, 16, 32, 3, 1), (64, 96, 28, 3, 2), (48, 64, 25, 5, 1),
     (128, 128, 12, 7, 1), (32, 32, 111, 3, 1), (256, 256, 14, 3, 1)],
)  # fmt: skip
@pytest.mark.parametrize("images", [1, symbol("N")], ids=str)
def test_the_same_algorithm_is_chosen(ci: int, co: int, size: int, kernel: int, stride: int, images: Dim) -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(F32, (images, ci, size, size), (0, 2, 3, 1)))
    w = graph.add_constant(np.zeros((co, ci, kernel, kernel), np.float32))
    node = graph.add_node(lookup("", "Conv")(pads=(kernel // 2,) * 4, strides=(stride, stride)), [x, w])
    node.output.type = node.output.tensor.with_layout((0, 2, 3, 1))
    fusion = Fusion.of(node)
    context = LowerContext(resolve_target("x86-64-v4"), tuple(symbols_of([images])), WeightStore())
    chosen = next(iter(candidates(ALGORITHMS, context, ConvLayer(fusion, ConvShape.of(fusion)))))
    out = [size for size in node.output.tensor.dims[2:] if isinstance(size, int)]
    layer = counts.Layer(1, ci, co, (kernel, kernel), (stride, stride), (out[0], out[1]))
    best = counts.best_algorithm(tuple(replace(layer, images=n) for n in ANY.of(images)), context.lanes)
    assert (f"winograd{best.tile[0]}x{best.tile[1]}" if best else "direct") == chosen
    if best is None or images != 1:
        return
    shape = ConvShape.of(fusion)
    assert shape is not None
    axes = next(a for a in kernels.algorithms(shape) if (a[0].outputs, a[1].outputs) == best.tile)
    work = kernels.plan(context, shape, axes).work(1)
    assert counts.items(layer, best, context.lanes, counts.block_tiles((layer,), best, context.lanes)) == work


def test_weights_that_come_from_memory_count() -> None:
    """A single image reads its weights for few products: fewer points, or no transform, where reading takes longer."""

    def tile(images: int, channels: int, size: int, stride: int = 1) -> tuple[int, int] | None:
        layer = counts.Layer(images, channels, channels, (3, 3), (stride, stride), (size, size))
        best = counts.best_algorithm((layer,), 16)
        return best.tile if best else None

    assert tile(1, 512, 7) in ((2, 2), (3, 2), (2, 3))
    assert tile(8, 512, 7) == (4, 4)
    assert tile(1, 512, 7, stride=2) is None
    assert tile(1, 64, 28) == (4, 4)  # such few weights stay in the cache


def test_slow_memory_asks_for_fewer_weights() -> None:
    """What a byte costs is the machine's: the faster its arithmetic against its memory, the more."""
    layer = counts.Layer(8, 512, 512, (3, 3), (1, 1), (7, 7))
    usual = Machine("usual", 2, 110e9, 25e9, 32e9)
    starved = Machine("starved", 2, 430e9, 5e9, 6e9, l3_bandwidth_per_core=10e9)
    assert counts.pace_of(usual, 16).alone == pytest.approx(110 / 32 * (1 / 25 + 1 / 30) / 2)  # half of it each
    assert counts.pace_of(usual, 16).shared == pytest.approx(2 * 110 / 32 / 32)
    tiles = [counts.best_algorithm((layer,), 16, counts.pace_of(machine, 16)) for machine in (usual, starved, None)]
    assert tiles[0] == tiles[2] and tiles[0] is not None
    assert tiles[1] is None or tiles[1].all_points < tiles[0].all_points


def test_an_open_batch_is_served_well_at_one_row_and_at_several() -> None:
    """Neither the algorithm whose weights a lone row waits for, nor the one that computes more than rows have to."""
    machine = Machine("starved", 2, 230e9, 17e9, 35e9)
    pace = counts.pace_of(machine, 16)
    layer = counts.Layer(1, 512, 512, (3, 3), (1, 1), (7, 7))
    many = replace(layer, images=64)
    alone, crowd, both = (counts.best_algorithm(layers, 16, pace) for layers in ((layer,), (many,), (layer, many)))
    assert crowd is not None and crowd.all_points == 36
    assert alone is None or alone.all_points < crowd.all_points

    def cost(algorithm: counts.Algorithm | None) -> float:
        if algorithm is None:
            return sum(counts.direct_cycles(one, 16, pace) / one.images for one in (layer, many))
        return counts.cycles((layer, many), algorithm, 16, pace)

    assert cost(both) <= min(cost(alone), cost(crowd))


def test_blocks_are_longer_where_weights_are_read_again_for_each() -> None:
    """Shorter ones keep more of themselves in the core's cache, and share a single image evenly."""
    pace = counts.pace_of(Machine("m", 2, 230e9, 15e9, 29e9, l2_nbytes=2 << 20), 16)
    f43 = counts.Algorithm((4, 4), (6, 6))

    def block(channels: int, size: int, images: int) -> int:
        layer = counts.Layer(images, channels, channels, (3, 3), (1, 1), (size, size))
        return counts.block_tiles((layer,), f43, 16, pace)

    assert block(64, 56, 4) <= 24 <= block(256, 14, 8) <= counts.LONG_BLOCK
    assert block(64, 56, 4) * 64 < block(256, 28, 8) * 256
    for size in (14, 28, 56):
        tiles, panels = -(-size // 4) ** 2, 2
        assert -(-tiles // block(128, size, 1)) * panels % 2 == 0
    assert block(64, 4, 1) == 1  # all there are
    assert block(64, 0, 1) == 1  # none: a size that an open dimension may have


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 8), st.integers(1, 5))
def test_a_core_reads_a_panel_from_memory_once_and_transforms_a_block_once(
    begin: int, n: int, whole_blocks: int, panels: int
) -> None:
    works, end = [(1000.0, 100.0, 10.0), (2000.0, 200.0, 20.0)], begin + n
    expected, seen, blocks = 0.0, set(), set()
    for item in range(begin, end):
        block, panel = divmod(item, panels)
        from_memory, again, inputs = works[block >= whole_blocks]
        expected += again if panel in seen else from_memory
        expected += 0 if block in blocks else inputs
        seen.add(panel)
        blocks.add(block)
    assert counts.load(begin, end, whole_blocks * panels, panels, works) == expected
