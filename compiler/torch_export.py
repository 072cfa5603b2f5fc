"""A graph that TorchDynamo captured as an ONNX model: through torch.export and torch's own exporter.

Owns what is asked of such a graph, and who refuses it: a plan computes a function of its inputs, so a graph that
writes to them, draws random numbers or hands out views of them stays torch's. Knows nothing of plans.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..errors import UnsupportedOp
from .frontend.bodies import with_inner_nodes

WHERE = "the graph that torch captured"
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
_NOISY_LOGGERS = ("torch.onnx._internal.exporter._registration", "onnx_ir", "onnxscript")
_WEIGHT = "_dynamo_static_input_type"
Size = int | str


@dataclass(frozen=True)
class Exported:
    """An ONNX model of a captured graph.

    Attributes:
        model: a ModelProto with the weights inside.
        inputs: the positions of the graph's arguments that are the model's inputs, in the model's order.
        sizes: of each input, as the model has them: numbers or names. ranges: name → (least, greatest) size.
        fixed: position → the only value of an argument that the model holds for.
    """

    model: Any
    inputs: tuple[int, ...]
    sizes: tuple[tuple[Size, ...], ...]
    ranges: Mapping[str, tuple[float, float]]
    fixed: Mapping[int, int]

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether the model holds for arguments of these sizes."""
        if any(args[at] != value for at, value in self.fixed.items()):
            return False
        known: dict[str, int] = {}
        for at, sizes in zip(self.inputs, self.sizes):
            for wanted, size in zip(sizes, args[at].shape):
                if wanted.__class__ is int:
                    if wanted != size:
                        return False
                elif known.setdefault(wanted, size) != size or not _within(self.ranges.get(wanted), size):  # type: ignore[arg-type]
                    return False
        return True


def _within(bounds: tuple[float, float] | None, size: int) -> bool:
    return bounds is None or bounds[0] <= size <= bounds[1]


def weights_of(module: fx.GraphModule) -> frozenset[int]:
    """The positions of the graph's arguments that are a module's parameters and buffers."""
    found = set()
    for at, node in enumerate(_placeholders(module.graph)):
        value = node.meta.get("example_value")
        if _WEIGHT in (node.meta.get("tensor_dict") or {}) or isinstance(value, torch.nn.Parameter):
            found.add(at)
    return frozenset(found)


def export(module: fx.GraphModule, args: Sequence[Any], weights: Iterable[int]) -> Exported:
    """The graph as an ONNX model whose outputs are those of its results that are tensors.

    Sizes that torch left open stay so, unless numbers are among the results: these follow from the sizes.

    Args:
        args: what the graph is called with. weights: positions of those that become constants, as they are now.

    Raises:
        UnsupportedOp: it writes to its arguments, draws random numbers, or torch cannot export it.
    """
    is_open = all(map(_is_tensor, _results(module.graph)))
    try:
        with quietly(), torch.inference_mode(False), torch.no_grad():
            pure, kept = _pure(module, {at: args[at].detach() for at in weights}, is_open)
            sizes = [_open_sizes(node) if is_open else {} for node in _placeholders(pure.graph)]
            shapes = tuple({axis: torch.export.Dim.AUTO for axis in axes} or None for axes in sizes)
            given = tuple(_ordinary(args[at]) for at in kept)
            program = torch.export.export(pure, given, dynamic_shapes=shapes if any(shapes) else None, strict=False)
            program = program.run_decompositions({})  # without which writing is not told apart
            _require_pure(program)
            model = torch.onnx.export(program, dynamo=True, verbose=False).model_proto
    except UnsupportedOp:
        raise
    except Exception as error:  # those of torch's exporters have no common base
        raise UnsupportedOp("torch cannot export it to ONNX", where=WHERE, found=first_line(error)) from error
    _require_no_dice(model)
    inputs = tuple(at for at in kept if isinstance(args[at], torch.Tensor))
    fixed = {at: args[at] for at in kept if not isinstance(args[at], torch.Tensor)}
    ranges = {str(name): _bounds(bounds) for name, bounds in program.range_constraints.items()}
    return Exported(model, inputs, _sizes(program), ranges, fixed)


