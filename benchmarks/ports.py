"""What the inner loop of every register tile takes on CPUs that are not at hand, by LLVM's model of their ports.

    python -m benchmarks.ports [--cpus znver4 sapphirerapids ...] [--measure]

For each row of the table of tiles (compiler/backend/microkernels) and each described CPU that runs it, per step of k:

  ports   cycles if nothing but multiply-adds held it up: rows × vectors / multiply-adds a cycle
  mca     cycles of the compiled loop by llvm-mca, all operands in the first cache
  L2      cycles in which B's part of the step comes from the second cache, where its panel lies while a product runs;
          llvm-mca does not see that
  share   ports / the greatest of the three: of the peak, at most

--measure runs this machine's tallest tile of each width on it, too: a product of 24 tiles of rows and 512 steps, warm,
against multiply-adds on registers alone in the same rounds. Needs llvm-mca (Debian's llvm-19).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.fusion import Fusion
from parax.compiler.backend.host import resolve_target
from parax.compiler.backend.jit import compile_assembly
from parax.compiler.backend.kernels.matmul.tile import TileShape, tile_function
from parax.compiler.backend.kernels.tail import tail_of
from parax.compiler.backend.microkernels.table import Tile, tallest_tile, tiles
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.types import F32, TensorType
from parax.compiler.targets.core import core_of
from parax.compiler.targets.target import TARGETS, Target
from parax.errors import UsageError

from .command import command_line, finish
from .kernel_cases import node_case, peak_case
from .warm_cold import measure

CPUS = ("skylake-avx512", "sapphirerapids", "znver4", "znver3", "alderlake", "neoverse-v2")
# LLVM 19 schedules these as Alder Lake with 512-bit multiply-adds on port 0 alone, which predicts half of what an
# Emerald Rapids runs (96.6 % of its peak with tiles of 6 × 4; --measure, 2026-11-25): Skylake's model has both ports.
MODELS = dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids"), "skylake-avx512")
UNROLL, STEPS, TILES = 4, 512, 24
JUMP = re.compile(r"(?:j\w+|b|b\.\w+|cbn?z|tbn?z)\s+(?:.*,\s*)?(\.\w+)$")  # of x86-64 and AArch64
MULTIPLICATION = re.compile(r"(?:\{vex\}\s+)?v?(fn?madd\d+ps|mulps|pmaddwd|pdpbusd)\b|f(mla|mul)\b|smull\b")
TOOLS = ("llvm-mca-21", "llvm-mca-20", "llvm-mca-19", "llvm-mca")  # newer ones know newer CPUs


@dataclass(frozen=True)
class Prediction:
    """Cycles per step of k of one tile on one CPU: see the module."""

    ports: float
    mca: float
    l2: float

    @property
    def share(self) -> float:
        """Of the peak, at most."""
        return self.ports / max(self.ports, self.mca, self.l2)


def target_of(cpu: str) -> Target:
    """The target of the widest registers that a CPU is described with, tuned for it."""
    core = core_of(cpu, resolve_target("native").name)
    fitting = (each for each in TARGETS.values() if each.arch == core.arch)
    return replace(next(each for each in fitting if each.vector_bits == max(core.multiply_adds["f32"])), tune=cpu)


def assembly(tile: Tile, target: Target) -> str:
    """The tile's function for a target, without an epilogue."""
    graph, lanes = Graph("tile"), target.f32_lanes
    x = graph.add_input("x", TensorType(F32, (tile.rows, STEPS)))
    w = graph.add_constant(np.zeros((STEPS, tile.vectors * lanes), np.float32))
    node = graph.add_node(lookup("", "MatMul")(), [x, w])
    graph.set_outputs(node.outputs)
    shape = TileShape(tile.rows, tile.vectors, lanes, fma=target.has_fma, unroll=UNROLL, exact=True,
                      emitter=tile.emitter)  # fmt: skip
    emitter = ModuleEmitter(target)
    emitter.export(tile_function("tile", shape, tail_of(Fusion.of(node), ())), "bench_tile")
    return compile_assembly(emitter.text(), target)


def inner_loop(text: str) -> list[str]:
    """The instructions of the loop without a loop inside that multiplies most, from its label to its jump back."""
    lines = [line.strip() for line in text.splitlines()]
    label = {line[:-1]: i for i, line in enumerate(lines) if re.fullmatch(r"\.\w+:", line)}
    found: list[list[str]] = []
    for end, line in enumerate(lines):
        jump = JUMP.match(line)
        start = label.get(jump[1], end) if jump else end
        if start < end and not any(start < i < end for i in label.values()):
            found.append([each for each in lines[start + 1 : end + 1] if each and each[0] not in ".#/"])
    return max(found, key=multiplications, default=[])


