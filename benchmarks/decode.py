"""Tokens a second of a LLaMA-like model with random weights: f32, f16, int8 and int4 weights, beside ONNX Runtime's
and llama.cpp's.

Every side keeps keys and values from token to token, begins with the same prompt and takes the likeliest token each
time; the tokens of the f32 sides must agree. Sides take turns, rounds are reported as medians, with the lowest and the
highest. ONNX Runtime runs the same model in f32, and with the weights that parax rounded, as MatMulNBits, with sums in
f32 and (accuracy level 4) in 8 bits; llama.cpp, where it is installed (`decode_llama_cpp`), in f32 and by weights of
its own Q4_0. f16 is a model of f32 whose weights are numbers of f16.

GB/s are those of the weights that a token needs. Memory delivers what the quickest reader gets: one of the sides, or a
plan that sums a long vector, in turn with them.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np
import onnx

import parax
from examples.generate import compiled, generate
from examples.models.language import PAST, PRESENT, Sizes, llama
from parax.compiler.cli import main as parax_main
from parax.errors import InternalError
from parax.runtime.memory import aligned_bytes
from parax.runtime.topology import choose_cores

from . import decode_llama_cpp
from .command import command_line, finish

SIZES = Sizes(layers=2, hidden=2048, heads=32, key_heads=4, inner=5632, vocabulary=32000, positions=2048)
SMALL = Sizes(layers=1, hidden=64, heads=4, key_heads=2, inner=96, vocabulary=100, positions=256)
BYTES = {"f32": 4.0, "f16": 2.0, "int8": 1 + 4 / 32, "int4": 0.5 + 4 / 32, "Q4_0": 0.5 + 2 / 32}
"""Of a weight, with its share of a block's scale."""
COMPARED = 8  # tokens of the sides of f32

Tokens = Callable[[], Iterator[int]]


@dataclass
class Side:
    """One way to run the model.

    Attributes:
        kind: of its weights, one of BYTES. tokens: those after the prompt, from its beginning. rates: tokens a second.
    """

    name: str
    kind: str
    tokens: Tokens
    rates: list[float] = field(default_factory=list)


def n_weights(sizes: Sizes) -> int:
    """Weights that every token is multiplied by."""
    z = sizes
    heads = 2 * z.hidden * z.hidden + 2 * z.hidden * z.key_heads * z.depth
    return z.layers * (heads + 3 * z.hidden * z.inner) + z.hidden * z.vocabulary


class OnnxRuntime:
    """A session that is fed its own keys and values, without going through NumPy."""

    def __init__(self, path: Path, sizes: Sizes, n_threads: int) -> None:
        import onnxruntime

        self._make = onnxruntime.OrtValue.ortvalue_from_numpy
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = n_threads
        self._session = onnxruntime.InferenceSession(path, options)
        self._empty = np.zeros((1, sizes.key_heads, 0, sizes.depth), np.float32)
        self._names = [PRESENT.replace("*", f"{i}.{part}") for i in range(sizes.layers) for part in ("key", "value")]
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self._past = [self._make(self._empty) for _ in self._names]

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One call."""
        feeds = {name: self._make(array) for name, array in inputs.items()}
        first, last = PRESENT.split("*")[0], PAST.split("*")[0]
        feeds |= {last + name.removeprefix(first): v for name, v in zip(self._names, self._past, strict=True)}
        logits, *self._past = self._session.run_with_ort_values(["logits", *self._names], feeds)
        return {"logits": logits.numpy()}


def sides_of(args: argparse.Namespace, sizes: Sizes, folder: Path, prompt: Sequence[int]) -> list[Side]:
    """Every side that can run here, ready."""
    longest, path = len(prompt) + max(args.tokens, COMPARED) + 1, folder / "model.onnx"
    onnx.save(llama(sizes), path)
    sides = []
    halved = folder / "halved.onnx"
    onnx.save(with_numbers_of_f16(onnx.load(path)), halved)
    for kind, file, precision in (("f32", path, "fp32"), ("f16", halved, "fp32"), ("int8", path, "int8-weights"),
                                  ("int4", path, "int4-weights")):  # fmt: skip
        session = compiled(file, longest, precision).session()
        sides.append(Side(f"parax {kind}", kind, lambda session=session: generate(session, prompt)))  # type: ignore[misc]
        gc.collect()
    n_cores = len(choose_cores(None))
    rounded = folder / "rounded.onnx"
    if parax_main(["compile", str(path), "-o", str(rounded), "--emit", "onnx", "--precision", "int4-weights", "-q"]):
        raise InternalError("the model with rounded weights was not written", where=str(rounded))
    for level in (0, 4):
        onnx.save(with_accuracy_level(onnx.load(rounded), level), folder / f"level{level}.onnx")
    files = (("f32", "f32", path), ("MatMulNBits", "int4", folder / "level0.onnx"),
             ("MatMulNBits, level 4", "int4", folder / "level4.onnx"))  # fmt: skip
    for name, kind, file in files:
        peer = OnnxRuntime(file, sizes, n_cores)
        sides.append(Side(f"ONNX Runtime {name}", kind, lambda peer=peer: generate(peer, prompt)))  # type: ignore[misc]
    return [*sides, *llama_cpp_sides(onnx.load(path), sizes, folder, prompt, longest, n_cores)]


def llama_cpp_sides(model: onnx.ModelProto, sizes: Sizes, folder: Path, prompt: Sequence[int], longest: int,
                    n_cores: int) -> list[Side]:  # fmt: skip
    """llama.cpp's in f32 and of 4 bits; none where it is not installed, which is said."""
    if reason := decode_llama_cpp.missing():
        print(f"without llama.cpp: {reason}")
        return []
    sides = []
    for written, kind in (("F32", "f32"), ("Q4_0", "Q4_0")):
        file = folder / f"{written}.gguf"
        decode_llama_cpp.write_gguf(file, model, sizes, written)
        peer = decode_llama_cpp.LlamaCpp(file, sizes, written, n_cores, longest)
        sides.append(Side(f"llama.cpp {kind}", kind, lambda peer=peer: peer.tokens(prompt)))  # type: ignore[misc]
    return sides


