"""What the compiler does about the planner's choice: rows a call, schedule, and what the plan says of itself.

Owns the decision of one compilation, by prediction alone; running candidates first is `study`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...errors import UsageError
from ...runtime.manifest import SizeRule
from ..backend.costs import costs_at, rounded_products
from ..backend.host import resolve_target
from ..backend.microkernels.table import features_of
from ..costs.node_cost import RoundedProducts
from ..ir.call_rows import call_rows
from ..ir.fp import Fp
from ..ir.graph import Graph
from ..ir.schedule import Schedule
from ..ir.types import F32, DType
from ..options import CompileOptions
from ..targets.machine import Machine
from .candidate import LATENCY, LAYERED, PIPELINED, Candidate, Load, micro_batches
from .choice import EVEN, Choice, Row
from .planner import Planner, fixed_sizes, runs_in_steps
from .size_rules import size_rules

AUTO = "auto"
LEAST_LEVEL_FOR_LAYERS = 2  # of optimisation: the search takes up to seconds
LEAST_LEVEL_FOR_OTHERS = 2  # the same: it simulates a dozen sizes
ROWS_AT_HAND = 64  # of a large request, which the rows a call are chosen for whatever the load


@dataclass(frozen=True)
class Decision:
    """What a compilation does.

    Attributes:
        rows: of a native call where a request has more; None where requests are not cut.
        least_rows: that are worth waking another instance for.
        schedule: of the graph that was planned; None for one kernel after the other.
        choice: what it follows from; None where somebody else decided.
        size_rules: instances for requests of sizes that the chosen ones do not suit.
        machine: that kernels are chosen for.
    """

    rows: int | None
    least_rows: int
    schedule: Schedule | None = None
    choice: Choice | None = None
    size_rules: tuple[SizeRule, ...] = ()
    machine: Machine | None = None

    def arrangement(self) -> dict[str, Any] | None:
        """For the manifest: on so many cores, so many instances of so many."""
        if self.choice is None:
            return None
        c = self.choice.candidate
        found: dict[str, Any] = {
            "cores": self.choice.n_cores, "instances": c.instances, "cores_each": c.cores_each,
        }  # fmt: skip
        if c.delay_groups > 1:
            found["delay"] = {"groups": c.delay_groups, "seconds": c.delay_seconds}
        if self.size_rules:
            found["for_rows"] = [rule._asdict() for rule in self.size_rules]
        return found


def planner_for(graph: Graph, options: CompileOptions, machine: Machine, n_cores: int) -> Planner:
    """The planner of an optimised graph, with the sizes and costs that the options mean."""
    calls = call_rows(options.dims, options.hint != LATENCY)
    cost = costs_at(Fp(options.fp), machine, calls, _rounded(options))
    return Planner(graph, machine, n_cores, options.hint, fixed_sizes(options), cost)


def _rounded(options: CompileOptions) -> RoundedProducts | None:
    """What products cost whose operands are rounded, on the first target; None: no operands are."""
    to = DType.from_name(options.matmul_input)
    return None if to == F32 else rounded_products(resolve_target(options.targets[0], features_of(to)), to)


def decide(graph: Graph, options: CompileOptions, machine: Machine, n_cores: int) -> Decision:
    """Plan an optimised graph for the load that the options' hint and sizes mean, by prediction."""
    planner = planner_for(graph, options, machine, n_cores)
    load = options_load(planner, options)
    rows = planner.rows(load)
    if options.instances is not None:
        rows = [row for row in rows if row.candidate.instances == min(options.instances, n_cores)] or rows
    if options.mode in (LAYERED, PIPELINED):
        load, rows = _in_mode(planner, options.mode, load)
    elif options.mode == AUTO and options.hint == LATENCY and options.opt_level >= LEAST_LEVEL_FOR_LAYERS:
        rows += planner.scheduled(load, rows)
    return followed(planner, planner.choose(rows, load), options)


def _in_mode(planner: Planner, mode: str, load: Load) -> tuple[Load, list[Row]]:
    """The candidates of a mode that somebody asked for, and their load: one row if layered, a batch if pipelined.

    Raises:
        UsageError: there are none.
    """
    batch = load.rows if load.rows > 1 else ROWS_AT_HAND
    load = Load(planner.fixed_rows() or (1 if mode == LAYERED else batch))
    steps = runs_in_steps(planner.graph)
    found = [] if steps else [r for r in planner.scheduled(load, planner.rows(load)) if r.candidate.mode == mode]
    if not found:
        why = "some of its operators run on the host" if steps else {
            LAYERED: "no branches that are worth running side by side",
            PIPELINED: "no batch of independent rows, or no two cores and operators for stages",
        }[mode]  # fmt: skip
        raise UsageError("this model cannot run so", where=f"mode {mode}", found=why, hint="leave the mode to auto")
    return load, found


def followed(planner: Planner, choice: Choice, options: CompileOptions) -> Decision:
    """The decision that follows a choice."""
    c = choice.candidate
    rules: tuple[SizeRule, ...] = ()
    rows, least = rows_a_call(planner, c), planner.predictor.least_rows
    if options.mode == AUTO and options.instances is None and options.opt_level >= LEAST_LEVEL_FOR_OTHERS:
        rules = size_rules(planner, choice, rows, *_bounds(planner, options))
    return Decision(rows, least, planner.schedule(c, choice.load), choice, rules, planner.machine)


def rows_a_call(planner: Planner, candidate: Candidate) -> int | None:
    """Of large requests, with the candidate's instances and cores: the fewest that are nearly as quick as any."""
    most = planner.most_rows()
    if most is None:
        return None
    load = Load(ROWS_AT_HAND, saturated=True)
    cost = {}
    for rows in micro_batches(min(most, ROWS_AT_HAND)):
        alike = Candidate(candidate.instances, candidate.cores_each, rows)
        cost[rows] = Row(alike, planner.predictor.predict(alike, load)).cost(load)
    return min(rows for rows in cost if cost[rows] <= min(cost.values()) * (1 + EVEN))


def options_load(planner: Planner, options: CompileOptions) -> Load:
    """The load that the hint means, within the bounds that the options give the batch."""
    least, most = _bounds(planner, options)
    load = planner.load()
    return load if most is None else replace(load, rows=min(max(load.rows, least), most))


def _bounds(planner: Planner, options: CompileOptions) -> tuple[int, int | None]:
    """Fewest and most rows of a request that the options allow."""
    bounds = options.dims.get(planner.symbol or "")
    return bounds if isinstance(bounds, tuple) else (1, None)
