"""If, Loop and Scan, whose bodies use values of the graph around them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from ..contents import BOOL, FLOATS, I64
from ..maker import Maker, Refused, Value, allowed_types, tensor_code
from ..sizes import ONE, Shape
from .registry import family

STEPS = ("Tanh", "Sigmoid", "Neg", "Relu", "Abs", "Softsign", "Cos")


def body_maker(m: Maker) -> Maker:
    """A maker of a body: its nodes are the body's, its inputs and constants those of the model."""
    seen = [v for v in m.values if v.name]
    return Maker(m.rng, m.numpy, m.opset, m.wild, m.symbols, values=list(seen), outer=m, counter=m.counter)


def finish(m: Maker, body: Maker, name: str, inputs: list[Value], outputs: list[Value]) -> onnx.GraphProto:
    """The body as a graph; what it takes from outside counts as used there."""
    m.used.update(body.used)
    m.used.update(o.name for o in outputs)
    known = {v.name for v in m.root().values} | {v.name for v in m.values}
    m.values += [v for v in body.values if v.name in known and v not in m.values and v.kind != "node"]
    return helper.make_graph(body.nodes, name, [_info(v) for v in inputs], [_info(v) for v in outputs])


def _info(v: Value) -> onnx.ValueInfoProto:
    shape = [s.value if s.is_static else None for s in v.shape]
    return helper.make_tensor_value_info(v.name, tensor_code(v.dtype), shape)


def own(body: Maker, dtype: np.dtype, shape: Shape, bound: float = 4.0) -> Value:
    """An input of a body."""
    value = Value(body.name("b"), dtype, shape, bound)
    body.root().types[value.name] = dtype
    body.values.append(value)
    return value


def steps(body: Maker, x: Value, least: int = 1) -> Value:
    """Some element-wise nodes from x on, using what is around; the result has the type and shape of x."""
    for i in range(body.rng.randint(least, 3)):
        if not x.is_float:
            op = {"b": "Xor", "i": "Add", "u": "Add"}[x.dtype.kind]
            if x.dtype not in allowed_types(op, body.opset)[0]:
                raise Refused("no such sum")
            x = body.one(op, [x, body.same_or_broadcast(x)], x.dtype, x.shape)
        elif body.chance(0.5) or (i == 0 and body.chance(0.3)):
            fits = body.same_or_broadcast(x)
            x = body.one(body.choose(["Add", "Sub", "Mul"]), [x, fits], x.dtype, x.shape, x.bound + fits.bound * 2)
        else:
            ops = [op for op in STEPS if x.dtype in allowed_types(op, body.opset)[0]]
            x = body.one(body.choose(ops), [x], x.dtype, x.shape)
    if not x.is_float:
        return x
    return body.one("Tanh", [x], x.dtype, x.shape, 1.0)


def _condition(m: Maker) -> Value:
    """One bool: an input, a constant, or something computed."""
    kind = m.rng.randrange(3)
    if kind == 0:
        return m.input(BOOL, ())
    if kind == 1:
        return m.constant(np.array(m.chance(0.5)))
    x = m.pick(FLOATS[:2], where=lambda v: all(s.least > 0 for s in v.shape))
    top = m.one("ReduceMax", [x], x.dtype, (), keepdims=0)
    return m.one("Greater", [top, m.scalar(0.3, x.dtype)], BOOL, ())


@family("If", frequency=1.5)
def conditional(m: Maker, op: str) -> None:
    condition = _condition(m)
    targets = [m.pick([*FLOATS[:3], I64]) for _ in range(m.choose([1, 1, 2]))]
    bodies, bound = [], 4.0
    for name in ("then_branch", "else_branch"):
        body = body_maker(m)
        if m.chance(0.15) and m.outer is None and m.values:
            conditional(body, "If")
        outputs = [steps(body, t) for t in targets]
        bound = max([bound, *(o.bound for o in outputs)])
        bodies.append(finish(m, body, name, [], outputs))
    m.node(
        "If", [condition], [(t.dtype, t.shape) for t in targets], bound, then_branch=bodies[0], else_branch=bodies[1]
    )


@family("Loop", frequency=1.2)
def loop(m: Maker, op: str) -> None:
    states = [m.pick([*FLOATS[:3], I64]) for _ in range(m.choose([1, 1, 2]))]
    trips = m.choose([0, 1, 2, 3, 5])
    body = body_maker(m)
    iteration, going = own(body, I64, ()), own(body, BOOL, ())
    inside = [own(body, s.dtype, s.shape, max(s.bound, 2.0)) for s in states]
    outside = [steps(body, s) for s in inside]
    stop = trips
    if m.chance(0.25):
        stop = m.rng.randint(1, 4)
        limit = body.ints(stop - 1)
        going_on = body.one("Less", [iteration, limit], BOOL, ())
        stop = min(stop, trips)
    else:
        going_on = body.one("Identity", [going], BOOL, ())
    scanned = [outside[0]] if m.chance(0.5) else []
    if scanned:
        scanned = [body.one("Identity", [outside[0]], outside[0].dtype, outside[0].shape)]
    graph = finish(m, body, "body", [iteration, going, *inside], [going_on, *outside, *scanned])
    size = m.opaque([stop] * len(ONE.at))
    results = [*((s.dtype, s.shape) for s in states), *((s.dtype, (size, *s.shape)) for s in scanned)]
    first = m.ints(trips, runtime=m.chance(0.4)) if m.chance(0.95) else m.ints(trips)
    going_in = m.constant(np.array(True)) if m.chance(0.5) else None
    m.node("Loop", [first, going_in, *states], results, max(s.bound for s in outside + states), body=graph)


@family("Scan", frequency=1.2)
def scan(m: Maker, op: str) -> None:
    x = m.pick(FLOATS[:3], (1, 2, 3, 4), lambda v: v.shape[0].least > 0)
    states = [m.pick((x.dtype,), where=lambda v: v.rank < 4)] if m.chance(0.7) else []
    body = body_maker(m)
    inside = [own(body, s.dtype, s.shape, max(s.bound, 2.0)) for s in states]
    piece = own(body, x.dtype, x.shape[1:], x.bound)
    outside = [steps(body, s) for s in inside]
    result = steps(body, piece)
    graph = finish(m, body, "body", [*inside, piece], [*outside, result])
    reverse = m.chance(0.25)
    m.node(
        "Scan",
        [*states, x],
        [*((s.dtype, s.shape) for s in states), (x.dtype, x.shape)],
        max([1.0, *(s.bound for s in states)]),
        body=graph,
        num_scan_inputs=1,
        scan_input_directions=[1] if reverse else None,
        scan_output_directions=[1] if reverse and m.chance(0.5) else None,
    )
