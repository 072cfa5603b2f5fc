"""A model as the planner sees it: imported, optimised, without the copies that will not be made, with a machine.

Owns the way there, which `parax plan`, -O 3 and `parax inspect` share.
"""

from __future__ import annotations

from ...runtime.topology import choose_cores
from .. import driver
from ..backend.costs import costs_at
from ..compilation import Compilation, Progress
from ..frontend.parse import Source
from ..ir.call_rows import call_rows
from ..ir.fp import Fp
from ..options import CompileOptions
from ..targets.machine import load_machine
from .candidate import LATENCY
from .here import machine_here
from .planner import Planner, fixed_sizes


def prepare(
    model: Source, options: CompileOptions, machine: str | None, progress: Progress | None = None
) -> tuple[Planner, tuple[int, ...]]:
    """A planner of the optimised graph, and the cores of this machine that it plans for.

    Args:
        machine: a described one, a file or a shipped name, which has no cores here; None: this one, measured if nobody
            did before.

    Raises:
        ParaxError: see parax.compile. UsageError: see targets.machine.load_machine.
    """
    described = load_machine(machine) if machine is not None else None
    cores = tuple(options.cores or choose_cores(None)) if described is None else ()
    found = described or machine_here(options, cores)
    run = Compilation(options, progress or (lambda phase, fraction: None), machine=found)
    run.progress("import", 0.0)
    graph = driver.import_graph(model, options, run.evaluator)
    driver.optimise(graph, run)
    n_cores = len(cores) or found.n_cores
    cost = costs_at(Fp(options.fp), found, call_rows(options.dims, options.hint != LATENCY))
    return Planner(graph, found, n_cores, options.hint, fixed_sizes(options), cost), cores
