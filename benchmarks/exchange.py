"""`python -m benchmarks.exchange`: what each exchange of gradients costs a step of training.

Trains a chain of matrices of a given size, or a model, with every exchange in turn, interleaved, from the same weights
and on the same batch; each row says what a step takes, what of it is behind the last gradient (the update), what
instances wait, and what is read and written; and the speed against the gradient server's. The fixed order's is what
determinism costs, or saves. Weights are compared before any time counts. `--memory` measures the copies and additions
of the exchange alone. Owns the procedure.

    python -m benchmarks.exchange --size 45 --rows 32 && python -m benchmarks.exchange --model resnet18
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import parax
from examples.models import build
from parax.compiler.trainer import Trainer
from parax.files import write_whole
from parax.runtime.cpu import cpu_name
from parax.runtime.topology import choose_cores
from parax.runtime.train.exchange.traffic import Traffic

from .command import command_line, finish

SYNCHRONOUS = ("gradient-server", "fixed", "parameter-server", "ring")
LAYERS, CLASSES, COMPARED, MISS = 4, 10, 2, 1e-3
MIB = 1 << 20


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 0: measured, 1: weights differ."""
    parser = command_line("exchange", __doc__)
    parser.add_argument("--size", type=int, default=45, metavar="MIB", help="of the chain's weights (default 45)")
    parser.add_argument("--model", metavar="NAME", help="a model of examples/models.py in the place of the chain")
    parser.add_argument("--rows", type=int, default=16, metavar="N", help="of a step (default 16)")
    parser.add_argument("--instances", nargs="+", type=int, metavar="N",
                        help="of the model, shards as many; more than cores take turns (default 1 and one per core)")
    parser.add_argument("--steps", type=int, default=10, metavar="N", help="timed steps of each (default 10)")
    parser.add_argument("--memory", action="store_true", help="measure copies and additions alone, and stop")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    args = parser.parse_args(argv)
    if args.memory:
        return _memory(args.size)
    model = build(args.model) if args.model else chain(args.size * MIB // 4)
    counts = args.instances or sorted({1, len(choose_cores(None))})
    rows = [row for n in counts for row in measured(model, n, args)]
    table = Table("n", "exchange", "ms", "speed", "update", "idle", "read", "written", "moved", "lost", "agrees")
    for row in rows:
        table.add_row(
            str(row["instances"]), row["exchange"], f"{row['ms']:.1f}", f"{row['speed']:.2f}",
            f"{row['update_ms']:.1f}", f"{row['idle_ms']:.1f}", f"{row['read_bytes'] / MIB:.0f}",
            f"{row['written_bytes'] / MIB:.0f}", f"{row['moved']:.1f}", str(row["cores_lost"]),
            "yes" if row["agrees"] else "no",
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 110).print(table)
    print(f"{cpu_name()}, {len(choose_cores(None))} cores. n instances; ms a step: median of {args.steps};"
          " the rest are means:\nupdate, idle in ms; read, written in MiB; moved: both, in S; lost: cores")
    if args.json:
        write_whole(args.json, json.dumps({"cpu": cpu_name(), "rows": rows}, indent=1))
    return 0 if all(row["agrees"] for row in rows) else 1


def chain(n_weights: int) -> onnx.ModelProto:
    """Square matrices one after the other, with so many weights in all."""
    width = max(16, math.isqrt(n_weights // LAYERS))
    rng = np.random.default_rng(0)
    shapes = {**{f"w{i}": (width, width) for i in range(LAYERS)}, "head": (width, CLASSES)}
    arrays = {name: (rng.standard_normal(s) / math.sqrt(s[0])).astype(np.float32) for name, s in shapes.items()}
    nodes, last = [], "x"
    for i in range(LAYERS):
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"h{i}"]))
        nodes.append(helper.make_node("Relu", [f"h{i}"], [f"r{i}"]))
        last = f"r{i}"
    nodes.append(helper.make_node("MatMul", [last, "head"], ["y"]))
    graph = helper.make_graph(
        nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def measured(model: onnx.ModelProto, instances: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The figures of every exchange with so many instances."""
    with ExitStack() as stack:
        trainers = [
            stack.enter_context(Trainer(
                model, optimizer=parax.SGD(lr=1e-3, momentum=0.9), batch=args.rows, shards=instances,
                instances=instances, exchange=parax.Exchange(name, oversubscribe=True),
            )) for name in SYNCHRONOUS
        ]  # fmt: skip
        given = _batch(trainers[0])
        for trainer in trainers:
            for _ in range(COMPARED):
                trainer.step(given)
        first = trainers[0].parameters
        agree = [all(_is_close(trainer.parameters[name], first[name]) for name in first) for trainer in trainers]
        before = [trainer.counters() for trainer in trainers]
        seconds = np.array([[_timed(trainer, given) for trainer in trainers] for _ in range(args.steps)])
        times, rows = np.median(seconds, axis=0), []
        for trainer, ms, agrees, old in zip(trainers, 1e3 * times, agree, before, strict=True):
            found = trainer.counters().since(old)
            means = found.per_step()
            moved = (float(means["read_bytes"]) + float(means["written_bytes"])) / found.weights_nbytes
            rows.append({"instances": instances, **means, "ms": ms, "speed": float(1e3 * times[0] / ms),
                         "moved": moved, "agrees": agrees})  # fmt: skip
        return rows


def _batch(trainer: Trainer) -> dict[str, np.ndarray]:
    rng, given = np.random.default_rng(1), {}
    for spec in trainer.program.inputs():
        assert spec.dims is not None
        shape = (trainer.batch, *(int(dim) for dim in spec.dims[1:]))  # type: ignore[arg-type]
        is_label = spec.name == "labels"
        given[spec.name] = rng.integers(0, CLASSES, shape) if is_label else rng.standard_normal(shape, np.float32)
    return given


def _is_close(own: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.abs(own - other).max() <= MISS * max(1e-3, np.abs(other).max()))


def _timed(trainer: Trainer, batch: dict[str, np.ndarray]) -> float:
    began = time.perf_counter()
    trainer.step(batch)
    return time.perf_counter() - began


def _memory(size: int) -> int:
    """GB/s of the exchange's copies and additions, by threads, in blocks of the gradient server and whole."""
    table = Table("threads", "block KiB", "copy GB/s", "add GB/s")
    for n in sorted({1, len(choose_cores(None))}):
        pairs = [(np.ones(size * MIB // 4, np.float32), np.ones(size * MIB // 4, np.float32)) for _ in range(n)]
        for block in (64, 256, 1024, size * 1024):
            table.add_row(str(n), str(block), *(f"{_rate(pairs, block * 256, name):.1f}" for name in ("copy", "add")))
    Console().print(table)
    return 0


def _rate(pairs: Sequence[tuple[np.ndarray, np.ndarray]], block: int, name: str) -> float:
    """GB/s read and written by a thread for each pair, the best of five."""
    counted = [Traffic() for _ in pairs]

    def work(traffic: Traffic, into: np.ndarray, part: np.ndarray) -> None:
        for i in range(0, len(into), block):
            getattr(traffic, name)(into[i : i + block], part[i : i + block])

    best = math.inf
    for _ in range(5):
        threads = [threading.Thread(target=work, args=(t, *pair)) for t, pair in zip(counted, pairs, strict=True)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = min(best, time.perf_counter() - began)
    return sum(traffic.read + traffic.written for traffic in counted) / 5 / best / 1e9


if __name__ == "__main__":
    finish(main)
