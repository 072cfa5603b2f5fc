"""`python -m benchmarks.peers`: the model list against ONNX Runtime and OpenVINO (and PyTorch), in one table.

Per model: latency of one request at batch 1 on all cores; throughput at a batch; both with every side in its best
set-up, interleaved, results compared first; compile time, plan size, cold start, memory. Everything about a model runs
in processes of its own with a time limit. Owns the procedure; figures come from `peers_case` and `peers_fresh`, tables
from `peers_table`.

    python -m benchmarks.peers --json results.json && python -m benchmarks.readme results.json

Of `--precision int8` all sides get the same model, quantised by ONNX Runtime's quantiser; of bf16 the model in f32,
which parax and OpenVINO compute in bf16 and ONNX Runtime in f32:

    python -m benchmarks.peers --precision int8 --models resnet50 mobilenet-v2 bert-base --modes throughput latency
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table as RichTable

from examples.models import MODELS, feeds
from examples.models.count import count
from parax import env
from parax.compiler.backend.machine import measure_facts
from parax.compiler.commands.doctor import package_versions
from parax.errors import ParaxError
from parax.files import write_whole
from parax.runtime.cpu import cpu_name
from parax.runtime.loading import load
from parax.runtime.topology import choose_cores

from .cases import ROOT, model_file
from .children import Record, records_of
from .command import command_line, finish, new_file, repeating
from .peers_fresh import cold_start, compiled, plan_memory, second_instance
from .peers_quantised import quantised
from .peers_table import SIDES, Table, all_tables, problems

PARTS = ("throughput", "latency", "start", "memory")
BATCHES = {"vgg16": 4, "bert-base": 4, "vit": 4, "ncf": 1024, "mlp": 64, "cifar-resnet20": 32, "cifar-resnet56": 32}
"""Rows of a request in throughput, where not DEFAULT_BATCH."""
DEFAULT_BATCH = 8
QUICK = {"rounds": 3, "seconds": 0.3}


@dataclass(frozen=True)
class Files:
    """One model's files: the list's own with an open batch, and the folder for what is made from it."""

    name: str
    source: Path
    folder: Path

    @property
    def latency_plan(self) -> Path:
        """Compiled for batch 1, for one request at a time."""
        return self.folder / "latency.bin"

    @property
    def throughput_plan(self) -> Path:
        """Compiled for batches up to the mode's."""
        return self.folder / "throughput.bin"

    def fixed(self, batch: int) -> Path:
        """The model with its batch fixed, as the peers get it; made on first use."""
        path = self.folder / f"batch-{batch}.onnx"
        if not path.exists():
            model = onnx.load(self.source)
            fix_batch(model, batch)
            path.write_bytes(model.SerializeToString())
        return path

    def inputs(self, batch: int, small: bool) -> dict[str, str]:
        """Random inputs as .npy files, by input name."""
        files = {}
        for i, (name, array) in enumerate(feeds(self.name, batch, small=small).items()):
            np.save(file := self.folder / f"input-{batch}-{i}.npy", array)
            files[name] = str(file)
        return files


def fix_batch(model: onnx.ModelProto, batch: int) -> None:
    """Give the first, symbolic dimension of every input and output its size, in place."""
    graph = model.graph
    symbols = {value.type.tensor_type.shape.dim[0].dim_param for value in graph.input}
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param and dim.dim_param in symbols:
                dim.dim_value = batch
    del graph.value_info[:]


