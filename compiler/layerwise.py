"""A model's layers in the build that its user runs, against another implementation: which is the first that departs?

The optimised graph gets its own intermediate results as outputs, so that fusion, layouts and algorithms stay those of
the build. What is inside of a fused node has no result; the one that departs first is opened, in a second build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import driver
from .check import Procedure
from .compare import Difference, Tolerance
from .frontend.exposed import exposed, producers
from .frontend.oracle import oracle
from .frontend.precision import precision
from .ir.graph import Graph, Node
from .ir.ops.base import Fused, Relayout
from .ir.types import TensorType
from .row_order import differences
from .samples import random_inputs
from .sizes import naming_sizes

if TYPE_CHECKING:
    from ..runtime.plan import Plan
    from .compilation import Progress
    from .options import CompileOptions

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Layer:
    """One result of the model's nodes, in their order.

    Attributes:
        name: the value. node: what makes it in the model, its operator and name.
        kernel: the operators of the node of the optimised graph that makes it; "" where none does: it is inside of a
            fused node, or optimised away.
        difference: the worst of all inputs; None where there is nothing to compare.
        relative: max |Δ| per max |reference|. ulps: max |Δ| in units of the last place of the reference.
        opened: whether it is inside of a fused node that was opened.
    """

    name: str
    node: str
    kernel: str = ""
    difference: Difference | None = None
    relative: float = 0.0
    ulps: float = 0.0
    opened: bool = False

    @property
    def departs(self) -> bool:
        """Whether it is not the reference's by the rule."""
        return self.difference is not None and not self.difference.passed


@dataclass(frozen=True)
class Report:
    """All layers; `first`: the first that departs, None if none does. `alone`: where that is a fused node's result and
    its operators do not depart one by one, the operators.
    """

    layers: Sequence[Layer]
    first: Layer | None
    alone: str = ""


class Exposing:
    """Makes outputs of the results that the model has names for, once the graph is optimised.

    Attributes:
        kernels: value → the operators of the node that makes it. inner: those in fused nodes that were opened.
    """

    def __init__(self, names: Sequence[str], opened: str = "") -> None:
        """
        Args:
            names: of the model's values. opened: the result of a fused node whose operators get kernels of their own.
        """
        self.names, self.opened = set(names), opened
        self.kernels: dict[str, str] = {}
        self.inner: set[str] = set()

    def __call__(self, graph: Graph) -> None:
        """Change the graph."""
        for node in list(graph):
            if isinstance(node.op, Fused) and self.opened in [v.name for v in node.outputs]:
                self._open(graph, node)
        outputs, names = list(graph.outputs), list(graph.output_names)
        taken = dict(zip(names, outputs))
        for node in list(graph):
            for value in node.outputs:
                called = next((n for n, v in taken.items() if v is value), value.name)
                self.kernels[called] = _operators(node)
                if called in taken or called not in self.names or not isinstance(value.type, TensorType):
                    continue
                if value.type.layout is not None:
                    value = graph.add_node(Relayout(layout=()), [value], after=node).output
                outputs.append(value)
                names.append(called)
        graph.set_outputs(outputs, names)

    def _open(self, graph: Graph, node: Node) -> None:
        """Put the operators of a fused node in its place; results keep their names."""
        results = [v.name for v in node.outputs]
        self.inner = {v.name for each in node.bodies["body"] for v in each.outputs}
        values = graph.inline(node.bodies["body"], node.inputs, before=node)
        for old, new in zip(list(node.outputs), values):
            graph.replace_all_uses_with(old, new)
        graph.erase(node)
        for name, new in zip(results, values):
            if new.name != name and not graph.has_value(name):
                graph.rename(new, name)


def _operators(node: Node) -> str:
    """The names of a node's operators; of a fused one all."""
    if isinstance(node.op, Fused):
        return "+".join(each.op.name for each in node.bodies["body"])
    return str(node.op.name)


def compare_layers(path: Path, options: CompileOptions, how: Procedure, sizes_of: Callable[[Plan], Mapping[str, int]],
                   progress: Progress) -> Report:  # fmt: skip
    """Compare every layer that has a result, on `how.times` random inputs; open the fused node that departs first.

    Args:
        how: its sizes are those of `sizes_of`, which is asked once there is a plan.

    Raises:
        ParaxError: see parax.compile; UnsupportedOp: the other implementation fails.
    """
    model = exposed(path)
    nodes = producers(model)
    names = [value.name for value in model.graph.output]
    exposing = Exposing(names)
    plan = driver.compile_model(path, options, progress, revise=exposing)
    runs = _Runs(model, replace(how, sizes=sizes_of(plan)), names, nodes)
    layers = runs.layers(plan, exposing)
    first = next((layer for layer in layers if layer.departs), None)
    if first is None or "+" not in first.kernel:
        return Report(layers, first)
    opening = Exposing(names, first.name)
    opened = runs.layers(driver.compile_model(path, options, progress, revise=opening), opening)
    inside = next((layer for layer in opened if layer.departs and layer.name in opening.inner), None)
    if inside is None:
        return Report(layers, first, alone=first.kernel)
    hidden = {layer.name: replace(layer, opened=True) for layer in opened if layer.name in opening.inner}
    merged = [hidden.get(layer.name, layer) if layer.difference is None else layer for layer in layers]
    return Report(merged, replace(inside, opened=True))


