"""The text of the main kernels as files, `golden/<name>.<target>.txt`: their diff shows what a change does.

    python -m kernel_ir.golden           in tests/: what differs, as a diff; exit code 1 where something does
    python -m kernel_ir.golden --write   writes the files anew

Each kernel is of a small layer, of constant sizes, on a target of its own registers.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.harness import expand_composites, lowered_calls
from parax.compiler.backend.host import resolve_target
from parax.compiler.backend.lowering import Candidates, LowerContext, WeightStore
from parax.compiler.ir.graph import Node
from parax.compiler.ir.text import parse_graph
from parax.compiler.kernel_ir.loops import KFunc, all_functions, print_functions
from parax.files import write_whole

FOLDER = Path(__file__).parent / "golden"
V4, V3 = "x86-64-v4", "x86-64-v3"
SYMBOLS = ("N", "H", "W")


@dataclass(frozen=True)
class Layer:
    """A layer whose kernels are kept.

    Attributes:
        name: of its file. operands: of the graph, in the text form. constants: name, type, and content or key of each.
        node: the layer.
        candidate: the start of the name of the way to compute it; "" for the first. targets: a file for each.
    """

    name: str
    operands: str
    node: str
    constants: tuple[str, ...] = ()
    candidate: str = ""
    targets: tuple[str, ...] = (V4,)

    @property
    def graph(self) -> str:
        """The text form of a graph of this layer alone."""
        constants = [f'  %{name} = const {t}' for name, _, t in (c.partition(" ") for c in self.constants)]
        return "\n".join([f"graph @g({self.operands}) {{", *constants, f"  %y = {self.node}", "  return %y", "}"])


LAYERS = (
    Layer("matmul", "%x: f32[6,3]", "MatMul(%x, %w) : f32[6,64]", ('w f32[3,64] "w"',), targets=(V4, V3)),
    Layer("matmul-7x3", "%x: f32[7,3]", "MatMul(%x, %w) : f32[7,48]", ('w f32[3,48] "w"',)),
    Layer("matmul-plain", "%x: f64[4,3], %w: f64[3,5]", "MatMul(%x, %w) : f64[4,5]"),
    Layer("conv", "%x: f32[1,16,4,4]{0,2,3,1}", "Conv(%x, %w) {kernel_shape=[2,2]} : f32[1,16,3,3]{0,2,3,1}",
          ('w f32[16,16,2,2] "w"',), "direct", (V4, V3)),
    Layer("depthwise", "%x: f32[1,16,5,5]{0,2,3,1}", "Conv(%x, %w) {group=16, kernel_shape=[3,3]} : "
          "f32[1,16,3,3]{0,2,3,1}", ('w f32[16,1,3,3] "w"',), targets=(V4, V3)),
    Layer("winograd", "%x: f32[1,16,10,10]{0,2,3,1}", "Conv(%x, %w) {kernel_shape=[3,3]} : f32[1,16,8,8]{0,2,3,1}",
          ('w f32[16,16,3,3] "w"',), "winograd"),
    Layer("softmax", "%x: f32[3,19]", "Softmax(%x) : f32[3,19]", targets=(V4, V3)),
    Layer("layer-norm", "%x: f32[3,40], %s: f32[40], %b: f32[40]", "LayerNormalization(%x, %s, %b) : f32[3,40]"),
    Layer("reduce", "%x: f32[3,40]", "ReduceSum(%x, %a) : f32[3,1]", ("a i64[1] [1]",)),
    Layer("max-pool", "%x: f32[1,16,5,5]{0,2,3,1}",
          "MaxPool(%x) {kernel_shape=[3,3], strides=[2,2]} : f32[1,16,2,2]{0,2,3,1}"),
    Layer("max-pool-open", "%x: f32[N,16,H,W]{0,2,3,1}",
          "MaxPool(%x) {kernel_shape=[3,3], strides=[2,2]} : "
          "f32[N,16,floor((H-1)/2),floor((W-1)/2)]{0,2,3,1}"),
    Layer("lstm", "%x: f32[2,3,4]", "LSTM(%x, %w, %r) {hidden_size=20} : f32[2,1,3,20]",
          ('w f32[1,80,4] "w"', 'r f32[1,80,20] "r"')),
    Layer("attention", "%q: f32[1,1,4,8], %k: f32[1,1,8,4], %v: f32[1,1,4,8]",
          "parax::DotProductAttention(%q, %k, %v) : f32[1,1,4,8]"),
    Layer("add", "%x: f32[5,33], %b: f32[33]", "Add(%x, %b) : f32[5,33]"),
    Layer("gather", "%x: f32[9,40], %i: i64[3]", "Gather(%x, %i) : f32[3,40]"),
)


@dataclass(frozen=True)
class _Chosen:
    """Takes the candidate whose name begins so."""

    start: str

    def choose(self, ctx: LowerContext, node: Node, candidates: Candidates) -> str:
        return next(name for name in candidates if name.startswith(self.start))


def functions_of(layer: Layer, target: str) -> list[KFunc]:
    """The functions of a layer's kernels, callees before callers."""
    graph = parse_graph(layer.graph)
    expand_composites(graph)
    ctx = LowerContext(resolve_target(target), SYMBOLS, WeightStore(), chooser=_Chosen(layer.candidate))
    return all_functions([call.func for _, call in lowered_calls(graph, ctx)])


def texts() -> Iterator[tuple[Path, str]]:
    """Each file and what belongs into it."""
    for layer in LAYERS:
        for target in layer.targets:
            yield FOLDER / f"{layer.name}.{target}.txt", print_functions(functions_of(layer, target))


def difference(file: Path, text: str) -> str:
    """What the text is beside the file's, as a diff; "" where they are equal."""
    kept = file.read_text().splitlines() if file.exists() else []
    return "\n".join(difflib.unified_diff(kept, text.splitlines(), f"golden/{file.name}", "made now", lineterm=""))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; see the module. Returns the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the files anew")
    write = parser.parse_args(arguments).write
    made = dict(texts())
    stale = set(FOLDER.glob("*.txt")) - made.keys()
    differences = [found for item in made.items() if (found := difference(*item))]
    differences += [f"golden/{file.name}: no kernel is kept there" for file in stale]
    print("\n".join(differences) or "nothing differs")
    if not write:
        return 1 if differences else 0
    FOLDER.mkdir(exist_ok=True)
    for file, text in made.items():
        write_whole(file, text)
    for file in stale:
        file.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
