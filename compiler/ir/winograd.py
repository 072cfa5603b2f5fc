"""How much Winograd's algorithms compute (Lavin and Gray, 2016) for a layer, and which of them serves it best.

Owns which algorithms keep the error bound, their counts and the lengths of blocks, for the cost model and for the
kernels (backend/kernels/winograd.py); knows no kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .machine import Machine

OUTPUTS = (4, 3, 2)  # of a tile along an axis with several taps
MOST_POINTS = 8  # of one phase along an axis, where both axes are transformed: the bound on the error, 50² times the
# direct sum's for two of 8 points, would be 200² times it for two of 9
MOST_POINTS_ALONE = 9  # along the only transformed axis: the bounds of two multiply
TILE_ROWS = 6  # rows of the usual register tile
KEPT_NBYTES = 1 << 20  # weights up to that stay in a core's cache
EXPOSED = 0.25  # of arithmetic or reading, whichever is less: what the other does not hide
PRODUCT_CYCLES, POINT_CYCLES = 1.13, 4.0  # of multiply-adds and transforms, as kernels took on half of the models
CLOSE = 1.005  # of the least cycles: as good as equal
WORTH = 0.95  # of the direct algorithm's time, or it is not worth the memory
LONG_BLOCK = 64  # tiles of a work item, at most
SHORT_BLOCK = 12  # tiles: shorter ones read the weights too often
MIN_ITEMS = 8  # work items wanted of a single image
STREAMED_NBYTES = 16 << 20  # of weights that do not stay in the cache from block to block: blocks are long then
L2_NBYTES = 737 << 10  # of a core's cache for one block
PANEL_WASTE = {4: 1.0, 3: 1.01, 2: 1.05, 1: 1.3}  # quarters of the widest panel → cycles of one of them


@dataclass(frozen=True)
class Layer:
    """A convolution with one group: images, channels, and along both axes taps, strides and outputs."""

    images: int
    inputs: int
    outputs: int
    taps: tuple[int, int]
    strides: tuple[int, int]
    size: tuple[int, int]


@dataclass(frozen=True)
class Pace:
    """What things cost on a machine, in the time of one vector's multiply-adds at its peak.

    Attributes:
        alone: a byte of weights from memory where the core has images of its own. shared: where the cores of an
            instance share one, and the way to memory.
        winograd, direct: share of the peak that these kernels reach with their data in the caches, of `kernel_cycles`
            and of the direct sum's multiply-adds. The defaults are those of a machine that nobody looked at.
    """

    alone: float = 0.15
    shared: float = 0.21
    winograd: float = 1.0
    direct: float = 0.93


USUAL = Pace()


def pace_of(machine: Machine | None, lanes: int) -> Pace:
    """That of a machine, with vectors of so many f32 elements."""
    if machine is None:
        return USUAL
    vectors = machine.flops_per_core / (2 * lanes)
    return Pace(vectors / machine.bandwidth_per_core, machine.cores_per_socket * vectors / machine.bandwidth_per_socket,
                machine.share("winograd"), machine.share("conv"))  # fmt: skip


@dataclass(frozen=True)
class Algorithm:
    """F(tile, taps). points: multiplications of a tile, per axis."""

    tile: tuple[int, int]
    points: tuple[int, int]

    @property
    def all_points(self) -> int:
        return math.prod(self.points)


def algorithms(layer: Layer) -> Iterator[Algorithm]:
    """Those that save multiplications within the error bound."""
    for tile in itertools.product(*(OUTPUTS if taps > 1 else (1,) for taps in layer.taps)):
        phases = [_phases(m, taps, stride) for m, taps, stride in zip(tile, layer.taps, layer.strides)]
        points = sum(phases[0]), sum(phases[1])
        saves = math.prod(points) < math.prod(layer.taps) * math.prod(tile)
        most = MOST_POINTS_ALONE if 1 in layer.taps else MOST_POINTS
        if saves and max(*phases[0], *phases[1]) <= most:
            yield Algorithm((tile[0], tile[1]), points)


def _phases(outputs: int, taps: int, stride: int) -> list[int]:
    """Multiplications of a tile along an axis, for each remainder of a tap by the stride."""
    return [outputs + len(range(first, taps, stride)) - 1 for first in range(min(stride, taps))]


def cycles(layer: Layer, algorithm: Algorithm, lanes: int, pace: Pace = USUAL) -> float:
    """Of one core for a layer, about: what algorithms are ranked by."""
    weights = algorithm.all_points * layer.inputs * layer.outputs
    blocks = -(-tiles(layer, algorithm) // block_tiles(layer, algorithm, lanes, TILE_ROWS))
    readers = 2 if layer.images == 1 and blocks > 1 else 1  # cores that have blocks of their own read all weights each
    arithmetic = kernel_cycles(layer, algorithm, lanes) / pace.winograd
    return _overlapped(layer, arithmetic, 4 * weights, pace, readers)


def _overlapped(layer: Layer, arithmetic: float, weight_nbytes: int, pace: Pace, readers: int = 1) -> float:
    """Cycles of a core that reads a layer's weights while it computes. readers: cores of an image that read all."""
    per_byte = pace.shared * readers if layer.images == 1 else pace.alone
    reading = per_byte * weight_nbytes if weight_nbytes > KEPT_NBYTES else 0.0
    return max(arithmetic, reading) + EXPOSED * min(arithmetic, reading)


