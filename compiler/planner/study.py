"""A model studied: its graph, the machine, the plans that candidates run, and what came out.

Owns what `parax plan`, -O3 and benchmarks.planner share: compiling what is to be measured, inputs, the drawing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...errors import UsageError
from ...runtime.topology import choose_cores
from .. import driver
from ..backend.host import resolve_target
from ..backend.machine import cached_facts, measure_facts
from ..compilation import Compilation, Progress
from ..frontend.index_bounds import index_bounds
from ..frontend.parse import Source
from ..ir.machine import Machine, load_machine
from ..options import CompileOptions
from ..samples import random_inputs
from .candidate import Candidate
from .choice import Choice
from .draw import Panel, svg
from .measure import Inputs, measure
from .planner import Planner, fixed_sizes, worth_running
from .timeline import measured_panel, predicted_panel, recorded_spans

if TYPE_CHECKING:
    from ...runtime.plan import Plan

SEED = 0  # of the inputs that candidates run on


class Study:
    """Plans a model for one load after the other.

    Attributes:
        planner: of the optimised graph. cores: of this machine to run on. guessed: open dimensions and their sizes.
    """

    def __init__(self, model: Source, options: CompileOptions, machine: str | None, progress: Progress) -> None:
        """Import and optimise the model.

        Args:
            machine: a described machine to plan for, a file or a shipped name; None: this one.

        Raises:
            ParaxError: see parax.compile; UsageError: see ir.machine.load_machine.
        """
        self.model, self.options, self.progress = model, options, progress
        self._inputs: dict[int, Inputs] = {}
        described = load_machine(machine) if machine is not None else None
        self.cores = tuple(options.cores or choose_cores(None)) if described is None else ()
        found = described or running_machine(self.cores, options)
        run = Compilation(options, progress)
        progress("import", 0.0)
        graph = driver.import_graph(model, options)
        driver.optimise(graph, run)
        n_cores = len(self.cores) if described is None else found.n_cores
        self.planner = Planner(graph, found, n_cores, options.hint, fixed_sizes(options))
        sizes = self.planner.predictor.symbols
        self.guessed = " ".join(f"{name}={size}" for name, size in sizes.items())

    def choice(self, rows: int | None, most_measured: int, budget_seconds: float) -> Choice:
        """The choice for requests of `rows` rows; the best by prediction are run unless `most_measured` is 0.

        Raises:
            UsageError: rows are given for a model whose batch is fixed to another number.
        """
        planner = self.planner
        load = planner.load(rows)
        if rows is not None and load.rows != rows:
            raise UsageError("the model's batch is fixed", where="--batch", expected=load.rows, found=rows,
                             hint="leave out --batch, or the --dim that fixes it")  # fmt: skip
        known = planner.rows(load)
        if most_measured and self.cores:
            best = worth_running(known, load, most_measured)
            run = measure(best, self.plan_of, self.inputs, load, self.cores, budget_seconds, self.progress)
            known = [*run, *(row for row in known if row not in best)]
        return planner.choose(known, load)

    def plan_of(self, candidate: Candidate) -> Plan:
        """What a candidate runs."""
        return self.plan

    @cached_property
    def plan(self) -> Plan:
        """The model compiled: every sequential candidate runs it."""
        return driver.compile_model(self.model, self.options, self.progress)

    def inputs(self, rows: int) -> Inputs:
        """A request of so many rows, random, the same for everyone who asks."""
        if rows not in self._inputs:
            sizes = dict(self.planner.predictor.symbols)
            if self.planner.symbol is not None:
                sizes[self.planner.symbol] = rows
            rng = np.random.default_rng(SEED)
            self._inputs[rows] = random_inputs(self.plan.inputs, sizes, rng, index_bounds(self.model))
        return self._inputs[rows]

    def drawing(self, choice: Choice) -> str:
        """The chosen candidate's timeline as SVG: predicted and, on this machine, measured by a traced build."""
        c, p = choice.candidate, choice.chosen.predicted
        planner = self.planner
        rows = p.timeline.rows // max(1, len({span.batch for span in p.timeline.spans}))
        works = planner.predictor.works(rows, 0.0)
        what = "simulated" if choice.simulated else "predicted"
        panels = [predicted_panel(f"{what}: {c.name}, {choice.machine}", works, p.timeline, choice.n_cores)]
        if self.cores:
            panels.append(self._recorded(choice, {work.name: work.cost.kind for work in works}))
        return svg(panels)

    def _recorded(self, choice: Choice, kinds: Mapping[str, str]) -> Panel:
        self.progress("traced build", 0.9)
        traced = driver.compile_model(self.model, self.options, None, trace=True)
        spans = recorded_spans(traced, choice.candidate, self.cores, self.inputs(choice.load.rows))
        labels = traced.manifest.provenance["kernels"]
        return measured_panel(f"measured: {choice.candidate.name}", spans, labels, kinds, self.cores)


def running_machine(cores: Sequence[int], options: CompileOptions) -> Machine:
    """This machine, from measured peaks; measured now if nobody did before."""
    folder = options.cache_dir if options.cache else None
    facts = (cached_facts(folder, cores) if folder else None) or measure_facts(folder, cores)
    target = resolve_target("native")
    return Machine(facts.cpu, len(cores), facts.flops_core, facts.copy_core, facts.copy_all,
                   l2_nbytes=target.l2_nbytes, l3_nbytes=target.l3_nbytes, simulated=False)  # fmt: skip