def first_line(error: BaseException) -> str:
    """Of what began it: the exporters wrap it in advice on how to report it to them."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:500]


def _ordinary(value: Any) -> Any:
    """A tensor as torch.export takes it: without gradients, and not made in inference mode."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone() if value.is_inference() else value.detach()


def _placeholders(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _results(graph: fx.Graph) -> Sequence[Any]:
    (output,) = (node for node in graph.nodes if node.op == "output")
    results: Sequence[Any] = output.args[0]
    return results


def _is_tensor(result: Any) -> bool:
    return isinstance(result, fx.Node) and isinstance(result.meta.get("example_value"), torch.Tensor)


def _name(at: int) -> str:
    return f"parax_weight_{at}"


def _pure(module: fx.GraphModule, inner: Mapping[int, Any], is_open: bool) -> tuple[fx.GraphModule, list[int]]:
    """A copy that holds its weights and takes no sizes that tensors tell, and the arguments it still takes."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(module.graph, copies)
    graph.output(tuple(copies[result] for result in _results(module.graph) if _is_tensor(result)))
    made = fx.GraphModule(module, graph)
    for at, weight in inner.items():
        made.register_buffer(_name(at), weight)
    graph = made.graph
    taken = _placeholders(graph)
    body = next(node for node in graph.nodes if node.op != "placeholder")
    kept = []
    for at, node in enumerate(taken):
        with graph.inserting_before(body):
            if at in inner:
                instead = graph.create_node("get_attr", _name(at))
            else:
                instead = _size_of(graph, node, taken) if is_open else None
        if instead is None:
            kept.append(at)
        else:
            node.replace_all_uses_with(instead)
            graph.erase_node(node)
    made.recompile()
    return made, kept


def _size_of(graph: fx.Graph, node: fx.Node, taken: Sequence[fx.Node]) -> fx.Node | None:
    """For a size among the arguments: the axis of a tensor that has it, as a node."""
    value = node.meta.get("example_value")
    if not isinstance(value, torch.SymInt):
        return None
    for other in taken:
        for axis, size in _open_sizes(other).items():
            if size == str(value):
                return graph.call_method("size", (other, axis))
    return None


def _open_sizes(node: fx.Node) -> dict[int, str]:
    """Axis → size of what torch left open of a tensor."""
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor):
        return {}
    return {axis: str(size) for axis, size in enumerate(value.shape) if isinstance(size, torch.SymInt)}


def _sizes(program: Any) -> tuple[tuple[Size, ...], ...]:
    """Of the exported program's inputs that are tensors."""
    wanted = set(program.graph_signature.user_inputs)
    nodes = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in wanted]
    values = [node.meta["val"] for node in nodes]
    return tuple(tuple(n if isinstance(n, int) else str(n) for n in v.shape) for v in values if hasattr(v, "shape"))


def _bounds(bounds: Any) -> tuple[float, float]:
    return float(bounds.lower), float(bounds.upper)


def _require_pure(program: Any) -> None:
    """Raises UnsupportedOp if the program writes to a weight or an argument, as BatchNorm does in training."""
    signature = program.graph_signature
    written = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if written:
        raise UnsupportedOp(f"it writes to {len(written)} of its arguments", where=WHERE, found=", ".join(written[:5]))


def _require_no_dice(model: Any) -> None:
    """Raises UnsupportedOp if the model draws random numbers: torch's come from its own generator."""
    for node in (node for owner in (model.graph, *model.functions) for node in with_inner_nodes(owner.node)):
        if node.op_type in _RANDOM or (node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]):
            raise UnsupportedOp("it draws random numbers", where=WHERE, found=node.op_type)


@contextmanager
def quietly() -> Iterator[None]:
    """Keep what torch's exporters tell those who write them from those who compile."""
    loggers = [logging.getLogger(name) for name in _NOISY_LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


__all__ = ["WHERE", "Exported", "export", "first_line", "quietly", "weights_of"]
