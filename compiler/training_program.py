"""A model and a recipe → the program of a training: plans of a step, an update and an evaluation, within a limit of
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..runtime.plan import Plan
from ..runtime.train.exchange.division import Division
from ..runtime.train.layout import Layout
from ..runtime.train.memory import TrainingMemory, arena_nbytes, predicted
from ..runtime.train.program import CompactGradient, Part, TrainingProgram
from .driver import compile_graph, step_nbytes
from .ir.graph import Graph
from .memory_limit import Fitting, MemoryLimit
from .options import FULL, CompileOptions
from .training.compiled import LABELS, ReadModel, Recipe, training_graphs

STEP = "step"


@dataclass(frozen=True)
class Setting:
    """Where a training runs, and how it is compiled.

    Attributes:
        limit: of memory. progress: called with (phase, fraction done). precision: of the step's products; the update
            and an evaluation, whose numbers are the exported model's, are of f32.
    """

    options: CompileOptions
    division: Division
    limit: MemoryLimit
    progress: Callable[[str, float], None]
    precision: str = FULL

    def compiled(self, name: str, cores: Sequence[int], done: int, graph: Graph, arena: int | None = None) -> Plan:
        """The plan of one of the three graphs, which is used up.

        Args:
            done: of the three before. arena: bytes of its arena at most.
        """
        options = self.options_for(name, cores)
        options = replace(options, mode="sequential" if arena else options.mode)
        if options.dump is not None:
            options = replace(options, dump=options.dump / name)
        return compile_graph(graph, options, lambda p, f: self.progress(f"{name}: {p}", (done + f) / 3), arena)

    def options_for(self, name: str, cores: Sequence[int]) -> CompileOptions:
        """Those of one of the three graphs."""
        own = replace(self.options, cores=tuple(cores))
        return replace(own, precision=self.precision, rounds_computed=True) if name == STEP else own


def training_program(
    read: ReadModel, recipe: Recipe, setting: Setting
) -> tuple[TrainingProgram, dict[str, np.ndarray], tuple[str, ...]]:  # fmt: skip
    """The program; first values of parameters and statistics; single numbers that stay as they are.

    Raises:
        as parax.compile; as `training_graphs`; ResourceLimit where the limit of memory is too low.
    """
    graphs = training_graphs(read, recipe)
    step, division = graphs.step, setting.division
    place, own = division.placement, division.placement.instances[0]
    sizes: Mapping[str, Sequence[int]] = {group: Layout.of(shapes).sizes for group, shapes in graphs.groups.items()}
    update = setting.compiled("update", division.exchange.updating(place), 0, graphs.update(sizes))
    evaluation = setting.compiled("evaluation", place.everyone, 1, graphs.evaluation.graph)
    compact = {group: CompactGradient({name: Part(of.output, of.shape, np.dtype(of.dtype.numpy))
                                       for name, of in parts.items()})
               for group, parts in graphs.compact.items()}  # fmt: skip
    program = partial(
        TrainingProgram, update=update, evaluation=evaluation, groups=graphs.groups, gradients=step.gradients,
        compact=compact, data=(*step.data, *((LABELS,) if step.has_labels else ())), slots=graphs.slots,
        metrics=step.metrics, statistics=step.updates, rows=division.rows, n_shards=division.n_shards,
        counter=step.counter, accumulate=division.accumulate, ignored=recipe.loss.ignore_index,
        n_classes=step.n_classes,
    )  # fmt: skip

    def total(plan: Plan) -> int:
        return TrainingMemory(predicted(program(step=plan), division)).steps

    stand_in = len(place.instances) * arena_nbytes(evaluation, len(own)) + len(evaluation.weights)
    fitting = Fitting(
        partial(step_nbytes, options=replace(setting.options_for(STEP, own), mode="sequential")),
        partial(setting.compiled, STEP, own, 2), total, total(evaluation) - stand_in, len(place.instances), len(own),
    )  # fmt: skip
    plan = setting.limit.met(step.graph, fitting)
    return program(step=plan), {**step.parameters, **step.statistics}, tuple(step.left_out)


__all__ = ["Setting", "training_program"]
