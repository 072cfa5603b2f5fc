"""From an optimised graph to a choice: the candidates for a load, their predictions, which of them are worth running.

Owns that procedure. It must not know how plans are compiled or stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..ir.graph import Graph
from ..ir.machine import Machine
from ..ir.ops.base import Control, Host
from ..ir.types import Dim, SymDim, TensorType, evaluate
from ..options import CompileOptions
from ..passes.dataflow.batch_rows import batch_rows
from ..passes.dataflow.memory_planning import plan_memory
from .candidate import Load, sequential_candidates
from .choice import Choice, Row, choose
from .predict import Predictor, fewest_rows

TYPICAL = 32  # what an open dimension other than the batch is taken to be
ROWS = {"latency": 1, "throughput": 64}  # of a request, where nobody says
MAX_ARENA_NBYTES = 256 << 20  # of an instance
WORTH_RUNNING = 1.3  # times the best prediction: those behind it cannot win


@dataclass
class Planner:
    """Plans one graph on one machine.

    Args:
        graph: optimised; it is only read. n_cores: to plan for.
        symbols: sizes of open dimensions other than the batch.

    Attributes:
        symbol: the dimension that counts independent rows, by which requests may be cut; None: they are not.
    """

    graph: Graph
    machine: Machine
    n_cores: int
    hint: str
    symbols: Mapping[str, int] = field(default_factory=dict)
    symbol: str | None = field(init=False)
    predictor: Predictor = field(init=False)

    def __post_init__(self) -> None:
        rows = None if runs_in_steps(self.graph) else batch_rows(self.graph)
        self.symbol = rows.symbol if rows is not None else None
        open_symbols = {s for v in self.graph.inputs for d in _dims(v.type) for s in _symbols(d)}
        sizes = {s: TYPICAL for s in open_symbols if s != self.symbol} | dict(self.symbols)
        self.predictor = Predictor(self.graph, self.machine, self.symbol, sizes)
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

    def choose(self, rows: Sequence[Row], load: Load) -> Choice:
        """The choice among these rows."""
        return choose(rows, load, self.hint, self.machine.name, self.n_cores, self.machine.simulated)


def worth_running(rows: Sequence[Row], load: Load, most: int) -> list[Row]:
    """The best few by prediction, first one of every arrangement and mode, then the next best of any."""
    limit = min(row.cost(load) for row in rows) * WORTH_RUNNING
    able = sorted((row for row in rows if row.cost(load) <= limit), key=lambda row: row.cost(load))
    firsts: dict[tuple[int, int, str], Row] = {}
    for row in able:
        firsts.setdefault((row.candidate.instances, row.candidate.cores_each, row.candidate.mode), row)
    ordered = [*firsts.values(), *(row for row in able if row not in firsts.values())]
    return ordered[:most]


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
