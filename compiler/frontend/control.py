"""If, Loop and Scan: bodies become graphs of their own, with what they use of the outer graph made explicit operands.

ONNX's bodies see the enclosing scopes; the IR's see nothing. Captured values are the node's last operands and the
last inputs of every body. An If whose condition is known is replaced by the branch taken.

A sequence or an optional of known length is as many operands as it has tensors, and as many results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

from onnx import AttributeProto, GraphProto, NodeProto, ValueInfoProto

from ...errors import InternalError, InvalidModel, ResourceLimit, UnsupportedOp
from ..ir.graph import Graph, Value
from ..ir.ops import CATALOGUE
from ..ir.ops.control import CannotRun
from ..ir.types import BOOL, I64, Dim, DType, OptionalType, SequenceType, TensorType, Type, covering
from .attributes import attribute_value
from .endless import refuse_endless
from .frames import UNSUPPORTED, Binding, Frame, Unsupported, Written
from .host_sequences import as_value
from .order import in_order
from .parse import require_text
from .signatures import check_size
from .structures import Item, arrangement, described, is_structure, numbered, output_names, rebuilt, values_of
from .unrolling import unroll

if TYPE_CHECKING:
    from .importer import Importer

_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
_ATTEMPTS = 3
"""Times that a loop's body is imported with those sizes open that were seen to change; then all are."""


def is_control(domain: str, name: str) -> bool:
    """Whether the operator owns graphs."""
    return domain == "" and name in _BODIES


def import_control(
    importer: Importer, frame: Frame, node: NodeProto, inputs: Sequence[Binding], protos: Mapping[str, AttributeProto]
) -> None:
    """Imports the bodies of a control-flow node, then the node; pushes frames and returns at once."""
    task = ControlTask(importer, frame, node, inputs, protos)
    if frame.depth >= importer.limits.graph_depth:
        raise ResourceLimit("graphs are nested too deeply", where=task.where, expected=importer.limits.graph_depth)
    if node.op_type == "If" and task.take_known_branch():
        return
    is_batched_scan = node.op_type == "Scan" and frame.opsets[""] < 9
    if ("", node.op_type) not in CATALOGUE or is_batched_scan:
        importer.refuse(frame, node, Written("", node.op_type, frame.opsets[""], task.where))
        return
    task.next_body()


