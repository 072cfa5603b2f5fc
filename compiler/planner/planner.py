"""From an optimised graph to a choice: the candidates for a load, their predictions, which of them are worth running.

Owns that procedure. It must not know how plans are compiled or stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..backend.costs import node_cost
from ..costs.cost import CostRule
from ..ir.graph import Graph
from ..ir.ops.base import Control, Host
from ..ir.schedule import Schedule
from ..ir.types import Dim, SymDim, TensorType, evaluate
from ..options import CompileOptions
from ..passes.dataflow.batch_rows import batch_rows
from ..passes.dataflow.memory_planning import plan_memory
from ..targets.machine import Machine
from .candidate import LAYERED, PIPELINED, SEQUENTIAL, Candidate, Load, sequential_candidates
from .choice import Choice, Row, choose
from .predict import Predictor, fewest_rows

TYPICAL = 32  # what an open dimension other than the batch is taken to be
ROWS = {"latency": 1, "throughput": 64}  # of a request, where nobody says
MAX_ARENA_NBYTES = 256 << 20  # of an instance
MOST_LAYERED = 2  # arrangements that layers are looked for in: the search takes up to seconds
MOST_TIMES_BEST = 1.3  # the best prediction: those behind it cannot win; chosen, not measured
# The same, chosen, not measured, for the best of an arrangement or mode, which predictions may misjudge as a whole
MOST_TIMES_BEST_OF_MODE = 3.0


@dataclass
class Planner:
    """Plans one graph on one machine.

    Args:
        graph: optimised; it is only read. n_cores: to plan for.
        symbols: sizes of open dimensions other than the batch. cost: what a node costs.

    Attributes:
        symbol: the dimension that counts independent rows, by which requests may be cut; None: they are not.
    """

    graph: Graph
    machine: Machine
    n_cores: int
    hint: str
    symbols: Mapping[str, int] = field(default_factory=dict)
    cost: CostRule = node_cost
    symbol: str | None = field(init=False)
    predictor: Predictor = field(init=False)

    def __post_init__(self) -> None:
        rows = None if runs_in_steps(self.graph) else batch_rows(self.graph)
        self.symbol = rows.symbol if rows is not None else None
        open_symbols = {s for v in self.graph.inputs for d in _dims(v.type) for s in _symbols(d)}
        sizes = {s: TYPICAL for s in open_symbols if s != self.symbol} | dict(self.symbols)
        self.predictor = Predictor(self.graph, self.machine, self.symbol, sizes, cost=self.cost)
        if self.symbol is not None:
            self.predictor.least_rows = fewest_rows(self.predictor)

    def load(self, rows: int | None = None) -> Load:
        """The load to plan for: `rows` a request, else what suits the hint; a batch that is fixed stays as it is."""
        saturated = self.hint == "throughput"
        fixed = self.fixed_rows()
        return Load(fixed if fixed is not None else rows or ROWS[self.hint], saturated)

    def fixed_rows(self) -> int | None:
        """Rows of every request where requests are not cut; None where the batch is open."""
        if self.symbol is not None:
            return None
        firsts = {dims[0] for v in self.graph.inputs if (dims := _dims(v.type))}
        first = firsts.pop() if len(firsts) == 1 else 1
        return first if isinstance(first, int) else evaluate(first, self.predictor.symbols)

    def most_rows(self) -> int | None:
        """Of a native call, by the memory that its activations take; None where requests are not cut."""
        if self.symbol is None:
            return None
        arena = evaluate(plan_memory(self.graph).total, {**self.predictor.symbols, self.symbol: 1})
        return max(1, MAX_ARENA_NBYTES // max(1, arena))

    def rows(self, load: Load) -> list[Row]:
        """Every candidate with its prediction, best first."""
        candidates = sequential_candidates(self.n_cores, load, self.most_rows())
        rows = [Row(candidate, self.predictor.predict(candidate, load)) for candidate in candidates]
        return sorted(rows, key=lambda row: row.cost(load))

    def scheduled(self, load: Load, rows: Sequence[Row]) -> list[Row]:
        """Candidates with branches side by side or in a pipeline, where the graph has such a schedule.

        Args:
            rows: the sequential ones; layers are looked for where they are best.
        """
        wide = [row for row in rows if row.candidate.cores_each > 1]
        best: dict[tuple[int, int], Row] = {}
        for row in sorted(wide, key=lambda row: row.cost(load)):
            best.setdefault((row.candidate.instances, row.candidate.cores_each), row)
        found = []
        for row in list(best.values())[:MOST_LAYERED]:
            c = row.candidate
            if self.predictor.layered(c.cores_each, c.rows or load.rows, row.predicted.active) is not None:
                found.append(replace(c, mode=LAYERED))
        if self.symbol is not None and load.rows > 1 and self.n_cores > 1:
            pipeline = self.predictor.pipelined(self.n_cores, load.rows)
            if pipeline is not None:
                s = pipeline.schedule
                found.append(Candidate(1, self.n_cores, None, PIPELINED, len(s.stages), s.micro_batches or 1))
        return [Row(candidate, self.predictor.predict(candidate, load)) for candidate in found]

    def schedule(self, candidate: Candidate, load: Load) -> Schedule | None:
        """A candidate's schedule, the one that it was predicted with; None for a sequential one."""
        if candidate.mode == LAYERED:
            return self.predictor.layers(candidate.cores_each, candidate.rows or load.rows)
        if candidate.mode == PIPELINED:
            found = self.predictor.pipelined(candidate.cores_each, load.rows)
            return None if found is None else found.schedule
        return None

    def plain(self, candidate: Candidate, load: Load) -> bool:
        """Whether it is what one would do without asking: a core for each instance where there are rows for all, else
        all cores for one; by prediction alone, others have to promise more than predictions err.
        """
        spread = load.saturated or (self.symbol is not None and load.rows >= self.n_cores)
        at_once = candidate.mode == SEQUENTIAL and candidate.delay_groups == 1
        return at_once and (candidate.cores_each == 1 if spread else candidate.instances == 1)

    def choose(self, rows: Sequence[Row], load: Load) -> Choice:
        """The choice among these rows."""
        plain = [row for row in rows if self.plain(row.candidate, load)]
        return choose(rows, plain, load, self.hint, self.machine.name, self.n_cores, self.machine.simulated)


