"""The figures of Mofang's paper: stages, micro-batches, the pipeline's idle share, layers of Inception-v3 and ResNet50.

Owns the simulated compiler: the model as parax optimises it, without Winograd's algorithm, COMPILED_OPERATOR_SECONDS
spent on an operator beside the kernel, on one socket. A row has no "ours" where nothing here can tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from parax.compiler.costs.cost import Cost
from parax.compiler.frontend.parse import Source
from parax.compiler.ir.graph import Graph
from parax.compiler.planner.partition.micro_batches import bubble, micro_batch_sizes, micro_batches
from parax.compiler.planner.partition.schedules import plan_pipeline, policy_of, scheduled_graph
from parax.compiler.planner.partition.simulate import Part, Pipeline, Sequential, Work, graph_works, simulate
from parax.compiler.planner.partition.stages import stages_by_utilisation
from parax.compiler.targets.machine import Machine

from . import paper_sources as source
from .paper_block import Curve, Ways, first_block, optimised, run_block
from .paper_framework import direct_cost

COMPILED_OPERATOR_SECONDS = 2e-6
IDLE_POWER = 0.5  # of a busy server's, Barroso and Hölzle, "The Case for Energy-Proportional Computing", 2007
BATCH, STAGES = 256, 3  # of the source's pipeline
INPUTS = {"inception-v3": (299, 299), "resnet50": (224, 224)}


@dataclass(frozen=True)
class Row:
    """One figure: what the source says, what the simulation gives; `note` says how it was read. NaN: there is none."""

    figure: str
    source: float
    ours: float
    note: str = ""

    @property
    def error(self) -> float:
        return self.ours / self.source - 1


def partition_checks() -> list[Row]:
    """Stages, micro-batches and the pipeline's bubble."""
    stages = stages_by_utilisation([1.0] * len(source.UTILISATIONS), source.UTILISATIONS, 2)
    total = sum(max(source.UTILISATIONS[i] for i in stage) for stage in stages)
    rows = [Row("stages .5 .4 .3 | .4 .5 .4, sum of utilisations", source.STAGE_SUM, total)]
    rows += [Row(f"micro-batches of {k} stages, B=256, Bdev=64", m, micro_batches(256, 64, k))
             for k, m in source.MICRO_BATCHES.items()]  # fmt: skip
    rows.append(Row("largest of 6 micro-batches of 256", source.MICRO_BATCH_SIZES[0], micro_batch_sizes(256, 6)[0]))
    for micro, reported in zip((1, micro_batches(256, 64, 3)), source.PIPELINE_IDLE):
        ours = idle_of_pipeline(3, micro)
        rows.append(Row(f"pipeline idle, 3 stages, {micro} micro-batch{'' if micro == 1 else 'es'}", reported, ours,
                        "source: more than that" if micro == 1 else f"formula {bubble(3, micro):.3f}"))  # fmt: skip
    return rows


def idle_of_pipeline(n_stages: int, n_micro_batches: int) -> float:
    """Idle share of equal stages, simulated."""
    box = Machine("stages", n_stages, 1.0, 1.0, 1.0, barrier_seconds=0.0, kernel_seconds=0.0, call_seconds=0.0)
    works = [Work("stage", Cost(1.0, 0.0, 0.0, 0.0, 1, "conv"), (k - 1,) if k else ()) for k in range(n_stages)]
    stages = tuple(Part(k, 1, (k,)) for k in range(n_stages))
    return 1 - simulate(works, box, Pipeline(stages, n_micro_batches)).core_use