def multiplications(loop: Sequence[str]) -> int:
    """Vector multiplications in it, with or without an addition."""
    return sum(bool(MULTIPLICATION.match(line)) for line in loop)


def cycles(loop: Sequence[str], target: Target, iterations: int = 200) -> float:
    """Cycles of one iteration by llvm-mca.

    Raises:
        UsageError: it is not installed, or does not know the CPU or an instruction.
    """
    tool = next(filter(None, map(shutil.which, TOOLS)), None)
    if tool is None:
        raise UsageError("llvm-mca is not installed", expected=" or ".join(TOOLS), hint="apt-get install llvm-19")
    cpu, triple = MODELS.get(target.tune, target.tune), target.architecture.triple
    command = [tool, f"-mtriple={triple}", f"-mcpu={cpu}", f"-iterations={iterations}"]
    done = subprocess.run(command, input="\n".join(loop), capture_output=True, text=True, check=False)
    total = re.search(r"^Total Cycles:\s+(\d+)$", done.stdout, re.MULTILINE)
    if done.returncode or total is None:
        raise UsageError("llvm-mca failed", where=target.tune, found=done.stderr.strip().splitlines()[:1])
    return int(total[1]) / iterations


def predict(tile: Tile, target: Target) -> Prediction:
    """For the CPU that the target is tuned for."""
    core, lanes = target.core, target.f32_lanes
    taken = cycles(inner_loop(assembly(tile, target)), target) / UNROLL
    limit = tile.rows * tile.vectors / target.multiply_adds(lanes)
    return Prediction(limit, taken, tile.vectors * lanes * 4 / core.l2_nbytes_per_cycle)


def measured(target: Target, repeats: int) -> dict[tuple[int, int], float]:
    """Share of the peak that products of one tile's width and whole tiles of rows reach here, by (rows, vectors).

    The tallest tile of a width is the one that they take.
    """
    cases, sizes = [peak_case(target)], {}
    for tile in (t for t in tiles(target) if t.rows == tallest_tile(target, t.vectors)):
        shape = (TILES * tile.rows, STEPS, tile.vectors * target.f32_lanes)
        case = node_case("gemm {}x{}x{}".format(*shape), target, "MatMul", [shape[:2], shape[1:]], {}, (1,))
        cases.append(case)
        sizes[case.name] = tile.rows, tile.vectors
    times = measure(cases, repeats)
    peak = cases[0].flops / times["fma peak"].warm
    return {sizes[c.name]: c.flops / times[c.name].warm / peak for c in cases[1:]}


def rows(targets: Sequence[Target], here: dict[tuple[int, int], float]) -> Iterator[str]:
    """The lines of the table."""
    for target in targets:
        for tile in tiles(target):
            p = predict(tile, target)
            seen = here.get((tile.rows, tile.vectors)) if target.tune == resolve_target("native").tune else None
            ran = "" if seen is None else f"{100 * seen:8.1f}%"
            size = f"{tile.rows} × {tile.vectors}"
            yield f"{target.tune:16} {size:7} {p.ports:6.2f} {p.mca:6.2f} {p.l2:6.2f} {100 * p.share:6.1f}% {ran}"


def main() -> None:
    """Print a table."""
    parser = command_line("ports", __doc__)
    parser.add_argument("--cpus", nargs="+", metavar="CPU", help=f"by LLVM's names (default: {' '.join(CPUS)})")
    parser.add_argument("--measure", action="store_true", help="run the tiles of this machine's CPU, too")
    parser.add_argument("--repeats", type=int, default=15, metavar="R", help="turns of each measurement (default 15)")
    args = parser.parse_args()
    native = resolve_target("native")
    targets = [target_of(cpu) for cpu in args.cpus or CPUS]
    here = {}
    if args.measure:
        here = measured(native, args.repeats)
        targets += [native] if native.tune not in (args.cpus or CPUS) else []
    print(f"{'CPU':16} {'tile':7} {'ports':>6} {'mca':>6} {'L2':>6} {'share':>7} {'measured' if here else '':>9}")
    for line in rows(targets, here):
        print(line, flush=True)


if __name__ == "__main__":
    finish(main)