def worth_running(rows: Sequence[Row], load: Load, most: int, longest_seconds: float = math.inf) -> list[Row]:
    """The best few by prediction, first one of every arrangement and mode, then the next best of any; none whose native
    calls take longer than `longest_seconds`.
    """
    best_first = sorted(rows, key=lambda row: row.cost(load))
    best = best_first[0].cost(load)
    able = [row for row in best_first if row.predicted.seconds <= longest_seconds * row.predicted.calls]
    firsts: dict[tuple[int, int, str, bool], Row] = {}
    for row in able:
        if row.cost(load) <= best * MOST_TIMES_BEST_OF_MODE:
            c = row.candidate
            firsts.setdefault((c.instances, c.cores_each, c.mode, c.delay_groups > 1), row)
    others = [row for row in able if row.cost(load) <= best * MOST_TIMES_BEST and row not in firsts.values()]
    return [*firsts.values(), *others][:most]


def runs_in_steps(graph: Graph) -> bool:
    """Whether the runtime runs some operators itself, so that requests are neither cut nor spread."""
    return any(isinstance(node.op, (Host, Control)) for node in graph)


def fixed_sizes(options: CompileOptions) -> dict[str, int]:
    """Open dimensions' sizes to plan with: the least of a range, if that is above the typical one."""
    bounded = {name: size for name, size in options.dims.items() if isinstance(size, tuple)}
    return {name: min(max(TYPICAL, low), high) for name, (low, high) in bounded.items()}


def _dims(t: object) -> tuple[Dim, ...]:
    return tuple(t.shape or ()) if isinstance(t, TensorType) else ()


def _symbols(dim: Dim) -> set[str]:
    return set(dim.symbols()) if isinstance(dim, SymDim) else set()
