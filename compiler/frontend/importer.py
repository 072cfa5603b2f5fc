"""ONNX model to IR graph: generic, driven by the catalogue. This file owns the walk and the graph's interface.

Walks nodes in order with a stack of frames (see frames.py), so depth and expansion are bounded by limits, not by the
Python stack. Everything parax lacks is collected and reported in one error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import numpy as np
from onnx import GraphProto, NodeProto, ValueInfoProto

from ...errors import (
    InternalError,
    InvalidModel,
    ParaxError,
    ResourceLimit,
    UnsupportedOp,
    UnsupportedUse,
    UsageError,
    operator_name,
)  # fmt: skip
from ..ir.graph import Graph, Node, Value
from ..ir.types import DType, TensorType, noting_positive, taking_found_as_positive
from .choices import Choices, import_choosing
from .evaluate import Evaluator
from .external import ExternalData
from .frames import UNSUPPORTED, Binding, Frame, Written, node_where
from .host_sequences import as_value
from .limits import DEFAULT_LIMITS, Limits
from .nodes import import_node
from .order import in_order
from .parse import Source, read_model, require_text
from .signatures import Symbols, override_shape, read_type
from .structures import KnownOptional, KnownSequence
from .tensors import TensorReader
from .type_protos import type_text


def import_model(
    source: Source,
    *,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    dims: Mapping[str, int] | None = None,
    overridable: Sequence[str] = (),
    trained: Collection[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    evaluator: Evaluator | None = None,
) -> Graph:
    """The IR graph of an ONNX model.

    Args:
        source: path (external data is read from its folder), serialised model, or ModelProto.
        shapes: input name → shape that replaces the declared one; a str entry names a symbol.
        dims: symbol (ONNX's dim_param) → size.
        overridable: initializers that stay inputs, because the model lists them among its inputs; all others are
            constants, since old exporters list every weight.
        trained: initializers that become inputs, with the model's values as their defaults; nothing is computed from
            other tensors of floats either, so that all initializers in use are there. None: the model is not trained.
        limits: bounds on what the model may ask for.
        evaluator: computes on constants within a budget; None: one of its own.

    Raises:
        InvalidModel: the model breaks ONNX's rules.
        UnsupportedOp: lists every operator that parax lacks, with its version and how often it is used.
        ResourceLimit: a limit was reached.
        UsageError: the file cannot be read; `shapes` or `dims` name what the model does not have.
    """

    def run(choices: Choices) -> Graph:
        return Importer(source, shapes or {}, dims or {}, limits, evaluator, overridable, trained, choices).run()

    try:
        return import_choosing(run)
    except (InvalidModel, UnsupportedOp) as error:
        with suppress(InvalidModel, UnsupportedOp), taking_found_as_positive():  # what needs it is noted: a run checks
            found = import_choosing(run)
            error.__traceback__ = None  # holds the first import's graph
            return found
        raise


class Importer:
    """The state of one import."""

    def __init__(
        self,
        source: Source,
        shapes: Mapping[str, Sequence[int | str]],
        dims: Mapping[str, int],
        limits: Limits,
        evaluator: Evaluator | None = None,
        overridable: Sequence[str] = (),
        trained: Collection[str] | None = None,
        choices: Choices | None = None,
    ) -> None:
        self.file = read_model(source, limits)
        self.limits = limits
        self.choices = choices or Choices()
        self.symbols = Symbols(dims)
        self.tensors = TensorReader(ExternalData(self.file.folder, self.file.apart), limits)
        self.stack: list[Frame] = []
        self.n_calls = self._n_elements = 0
        self._evaluator = evaluator or Evaluator()
        self._shapes, self._overridable = shapes, frozenset(overridable)
        self.trained = None if trained is None else frozenset(trained)
        self._n_nodes = 0
        self._at: NodeProto | None = None
        self._lacking: list[tuple[Written, str]] = []

    def run(self) -> Graph:
        """Imports the main graph. A mistake of ours that a strange model brings out ends in an InternalError."""
        positive: set[str] = set()
        try:
            with noting_positive(positive):
                graph = self._run()
            graph.positive |= positive
            return graph
        except ParaxError:
            raise
        except MemoryError as error:
            raise ResourceLimit("out of memory", where=self._where()) from error
        except Exception as error:
            raise InternalError(f"{type(error).__name__}: {error}", where=self._where()) from error

    def evaluate(self, node: Node, arrays: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """The outputs of a node for operand values, within the budget that the constants read until now give."""
        self._evaluator.given_nbytes = self.tensors.nbytes
        return self._evaluator(node, arrays)

    def _where(self) -> str:
        return "the model" if self._at is None else node_where(self._at)

    def _run(self) -> Graph:
        proto = self.file.model.graph
        require_text("the graph", proto.name, *(v.name for v in proto.input), *(v.name for v in proto.output))
        graph = Graph(proto.name or "main")
        frame = Frame(graph, in_order(proto.node), self.file.opsets, lambda f: self._finish_main(f, proto))
        self._add_inputs(frame, proto)
        self.add_initializers(frame, proto)
        self.stack.append(frame)
        while self.stack:
            frame = self.stack[-1]
            node = next(frame.nodes, None)
            if node is None:
                self.stack.pop()
                frame.finish(frame)
            else:
                self._count_node()
                self._at = node
                import_node(self, frame, node)
        self.symbols.check_all_used()
        return graph

    def _add_inputs(self, frame: Frame, proto: GraphProto) -> None:
        initializers = {tensor.name for tensor in proto.initializer}
        both = tuple(value.name for value in proto.input if value.name in initializers)
        lost = sorted(self._overridable - set(both))
        if lost:
            raise UsageError("what requests may give must be an initializer and an input of the model",
                             found=", ".join(lost), expected=", ".join(both) or "none: no initializer is an input")
        constants = initializers - self._overridable
        frame.graph.fixed = tuple(name for name in both if name in constants - (self.trained or frozenset()))
        unknown = sorted(set(self._shapes) - {value.name for value in proto.input})
        if unknown:
            expected = ", ".join(value.name for value in proto.input if value.name not in constants) or "no inputs"
            raise UsageError("a shape is given for what is no input", found=", ".join(unknown), expected=expected)
        seen: set[str] = set()
        for value in proto.input:
            where = f"input {value.name!r}"
            if not value.name or value.name in seen:
                what = "an input has no name" if not value.name else "two inputs have one name"
                raise InvalidModel(what, where=where)
            seen.add(value.name)
            type_ = read_type(value.type, value.name, self.symbols, self.limits)
            if value.name in constants:  # a default value that nobody means to replace
                continue
            if value.name in self._shapes:
                type_ = override_shape(type_, self._shapes[value.name], value.name, self.symbols, self.limits)
            frame.define(value.name, frame.graph.add_input(value.name, type_), where)

    def add_initializers(self, frame: Frame, proto: GraphProto) -> None:
        """Defines the constants of a graph."""
        require_text("an initializer", *(tensor.name for tensor in proto.initializer))
        for tensor in proto.initializer:
            where = f"initializer {tensor.name!r}"
            if not tensor.name:
                raise InvalidModel("an initializer has no name")
            array = self.tensors.read(tensor, where)
            if frame.parent is None and tensor.name in self._overridable and tensor.name not in frame.graph.defaults:
                frame.graph.defaults[tensor.name] = _default(frame, tensor.name, array, where)
            elif frame.parent is None and tensor.name in (self.trained or ()):
                own = TensorType(DType.from_numpy(array.dtype), array.shape)
                frame.define(tensor.name, frame.graph.add_input(tensor.name, own), where)
                frame.graph.defaults[tensor.name] = array
            else:
                frame.define_array(tensor.name, array, where)
        for sparse in proto.sparse_initializer:
            where = f"sparse initializer {sparse.values.name!r}"
            require_text(where, sparse.values.name)
            frame.define_array(sparse.values.name, self.tensors.read_sparse(sparse, where), where)

    def _finish_main(self, frame: Frame, proto: GraphProto) -> None:
        names = [value.name for value in proto.output]
        if len(set(names)) != len(names):
            raise InvalidModel("two outputs have one name", found=", ".join(sorted(names))[:200])
        values = [frame.resolve(name, f"output {name!r}") for name in names]
        self._report_lacking()
        kept: list[Value] = []
        for declared, value in zip(proto.output, values, strict=True):
            if isinstance(value, (KnownSequence, KnownOptional)):
                known = read_type(declared.type, declared.name, Symbols(), self.limits)
                value = as_value(frame.graph, value, known)
            if not isinstance(value, Value):
                raise InvalidModel("an output has no value", where=f"output {declared.name!r}")
            _check_output_type(declared, value, self.limits)
            kept.append(value)
        frame.graph.set_outputs(kept, names)

    def _report_lacking(self) -> None:
        if not self._lacking:
            return
        counts = Counter((str(written), reason) for written, reason in self._lacking)
        parts = [f"{label} × {n}{f' ({reason})' if reason else ''}" for (label, reason), n in sorted(counts.items())]
        uses = [
            UnsupportedUse(operator_name(w.domain, w.name), w.version, w.where, reason) for w, reason in self._lacking
        ]
        raise UnsupportedOp("the model uses what parax does not support: " + ", ".join(parts), uses=uses)

    def lack(self, written: Written, reason: str = "") -> None:
        """Notes something that parax lacks; the import goes on to find the rest."""
        self._lacking.append((written, reason))

    def count_call(self, where: str) -> None:
        """Counts the expansion of a function or of a body. Raises ResourceLimit."""
        self.n_calls += 1
        if self.n_calls > self.limits.calls:
            expected = f"at most {self.limits.calls} calls"
            raise ResourceLimit("the model's functions expand to too much", where=where, expected=expected)

    def count_elements(self, count: int, where: str) -> None:
        """Counts elements of sequences that a node reads or makes. Raises ResourceLimit."""
        self._n_elements += count
        if self._n_elements > self.limits.sequence_elements:
            expected = f"at most {self.limits.sequence_elements} elements"
            raise ResourceLimit("the model's sequences are too long", where=where, expected=expected)

    def _count_node(self) -> None:
        self._n_nodes += 1
        if self._n_nodes > self.limits.nodes:
            raise ResourceLimit("the model has too many nodes after expansion", expected=f"at most {self.limits.nodes}")

    def refuse(self, frame: Frame, node: NodeProto, written: Written, reason: str = "") -> None:
        """Notes that parax lacks this node's operator; its results become unusable."""
        self.lack(frame.culprit or written, reason)
        self.poison(frame, node)

    def misfit(self, error: InvalidModel) -> None:
        """Gives up the innermost branch of If that is being imported, because types in it do not fit together.

        Exporters write branches for other sizes than a model is compiled for. Raises the error outside of branches.
        """
        place = max((i for i, frame in enumerate(self.stack) if frame.on_misfit is not None), default=None)
        if place is None:
            raise error
        take_over = self.stack[place].on_misfit
        del self.stack[place:]
        assert take_over is not None
        take_over(error)

    def poison(self, frame: Frame, node: NodeProto) -> None:
        """Makes the node's results unusable, without noting a reason."""
        for name in node.output:
            if name:
                frame.define(name, UNSUPPORTED, node_where(node))

    def define_outputs(self, frame: Frame, node: NodeProto, results: Sequence[Binding]) -> None:
        """Binds the node's output names to its results; what has no result must not be used."""
        where = node_where(node)
        for i, name in enumerate(node.output):
            if not name:
                continue
            given = i < len(results) and results[i] is not None
            frame.define(name, results[i] if given else UNSUPPORTED, where)

    def name_of(self, frame: Frame, name: str) -> str | None:
        """What a value is called in the IR: ONNX's name, but a number for the insides of functions."""
        return name if name and not frame.calls else None


def _default(frame: Frame, name: str, array: np.ndarray, where: str) -> np.ndarray:
    """The default of an input, if it has the input's type and rank; gives the input its shape where it has none."""
    value = frame.resolve(name, where)
    assert isinstance(value, Value)
    own = TensorType(DType.from_numpy(array.dtype), array.shape)
    type_ = value.tensor
    if type_.dtype == own.dtype and type_.shape is None:
        value.type = own
    elif type_.dtype != own.dtype or type_.rank != own.rank:
        raise InvalidModel("an initializer has another type than the input that it is the default of", where=where,
                           expected=type_, found=own)  # fmt: skip
    return array


def _check_output_type(declared: ValueInfoProto, value: Value, limits: Limits) -> None:
    kind = declared.type.WhichOneof("value")
    if kind is None or (kind == "tensor_type" and not declared.type.tensor_type.elem_type):
        return
    expected = read_type(declared.type, declared.name, Symbols(), limits)
    if type_text(expected) != type_text(value.type):
        message, where = "the output has another type than declared", f"output {declared.name!r}"
        raise InvalidModel(message, where=where, expected=expected, found=value.type)
