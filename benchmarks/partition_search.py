"""`python -m benchmarks.partition_search`: what looking for layers takes, on graphs of the model list.

    python -m benchmarks.partition_search [inception-v3 nasnet …] [--folder DIR] [--machine xeon-8280-2s] [--cores 28]

Seconds of the processor and peak memory of `plan_layers`, which aims at 5 s at most; and how many greedy latencies of
random sets of operators the simulator's cheap path (`greedy.Latencies`) tells in a second, which aims at 20,000 in 5 s.
"""

from __future__ import annotations

import random
import tempfile
import time
import tracemalloc
from pathlib import Path

from rich.console import Console
from rich.table import Table

from parax.compiler.compilation import Compilation
from parax.compiler.driver import import_graph, optimise
from parax.compiler.ir.graph import Graph
from parax.compiler.options import CompileOptions
from parax.compiler.planner.partition.list_scheduler import Latencies
from parax.compiler.planner.partition.schedules import plan_layers
from parax.compiler.planner.partition.works import graph_works
from parax.compiler.targets.machine import Machine, load_machine

from .cases import model_file
from .command import command_line, finish

MODELS = ("inception-v3", "nasnet", "resnet101", "bert-base")
SIZES = {"N": 1}
EVALUATIONS = 2_000  # of latencies, of sets of up to MOST_OPERATORS that follow one another
MOST_OPERATORS = 32


def optimised(path: Path) -> Graph:
    """The graph that layers are planned for."""
    options = CompileOptions()
    run = Compilation(options, lambda phase, fraction: None)
    graph = import_graph(path, options)
    optimise(graph, run)
    return graph


def search_cost(graph: Graph, machine: Machine, n_cores: int) -> tuple[float, int, int]:
    """Seconds and peak bytes of planning layers, and how many there are."""
    began = time.process_time()
    plan_layers(graph, machine, n_cores, SIZES)
    seconds = time.process_time() - began
    tracemalloc.start()
    schedule = plan_layers(graph, machine, n_cores, SIZES)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak, len(list(schedule.layers))


def latencies_per_second(graph: Graph, machine: Machine, n_cores: int) -> float:
    """Greedy latencies of random runs of operators, none asked for twice on purpose."""
    works = graph_works(graph, SIZES, caches=machine.caches(1, n_cores))
    latencies, rng = Latencies(works, machine, n_cores), random.Random(0)
    sets = []
    for _ in range(EVALUATIONS):
        first = rng.randrange(len(works))
        part = range(first, min(len(works), first + rng.randint(1, MOST_OPERATORS)))
        sets.append([i for i in part if rng.random() < 0.9])
    began = time.process_time()
    for part in sets:
        latencies.greedy(part)
    return EVALUATIONS / (time.process_time() - began)


def main() -> None:
    """Measure and print."""
    parser = command_line("partition_search", __doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL",
                        help=f"of the model list (default: {' '.join(MODELS)})")  # fmt: skip
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where NAME.onnx are, or are built")
    parser.add_argument("--machine", default="xeon-8280-2s", metavar="FILE.toml",
                        help="a described machine, by file or shipped name (default xeon-8280-2s)")  # fmt: skip
    parser.add_argument("--cores", type=int, default=28, metavar="N", help="of that machine (default 28)")
    options = parser.parse_args()
    machine = load_machine(options.machine)
    table = Table("model", "operators", "layers", "search s", "peak MB", "latencies /s",
                  title=f"{machine.name}, {options.cores} cores")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            graph = optimised(model_file(name, options.folder or Path(folder)))
            seconds, peak, n_layers = search_cost(graph, machine, options.cores)
            rate = latencies_per_second(graph, machine, options.cores)
            table.add_row(name, str(len(graph)), str(n_layers), f"{seconds:.2f}", f"{peak / 1e6:.1f}", f"{rate:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    finish(main)