def partitioned(machine: Machine, model: Callable[[str], Source]) -> tuple[list[Row], Ways]:
    """The first block of Inception-v3, then whole models, in layers and as a pipeline, against one by one.

    Args:
        machine: as described; one socket of it is used. model: by its name.
    """
    machine = replace(machine, n_sockets=1, kernel_seconds=COMPILED_OPERATOR_SECONDS)
    graphs = {name: optimised(model(name), {"image": ("N", 3, *size)}) for name, size in INPUTS.items()}
    works = {name: graph_works(graph, {"N": 1}, direct_cost) for name, graph in graphs.items()}
    ways = run_block(first_block(works["inception-v3"]), machine)
    rows = block_rows(ways, machine)
    for name in INPUTS:
        whole = run_block(works[name], machine)
        seconds = [timeline.total_seconds for timeline in (whole.one_by_one, whole.layered)]
        rows.append(Row(f"{name}, layers over one by one", source.LAYERS_SPEED_UP[name], seconds[0] / seconds[1]))
        if name == "inception-v3":
            used = [_energy(curve, t) for curve, t in zip(whole.curves, seconds)]
            rows.append(Row("energy of inception-v3, in layers over one by one", source.ENERGY, used[1] / used[0],
                            f"an idle machine takes {IDLE_POWER:.0%} of the power"))  # fmt: skip
    gain = pipeline_gain(graphs["inception-v3"], machine)
    rows.append(Row("inception-v3, layers and pipeline over one by one", source.PIPELINE_SPEED_UP, gain,
                    f"{STAGES} stages, B={BATCH}, one socket"))  # fmt: skip
    fewer, more = source.LOADER_THREADS
    rows += [
        Row("over TensorFlow, least", source.OVER_TENSORFLOW[0], math.nan, "no TensorFlow is simulated"),
        Row("over TensorFlow, most", source.OVER_TENSORFLOW[1], math.nan, "no TensorFlow is simulated"),
        Row("loader threads", fewer, math.nan, "their speed-up S(n) is measured on the machine"),
        Row("energy of the loader threads, 48 over 64", source.LOADER_ENERGY, fewer / more, "by their number"),
    ]
    return rows, ways


def block_rows(ways: Ways, machine: Machine) -> list[Row]:
    """The block's times and uses.

    The source's two utilisations of a way are read as the best and the worst of a curve, a tenth of the time left out
    at either end. They cannot be means of cores and of bandwidth: 20 % → 50 % in 0.94 of the time would be 2.4 times
    the bytes.
    """
    seconds = [timeline.total_seconds - machine.call_seconds for timeline in (ways.one_by_one, ways.layered)]
    names = ("one by one", "in layers")
    rows = [Row(f"Inception block, {name}, ms", ms, 1e3 * t) for name, ms, t in zip(names, source.BLOCK_MS, seconds)]
    rows[1] = replace(rows[1], note="branches: " + ", ".join(map(str, ways.layers)))
    rows.append(Row("Inception block, layers over one by one", source.BLOCK_MS[0] / source.BLOCK_MS[1],
                    seconds[0] / seconds[1]))  # fmt: skip
    for name, (high, low), own in zip(names, source.BLOCK_USE, ways.curves):
        means = f"means: cores {own.mean(own.cores):.2f}, bandwidth {own.mean(own.bandwidth):.2f}"
        rows += [Row(f"Inception block, {name}, core use at its best", high, own.reached(0.1), means),
                 Row(f"Inception block, {name}, core use at its worst", low, own.reached(0.9))]  # fmt: skip
    return rows


def _energy(curve: Curve, seconds: float) -> float:
    """In busy machines' seconds."""
    return seconds * (IDLE_POWER + (1 - IDLE_POWER) * curve.mean(curve.cores))


def pipeline_gain(graph: Graph, machine: Machine) -> float:
    """Throughput of the pipeline over that of one operator after the other on all cores, the same batch."""
    one_by_one = simulate(graph_works(graph, {"N": BATCH}, direct_cost), machine, Sequential(machine.n_cores))
    schedule = plan_pipeline(graph, machine, machine.n_cores, BATCH, n_stages=STAGES)
    graph = scheduled_graph(graph, schedule)
    policy = policy_of(graph, schedule)
    rows = -(-BATCH // (schedule.micro_batches or 1))
    piped = simulate(graph_works(graph, {"N": rows}, direct_cost), machine, policy)
    return one_by_one.total_seconds / piped.total_seconds