class ControlTask:
    """One control-flow node whose bodies are being imported one after the other."""

    def __init__(
        self,
        importer: Importer,
        frame: Frame,
        node: NodeProto,
        inputs: Sequence[Binding],
        protos: Mapping[str, AttributeProto],
    ) -> None:
        self.importer, self.frame, self.node = importer, frame, node
        self.where = f'{node.op_type} "{node.name[:200]}"'
        self.given: list[Item | None] = [v for v in inputs if not isinstance(v, Unsupported)]
        self._check_structures()
        self.inputs: list[Value | None] = []
        for item in self.given:
            self.inputs += [item] if item is None or isinstance(item, Value) else values_of(item)
        self.attributes = {
            name: attribute_value(proto, importer.tensors, self.where)
            for name, proto in protos.items()
            if name not in _BODIES[node.op_type]
        }
        self.protos = [(name, self._body_proto(protos, name)) for name in _BODIES[node.op_type]]
        self.captured: list[Value] = []
        self.bodies: dict[str, Graph] = {}
        self.frames: list[Frame] = []
        self.misfits: dict[str, InvalidModel] = {}
        self.wider: dict[int, Type] = {}
        self.open_dims: set[Dim] = set()
        self.attempts = 0
        self.failed = self.at_run_time = False
        self.results: Sequence[Item] = ()

    def _check_structures(self) -> None:
        """Loops carry sequences and optionals; elsewhere tensors are needed."""
        first = 2 if self.node.op_type == "Loop" else len(self.given)
        wrong = next((item for item in self.given[:first] if is_structure(item)), None)
        if wrong is not None:
            raise InvalidModel("a tensor is needed", where=self.where, found=described(wrong))
        self.importer.count_elements(sum(len(values_of(item)) for item in self.given[first:]), self.where)

    def _body_proto(self, protos: Mapping[str, AttributeProto], name: str) -> GraphProto:
        if name not in protos:
            raise InvalidModel(f"required attribute {name} is missing", where=self.where)
        graph = attribute_value(protos[name], self.importer.tensors, self.where)
        if not isinstance(graph, GraphProto):
            raise InvalidModel(f"attribute {name} has the wrong type", where=self.where, expected="a graph")
        require_text(self.where, graph.name, *(v.name for v in graph.input), *(v.name for v in graph.output))
        return graph

    def take_known_branch(self) -> bool:
        """Inlines the branch that a known condition takes; False if the condition is not known."""
        condition = self.inputs[0] if self.inputs else None
        if condition is None or not isinstance(condition.type, TensorType) or condition.type.dtype != BOOL:
            raise InvalidModel("the condition must be a bool", where=self.where)
        content = condition.data if condition.data is not None else condition.known
        if content is None or content.size != 1:
            return False
        self._inline(bool(content.reshape(-1)[0]))
        return True

    def _inline(self, holds: bool) -> None:
        """Puts the nodes of one branch in the place of the If."""
        proto = self.protos[0 if holds else 1][1]

        def finish(done: Frame) -> None:
            results = [done.resolve(output.name, self.where) for output in proto.output]
            if len(results) != len(self.node.output):
                raise InvalidModel("wrong number of outputs", where=self.where, expected=len(results))
            self.importer.define_outputs(self.frame, self.node, results)

        self._push(proto, self.frame.graph, False, finish)

    def _push(self, proto: GraphProto, graph: Graph, is_body: bool, finish: object) -> Frame:
        outer = self.frame
        inner = Frame(graph, in_order(proto.node), outer.opsets, finish, parent=outer, is_body=is_body,  # type: ignore[arg-type]
                      bound=outer.bound, calls=outer.calls, depth=outer.depth + 1, culprit=outer.culprit)  # fmt: skip
        self.importer.add_initializers(inner, proto)
        self.importer.stack.append(inner)
        return inner

    def next_body(self) -> None:
        """Starts the import of the next body, or finishes the node."""
        if len(self.bodies) == len(self.protos):
            self._build()
            return
        name, proto = self.protos[len(self.bodies)]
        graph = Graph(proto.name or name)
        inner = self._push(proto, graph, True, lambda done: self._finish_body(done, name, proto))
        if self.node.op_type == "If":
            inner.on_misfit = lambda error: self._leave_out(name, error)
        types = [] if self.node.op_type == "If" else self._input_types(proto)
        self._define_inputs(inner, proto, types)
        for outer in self.captured:
            inner.capture(outer)
        self.frames.append(inner)

    def _define_inputs(self, inner: Frame, proto: GraphProto, types: Sequence[Type]) -> None:
        """Inputs of the body's graph, one for each tensor; a sequence's are numbered."""
        patterns: list[Item | None] = [] if self.node.op_type == "If" else [*self.given]
        if self.node.op_type == "Loop":
            patterns = [None, None, *self.given[2:]]
        if len(patterns) != len(proto.input):
            raise InvalidModel("the body has the wrong number of inputs", where=self.where, expected=len(patterns),
                               found=len(proto.input))  # fmt: skip
        taken, place = {declared.name for declared in proto.input}, count()
        for declared, pattern in zip(proto.input, patterns, strict=True):
            if not is_structure(pattern):
                i = next(place)
                item: Item = inner.graph.add_input(declared.name, self.wider.get(i, types[i]))
            else:
                assert pattern is not None
                values = []
                for name in numbered(declared.name, len(values_of(pattern)), taken):
                    i = next(place)
                    values.append(inner.graph.add_input(name, self.wider.get(i, types[i])))
                (item,) = rebuilt([pattern], iter(values))
            inner.define(declared.name, item, self.where)

    def _finish_body(self, done: Frame, name: str, proto: GraphProto) -> None:
        results = [done.resolve(output.name, self.where) for output in proto.output]
        items = [item for item in results if item is not None and not isinstance(item, Unsupported)]
        if len(items) != len(results):
            if not any(value is UNSUPPORTED for value in results):
                raise InvalidModel("an output of the body has no value", where=self.where)
            self.failed = True
        if self.at_run_time:
            items = [as_value(done.graph, item) for item in items]
        if not self.failed and not self._keeps_structures(items):
            self._rearranged(items)
            return
        self.results, values = items, [value for item in items for value in values_of(item)]
        self.importer.count_elements(len(values), self.where)
        if self.node.op_type != "If" and not self.failed and self._widen(done.graph, values):
            self.frames.pop()
            self.next_body()
            return
        done.graph.set_outputs(values, output_names(proto, items))
        self.bodies[name] = done.graph
        self.captured = list(done.captures or ())
        self.next_body()

    def _leave_out(self, name: str, error: InvalidModel) -> None:
        """A branch of If does not fit the sizes given: taking it becomes the error, unless neither branch fits."""
        if self.misfits:
            self.importer.misfit(error)
            return
        self.misfits[name] = error
        self.importer.choices.left_out += 1
        graph = Graph(dict(self.protos)[name].name or name)
        self.frames[-1] = Frame(graph, (), self.frame.opsets, lambda done: None, is_body=True)
        self.bodies[name] = graph
        self.next_body()

    def _fill_left_out(self) -> None:
        """Give the branch that was left out a node of the other one's types, which is the error."""
        for name, error in self.misfits.items():
            (other,) = (body for key, body in self.bodies.items() if key != name)
            op = CannotRun(reason=f"{name}: {error}", types=tuple(str(v.type) for v in other.outputs))
            graph = self.bodies[name]
            graph.set_outputs(graph.add_node(op, [], n_outputs=len(other.outputs)).outputs)

    def _build(self) -> None:
        if self.failed:
            self.importer.poison(self.frame, self.node)
            return
        if self.node.op_type == "If" and not self.misfits:
            holds = self.importer.choices.taken(self.inputs[0], self.bodies, self.frame.graph, self.where)
            if holds is not None:
                self._inline(holds)
                return
        self._fill_left_out()
        for frame in self.frames:
            for outer in self.captured:
                frame.capture(outer)
        if self.node.op_type == "Loop":
            refuse_endless(self._operands(), self.bodies["body"], self.where)
        cls = CATALOGUE["", self.node.op_type]
        op = cls.from_attributes({**self.attributes, "captures": len(self.captured)}, self.where)
        names = self._result_names_of(self.results)
        try:
            created = self.frame.graph.add_node(
                op, [*self._operands(), *self.captured], names, name=self.node.name, bodies=self.bodies
            )
        except UnsupportedOp as error:
            written = Written("", self.node.op_type, self.frame.opsets[""], self.where)
            self.importer.refuse(self.frame, self.node, written, error.message)
            return
        except InvalidModel as error:
            self.importer.misfit(error)
            return
        for made in created.outputs:
            check_size(made.type, self.importer.limits, self.where)
        results: Sequence[Item] = created.outputs
        if any(map(is_structure, self.results)):
            results = rebuilt(self._outer(self.results), iter(created.outputs))
        self.importer.define_outputs(self.frame, self.node, results)

    def _keeps_structures(self, items: Sequence[Item]) -> bool:
        """Whether a loop hands on what it was given, sequences of the same lengths; branches, what the other gives."""
        found = [arrangement(item) for item in items]
        if self.node.op_type == "If":
            return not self.results or found == [arrangement(item) for item in self.results]
        states = [arrangement(item) for item in self.given[2:]] if self.node.op_type == "Loop" else []
        tensors = [*items[:1], *items[1 + len(states) :]] if self.node.op_type == "Loop" else items
        wrong = next((item for item in tensors if is_structure(item)), None)
        if wrong is not None:
            raise InvalidModel("an output of the body must be a tensor", where=self.where, found=described(wrong))
        return found[1 : 1 + len(states)] == states or len(found) < 1 + len(states)

    def _rearranged(self, items: Sequence[Item]) -> None:
        """What branches give, or iterations hand on, has not one length: a loop of known trips is written out.

        Elsewhere the run keeps lists.
        """
        if self.node.op_type == "Loop":
            self._result_names_of(items)
            given = self.given
            if unroll(self.importer, self.frame, self.node, self.protos[0][1], given, self._take_values):
                return
        self._take_values()

    def _take_values(self) -> None:
        """Begin anew with sequences and optionals as values of the run, which may be of any length."""
        if self.at_run_time:
            raise InternalError("values of a run have another arrangement", where=self.where)
        self.at_run_time = True
        self.given = [None if item is None else as_value(self.frame.graph, item) for item in self.given]
        self.inputs = [item for item in self.given if item is None or isinstance(item, Value)]
        self.captured, self.bodies, self.frames, self.misfits, self.results = [], {}, [], {}, ()
        self.wider, self.open_dims, self.attempts = {}, set(), 0
        self.next_body()

    def _operands(self) -> list[Value | None]:
        """The node's own operands, trailing optional ones of Loop written out so that captures have a place."""
        missing = 2 - len(self.inputs) if self.node.op_type == "Loop" else 0
        return [*self.inputs, *[None] * max(missing, 0)]

    def _result_names_of(self, items: Sequence[Item]) -> list[str | None]:
        """The names of the node's outputs, where its body gives `items`; none for what is in sequences."""
        own = self._outer(items)
        if not any(map(is_structure, own)):
            return [self.importer.name_of(self.frame, name) for name in self.node.output]
        if len(own) != len(self.node.output):
            raise InvalidModel("wrong number of outputs", where=self.where, expected=len(own),
                               found=len(self.node.output))  # fmt: skip
        names: list[str | None] = []
        for item, name in zip(own, self.node.output, strict=True):
            wanted = None if is_structure(item) else self.importer.name_of(self.frame, name)
            names += [wanted] * len(values_of(item))
        return names

    def _outer(self, items: Sequence[Item]) -> Sequence[Item]:
        """Those of a body's outputs that the node has, too: a loop keeps its condition."""
        return items[1:] if self.node.op_type == "Loop" else items

    # Types of what loops carry

    def _n_states(self) -> int:
        if self.node.op_type == "Loop":
            return max(len(self.inputs) - 2, 0)
        return len(self.inputs) - self._n_scanned()

    def _n_scanned(self) -> int:
        count = self.attributes.get("num_scan_inputs")
        if not isinstance(count, int) or not 1 <= count <= len(self.inputs):
            raise InvalidModel("invalid num_scan_inputs", where=self.where, found=count)
        return count

    def _input_types(self, proto: GraphProto) -> list[Type]:
        given = [value.type if value is not None else None for value in self.inputs]
        if any(type_ is None for type_ in given[2 if self.node.op_type == "Loop" else 0 :]):
            raise InvalidModel("a carried value is missing", where=self.where)
        states = [type_ for type_ in given if type_ is not None]
        if self.node.op_type == "Loop":
            states = [type_ for type_ in given[2:] if type_ is not None]
            return [*(_one(dtype, value) for dtype, value in zip((I64, BOOL), proto.input)), *states]
        count = self._n_states()
        return [*states[:count], *(self._slice_type(i, type_) for i, type_ in enumerate(states[count:]))]

    def _slice_type(self, index: int, type_: Type) -> Type:
        axes = self.attributes.get("scan_input_axes") or [0] * self._n_scanned()
        if not isinstance(type_, TensorType) or len(axes) != self._n_scanned():
            raise InvalidModel("malformed scan inputs", where=self.where, found=type_)
        rank, axis = type_.rank, axes[index]
        if not -rank <= axis < rank:
            raise InvalidModel("scan axis out of range", where=self.where, expected=f"rank {rank}", found=axis)
        return TensorType(type_.dtype, tuple(d for i, d in enumerate(type_.dims) if i != axis % rank))

    def _widen(self, body: Graph, results: Sequence[Value]) -> bool:
        """True if a carried value changes its shape, so that the body must be imported anew with an open one."""
        first_in, first_out = (2, 1) if self.node.op_type == "Loop" else (0, 0)
        count = self._n_states()
        if len(results) < first_out + count:
            raise InvalidModel("the body has too few outputs", where=self.where, expected=first_out + count,
                               found=len(results))  # fmt: skip
        changed = False
        for i in range(count):
            before, after = body.inputs[first_in + i].type, results[first_out + i].type
            wider = self._join(before, after, self._hint(i))
            if wider != before:
                self.wider[first_in + i] = wider
                changed = True
        self.attempts += changed
        if self.attempts > _ATTEMPTS + 1:
            raise UnsupportedOp("a carried value keeps changing its shape", where=self.where)
        return changed

    def _hint(self, index: int) -> str:
        """What sizes of a carried tensor are called."""
        plain = not any(map(is_structure, self.given)) and index < len(self.node.output)
        return (self.node.output[index] if plain else "") or "state"

    def _join(self, before: Type, after: Type, hint: str) -> Type:
        """The type that both have: dims that differ become a fresh symbol."""
        if before == after and (self.attempts < _ATTEMPTS or not isinstance(before, TensorType)):
            return before
        both = covering(before, after)
        if isinstance(both, (SequenceType, OptionalType)):
            return both
        if isinstance(before, OptionalType) and covering(before.elem, after) is not None:
            raise UnsupportedOp("a carried optional becomes its element", where=self.where)
        if not isinstance(before, TensorType) or not isinstance(after, TensorType) or before.dtype != after.dtype:
            raise InvalidModel("a carried value changes its type", where=self.where, expected=before, found=after)
        if before.shape is None or after.shape is None or before.rank != after.rank:
            return TensorType(before.dtype, None)
        dims: list[Dim] = []
        for axis, (a, b) in enumerate(zip(before.dims, after.dims, strict=True)):
            if (a != b or self.attempts >= _ATTEMPTS) and a not in self.open_dims:
                a = self.importer.symbols.found(f"{hint}_{axis}")
                self.open_dims.add(a)
            dims.append(a)
        return TensorType(before.dtype, tuple(dims))


def _one(dtype: DType, declared: ValueInfoProto) -> TensorType:
    """The type of a body's iteration number or condition: a scalar, or shape [1] where the body says so."""
    has_axis = len(declared.type.tensor_type.shape.dim) == 1
    return TensorType(dtype, (1,) if has_axis else ())
