"""One Inception block, its operators one by one against layers of branches: Mofang's curves of use over time.

Owns the block and its curves; `paper` makes rows of them. It must not know what the source reports.

The block is the first of the optimised Inception-v3 (fusion, no Winograd), one row on one socket, without the Concat
that ends it: Mofang's memory is shared in place, its branches write where the Concat wants them. The source says
neither the input's size (here 299²) nor its Concat's cost; both were settled with the errors in view.

Core use is the arithmetic done over what all cores could do with kernels of these kinds, so that barriers, uneven
shares and waits for memory show; bandwidth use is the bytes to and from memory over its bandwidth. Both are spread
evenly over a work's span: where branches begin to share the memory later, a sum may pass 1 for a moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from parax.compiler.compilation import Compilation
from parax.compiler.driver import import_graph, optimise
from parax.compiler.frontend.parse import Source
from parax.compiler.ir.graph import Graph
from parax.compiler.options import CompileOptions
from parax.compiler.planner.partition.branches import Branches, TaskTimes
from parax.compiler.planner.partition.dag import bits, contract_views
from parax.compiler.planner.partition.layers import LayerOptions, layer_partition, pieces
from parax.compiler.planner.partition.simulate import Layers, Part, Sequential, Timeline, Work, simulate
from parax.compiler.targets.machine import Machine

from .plot import lines


@dataclass(frozen=True)
class Curve:
    """Uses over time, constant from each of `times` (seconds, ascending) to the next; the last is the end."""

    times: Sequence[float]
    cores: Sequence[float]
    bandwidth: Sequence[float]

    @property
    def lengths(self) -> list[float]:
        """Seconds of each piece."""
        return [end - begin for begin, end in zip(self.times, self.times[1:])]

    def mean(self, of: Sequence[float]) -> float:
        """Over time."""
        return sum(use * length for use, length in zip(of, self.lengths)) / sum(self.lengths)

    def reached(self, share: float) -> float:
        """The core use that is reached or exceeded for this share of the time, in 0 to 1."""
        left = share * sum(self.lengths)
        for use, length in sorted(zip(self.cores, self.lengths), reverse=True):
            left -= length
            if left <= 0:
                return use
        return min(self.cores)


@dataclass(frozen=True)
class Ways:
    """The block run in both ways; `layers`: how many branches side by side each layer has."""

    one_by_one: Timeline
    layered: Timeline
    curves: tuple[Curve, Curve]
    layers: tuple[int, ...]


def optimised(model: Source, shapes: Mapping[str, tuple[int | str, ...]]) -> Graph:
    """A model with inputs of these shapes, after the passes of the default level."""
    run = Compilation(CompileOptions(shapes=shapes), lambda phase, fraction: None)
    graph = import_graph(model, run.options)
    optimise(graph, run)
    return graph


def first_block(works: Sequence[Work]) -> list[Work]:
    """The works of the first piece with branches; they wait for nothing outside.

    Raises:
        ValueError: the model has no branches.
    """
    dag, groups, _ = contract_views(works)
    forked = next((piece for piece in pieces(dag, len(works)) if len(dag.components(piece)) > 1), None)
    if forked is None:
        raise ValueError("a model with branches is needed")
    chosen = [groups[i][0] for i in bits(forked)]
    number = {i: at for at, i in enumerate(chosen)}
    return [replace(works[i], after=tuple(number[b] for b in works[i].after if b in number)) for i in chosen]


def run_block(block: Sequence[Work], machine: Machine) -> Ways:
    """The works, a block's or a whole model's without views of its inputs, on all cores of the machine in both ways."""
    n = machine.n_cores
    dag, groups, _ = contract_views(block)
    times = TaskTimes([block[group[0]] for group in groups], machine)
    branches = Branches(dag, times, n)
    layers = tuple(
        tuple(Part(first, cores, tuple(w for i in bits(part) for w in groups[i]))
              for first, cores, part in branches.arrange(mask).parts)
        for mask in layer_partition(dag, times.on(1), branches, LayerOptions())
    )  # fmt: skip
    one_by_one, layered = simulate(block, machine, Sequential(n)), simulate(block, machine, Layers(layers))
    curves = curve(block, machine, one_by_one), curve(block, machine, layered)
    return Ways(one_by_one, layered, curves, tuple(len(layer) for layer in layers))


def curve(works: Sequence[Work], machine: Machine, timeline: Timeline) -> Curve:
    """Uses over time; a work has one span in either way."""
    end = timeline.total_seconds - machine.call_seconds
    times = sorted({0.0, end, *(t for span in timeline.spans for t in (span.start, span.end))})
    cores, bandwidth = [], []
    for begin, until in zip(times, times[1:]):
        middle = (begin + until) / 2
        busy = far = 0.0
        for span in timeline.spans:
            if span.start <= middle < span.end:
                cost, seconds = works[span.work].cost, span.end - span.start
                busy += cost.arithmetic / (machine.flops * machine.share(cost.kind)) / seconds
                far += cost.far_nbytes / machine.bandwidth / seconds
        cores.append(busy)
        bandwidth.append(far)
    return Curve(times, cores, bandwidth)


def drawn(ways: Ways) -> dict[str, str]:
    """File stem → SVG, one picture for each way on the same scale of time."""
    titles = ("one by one", "in layers")
    longest = max(c.times[-1] for c in ways.curves)
    return {
        f"block-{title.replace(' ', '-')}": lines(
            f"Inception block, {title}, simulated", "µs", "use",
            {"cores": _steps(c.times, c.cores, longest), "bandwidth": _steps(c.times, c.bandwidth, longest)},
        )
        for title, c in zip(titles, ways.curves)
    }  # fmt: skip


def _steps(times: Sequence[float], uses: Sequence[float], longest: float) -> list[tuple[float, float]]:
    """The corners of a step function in microseconds, 0 from its end to `longest`."""
    corners = [(1e6 * t, use) for begin, end, use in zip(times, times[1:], uses) for t in (begin, end)]
    return [*corners, (1e6 * times[-1], 0.0), (1e6 * longest, 0.0)]
