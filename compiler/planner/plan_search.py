"""A model studied: its graph, the machine, the plans that candidates run, and what came out.

Owns what `parax plan`, -O3 and benchmarks.planner share: what is to be measured, inputs, the drawing. It must not know
how plans are made: that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ...errors import IncompatiblePlan, InvalidInput, ResourceLimit, UsageError
from ..backend.machine import slowness
from ..options import CompileOptions
from ..samples import random_inputs
from ..sizes import symbol_sizes
from .candidate import Candidate, Load
from .choice import Choice, Row, amount
from .decide import Decision, followed, options_load, rows_a_call
from .delays import delayed
from .draw import Panel, svg
from .measure import Inputs, Tell, measure
from .node_seconds import FEWEST_CALLS, node_seconds
from .partition.schedules import has_branches
from .partition.works import Measured
from .planner import TYPICAL, Planner, runs_in_steps, worth_running
from .timeline import measured_panel, predicted_panel, recorded_spans

if TYPE_CHECKING:
    from ...runtime.plan import Plan

MakePlan: TypeAlias = "Callable[[Decision, bool], Plan]"
"""Makes what a candidate runs, of the graph that was planned; the flag: whether kernels record when they ran."""
CALLS_IN_BUDGET = 8  # candidates with longer native calls are not run
SEED = 0  # of the inputs that candidates run on


class PlanSearch:
    """Plans a model for one load after the other.

    Attributes:
        planner: of the optimised graph. cores: of this machine to run on. guessed: open dimensions and their sizes.
    """

    def __init__(
        self, planner: Planner, cores: Sequence[int], options: CompileOptions, make: MakePlan, progress: Tell
    ) -> None:
        """Search for what the planner plans for.

        Args:
            cores: none where the machine is a described one: nothing is run.
        """
        self.planner, self.cores = planner, tuple(cores)
        self.options, self.make, self.progress = options, make, progress
        self._inputs: dict[int, Inputs] = {}
        self._seconds: dict[tuple[int, int], Measured] = {}
        self._plans: dict[tuple[Candidate | None, Load | None, bool], Plan] = {}
        sizes = self.planner.predictor.symbols
        self.guessed = " ".join(f"{name}={size}" for name, size in sizes.items())

    def choice(self, rows: int | None, most_measured: int, budget_seconds: float) -> Choice:
        """The choice for requests of `rows` rows; the best by prediction are run unless `most_measured` is 0.

        Raises:
            UsageError: rows are given for a model whose batch is fixed to another number.
        """
        planner, predictor = self.planner, self.planner.predictor
        load = planner.load(rows)
        if rows is not None and load.rows != rows:
            raise UsageError("the model's batch is fixed", where="--batch", expected=load.rows, found=rows,
                             hint="leave out --batch, or the --dim that fixes it")  # fmt: skip
        plain = planner.rows(load)
        known: list[Row] = []
        refusal = ""
        if most_measured and self.cores:
            longest = budget_seconds / CALLS_IN_BUDGET
            predictor.measured = self._node_seconds if self._may_measure_nodes(plain, budget_seconds) else None
            try:
                known = self._others(load, plain)
                best = worth_running(known, load, most_measured, longest)
                if not best:
                    refusal = f"nothing was run: every call takes longer than {amount(longest)}"
                run = self.measured(best, load, budget_seconds)
                known = [*run, *(row for row in known if row not in best)]
            except (IncompatiblePlan, InvalidInput, ResourceLimit, UsageError) as error:
                refusal = f"nothing was run: {error}"
                predictor.measured, known = None, []
        known = known or self._others(load, plain)
        found = planner.choose(known, load)
        return replace(found, reasons=(*found.reasons, refusal)) if refusal else found

    def _others(self, load: Load, plain: Sequence[Row]) -> list[Row]:
        """The plain candidates, and those in layers, in stages or with delays."""
        known = [*plain, *self.planner.scheduled(load, plain)]
        return [*known, *self._delayed(load, known)]

    def _may_measure_nodes(self, plain: Sequence[Row], budget_seconds: float) -> bool:
        """Whether there may be layers, and what operators take is measured within the budget."""
        graph = self.planner.predictor.graph
        quickest = min(row.predicted.seconds for row in plain)
        return FEWEST_CALLS * quickest <= budget_seconds and not runs_in_steps(graph) and has_branches(graph)

    def _delayed(self, load: Load, known: Sequence[Row]) -> list[Row]:
        """Candidates that start late, unless the user says when instances start."""
        return delayed(self.planner, load, known) if self.options.delay_groups is None else []

    def verified(self, most_measured: int, budget_seconds: float) -> Decision:
        """What a compilation does once the best by prediction were run, for the load that the options mean."""
        load = options_load(self.planner, self.options)
        return followed(self.planner, self.choice(load.rows, most_measured, budget_seconds), self.options)

    def measured(self, rows: Sequence[Row], load: Load, budget_seconds: float) -> list[Row]:
        """The rows with what running their candidates takes."""

        def plan_of(candidate: Candidate) -> Plan:
            return self.plan_of(candidate, load)

        return measure(rows, plan_of, self.inputs, load, self.cores, budget_seconds, self.progress, self._slowness)

    @cached_property
    def _slowness(self) -> Callable[[], float]:
        return slowness(self.cores, self.planner.machine.flops_per_core)

    def _node_seconds(self, cores: int, rows: int) -> Measured:
        """What every node takes on one core and on so many, by a traced build that runs one kernel after the other."""
        if (cores, rows) not in self._seconds:
            cut = rows if self.planner.symbol is not None else None
            traced = self.plan_of(Candidate(1, cores, cut), Load(rows), trace=True)
            self.progress(f"measuring every operator on 1 and {cores} cores", 0.5)
            self._seconds[cores, rows] = node_seconds(traced, self.inputs(rows), cut, self.cores, sorted({1, cores}))
        return self._seconds[cores, rows]

    def plan_of(self, candidate: Candidate, load: Load, *, trace: bool = False) -> Plan:
        """What a candidate runs: the plan that all sequential ones share, or one with its schedule."""
        schedule = self.planner.schedule(candidate, load)
        key = (None if schedule is None else candidate), (None if schedule is None else load), trace
        if key not in self._plans:
            self.progress(f"compiling {candidate.name}", 0.5)
            rows = rows_a_call(self.planner, candidate)
            decision = Decision(rows, self.planner.predictor.least_rows, schedule, machine=self.planner.machine)
            self._plans[key] = self.make(decision, trace)
        return self._plans[key]

    def inputs(self, rows: int) -> Inputs:
        """A request of so many rows, random, the same for everyone who asks."""
        if rows not in self._inputs:
            plan, rng, symbol = self._any_plan(), np.random.default_rng(SEED), self.planner.symbol
            known, least = {} if symbol is None else {symbol: rows}, TYPICAL if symbol is None else rows
            sizes = symbol_sizes(plan.manifest, known, least, TYPICAL)
            self._inputs[rows] = random_inputs(plan.inputs, sizes, rng, plan.manifest.samples.ranges)
        return self._inputs[rows]

    def _any_plan(self) -> Plan:
        return next(iter(self._plans.values()))

    def drawing(self, choice: Choice) -> str:
        """The chosen candidate's timeline as SVG: predicted and, on this machine, measured by a traced build."""
        c, p = choice.candidate, choice.chosen.predicted
        what = "simulated" if choice.simulated else "predicted"
        panels = [predicted_panel(f"{what}: {c.name}, {choice.machine}", p.works, p.timeline, choice.n_cores)]
        if self.cores:
            panels.append(self._recorded(choice, {work.name: work.cost.kind for work in p.works}))
        return svg(panels)

    def _recorded(self, choice: Choice, kinds: Mapping[str, str]) -> Panel:
        self.progress("traced build", 0.9)
        traced = self.plan_of(choice.candidate, choice.load, trace=True)
        spans = recorded_spans(traced, choice.candidate, self.cores, self.inputs(choice.load.rows))
        labels = traced.manifest.provenance["kernels"]
        return measured_panel(f"measured: {choice.candidate.name}", spans, labels, kinds, self.cores)