def measure_model(files: Files, args: argparse.Namespace) -> dict[str, Record]:
    """Every part that is asked for, as one record each; a part that fails is a record with its problem."""
    batch = args.batch or BATCHES.get(files.name, DEFAULT_BATCH)
    found: dict[str, Record] = {}

    def attempt(part: str, work: Callable[[], Record]) -> bool:
        began = time.perf_counter()
        try:
            found[part] = work()
        except ParaxError as error:
            found[part] = {"problem": str(error)}
        note = found[part].get("problem") or f"{time.perf_counter() - began:.0f} s"
        print(f"{files.name}, {part}: {note}", file=sys.stderr, flush=True)
        return "problem" not in found[part]

    is_compiled = attempt("compile", lambda: _compile(files, batch, args))
    if not is_compiled:
        return found
    for mode, rows in (("throughput", batch), ("latency", 1)):
        if mode in args.modes:
            attempt(mode, lambda mode=mode, rows=rows: _speed(files, mode, rows, args))  # type: ignore[misc]
    sides = [side for side in ("parax", "onnxruntime", "openvino") if side in args.sides]
    if "start" in args.modes:
        width = len(args.cores)
        attempt("start", lambda: cold_start(_tasks(files, 1, width, sides, args), args.rounds, args.timeout))
    if "memory" in args.modes:
        attempt("memory", lambda: _memory(files, batch, sides, args))
    return found


def load_flags(mode: str, rows: int) -> list[str]:
    """What paraxc is told of a mode's load: requests of one row, or of 1 to `rows`."""
    return ["--dim", "N=1", "--hint", "latency"] if mode == "latency" else ["--dim", f"N=1..{max(rows, 2)}"]


def _compile(files: Files, batch: int, args: argparse.Namespace) -> Record:
    """Both plans; the figures are those of the throughput one, which people compile by default."""
    level = ["-O", str(args.opt_level)]
    if args.precision == "bf16":
        level += ["--precision", "bf16"]
    made = compiled(files.source, files.throughput_plan, [*level, *load_flags("throughput", batch)], args.timeout)
    latency = compiled(files.source, files.latency_plan, [*level, *load_flags("latency", 1)], args.timeout)
    return {**made, "latency": latency}


def _speed(files: Files, mode: str, rows: int, args: argparse.Namespace) -> Record:
    plan = files.latency_plan if mode == "latency" else files.throughput_plan
    model = files.fixed(rows)
    task = {
        "name": files.name, "small": args.small, "mode": mode, "batch": rows, "model": str(model), "plan": str(plan),
        "cores": args.cores, "rounds": args.rounds, "seconds": args.seconds, "sides": args.sides,
        "precision": args.precision,
    }  # fmt: skip
    child = [sys.executable, "-m", "benchmarks.peers_case", json.dumps(task)]
    record = {key: value for each in records_of(child, args.timeout, ROOT) for key, value in each.items()}
    if not record.get("problem"):
        record.pop("problem", None)
    record.setdefault("batch", rows)
    flops = count(onnx.load(files.fixed(1)))[1]
    return {**record, "flops": flops}


def _memory(files: Files, batch: int, sides: Sequence[str], args: argparse.Namespace) -> Record:
    """A second instance of one core each, at the throughput batch."""
    tasks = _tasks(files, batch, 1, sides, args)
    return {**second_instance(tasks, min(args.rounds, 3), args.timeout),
            "plan": plan_memory(load(files.throughput_plan), batch)}  # fmt: skip