def with_accuracy_level(model: onnx.ModelProto, level: int) -> onnx.ModelProto:
    """The same model, whose products of rounded weights may round activations to 8 bits (4) or not (0)."""
    for node in model.graph.node:
        if node.op_type == "MatMulNBits":
            kept = [a for a in node.attribute if a.name != "accuracy_level"]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute("accuracy_level", level)])
    return model


def with_numbers_of_f16(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, whose matrices were rounded to f16 and are f32 again."""
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2:
            rounded = onnx.numpy_helper.to_array(tensor).astype(np.float16).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(rounded, tensor.name))
    return model


def check(sides: Sequence[Side]) -> None:
    """Raises InternalError: the sides of f32, which sum in another order only, make other tokens."""
    found = {side.name: list(islice(side.tokens(), COMPARED)) for side in sides if side.kind == "f32"}
    if len({tuple(tokens) for tokens in found.values()}) != 1:
        raise InternalError("f32 makes other tokens", where="benchmarks.decode", found=str(found))


def measure(sides: Sequence[Side], memory: Memory, rounds: int, n_tokens: int) -> None:
    """So many tokens of each side in each round, after the first one, which is the prompt's."""
    for _ in range(rounds):
        memory.measure()
        for side in sides:
            tokens = side.tokens()
            next(tokens)
            next(tokens)
            began = time.perf_counter()
            for _ in range(n_tokens - 2):
                next(tokens)
            side.rates.append((n_tokens - 2) / (time.perf_counter() - began))


class Memory:
    """What all cores read from memory: a plan that sums a vector far larger than caches."""

    def __init__(self, nbytes: int) -> None:
        x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [nbytes // 4])
        y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [])
        node = onnx.helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
        model = onnx.helper.make_model(onnx.helper.make_graph([node], "sum", [x], [y]),
                                       opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)  # fmt: skip
        self._session = parax.compile(model, hint="latency").session()
        self._feeds = {"x": aligned_bytes(nbytes).view(np.float32)}  # in huge pages, as weights are
        self._feeds["x"][:] = 1
        self.rates: list[float] = []

    def measure(self, times: int = 10) -> None:
        """Bytes a second, the best of some."""
        seconds = []
        for _ in range(times):
            began = time.perf_counter()
            self._session.run(self._feeds)
            seconds.append(time.perf_counter() - began)
        self.rates.append(self._feeds["x"].nbytes / min(seconds))


def report(sides: Sequence[Side], sizes: Sizes, memory: Memory) -> None:
    """Print a row for each side; ratios are medians of those in each round."""
    read = [n_weights(sizes) * BYTES[side.kind] * statistics.median(side.rates) for side in sides]
    bandwidth = max(statistics.median(memory.rates), *read)
    print(f"memory: {bandwidth / 1e9:.1f} GB/s")
    ours = {side.kind: side for side in sides if side.name.startswith("parax")}
    print(f"{'':34} {'tokens/s':>9} {'lowest':>8} {'highest':>8} {'by our f32':>11} {'our int4 by it':>15} {'GB/s':>7} "
          f"{'of memory':>10}")  # fmt: skip
    for side, reached in zip(sides, read, strict=True):
        rate = statistics.median(side.rates)
        by_f32, int4_by = (statistics.median(a / b for a, b in zip(over.rates, under.rates, strict=True))
                           for over, under in ((side, ours["f32"]), (ours["int4"], side)))  # fmt: skip
        print(f"{side.name:34} {rate:9.1f} {min(side.rates):8.1f} {max(side.rates):8.1f} {by_f32:11.2f} {int4_by:15.2f}"
              f" {reached / 1e9:7.1f} {reached / bandwidth:10.0%}")  # fmt: skip


def main() -> int:
    """Build, check, measure, print."""
    parser = command_line("decode", __doc__)
    parser.add_argument("--layers", type=int, default=SIZES.layers, help=f"of the model (default {SIZES.layers})")
    parser.add_argument("--prompt", type=int, default=16, metavar="N", help="tokens before those measured (default 16)")
    parser.add_argument("--tokens", type=int, default=34, metavar="N", help="of a side in a round (default 34)")
    parser.add_argument("--rounds", type=int, default=7, metavar="R", help="turns of each side (default 7)")
    parser.add_argument("--small", action="store_true", help="a small model: a test of the tool, no measurement")
    args = parser.parse_args()
    sizes = SMALL if args.small else replace(SIZES, layers=args.layers)
    prompt = [int(t) for t in np.random.default_rng(0).integers(0, sizes.vocabulary, args.prompt)]
    memory = Memory(1 << 20 if args.small else 1 << 28)
    with tempfile.TemporaryDirectory(prefix="parax-decode-") as folder:
        sides = sides_of(args, sizes, Path(folder), prompt)
        check(sides)
        measure(sides, memory, args.rounds, args.tokens)
    print(f"{n_weights(sizes) / 1e6:.1f} M weights a token, {args.prompt} tokens before")
    report(sides, sizes, memory)
    return 0


if __name__ == "__main__":
    finish(main)
