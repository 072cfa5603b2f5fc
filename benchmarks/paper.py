"""`python -m benchmarks.paper`: the source papers' figures, reproduced by simulation; each row with its error.

    python -m benchmarks.paper [--folder MODELS] [--json paper.json] [--svg FOLDER] [--measure] [--own]

The machine is the shipped description of two Xeon 8280; what runs on it is the framework that the papers ran
(paper_framework says what is assumed of it, and where that is from) and, for Mofang's figures, the graph as parax
optimises it (paper_partition). No number is fitted to a row. Beside that these are readings of what the sources leave
open, made with the errors in view:

    one instance       threads of both sockets touch its memory first and operators share out their work in different
                       ways: pages lie in both sockets, half of what an operator needs is in the other one
    many instances     spread evenly over an iteration (GROUPS places at a time), so that operators that wait for memory
                       run beside others that compute, which is what the paper says of its scheduling
    rows               of all instances together the same: ROWS for each core; GEMM and activation of Word-LM are the
                       products and the loops over the cells in its recurrent layers
    LSTM, B            rows of an instance

What is not modelled: the loss of a library's parallel products beside what memory and forks cost, Python, data loading.
`--own` adds training as parax compiles it, with the backward graphs of its own (paper_training), on that machine.
`--measure` adds what this machine can show itself: instances against one instance on all cores, measured and simulated.
Errors are ours / source − 1; a dash stands where the source has no number or nothing here can tell.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

import onnx
from rich.console import Console
from rich.table import Table

from examples.models import build
from parax import env
from parax.compiler.backend.calibration import running_machine
from parax.compiler.driver import import_graph
from parax.compiler.ir.graph import Graph
from parax.compiler.options import CompileOptions
from parax.compiler.planner.partition.simulate import SPREAD, Instances, Sequential, simulate
from parax.compiler.targets.machine import load_machine
from parax.files import write_whole
from parax.runtime.topology import choose_cores

from . import paper_sources as source
from .cases import model_file
from .command import command_line, finish, new_file
from .layer_times import compile_traced
from .paper_block import drawn
from .paper_framework import ENGINE, FORK_SECONDS, OPERATOR_SECONDS, Operation, framework_works, operations
from .paper_partition import Row, partition_checks, partitioned
from .paper_training import OwnStep
from .plot import lines
from .prediction import SECONDS, measure, predict
from .training_cases import CASES

MACHINE = "xeon-8280-2s"
ROWS_PER_CORE = 16  # 14 instances of 64 rows, the batch of an instance in the source, on 56 cores
ROWS = {"ncf": 128}  # other models; NCF's products take about the 88 µs of the source then
GROUPS = 4  # of instances that are at the same place of an iteration
TRAINED = ("resnet50", "resnet101", "mobilenet-v1", "mobilenet-v2", "inception-bn", "word-lm", "gnmt", "ncf")
IMAGES = ("resnet50", "resnet101", "mobilenet-v1", "mobilenet-v2", "inception-bn")
CORES = (1, 2, 4, 7, 14, 28, 56)
OWN = ("resnet50", "mobilenet-v1", "mobilenet-v2", "word-lm", "gnmt")
MEASURED = ("resnet50", "mobilenet-v1", "word-lm")


@dataclass(frozen=True)
class Iteration:
    """One iteration of an instance in the steady state.

    Attributes:
        seconds: from its start to the next one's. spent: each operation with its seconds, as a profiler sees it,
            without the engine. rows: of all instances. core_use, bandwidth_use: means over the machine.
    """

    seconds: float
    spent: list[tuple[Operation, float]]
    rows: int
    core_use: float
    bandwidth_use: float

    @property
    def throughput(self) -> float:
        """Rows a second of all instances."""
        return self.rows / self.seconds


class Paper:
    """The simulated framework on the simulated machine."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.machine = replace(load_machine(MACHINE), kernel_seconds=0.0, barrier_seconds=FORK_SECONDS)
        self.graph = cache(self._graph)
        self.run = cache(self._run)

    def model(self, name: str) -> Path | onnx.ModelProto:
        """The model's file, or the model."""
        path = self.folder / f"{name}.onnx" if self.folder is not None else None
        return path if path is not None and path.exists() else build(name)

    def _graph(self, name: str) -> Graph:
        return import_graph(self.model(name), CompileOptions())

    def _run(self, name: str, instances: int, rows: int, training: bool, cores: int | None = None) -> Iteration:
        """`rows` a run on each of `instances`, which share `cores` (None: all)."""
        machine, each = self.machine, (cores or self.machine.n_cores) // instances
        beside = 0 if instances == 1 else min(instances, machine.cores_per_socket // each)
        found = operations(self.graph(name), {"N": rows}, training, beside)
        works = framework_works(found, machine, each, beside)
        if instances == 1:
            timeline = simulate(works, machine, Sequential(each, home=SPREAD))
            seconds, spans, offset = timeline.total_seconds, timeline.spans, 0
        else:
            groups = min(GROUPS, beside)
            once = simulate(works, machine, Instances(instances, each, rows)).total_seconds
            policy = Instances(instances, each, rows, groups, once / groups, shares_weights=False)
            offset = len(works)
            timeline = simulate(works * 3, machine, policy)
            began = {(span.work, span.batch): span.start for span in timeline.spans}
            seconds = sum(began[2 * offset, j] - began[offset, j] for j in range(instances)) / instances
            spans = [span for span in timeline.spans if offset <= span.work < 2 * offset]
        number = [i for i, work in enumerate(works) if work.name != ENGINE]
        of_work = dict(zip(number, found))
        spent = [(of_work[s.work - offset], s.end - s.start) for s in spans if s.work - offset in of_work]
        far = instances * sum(work.cost.far_nbytes for work in works)
        busy = sum(t * each for _, t in spent)
        return Iteration(seconds, spent, instances * rows, busy / (machine.n_cores * seconds),
                         far / (machine.bandwidth * seconds))  # fmt: skip

    def rows(self, name: str) -> int:
        """Rows for each core."""
        return ROWS.get(name, ROWS_PER_CORE)

    def speed_up(self, name: str, training: bool, rows: int | None = None) -> float:
        """One instance a core over one instance, the same rows in all."""
        n = self.machine.n_cores
        all_rows = rows or self.rows(name) * n
        many = self.run(name, n, max(1, round(all_rows / n)), training).throughput
        return many / self.run(name, 1, all_rows, training).throughput


def per_operator(paper: Paper) -> list[Row]:
    """Latency of an operator at k instances over that at one instance a core, means over forward and backward."""
    rows = []
    n = paper.machine.n_cores
    for (name, op), reported in source.PER_OPERATOR.items():
        own = {}
        for k in source.INSTANCES:
            spent = [t + (OPERATOR_SECONDS if o.phase != "step" else 0.0)
                     for o, t in paper.run(name, k, paper.rows(name) * n // k, True).spent if o.op == op]  # fmt: skip
            own[k] = sum(spent) / len(spent)
        rows += [
            Row(f"{name} training, {op}, {k} instance{'' if k == 1 else 's'}", t / reported[-1], own[k] / own[n],
                f"ours {1e3 * own[k]:.3g} ms a call, source {t:.3g}")
            for k, t in zip(source.INSTANCES, reported) if k != n
        ]  # fmt: skip
    return rows


def speed_ups(paper: Paper) -> list[Row]:
    """The headline figures: ranges over models."""
    training = {name: paper.speed_up(name, True) for name in TRAINED}
    inference = {name: paper.speed_up(name, False) for name in IMAGES}
    rows = []
    for what, found, reported in (("training", training, source.TRAINING_SPEED_UP),
                                  ("inference", inference, source.INFERENCE_SPEED_UP)):  # fmt: skip
        each = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
        rows += [Row(f"{what} speed-up, least", reported[0], min(found.values()), each),
                 Row(f"{what} speed-up, most", reported[1], max(found.values()))]  # fmt: skip
    for batch, reported_one in source.LSTM_SPEED_UP.items():
        ours = paper.speed_up("word-lm", True, batch * paper.machine.n_cores)
        rows.append(Row(f"LSTM training speed-up, B={batch}", reported_one, ours))
    many = paper.run("resnet50", paper.machine.n_cores, ROWS_PER_CORE, True)
    rows.append(Row("core use, ResNet50 training", source.CORE_USE, many.core_use))
    rows.append(Row("bandwidth use, ResNet50 training", source.BANDWIDTH_USE, many.bandwidth_use))
    return rows


def saturation(paper: Paper) -> list[Row]:
    """The fewest rows a core from which more bring less than 5 %; the best number of instances for a small model."""
    rows = []
    sizes = (1, 2, 4, 8, 16, 32, 64)
    for what, training in (("training", True), ("inference", False)):
        rates = {r: paper.run("resnet50", paper.machine.n_cores, r, training).throughput for r in sizes}
        enough = min(r for r, rate in rates.items() if rate >= 0.95 * max(rates.values()))
        rows.append(Row(f"rows a core that saturate {what}", source.SATURATED_ROWS[what], enough))
    all_rows = ROWS_PER_CORE * paper.machine.n_cores
    counts = {k: paper.run("cifar-resnet20", k, all_rows // k, False).throughput for k in source.INSTANCES}
    best = max(counts, key=lambda k: counts[k])
    rows.append(Row("CIFAR ResNet inference, best instances", source.BEST_CIFAR_INSTANCES, best))
    return rows


def own_steps(paper: Paper) -> list[Row]:
    """Training by parax's own step graphs: instances over one, beside the framework's range in the source."""
    rows = []
    low, high = source.TRAINING_SPEED_UP
    machine = load_machine(MACHINE)
    for name in OWN:
        step = OwnStep.of(paper.model(name), CASES[name].loss, machine)
        ours = step.speed_up(machine, paper.rows(name))
        note = f"parax's own backward graph; the framework's models: {low}–{high}"
        rows.append(Row(f"{name} training by parax, instances over one", math.nan, ours, note))
        if name == "word-lm":
            rows += [Row(f"LSTM training by parax, B={batch}", reported, step.speed_up(machine, batch),
                         "parax's own backward graph") for batch, reported in source.LSTM_SPEED_UP.items()]  # fmt: skip
    return rows


def measured_here(paper: Paper, folder: Path) -> list[Row]:
    """Instances over one instance on all cores of this machine, the same rows in all: measured and simulated.

    Args:
        folder: where models that have no file are built.
    """
    cores = choose_cores(None)
    n = len(cores)
    machine = running_machine(env.cache_dir(), cores)
    assert machine is not None
    rows = []
    for name in MEASURED if n > 1 else ():
        traced = compile_traced(name, model_file(name, paper.folder or folder))
        for batch in (1, 8):
            setups = ((batch, n, 1), (batch * n, 1, n))
            many, one = (measure(traced, rows_each, [shape], SECONDS)[0].total for rows_each, *shape in setups)
            ours_many, ours_one = (predict(traced, machine, *setup).total_seconds for setup in setups)
            rows.append(Row(f"{name}, {batch} rows a core: {n} instances over one, here", one / many,
                            ours_one / ours_many, "measured instead of source"))  # fmt: skip
    return rows


def plots(paper: Paper) -> dict[str, str]:
    """File stem → SVG."""
    n = paper.machine.n_cores
    counts = [k for k in range(1, n + 1) if n % k == 0]
    scaling = {}
    for name in TRAINED:
        rates = {k: paper.run(name, k, paper.rows(name) * n // k, True).throughput for k in counts}
        scaling[name] = [(k, rates[k] / rates[1]) for k in counts]
    sizes = (1, 2, 4, 8, 16, 32, 64)
    filling = {}
    for name in IMAGES:
        rates = {r: paper.run(name, n, r, False).throughput for r in sizes}
        filling[name] = [(r, rates[r] / rates[sizes[-1]]) for r in sizes]
    many = {name: [(c, on_cores(paper, name, c)) for c in CORES] for name in ("resnet50", "mobilenet-v1")}
    return {
        "instances": lines("Training over one instance, simulated", "instances", "speed-up", scaling, True),
        "rows": lines("Inference, one instance a core, simulated", "rows a core", f"rate over that at {sizes[-1]} rows",
                      filling, True),
        "cores": lines("Training on 1 to 56 cores, simulated", "cores", "speed-up over one core", many),
    }  # fmt: skip


def on_cores(paper: Paper, name: str, cores: int) -> float:
    """Training on so many cores, an instance each, over one core."""
    one = paper.run(name, 1, paper.rows(name), True, cores=1)
    return paper.run(name, cores, paper.rows(name), True, cores=cores).throughput / one.throughput


def scaling(paper: Paper) -> list[Row]:
    """Training on 1 to 56 cores; the source shows it in figures without numbers."""
    note = "no number in the source"
    return [Row(f"resnet50 training, {c} cores over one", math.nan, on_cores(paper, "resnet50", c), note)
            for c in CORES[1:]]  # fmt: skip


def report(console: Console, rows: Iterable[Row]) -> None:
    """The table."""
    table = Table("figure", "source", "ours", "error %", "note")
    for row in rows:
        error = "–" if math.isnan(row.error) else f"{100 * row.error:+.1f}"
        table.add_row(
            row.figure, *("–" if math.isnan(x) else f"{x:.3g}" for x in (row.source, row.ours)), error, row.note
        )
    console.print(table)


def main() -> None:
    """Simulate, print, write."""
    parser = command_line("paper", __doc__)
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where NAME.onnx are, or are built")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write every row there")
    parser.add_argument("--svg", type=Path, metavar="DIR", help="draw the plots there")
    parser.add_argument("--measure", action="store_true", help="add what this machine shows itself")
    parser.add_argument("--own", action="store_true", help="add training as parax compiles it")
    options = parser.parse_args()
    paper = Paper(options.folder)
    in_parts, ways = partitioned(load_machine(MACHINE), paper.model)
    rows = [
        *per_operator(paper),
        *speed_ups(paper),
        *saturation(paper),
        *scaling(paper),
        *in_parts,
        *partition_checks(),
    ]
    if options.own:
        rows += own_steps(paper)
    if options.measure:
        with tempfile.TemporaryDirectory() as folder:
            rows += measured_here(paper, Path(folder))
    report(Console(width=160), rows)
    if options.svg is not None:
        options.svg.mkdir(parents=True, exist_ok=True)
        for stem, text in (plots(paper) | drawn(ways)).items():
            write_whole(options.svg / f"{stem}.svg", text)
    if options.json is not None:
        document = {"machine": paper.machine.name, "operator_seconds": OPERATOR_SECONDS, "rows_per_core": ROWS_PER_CORE,
                    "rows": [_plain(row) for row in rows]}  # fmt: skip
        write_whole(options.json, json.dumps(document, indent=1))


def _plain(row: Row) -> dict[str, object]:
    """JSON has no NaN."""
    values = {**asdict(row), "error": row.error}
    return {key: None if isinstance(v, float) and math.isnan(v) else v for key, v in values.items()}


if __name__ == "__main__":
    finish(main)
