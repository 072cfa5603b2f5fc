"""A model as the planner sees it: imported, optimised, with a machine; for commands that show what it finds.

Owns the way there, which `parax plan` and `parax inspect` share.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..runtime.topology import choose_cores
from .compilation import Compilation, Progress
from .driver import candidates, quiet
from .frontend.parse import Source
from .ir.graph import Graph
from .optimisation import imported, optimise
from .options import CompileOptions
from .planner.decide import planner_for
from .planner.host_machine import machine_here
from .planner.plan_search import PlanSearch
from .planner.planner import Planner
from .targets.machine import load_machine


@dataclass(frozen=True)
class PlannerInput:
    """An optimised graph, and the cores of this machine that it is planned for: none of a described machine."""

    graph: Graph
    run: Compilation
    planner: Planner
    cores: tuple[int, ...]


def planner_input(
    model: Source, options: CompileOptions, machine: str | None = None, progress: Progress | None = None
) -> PlannerInput:  # fmt: skip
    """Import and optimise a model for a machine.

    Args:
        machine: a described one, a file or a shipped name; None: this one, measured if nobody did before.

    Raises:
        ParaxError: see parax.compile. UsageError: see targets.machine.load_machine.
    """
    described = load_machine(machine) if machine is not None else None
    cores = tuple(options.cores or choose_cores(None)) if described is None else ()
    found = described or machine_here(options, cores)
    run = Compilation(options, progress or quiet, machine=found)
    graph = imported(model, run)
    optimise(graph, run)
    return PlannerInput(graph, run, planner_for(graph, options, found, len(cores) or found.n_cores), cores)


def planner_of(model: Source, options: CompileOptions, machine: str | None = None) -> Planner:
    """The planner of a model; see `planner_input`."""
    return planner_input(model, options, machine).planner


def study_of(
    model: Source, options: CompileOptions, machine: str | None = None, progress: Progress | None = None
) -> PlanSearch:  # fmt: skip
    """A study of a model, whose candidates are made of the graph that was optimised once; see `planner_input`."""
    own = planner_input(model, options, machine, progress)
    return PlanSearch(own.planner, own.cores, options, candidates(own.graph, own.run), progress or quiet)


__all__ = ["PlannerInput", "planner_of", "planner_input", "study_of"]
