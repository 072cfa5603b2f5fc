"""The register tiles there are, a row each: what they multiply, their size, and what a target must have for them.

A tile holds rows × vectors accumulators in registers, and for every step of k loads its vectors of B and splats one
element (or pair, or quad) of each row of A. Which tile serves a product follows from the target's registers and
features; how it is written, from the row's emitter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...ir.types import BF16, F32, I8, I16, I32, U8, Dim, DType
from ...targets.target import EXTENSIONS, Target
from .bf16 import CONVERTED, MATRICES, PAIRS
from .emitter import SINGLE, Emitter
from .whole import BYTES, LIGHT_QUADS, QUAD_MATRICES, QUADS, SHORTS

FEW_ROWS = 2  # of a product that is all latency: wider tiles have more multiply-adds under way


@dataclass(frozen=True)
class Tile:
    """A row of the table.

    Attributes:
        rows, vectors: its size (MR × NR, in vector registers). input, accumulator: element types.
        registers: vector registers it needs. features: the target's abilities, by LLVM's names.
        usual: products of many rows take it. emitter: its inner step, and how operands are packed for it.
        rate: what a core's description calls its steps; "": by the type of its inputs.
    """

    rows: int
    vectors: int
    input: DType = F32
    accumulator: DType = F32
    registers: int = 16
    features: frozenset[str] = frozenset()
    usual: bool = False
    emitter: Emitter = SINGLE
    rate: str = ""

    def runs_on(self, target: Target) -> bool:
        """Whether a target has what it needs."""
        return target.n_registers >= self.registers and self.features <= target.abilities


_FMA = frozenset({"fma"})
_IN_MEMORY = frozenset({"fma", "avx512f"})  # what multiplies by an element in memory, which then takes no register
_NEON = frozenset({"fma", "neon"})


def _converted() -> Iterator[Tile]:
    """Rows for bf16 by multiply-adds of f32: both halves of B's vectors take a register, as those of A's step do.

    Measured on Zen 3, one core, in turn (2026-11-27), products of 196 × 512 by 512 × 1024: 4 × 2 121 GFLOP/s, 3 × 2
    118, 8 × 1 102, 5 × 2 89, 6 × 2 69 (they spill); f32's 6 × 2 148. AVX-512 and NEON are not measured.
    """
    sizes = (Tile(6, 1), Tile(4, 2, usual=True), Tile(2, 3),
             Tile(5, 4, features=_IN_MEMORY, registers=32, usual=True),
             Tile(7, 3, features=_IN_MEMORY, registers=32),
             Tile(5, 3, features=_NEON, registers=32, usual=True))  # fmt: skip
    for tile in sizes:
        yield replace(tile, input=BF16, emitter=CONVERTED, rate="bf16 by conversion")


def _pairs() -> Iterator[Tile]:
    """Rows for bf16 by the instruction of pairs, whose latency narrow panels hide by more rows than f32's need.

    Measured on Zen 5 (family 26 model 2), one core, in turn (2026-11-28), convolutions 1 × 1 and 3 × 3 in % of the
    instruction's peak, by 6 rows, 8 and 10: 28² × 64 → 16 (one vector) 44, 53, 67; 56² × 144 → 24 (two) 61, 70, 70;
    3 × 3 28² × 64 → 32 76, 89, 92. Three vectors of 7 to 9 rows lose to 6: 56² × 24 → 144 81, then 70 to 75.
    """
    for tile in (Tile(10, 1), Tile(9, 2), Tile(6, 4, usual=True)):
        yield replace(tile, input=BF16, features=frozenset({"avx512bf16"}), registers=32, emitter=PAIRS)


def _whole(weights: DType, emitter: Emitter) -> Iterator[Tile]:
    """Rows for i16 by weights of whole numbers: as f32's with multiply-adds, but a register more for the products."""
    sizes = (Tile(8, 1), Tile(4, 2, usual=True), Tile(3, 3),
             Tile(6, 2, features=frozenset({"avx2"}), usual=True),
             Tile(6, 4, features=frozenset({"avx512bw"}), registers=32, usual=True),
             Tile(7, 3, features=frozenset({"avx512bw"}), registers=32))  # fmt: skip
    for tile in sizes:
        yield replace(tile, input=weights, accumulator=I32, emitter=emitter)