class _Runs:
    """The other implementation's results on random inputs, for several builds of the model."""

    def __init__(self, model: object, how: Procedure, names: Sequence[str], nodes: Mapping[str, str]) -> None:
        self.how, self.names, self.nodes = how, names, nodes
        self.right, of_model = oracle(model, how.kind), precision(model)  # type: ignore[arg-type]
        self.allowed, self.rounded = Tolerance(how.rtol, how.atol, of_model.coarsest), of_model.rounded

    def layers(self, plan: Plan, exposing: Exposing) -> list[Layer]:
        """Run a build and compare what it has; of each layer the worst of all inputs."""
        rng, ranges = np.random.default_rng(self.how.seed), plan.manifest.samples.ranges
        kernels = exposing.kernels
        found = {name: Layer(name, self.nodes.get(name, ""), kernels.get(name, "")) for name in self.names}
        with plan.session(instances=self.how.instances or 1, cores_per_instance=self.how.cores_per_instance) as session:
            for _ in range(self.how.times):
                inputs = random_inputs(plan.inputs, self.how.sizes, rng, ranges)
                with naming_sizes(plan.manifest, self.how.sizes):
                    ours = session.run(inputs)
                for layer in self._compared(ours, self.right(inputs), {s.name for s in plan.outputs}, kernels):
                    known = found[layer.name].difference
                    assert layer.difference is not None
                    if known is None or _badness(layer.difference) > _badness(known):
                        found[layer.name] = layer
        return list(found.values())

    def _compared(self, ours: Arrays, right: Arrays, made: set[str], kernels: Mapping[str, str]) -> list[Layer]:
        """The layers that both have, in the model's form: passes may keep a value in another type or shape."""
        same = {
            name: value for name, value in right.items()
            if name in made and (name not in kernels or _alike(ours[name], value))
        }  # fmt: skip
        return [
            Layer(d.name, self.nodes.get(d.name, ""), kernels.get(d.name, ""), d,
                  *distance(np.asarray(ours[d.name]), np.asarray(right[d.name])))
            for d in differences({name: ours[name] for name in same}, same, self.allowed, self.rounded)
        ]  # fmt: skip


def _alike(a: object, b: object) -> bool:
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and (a.dtype, a.shape) == (b.dtype, b.shape)


def _badness(difference: Difference) -> tuple[bool, float]:
    return not difference.passed, difference.worst


def distance(found: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """max |Δ| per max |expected|, and max |Δ| in units of the last place of what is expected, over finite pairs.

    Of integers the last place is 1; of what is no number both are 0 or infinite.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype or not expected.size:
        return (0.0, 0.0) if found.shape == expected.shape else (np.inf, np.inf)
    if expected.dtype.kind in "bOSU":
        return (0.0, 0.0) if (found == expected).all() else (np.inf, np.inf)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    got, want = found.astype(wide), expected.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        delta = np.where((got == want) | (np.isnan(got) & np.isnan(want)), 0.0, np.abs(got - want))
    delta, size = np.where(np.isnan(delta), np.inf, delta), np.abs(np.where(np.isfinite(want), want, 0))
    largest = float(size.max())
    relative = float(delta.max()) / largest if largest else (np.inf if delta.any() else 0.0)
    return relative, float((delta / unit_in_last_place(size, expected.dtype)).max())


def unit_in_last_place(size: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The distance from |x| to the next number of the type; of integers 1. `size` is in f64."""
    if dtype.kind in "iu":
        return np.ones_like(size)
    info = _finfo(dtype)
    exponent = np.frexp(np.maximum(size, float(info.tiny)))[1] - 1
    return np.ldexp(float(info.eps), exponent)


def _finfo(dtype: np.dtype) -> Any:
    if dtype.isbuiltin == 1:
        return np.finfo(dtype)
    import ml_dtypes  # optional: has the types that numpy lacks

    return ml_dtypes.finfo(dtype)


__all__ = ["Exposing", "Layer", "Report", "compare_layers", "distance", "unit_in_last_place"]
