"""Training as parax compiles it, simulated on the source's machine: its own backward graph, not an assumed one.

Owns the step graph after the passes of the default level, and the works of it; the update is the gradient server's.
Instances start together, and gradients of tables are whole tables, as the step's graph has them: what lookups cost is
an upper bound. Convolutions are direct, as the source's are. It must not know what the source reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from parax.compiler.compilation import Compilation
from parax.compiler.costs.cost import Cost
from parax.compiler.driver import optimise
from parax.compiler.frontend.importer import import_model
from parax.compiler.frontend.parse import Source
from parax.compiler.ir.graph import Graph
from parax.compiler.options import CompileOptions
from parax.compiler.planner.partition.simulate import SPREAD, Instances, Sequential, Work, graph_works, simulate
from parax.compiler.targets.machine import Machine
from parax.compiler.training.losses import Loss
from parax.compiler.training.parameters import Wanted
from parax.compiler.training.step_graph import step_graph

from .paper_framework import direct_cost

GRAIN = 16 << 10
"""Bytes of gradients that are one item of the update's work, as in paper_framework."""


@dataclass(frozen=True)
class OwnStep:
    """A model's step: forward, loss and backward.

    Attributes:
        graph: after the passes, for any number of rows. nbytes: of the gradients.
    """

    graph: Graph
    nbytes: int

    @classmethod
    def of(cls, model: Source | onnx.ModelProto, loss: Loss, machine: Machine) -> OwnStep:
        """The step of a model whose batch is open.

        Raises:
            as parax.Trainer, of a model that cannot be trained.
        """
        step = step_graph(lambda names: import_model(model, trained=names), loss, Wanted())
        run = Compilation(CompileOptions(), lambda phase, fraction: None)
        run.machine = machine
        optimise(step.graph, run)
        return cls(step.graph, sum(array.nbytes for array in step.parameters.values()))

    def seconds(self, machine: Machine, instances: int, rows: int, symbols: Mapping[str, int] | None = None) -> float:
        """One step on all cores, which the instances share.

        Args:
            rows: of each instance. symbols: sizes beside the batch's.
        """
        each = machine.n_cores // instances
        works = graph_works(self.graph, {"N": rows, **(symbols or {})}, direct_cost, machine.caches(instances, each))
        works += self._update(len(works), instances, machine)
        policy = Instances(instances, each, rows) if instances > 1 else Sequential(each, home=SPREAD)
        return simulate(works, machine, policy).total_seconds

    def speed_up(self, machine: Machine, rows: int) -> float:
        """An instance on every core over one on all, with `rows` for each core."""
        n = machine.n_cores
        return self.seconds(machine, 1, rows * n) / self.seconds(machine, n, rows)

    def _update(self, before: int, instances: int, machine: Machine) -> list[Work]:
        """Every instance adds its gradients to the sum of all; the cores of a socket then share its weights' update."""
        beside = min(instances, machine.cores_per_socket)
        part = self.nbytes / beside
        found = [_loop("Update", part, 2 * part, part)]
        if instances > 1:
            found.insert(0, _loop("GradientServer", self.nbytes, 2.0 * self.nbytes, self.nbytes))
        return [Work(name, cost, (before + i - 1,)) for i, (name, cost) in enumerate(found)]


def _loop(name: str, nbytes: float, read: float, written: float) -> tuple[str, Cost]:
    return name, Cost(nbytes / 4, read, written, 0.0, max(1, int(nbytes // GRAIN)), "elementwise")