def _quads() -> Iterator[Tile]:
    """Rows for u8 by i8, the fastest first: those of matrix registers, and those where VPDPBUSD adds a quad."""
    matrices = frozenset({"amx-tile", "amx-int8"})
    yield Tile(32, 2, U8, I32, registers=32, features=matrices, usual=True, emitter=QUAD_MATRICES, rate="amx-int8")
    wide = (Tile(6, 4, registers=32, usual=True), Tile(7, 3, registers=32))
    for feature in ("avx512vnni", "avxvnni"):
        for tile in (Tile(8, 1), Tile(6, 2, usual=True), Tile(4, 3), *(wide if feature == "avx512vnni" else ())):
            yield replace(tile, input=U8, accumulator=I32, features=frozenset({feature}), emitter=QUADS)
    # Three registers pass, and one holds ones: of Zen 3 6 × 2 takes 6 % longer than 4 × 2, 4 × 3 13 %
    for feature, tiles_of in (("ssse3", (Tile(8, 1), Tile(4, 2, usual=True))), ("avx512bw", wide)):
        for tile in tiles_of:
            yield replace(tile, input=U8, accumulator=I32, features=frozenset({feature}), emitter=LIGHT_QUADS)


# Accumulators, B's vectors, one splat of A (and a product without FMA) must fit the registers: one more spills and
# halves the speed. Measured on Zen 4, taller tiles of one to three vectors gain nothing and lose at small depths to
# the pointers of their rows, which outnumber the integer registers.
TABLE: tuple[Tile, ...] = (
    Tile(8, 1),
    Tile(4, 2, usual=True),
    Tile(3, 3),
    Tile(2, 4),
    Tile(6, 2, features=_FMA, usual=True),
    Tile(4, 3, features=_FMA),
    Tile(6, 4, features=_IN_MEMORY, registers=32, usual=True),
    Tile(7, 3, features=_IN_MEMORY, registers=32),
    # LLVM loads A's elements in pairs here, and holds one of each row until the next step: a register a row besides
    Tile(8, 2, features=_NEON, registers=32),
    Tile(6, 3, features=_NEON, registers=32),
    Tile(5, 4, features=_NEON, registers=32, usual=True),
    Tile(32, 2, BF16, features=frozenset({"amx-tile", "amx-bf16"}), registers=32, usual=True, emitter=MATRICES,
         rate="amx-bf16"),
    *_pairs(),
    *_converted(),
    *(tile for of in ((I8, BYTES), (I16, SHORTS)) for tile in _whole(*of)),
    *_quads(),
)


def tiles(target: Target, input_type: DType = F32) -> Iterator[Tile]:
    """The rows for an element type that run on a target; they have one emitter, the first one's that does."""
    able = [tile for tile in TABLE if tile.input == input_type and tile.runs_on(target)]
    return (tile for tile in able if tile.emitter is able[0].emitter)


def without_matrices(target: Target) -> Target:
    """The target as kernels see it whose tiles read rows where they are, which those of matrix registers do not."""
    needed = {feature for tile in TABLE if tile.emitter.matrices for feature in tile.features}
    return replace(target, features=tuple(feature for feature in target.features if feature not in needed))


def features_of(input_type: DType) -> frozenset[str]:
    """What no portable target has and tiles for an element type have instructions of, all together."""
    return frozenset().union(*(tile.features & EXTENSIONS.keys() for tile in TABLE if tile.input == input_type))


def has_instruction(target: Target, input_type: DType) -> bool:
    """Whether a target multiplies an element type other than by multiply-adds of f32."""
    return any(tile.emitter is not CONVERTED for tile in tiles(target, input_type))


def products_of_f32s(target: Target, input_type: DType) -> float:
    """Products of an element type that a core starts in a cycle, in times of f32's; 1 where that is not known."""
    tile = next(tiles(target, input_type))
    started = target.core.multiply_adds.get(tile.rate or input_type.name, {}).get(target.vector_bits)
    if started is None:
        return 1.0
    return tile.emitter.k_step * started / target.multiply_adds(target.f32_lanes)


def emitter_of(target: Target, input_type: DType) -> Emitter:
    """The inner step of the tiles for an element type on a target, and how operands are packed for it."""
    return next(tiles(target, input_type)).emitter


def tallest_tile(target: Target, vectors: int, input_type: DType = F32) -> int:
    """Rows of the tallest tile of so many vectors for an element type; where there is none, of the next wider ones."""
    wide = [tile for tile in tiles(target, input_type) if tile.vectors >= vectors]
    width = min(tile.vectors for tile in wide)
    return max(tile.rows for tile in wide if tile.vectors == width)


def widest_tile(target: Target, rows: Dim | None = None, input_type: DType = F32) -> int:
    """Vectors side by side in the widest tile for a product of so many rows; None: of many."""
    few = isinstance(rows, int) and rows <= FEW_ROWS
    return max(tile.vectors for tile in tiles(target, input_type) if few or tile.usual)
