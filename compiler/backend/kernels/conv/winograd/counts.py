"""How much Winograd's algorithms compute (Lavin and Gray, 2016) for a layer, and which of them serves it best.

Owns which algorithms keep the error bound, their counts and the lengths of blocks: the one source for the cost model
(`conv.cost`) and for the kernels (`lower`). It must not know how either is written.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .....ir.types import BF16, F32, DType
from .....targets.machine import Machine
from ...matmul.cost import TILE_ROWS

OUTPUTS = (4, 3, 2)  # of a tile along an axis with several taps
MOST_POINTS = 8  # of one phase along an axis, where both axes are transformed: the bound on the error, 50² times the
# direct sum's for two of 8 points, would be 200² times it for two of 9
MOST_POINTS_ALONE = 9  # along the only transformed axis: the bounds of two multiply
# Of 2026-11-21 to 2026-11-25; the history names no CPU or command of a measurement.
STAY_SHARE = 0.9  # of a core's second-level cache: weights that it holds beside a block stay from block to block
HELD_SHARE = 0.55  # of the same: what of a block, and of weights that stay, is used from there again
PRODUCT_CYCLES, POINT_CYCLES = 1.13, 8.0  # of multiply-adds and transforms, as kernels took inside of models
RAGGED = 1.04  # times those of whole register tiles, where a block has lower ones
EXPOSED, EXPOSED_NEAR = 0.5, 0.15  # of arithmetic or the reading of weights, from memory and from the last cache,
# whichever is less: what the other does not hide, inside of models
CLOSE = 1.005  # of the least cycles: as good as equal
OF_MATRICES = 3  # products in the time of one of f32: vectors do two at most, and matrix registers have none of this
MAX_SHARE = 0.95  # of the direct algorithm's time, or it is not worth the memory
LONG_BLOCK = 64  # tiles of a work item, at most; chosen, not measured
SHORT_BLOCK = 12  # tiles, at least: shorter ones read the weights too often
PANEL_WASTE = {4: 1.0, 3: 1.01, 2: 1.05, 1: 1.3}  # quarters of the widest panel → cycles of one of them

KINDS: Mapping[DType, tuple[str, str]] = {F32: ("winograd", "conv"), BF16: ("bf16-winograd", "bf16-conv")}
"""By the type of the products: the kinds of these kernels and of the direct ones."""


@dataclass(frozen=True)
class Layer:
    """A convolution with one group: images, channels, and along both axes taps, strides and outputs.

    Attributes:
        computed: whether the weights are transformed in each call. dtype: of what the products multiply.
    """

    images: int
    inputs: int
    outputs: int
    taps: tuple[int, int]
    strides: tuple[int, int]
    size: tuple[int, int]
    computed: bool = False
    dtype: DType = F32


@dataclass(frozen=True)
class Pace:
    """What things cost on a machine, in the time of one vector's multiply-adds at its peak.

    Attributes:
        alone: a byte of weights from memory where the cores have images of their own, and one finds in the last cache
            what another has read. shared: where the cores of an instance share an image, and the way to memory.
        last: a byte from the last cache.
        l2_nbytes: of a core. cores: that may share an image. products: in the time of one of f32.
        winograd, direct: share of the peak that these kernels reach with their data in the caches, of `kernel_cycles`
            and of the direct sum's multiply-adds. The defaults are those of a machine that nobody looked at.
    """

    alone: float = 0.15
    shared: float = 0.21
    last: float = 0.08
    l2_nbytes: int = 1 << 20
    cores: int = 2
    winograd: float = 1.0
    direct: float = 0.93
    products: float = 1.0


USUAL = Pace()


def pace_of(machine: Machine | None, lanes: int, dtype: DType = F32) -> Pace:
    """That of a machine, with vectors of so many f32 elements, for products of a type."""
    if machine is None:
        return USUAL
    vectors, cores = machine.flops_per_core / (2 * lanes), machine.cores_per_socket
    once = (1 / machine.bandwidth_per_core + (cores - 1) / machine.l3_bandwidth_per_core) / cores  # side by side
    filtered, plain = KINDS[dtype]
    return Pace(vectors * once, cores * vectors / machine.bandwidth_per_socket,
                vectors / machine.l3_bandwidth_per_core, machine.l2_nbytes, max(2, cores),
                machine.share(filtered), machine.share(plain),
                machine.share(plain) / machine.share(KINDS[F32][1]))  # fmt: skip


@dataclass(frozen=True)
class Algorithm:
    """F(tile, taps). points: multiplications of a tile, per axis."""

    tile: tuple[int, int]
    points: tuple[int, int]

    @property
    def all_points(self) -> int:
        return math.prod(self.points)


SMALLEST = Algorithm((2, 2), (4, 4))
"""F(2, 3) along both axes."""


def algorithms(layer: Layer) -> Iterator[Algorithm]:
    """Those that save multiplications within the error bound; of bf16 only what has no factors but 0 and ±1."""
    if layer.dtype == BF16:
        if (layer.taps, layer.strides, layer.computed) == ((3, 3), (1, 1), False):
            yield SMALLEST
        return
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


def cycles(layers: Sequence[Layer], algorithm: Algorithm, lanes: int, pace: Pace = USUAL, block: int = 0) -> float:
    """Of cores for an image, about: what algorithms, and blocks, are ranked by.

    Args:
        layers: a layer with each of the numbers of images that it is chosen for, whose cycles for one image are added.
        block: tiles of a work item; 0: as `block_tiles`.
    """
    tiles_each = block or block_tiles(tuple(layers), algorithm, lanes, pace)
    return sum(_Work(layer, algorithm, lanes, pace).cycles(tiles_each) / layer.images for layer in layers)


@dataclass(frozen=True)
class _Work:
    """One algorithm's work on a layer, in blocks of tiles, with vectors of `lanes` elements."""

    layer: Layer
    algorithm: Algorithm
    lanes: int
    pace: Pace

    @functools.cached_property
    def width(self) -> int:
        """Output channels of a panel."""
        return panel_vectors(self.layer, self.lanes)[0] * self.lanes

    @functools.cached_property
    def n_panels(self) -> int:
        """Of the layer."""
        width, all_vectors = panel_vectors(self.layer, self.lanes)
        return all_vectors // width

    @property
    def weight_nbytes(self) -> int:
        """Of the transformed weights."""
        return self.layer.dtype.nbytes * self.algorithm.all_points * self.layer.inputs * self.layer.outputs

    def cycles(self, block: int) -> float:
        """Of one core for the layer, or of all that share an image: as many times as the one that takes longest.

        Items are (block, panel), each core's one after the other. It transforms a block's inputs once, and reads a
        panel's weights for every block: first from memory, then from the last cache, where they do not stay in its own.
        """
        pace, (whole, rest) = self.pace, divmod(tiles(self.layer, self.algorithm), block)
        n_blocks = whole + (rest > 0)
        cores = pace.cores if self.layer.images == 1 else 1
        far = pace.shared if n_blocks < cores else pace.alone  # the cores read panels of their own, or the same ones
        if self.layer.computed and n_blocks == 1:
            far = pace.last  # whoever reads a panel has just transformed it
        near = 0.0 if self.weights_stay(block) else pace.last
        works = [(self.item(size, far, EXPOSED), self.item(size, near, EXPOSED_NEAR), self.inputs(size))
                 for size in ((block, rest) if rest else (block,))]  # fmt: skip
        edges = [n_blocks * self.n_panels * core // cores for core in range(cores + 1)]
        border = whole * self.n_panels
        longest = max(load(begin, end, border, self.n_panels, works) for begin, end in itertools.pairwise(edges))
        return cores * longest + self.weights()

    def weights(self) -> float:
        """Cycles of the transform of computed weights, which are written where they are read from again."""
        if not self.layer.computed:
            return 0.0
        each = POINT_CYCLES / self.lanes / self.pace.winograd / self.layer.dtype.nbytes
        return self.weight_nbytes * (each + self.pace.last)

    def item(self, size: int, per_byte: float, exposed: float) -> float:
        """Cycles of a panel of a block of so many tiles, which reads its weights at a pace."""
        points, layer = size * self.algorithm.all_points, self.layer
        multiplied = PRODUCT_CYCLES * layer.inputs * self.width / self.pace.products
        each = multiplied + POINT_CYCLES * layer.outputs / self.n_panels
        arithmetic = points * each / self.lanes / self.pace.winograd * (RAGGED if size % TILE_ROWS else 1.0)
        moved = points * (layer.dtype.nbytes * layer.inputs + 8 * self.width) * self.spilled(size)
        return overlapped(arithmetic, self.weight_nbytes / self.n_panels * per_byte, exposed) + self.pace.last * moved

    def inputs(self, size: int) -> float:
        """Cycles of the transforms of a block's inputs."""
        numbers = size * self.algorithm.all_points * self.layer.inputs
        moved = self.layer.dtype.nbytes * numbers * self.spilled(size)
        return numbers * POINT_CYCLES / self.lanes / self.pace.winograd + self.pace.last * moved

    def spilled(self, size: int) -> float:
        """The share of a block's transformed inputs and products that moves between second-level and last cache."""
        used = self.block_nbytes(size) + (self.weight_nbytes if self.weights_stay(size) else 0)
        return max(0.0, 1 - HELD_SHARE * self.pace.l2_nbytes / used)

    def weights_stay(self, size: int) -> bool:
        """Whether a core's cache holds the weights from one block of so many tiles to the next."""
        return self.block_nbytes(size) + self.weight_nbytes <= STAY_SHARE * self.pace.l2_nbytes

    def block_nbytes(self, size: int) -> int:
        """Of a block's transformed inputs, and of a panel of its products."""
        return self.algorithm.all_points * size * (self.layer.dtype.nbytes * self.layer.inputs + 4 * self.width)


def load(begin: int, end: int, border: int, n_panels: int, works: Sequence[tuple[float, float, float]]) -> float:
    """Cycles of the core with items [begin, end).

    Args:
        border: the item from which on they are of the last, shorter block.
        works: of an item with weights from memory, with weights read before, of a block's inputs; the same of the last.
    """
    found, fresh = 0.0, n_panels
    for first, last, (from_memory, again, inputs) in zip((begin, max(begin, border)), (min(end, border), end), works):
        if first >= last:
            continue
        read = min(last - first, fresh)
        fresh -= read
        blocks = -(-last // n_panels) - first // n_panels
        found += read * from_memory + (last - first - read) * again + blocks * inputs
    return found


def overlapped(arithmetic: float, reading: float, exposed: float) -> float:
    """Cycles of a core that reads weights while it computes. exposed: of the less, what the other does not hide."""
    return max(arithmetic, reading) + exposed * min(arithmetic, reading)


def tiles(layer: Layer, algorithm: Algorithm) -> int:
    """Tiles of all images."""
    return layer.images * math.prod(-(-n // m) for n, m in zip(layer.size, algorithm.tile))


def direct_cycles(layer: Layer, lanes: int, pace: Pace = USUAL) -> float:
    """The same of a direct convolution."""
    multiplied = math.prod(layer.taps) * layer.inputs * layer.outputs
    arithmetic = multiplied * layer.images * math.prod(layer.size) / lanes / pace.direct
    per_byte = pace.shared if layer.images == 1 else pace.alone
    return overlapped(arithmetic, layer.dtype.nbytes * multiplied * per_byte, EXPOSED)


def ranked(layers: Sequence[Layer], lanes: int, pace: Pace = USUAL) -> list[tuple[float, Algorithm]]:
    """Cycles and algorithms, what is expected to be fastest first; of those about as fast, that with fewest weights.

    Weights are what requests of fewer images wait for, and take memory.

    Args:
        layers: a layer with each of the numbers of images that it is chosen for; the cycles are the sum of one image's.
    """
    offered = algorithms(layers[0]) if pace.products < OF_MATRICES else ()
    costs = [(cycles(layers, algorithm, lanes, pace), algorithm) for algorithm in offered]
    close = CLOSE * min(costs, key=lambda pair: pair[0])[0] if costs else 0.0
    return sorted(costs, key=lambda pair: (pair[0] > close, pair[1].all_points if pair[0] <= close else 0, pair[0]))


def most_cycles(layers: Sequence[Layer], lanes: int, pace: Pace = USUAL) -> float:
    """What an algorithm must be below, of what `ranked` counts, to be worth its memory."""
    return MAX_SHARE * sum(direct_cycles(layer, lanes, pace) / layer.images for layer in layers)


@functools.lru_cache(1 << 12)
def best_algorithm(layers: tuple[Layer, ...], lanes: int, pace: Pace = USUAL) -> Algorithm | None:
    """The one that is expected to be fastest; None if the direct algorithm is. layers: as of `ranked`."""
    found = ranked(layers, lanes, pace)
    return found[0][1] if found and found[0][0] < most_cycles(layers, lanes, pace) else None


def kernel_cycles(layer: Layer, algorithm: Algorithm, lanes: int, pace: Pace, block: int) -> float:
    """Of one core at its peak, weights from memory left out; `pace.winograd` of the peak is what it gets."""
    there = replace(pace, alone=0.0, shared=0.0, cores=1)
    return pace.winograd * _Work(layer, algorithm, lanes, there).cycles(block)


def panel_vectors(layer: Layer, lanes: int) -> tuple[int, int]:
    """Vectors of a panel, and of all panels."""
    needed = -(-layer.outputs // lanes)
    width = min(PANEL_WASTE, key=lambda v: -(-needed // v) * v * PANEL_WASTE[v])
    return width, -(-needed // width) * width


@functools.lru_cache(1 << 14)
def block_tiles(layers: tuple[Layer, ...], algorithm: Algorithm, lanes: int, pace: Pace = USUAL) -> int:
    """Tiles of a work item, those that take fewest cycles: equal parts of an image, or whole numbers of register tiles.

    Long blocks read the weights seldom, short ones stay in the core's cache, and cores share a single image evenly.
    """
    of_image = tiles(replace(layers[0], images=1), algorithm)
    equal = {-(-of_image // n) for n in range(max(1, of_image // LONG_BLOCK), -(-of_image // SHORT_BLOCK) + 1)}
    most = max(1, max(layer.images for layer in layers) * of_image)
    offered = {min(most, size) for size in (*equal, *range(2 * TILE_ROWS, LONG_BLOCK, 2 * TILE_ROWS), LONG_BLOCK)
               if size <= LONG_BLOCK}  # fmt: skip
    return min(sorted(offered, reverse=True), key=lambda size: cycles(layers, algorithm, lanes, pace, size))


def items(layer: Layer, algorithm: Algorithm, lanes: int, block: int) -> int:
    """Work items: blocks of tiles × panels."""
    return -(-tiles(layer, algorithm) // block) * _Work(layer, algorithm, lanes, USUAL).n_panels
