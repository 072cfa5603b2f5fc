"""The framework that the papers ran, as works: MXNet with oneDNN, its operators one by one, forward, backward, update.

Owns what is assumed of it, from its code or its makers' figures where they are named, none from the papers that are
reproduced:

    OPERATOR_SECONDS   an assumption: its engine takes 15 µs to schedule an operator of a graph. Calls from Python do
                       more and were reported at 30–60 µs (apache/mxnet issue 17097)
    FORK_SECONDS       an OpenMP loop costs 8.5 µs (apache/mxnet pull request 8686, its own tuning; of how many threads
                       is not said). Shared out here over the doublings to 56 threads: 1.5 µs each
    Activation, sums   in place (FInplaceOption), and their gradients in place of the results' gradients
    BatchNormalization blocks of channels stay in the last cache between its passes (oneDNN's do_blocking), so each
                       tensor crosses once each way; results larger than the caches are streamed past them
    1×1 convolutions   results larger than the caches are streamed past them too (use_vmovntps); else, and elsewhere, a
                       line that is written is fetched first
    Embedding          looked up by all threads; the gradient is added up row by row by one (mshadow's AddTakeGrad)
    LSTM               its RNN operator (rnn_impl.h): W for all steps at once; R, and a loop over the cells, at every
                       step; R's gradient is added up step by step, the biases' by one thread
    training           every result and gradient is kept, in memory of its own; inference takes freed memory again
    gradients          ParaX's server: an instance reads its gradients, reads and writes the sum of all
    caches             LRU over tensors. A core's second-level cache and its part of the last one exclude each other
                       (Skylake-SP); instances of a socket share weights in the last one, not activations

It must not know machines' speeds or what the papers report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from parax.compiler.backend.costs import node_cost
from parax.compiler.backend.kernels.matmul.cost import product_items
from parax.compiler.costs.cost import Cost, Sizes
from parax.compiler.ir.graph import Graph, Node, Value
from parax.compiler.ir.ops.recurrent import Recurrent
from parax.compiler.ir.views import roots
from parax.compiler.planner.partition.cache_model import Cache
from parax.compiler.planner.partition.simulate import Work
from parax.compiler.targets.machine import Machine

OPERATOR_SECONDS = 15e-6
FORK_SECONDS = 1.5e-6
CONTRACTIONS = frozenset({"conv", "conv1x1", "grouped", "few-channels", "depthwise", "conv-transpose", "matmul",
                          "batched-matmul"})  # fmt: skip
ENGINE = "engine"
GATE_FLOPS = 12  # a transcendental function, as costs.EXPENSIVE
LOOP_GRAIN = 256  # elements of a loop worth a thread


@dataclass(frozen=True)
class Touch:
    """Bytes of a tensor that an operator reads or writes: "read", "write", "in place" (both) or "weight"."""

    tensor: object
    nbytes: float
    how: str


@dataclass(frozen=True)
class Operation:
    """A kernel of the framework.

    Attributes:
        op: the ONNX operator's name; "Gemm" and "Cells" of a recurrent layer's products and loops.
        phase: "forward", "backward", "update", or "step": within an operator, the engine has nothing to do with it.
        streams: results larger than the caches pass them by.
    """

    op: str
    phase: str
    kind: str
    flops: float
    items: int
    touches: tuple[Touch, ...]
    streams: bool = False


def operations(graph: Graph, symbols: Mapping[str, int], training: bool, beside: int = 0) -> list[Operation]:
    """What the framework runs for one batch on one instance.

    Args:
        graph: the model as imported. symbols: sizes, the rows of one instance among them.
        beside: the instances of a socket, which share its weights; 0: there is but one instance on all sockets.
    """
    writer = _Writer(graph, Sizes(symbols), training)
    for node in graph:
        writer.forward(node)
    if training:
        for node in reversed(list(graph)):
            writer.backward(node)
        writer.update(graph, beside)
    return writer.found


def framework_works(found: Iterable[Operation], machine: Machine, cores_each: int, beside: int = 0) -> list[Work]:
    """The operations as works one after the other, with the bytes that an instance's caches serve in the steady state.

    Args:
        cores_each: cores of an instance. beside: the instances of a socket; 0: there is but one on all sockets.
    """
    listed = list(found)
    sockets = -(-cores_each // machine.cores_per_socket)
    near = Cache(cores_each * machine.l2_nbytes)
    last = Cache(sockets * (machine.l3_nbytes + machine.cores_per_socket * machine.l2_nbytes))
    costs: list[Cost] = []
    for _ in range(2):  # the second round is the steady state
        costs = [_cost(operation, near, last, max(1, beside), sockets) for operation in listed]
    engine = max(0.0, OPERATOR_SECONDS - machine.barrier(cores_each)) * machine.flops_per_core * machine.share("host")
    works: list[Work] = []
    for operation, cost in zip(listed, costs):
        if operation.phase != "step":
            works.append(Work(ENGINE, Cost(engine, 0.0, 0.0, 0.0, 1, "host"), tuple(range(len(works))[-1:])))
        works.append(Work(operation.op, cost, tuple(range(len(works))[-1:])))
    return works


def _cost(operation: Operation, near: Cache, last: Cache, beside: int, sockets: int) -> Cost:
    """Bytes of the operation by where they are found; of what is in the caches of several sockets the other ones' part
    crosses between them, as if it came from memory.
    """
    read = written = weights = 0.0
    held = {"l2": 0.0, "activations": 0.0, "weights": 0.0}
    for touch in operation.touches:
        is_weight = touch.how == "weight"
        if touch.how == "write" and operation.streams and touch.nbytes * beside > last.nbytes:
            read += touch.nbytes  # past the caches: once over the memory's bus, as what is read
            continue
        times = 2 if touch.how == "in place" else 1
        in_l2 = near.touch(touch.tensor, touch.nbytes)
        in_last = last.touch(touch.tensor, touch.nbytes * (1 if is_weight else beside))
        if in_l2 or in_last:
            share = 1.0 if in_l2 and sockets == 1 else 1 / sockets
            held["weights" if is_weight else "activations"] += times * touch.nbytes * share
            held["l2"] += times * touch.nbytes * share if in_l2 else 0.0
        if touch.how == "write":
            written += touch.nbytes
        elif is_weight:
            weights += touch.nbytes
        else:
            read += times * touch.nbytes
    return Cost(operation.flops, read, written, weights, max(1, operation.items), operation.kind,
                near_nbytes=held["activations"], near_weight_nbytes=held["weights"], l2_nbytes=held["l2"])  # fmt: skip


def direct_cost(node: Node, symbols: Mapping[str, int]) -> Cost:
    """The cost of a node without Winograd's algorithm or what else parax's kernels do of their own."""
    cost = node_cost(node, symbols)
    if cost.kind == "winograd":
        rows, channels, *plane = Sizes(symbols).shape(node.output)
        cost = replace(cost, kind="conv", parallel_items=product_items(1, rows * math.prod(plane), channels))
    return replace(cost, kernel_flops=None, kernel_weight_nbytes=None)


@dataclass
class _Writer:
    """Writes operations down in the order in which they run."""

    graph: Graph
    sizes: Sizes
    training: bool
    found: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.same = roots(self.graph)
        self.place: dict[Value, object] = {}  # where a result lies, if not in memory of its own
        self.free: list[tuple[float, object]] = []
        self.last_use: dict[Value, Node] = {}
        for node in self.graph:
            for v in node.operands:
                self.last_use[self._root(v)] = node

    def forward(self, node: Node) -> None:
        """The operator itself."""
        cost = self._direct(node)
        if cost.kind == "view":
            return
        if isinstance(node.op, Recurrent):
            self._layer_forward(node)
            return
        reads = [Touch(self._of(v), self._nbytes(v, node), "weight" if v.data is not None else "read")
                 for v in dict.fromkeys(node.operands)]  # fmt: skip
        source = self._root(node.operands[0]) if node.operands else None
        if cost.kind == "elementwise" and source is not None and self._ends(source, node):
            self.place[node.output] = self._of(source)
            reads[0] = replace(reads[0], how="in place")
            touches = reads
        else:
            touches = [*reads, *(Touch(self._new(v), self.sizes.nbytes(v), "write") for v in node.outputs)]
        self.found.append(Operation(node.op.name, "forward", cost.kind, cost.flops, cost.parallel_items,
                                    tuple(touches), _streams(cost.kind)))  # fmt: skip
        if not self.training:
            self._release(node)

    def backward(self, node: Node) -> None:
        """Gradients of the operands from those of the results."""
        cost = self._direct(node)
        if cost.kind == "view" or not any(self._differs(v) for v in node.operands):
            return
        if isinstance(node.op, Recurrent):
            self._layer_backward(node)
            return
        dy = [Touch(("gradient", self._of(v)), self.sizes.nbytes(v), "read") for v in node.outputs]
        if cost.kind == "elementwise":
            touches = [replace(dy[0], how="in place"), Touch(self._of(node.output), dy[0].nbytes, "read")]
            self._add(node, cost, cost.flops, touches)
            return
        inputs = [v for v in dict.fromkeys(node.operands) if self._differs(v)]
        weights = [v for v in dict.fromkeys(node.operands) if v.data is not None]
        if cost.kind == "lookup":  # the rows of the table's gradient are read and written
            rows = [Touch(("gradient", v), dy[0].nbytes, "in place") for v in weights]
            self._add(node, replace(cost, parallel_items=1), dy[0].nbytes / 4, [*dy, *rows])
            return
        dx = [Touch(("gradient", self._of(v)), self.sizes.nbytes(v), "write") for v in inputs if v.data is None]
        if cost.kind not in CONTRACTIONS:
            needed = [Touch(self._of(v), self.sizes.nbytes(v), "read") for v in inputs if cost.kind == "norm"]
            self._add(node, cost, cost.flops, [*dy, *needed, *dx])
            return
        x = [Touch(self._of(v), self.sizes.nbytes(v), "read") for v in inputs if v.data is None]
        w = [Touch(v, self.sizes.nbytes(v), "weight") for v in weights]
        dw = [Touch(("gradient", v), self.sizes.nbytes(v), "write") for v in weights]
        if dx:
            self._add(node, cost, cost.flops, [*dy, *w, *dx])
        self._add(node, cost, cost.flops, [*dy, *x, *dw])

    def update(self, graph: Graph, beside: int) -> None:
        """Instances add their gradients to the sum of all; then every socket updates its weights, its cores share it.

        The rows of a table have gradients only where they were looked up.
        """
        nbytes = sum(self.sizes.nbytes(v) for v in {v for n in graph if self._direct(n).kind != "lookup"
                                                    for v in n.operands if v.data is not None and v.data.ndim > 0
                                                    and v.data.dtype.kind == "f"})  # fmt: skip
        nbytes += sum(2 * self.sizes.nbytes(n.output) for n in graph if self._direct(n).kind == "lookup")
        whole = math.ceil(nbytes / (16 << 10))
        if beside:
            own, total = Touch("own gradients", nbytes, "read"), Touch("all gradients", nbytes, "in place")
            self.found.append(Operation("GradientServer", "update", "elementwise", nbytes / 4, whole, (own, total)))
        part = nbytes / max(1, beside)
        touches = (Touch("all gradients", part, "read"), Touch("weights", part, "in place"))
        self.found.append(Operation("Update", "update", "elementwise", part / 2, whole, touches))

    def _layer_forward(self, node: Node) -> None:
        """A recurrent layer: W for all steps at once, then at every step R and one loop over the cells."""
        x, w, r = node.operands[:3]
        directions, width, hidden = self.sizes.shape(r)
        steps, rows, inputs = self.sizes.shape(x)
        cells, gates = 4.0 * rows * hidden, 4.0 * rows * width
        for way in range(directions):
            at_once = Touch((node, way, "x W"), gates * steps, "write")
            self._product((steps * rows, inputs, width), Touch(self._of(x), 4.0 * steps * rows * inputs, "read"),
                          Touch((w, way), 4.0 * inputs * width, "weight"), at_once)  # fmt: skip
            for t in range(steps):
                state, of_state = Touch((node, way, t - 1), cells, "read"), Touch((node, way, "h R"), gates, "write")
                self._product((rows, hidden, width), state, Touch((r, way), 4.0 * hidden * width, "weight"), of_state)
                kept = self.training
                touches = (Touch((node, way, t, "x W"), gates, "in place" if kept else "read"),
                           replace(of_state, how="read"), Touch((node, way, "c"), cells, "in place"),
                           Touch((node, way, t), cells, "write"))  # fmt: skip
                self._loop(rows * hidden, 5 * GATE_FLOPS, touches)

    def _layer_backward(self, node: Node) -> None:
        """Its gradients: at every step a loop, R's two products; then W's two, and one thread's loop for the biases."""
        x, w, r = node.operands[:3]
        directions, width, hidden = self.sizes.shape(r)
        steps, rows, inputs = self.sizes.shape(x)
        cells, gates = 4.0 * rows * hidden, 4.0 * rows * width
        for way in range(directions):
            of_r = Touch(("gradient", r, way), 4.0 * hidden * width, "in place")
            for t in reversed(range(steps)):
                touches = (Touch((node, way, t, "x W"), gates, "read"), Touch((node, way, "dc"), cells, "in place"),
                           Touch(("gradient", node, way, t), gates, "write"))  # fmt: skip
                self._loop(rows * hidden, 2 * GATE_FLOPS, touches)
                dy, dh = Touch(("gradient", node, way, t), gates, "read"), Touch((node, way, "dh"), cells, "write")
                self._product((rows, width, hidden), dy, Touch((r, way), 4.0 * hidden * width, "weight"), dh)
                self._product((width, rows, hidden), dy, Touch((node, way, t - 1), cells, "read"), of_r)
            dy = Touch(("gradient", node, way), gates * steps, "read")
            whole = Touch(self._of(x), 4.0 * steps * rows * inputs, "read")
            dx = Touch(("gradient", self._of(x)), whole.nbytes, "write")
            self._product((steps * rows, width, inputs), dy, Touch((w, way), 4.0 * inputs * width, "weight"), dx)
            dw = Touch(("gradient", w, way), 4.0 * inputs * width, "write")
            self._product((width, steps * rows, inputs), dy, whole, dw)
            self._loop(steps * rows * width, 2, (dy,), items=1)

    def _product(self, sizes: tuple[int, int, int], *touches: Touch) -> None:
        """High × deep by deep × wide, within an operator."""
        high, deep, wide = sizes
        self.found.append(Operation("Gemm", "step", "matmul", 2.0 * high * deep * wide, product_items(1, high, wide),
                                    touches))  # fmt: skip

    def _loop(self, elements: int, flops: int, touches: tuple[Touch, ...], items: int | None = None) -> None:
        """A loop over elements within an operator, `flops` for each."""
        self.found.append(Operation("Cells", "step", "elementwise", float(flops * elements),
                                    items or max(1, elements // LOOP_GRAIN), touches))  # fmt: skip

    def _add(self, node: Node, cost: Cost, flops: float, touches: list[Touch]) -> None:
        self.found.append(Operation(node.op.name, "backward", cost.kind, flops, cost.parallel_items, tuple(touches),
                                    _streams(cost.kind)))  # fmt: skip

    def _direct(self, node: Node) -> Cost:
        return direct_cost(node, self.sizes.symbols)

    def _root(self, v: Value) -> Value:
        return self.same.get(v, v)

    def _of(self, v: Value) -> object:
        root = self._root(v)
        return self.place.get(root, root)

    def _nbytes(self, v: Value, node: Node) -> float:
        """What of an operand is read: of a table that is looked up, the rows that are wanted."""
        whole = self.sizes.nbytes(v)
        first = v is node.operands[0] and self._direct(node).kind in ("lookup", "movement")
        return min(whole, self.sizes.nbytes(node.output)) if first else whole

    def _differs(self, v: Value) -> bool:
        """Whether it has a gradient: neither a model's input nor a number of something."""
        floats = v.data is None or v.data.dtype.kind == "f"
        return floats and self._root(v) not in self.graph.inputs

    def _ends(self, v: Value, node: Node) -> bool:
        """Whether nothing needs a value after `node`."""
        return v.data is None and v not in self.graph.inputs and self.last_use.get(v) is node

    def _new(self, v: Value) -> object:
        """Memory for a result: in inference what was freed last and is large enough."""
        nbytes = self.sizes.nbytes(v)
        fitting = [entry for entry in self.free if entry[0] >= nbytes]
        if fitting:
            self.free.remove(fitting[-1])
            self.place[v] = fitting[-1][1]
        return self._of(v)

    def _release(self, node: Node) -> None:
        for v in dict.fromkeys(map(self._root, node.operands)):
            if self._ends(v, node) and self._of(v) != self._of(node.output):
                self.free.append((self.sizes.nbytes(v), self._of(v)))


def _streams(kind: str) -> bool:
    return kind in ("norm", "conv1x1")