def tiles(layer: Layer, algorithm: Algorithm) -> int:
    """Tiles of all images."""
    return layer.images * math.prod(-(-n // m) for n, m in zip(layer.size, algorithm.tile))


def direct_cycles(layer: Layer, lanes: int, pace: Pace = USUAL) -> float:
    """The same of a direct convolution."""
    multiplied = math.prod(layer.taps) * layer.inputs * layer.outputs
    arithmetic = multiplied * layer.images * math.prod(layer.size) / lanes / pace.direct
    return _overlapped(layer, arithmetic, 4 * multiplied, pace)


def ranked(layers: Sequence[Layer], lanes: int, pace: Pace = USUAL) -> list[tuple[float, Algorithm]]:
    """Cycles and algorithms, what is expected to be fastest first; of those about as fast, that with fewest weights.

    Weights are what requests of fewer images wait for, and take memory.

    Args:
        layers: a layer with each of the numbers of images that it is chosen for; the cycles are the sum of one image's.
    """
    costs = [(sum(cycles(layer, algorithm, lanes, pace) / layer.images for layer in layers), algorithm)
             for algorithm in algorithms(layers[0])]  # fmt: skip
    close = CLOSE * min(costs, key=lambda pair: pair[0])[0] if costs else 0.0
    return sorted(costs, key=lambda pair: (pair[0] > close, pair[1].all_points if pair[0] <= close else 0, pair[0]))


def most_cycles(layers: Sequence[Layer], lanes: int, pace: Pace = USUAL) -> float:
    """What an algorithm must be below, of what `ranked` counts, to be worth its memory."""
    return WORTH * sum(direct_cycles(layer, lanes, pace) / layer.images for layer in layers)


def best_algorithm(layers: Sequence[Layer], lanes: int, pace: Pace = USUAL) -> Algorithm | None:
    """The one that is expected to be fastest; None if the direct algorithm is. layers: as of `ranked`."""
    found = ranked(layers, lanes, pace)
    return found[0][1] if found and found[0][0] < most_cycles(layers, lanes, pace) else None


def kernel_cycles(layer: Layer, algorithm: Algorithm, lanes: int) -> float:
    """Of one core, weights from memory left out: channels in whole panels, tiles as many as there are, since a register
    tile of few has code of its own.
    """
    whole = panel_vectors(layer, lanes)[1] * lanes
    each = PRODUCT_CYCLES * layer.inputs * whole + POINT_CYCLES * (layer.inputs + layer.outputs)
    return algorithm.all_points * tiles(layer, algorithm) * each / lanes


def panel_vectors(layer: Layer, lanes: int) -> tuple[int, int]:
    """Vectors of a panel, and of all panels."""
    needed = -(-layer.outputs // lanes)
    width = min(PANEL_WASTE, key=lambda v: -(-needed // v) * v * PANEL_WASTE[v])
    return width, -(-needed // width) * width


def block_tiles(layer: Layer, algorithm: Algorithm, lanes: int, tile_rows: int) -> int:
    """Tiles of a work item: equal parts of an image that fit the cache, in a number that cores share evenly."""
    width, all_vectors = panel_vectors(layer, lanes)
    points, panels, of_image = algorithm.all_points, all_vectors // width, tiles(replace(layer, images=1), algorithm)
    if 4 * points * layer.inputs * layer.outputs >= STREAMED_NBYTES:
        return LONG_BLOCK
    fits = max(2 * tile_rows, L2_NBYTES // (4 * points * (layer.inputs + width * lanes)))
    return even_block(of_image, fits, panels, MIN_ITEMS if layer.images == 1 else 1)


def even_block(tiles: int, most: int, panels: int, items: int) -> int:
    """Tiles of a block: equal parts of an image, in a number of items that two cores share evenly, at least `items`."""
    blocks = max(-(-tiles // min(most, LONG_BLOCK)), min(-(-items // panels), tiles // SHORT_BLOCK), 1)
    if blocks * panels % 2 and tiles > SHORT_BLOCK:
        blocks += 1
    return -(-tiles // blocks)


def items(layer: Layer, algorithm: Algorithm, lanes: int, tile_rows: int) -> int:
    """Work items: blocks of tiles × panels."""
    width, all_vectors = panel_vectors(layer, lanes)
    blocks = -(-tiles(layer, algorithm) // block_tiles(layer, algorithm, lanes, tile_rows))
    return blocks * (all_vectors // width)
