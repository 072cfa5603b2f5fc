"""Values inside a graph as calibration data makes them: the graph runs with them among its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..ir.graph import Graph, Value
from ..options import CompileOptions
from .samples import Request
from .trials import results, trial_plan


class Observing:
    """A plan that shows some of a graph's values, compiled once; every look runs it on all requests."""

    def __init__(
        self, graph: Graph, values: Sequence[Value], requests: Sequence[Request], options: CompileOptions
    ) -> None:
        """Compile it."""
        self._names, self._requests = [value.name for value in values], requests
        copy = graph.clone()
        shown = {f"observed.{i}": copy.value(v.name) for i, v in enumerate(values) if not v.is_input}
        copy.set_outputs([*copy.outputs, *shown.values()], [*copy.output_names, *shown])
        self._plan = trial_plan(copy, options)

    def arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """The name of every value and what it holds, request by request."""
        for request, outputs in zip(self._requests, results(self._plan, self._requests), strict=True):
            for i, name in enumerate(self._names):
                yield name, request.inputs[name] if name in request.inputs else outputs[f"observed.{i}"]


__all__ = ["Observing"]