def _tasks(
    files: Files, rows: int, width: int, sides: Sequence[str], args: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """What `fresh.py` shall do, per side: instances of `width` cores on `rows` rows."""
    plan = files.throughput_plan if rows > 1 or width == 1 else files.latency_plan
    inputs, cache = files.inputs(rows, args.small), files.folder / "openvino-cache"
    return {
        side: {"side": side, "model": str(plan if side == "parax" else files.fixed(rows)), "inputs": inputs,
               "cores": list(args.cores), "width": width, "cache": str(cache)}
        for side in sides
    }  # fmt: skip


def machine(cores: Sequence[int]) -> Record:
    """CPU, cores, and what they can do at most, measured now."""
    facts = measure_facts(cores)
    return {
        "cpu": cpu_name(), "cores": len(cores), "kernel": f"{platform.system()} {platform.release()}",
        "target": facts.target, "flops_all": facts.flops_all, "copy_all": facts.copy_all,
    }  # fmt: skip


def better_of(before: Record, after: Record) -> Record:
    """The greater of two measurements of the machine's limits: a neighbour takes from them, nothing adds to them."""
    return {**before, **{key: max(before[key], after[key]) for key in ("flops_all", "copy_all")}}


def versions(sides: Sequence[str]) -> dict[str, str]:
    """Versions of parax, Python and what takes part."""
    listed = {"parax": metadata.version("parax"), "python": platform.python_version(), **package_versions()}
    if "torch" in sides:
        listed["torch"] = metadata.version("torch")
    return {name: found for name in ("parax", "python", "llvmlite", "numpy", *sides) if (found := listed.get(name))}


def show(tables: Sequence[Table]) -> None:
    """Print tables for people."""
    console = Console(width=None if sys.stdout.isatty() else 220)
    for table in tables:
        out = RichTable(title=table.title, title_justify="left", box=None)
        for i, column in enumerate(table.columns):
            out.add_column(column, justify="left" if i < table.n_words else "right")
        for row in table.rows:
            out.add_row(*row)
        console.print(out)
        console.print()


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 1 where a model failed to compile, differed or ran out of time."""
    args = _arguments(argv)
    document: Record = {
        "command": command(args), "date": time.strftime("%Y-%m-%d"),
        "machine": machine(args.cores), "versions": versions(args.sides),
        "settings": {"rounds": args.rounds, "seconds": args.seconds, "opt_level": args.opt_level, "small": args.small,
                     "precision": args.precision},
        "models": {},
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="parax-peers-") as scratch:
        work = args.work or Path(scratch) / "models"
        work.mkdir(parents=True, exist_ok=True)
        for name in args.models:
            with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=scratch) as folder:
                source = model_file(name, work, args.small)
                if args.precision == "int8":
                    source = quantised(name, source, Path(folder) / "int8.onnx", small=args.small)
                files = Files(name, source, Path(folder))
                document["models"][name] = measure_model(files, args)
            if args.json:  # after every model: an interrupted run keeps what it has
                write_whole(args.json, json.dumps(document, indent=1))
    document["machine"] = better_of(document["machine"], machine(args.cores))
    if args.json:
        write_whole(args.json, json.dumps(document, indent=1))
    show(all_tables(document))
    failures = problems(document)
    print("\n".join(failures))
    return 1 if failures else 0


def command(args: argparse.Namespace) -> str:
    """The command that repeats a measurement: every option that is not the default, but for files and limits."""
    options = ("models", "modes", "sides", "rounds", "seconds", "batch", "opt_level", "precision", "small")
    return repeating("peers", args, _arguments([]), options)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line("peers", __doc__)
    every = ("parax", *SIDES)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="NAME",
                        help="of the model list (default: all)")
    parser.add_argument("--modes", nargs="+", default=list(PARTS), choices=PARTS, metavar="MODE",
                        help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--sides", nargs="+", default=list(every[:3]), choices=every, metavar="SIDE",
                        help=f"of {', '.join(every)} (default: all but torch)")
    parser.add_argument("--rounds", type=int, default=7, metavar="R", help="in which each set-up runs once (default 7)")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="of a set-up in a round (default 1)")
    parser.add_argument("--batch", type=int, metavar="B", help="of throughput, instead of each model's own")
    parser.add_argument("-O", dest="opt_level", type=int, default=2, choices=range(4), help="of paraxc (default 2)")
    parser.add_argument("--precision", default="f32", choices=("f32", "bf16", "int8"),
                        help="of all sides that have it (default f32)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK['rounds']} rounds of {QUICK['seconds']} s")
    parser.add_argument("--small", action="store_true", help="small editions: a test of the tool, no measurement")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keeps the built models (default: removed at the end)")
    parser.add_argument("--timeout", type=float, default=900.0, metavar="S", help="of each process (default 900)")
    parser.add_argument("--json", type=new_file, metavar="OUT", help="write every figure there")
    args = parser.parse_args(argv)
    if args.quick:
        vars(args).update(QUICK)
    args.cores = list(env.read("PARAX_CORES") or choose_cores(None))
    return args


if __name__ == "__main__":
    finish(main)
