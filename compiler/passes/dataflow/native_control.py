"""Which operators with bodies become one native function: those whose bodies are native, of sizes that stay.

Owns the choice. Nothing is changed but `HostStep.is_native`; kernels and passes of the bodies' steps are the same
either way. It must not know how native code repeats a body.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ....log import EVERYTHING_DONE, tell
from ...ir.graph import Value
from ...ir.ops.base import Control
from ...ir.ops.iterations import Iterations
from ...ir.types import Dim, SymDim, TensorType, Type, is_native, symbols_of
from .split_steps import Block, HostStep, NativeStep, Step


def choose_native(block: Block, known: Collection[str]) -> None:
    """Mark the operators with bodies that become native functions, bodies of others included.

    Args:
        known: the symbols that the plan's inputs tell.
    """
    _choose(block.steps, frozenset(known))


def _choose(steps: Sequence[Step], known: frozenset[str]) -> None:
    for step in steps:
        if not isinstance(step, HostStep):
            continue
        if step.bodies:
            reason = obstacle(step, known)
            step.is_native = reason is None
            if reason is not None:
                tell(EVERYTHING_DONE, f"  {step.node.where}: step by step: {reason}")
                for body in step.bodies.values():
                    _choose(body.steps, known | _symbols(body.graph.inputs))
        known |= _symbols(step.node.outputs)


def _symbols(values: Sequence[Value]) -> frozenset[str]:
    shapes = [v.type.shape for v in values if isinstance(v.type, TensorType) and v.type.shape is not None]
    return frozenset(symbol for shape in shapes for symbol in symbols_of(shape))


def obstacle(step: HostStep, known: Collection[str], is_inside: bool = False) -> str | None:
    """Why an operator with bodies cannot be a native function; None if it can.

    Args:
        known: symbols that have a value where it begins. is_inside: it is in the body of another one, so that nobody
            else counts its iterations.
    """
    return next(_obstacles(step, frozenset(known), is_inside), None)


def _obstacles(step: HostStep, known: frozenset[str], is_inside: bool) -> Iterator[str]:
    op = step.node.op
    if not isinstance(op, Control):
        yield f"{op.name} runs on the host"
        return
    how = op.iterations(len(step.inputs), [v.type for v in step.node.outputs])
    yield from _outer(step, how, known, is_inside)
    for name, body in step.bodies.items():
        yield from _sizes(body.graph.inputs, known, f"inputs of {name}")
        yield from _sizes(body.graph.outputs, known, f"results of {name}")
        if any(symbols_of(pair) for pair in body.graph.constraints):
            yield f"sizes in {name} are to be checked"
        if how is None:
            yield from _changed(body.graph.outputs, step.node.outputs, "a result of a branch")
        yield from _inner(body, known)
    captures = step.node.operands[len(step.node.operands) - op.captures :]
    for body in step.bodies.values():
        yield from _changed(body.graph.inputs[len(body.inputs) - op.captures :], captures, "a captured value")
    if how is not None:
        yield from _states(step, how, next(iter(step.bodies.values())))


def _outer(step: HostStep, how: Iterations | None, known: frozenset[str], is_inside: bool) -> Iterator[str]:
    """Operands and results."""
    node = step.node
    if how is None or not how.is_counted:
        yield from _sizes(node.operands, known, "operands")
        yield from _single(node.operands[:1]) if how is None else ()
    else:
        yield from _sizes([v for v in node.inputs[2:] if v is not None], known, "operands")
        if is_inside:
            yield from _counted_inside(node.inputs[:2], known)
    n_states = 0 if how is None else how.n_states
    for i, (v, name) in enumerate(zip(node.outputs, step.outputs, strict=True)):
        if name is None:
            continue
        is_led = how is not None and how.is_counted and not is_inside and i >= n_states
        yield from _size(v.type, known, f"result {i}", 1 if is_led else 0)


def _counted_inside(ahead: Sequence[Value | None], known: frozenset[str]) -> Iterator[str]:
    """The trip count and the condition of a loop in a body."""
    trips, condition = (*ahead, None, None)[:2]
    number = number_of(trips)
    if number is None or not symbols_of((number,)) <= known:
        yield "only a run knows how often a loop in a body runs"
    if condition is not None:
        yield from _sizes([condition], frozenset(), "the condition")
        yield from _single([condition])


def number_of(v: Value | None) -> Dim | None:
    """A number that is known when compiling, or computed of sizes; None if it is neither."""
    content = None if v is None else v.data if v.data is not None else v.known
    if content is None or content.size != 1:
        return None
    number = content.item()
    return number if isinstance(number, (int, SymDim)) else None


def _sizes(values: Sequence[Value], known: frozenset[str], what: str) -> Iterator[str]:
    for i, v in enumerate(values):
        yield from _size(v.type, known, f"{what}, {i}")


def _size(t: Type, known: frozenset[str], what: str, first: int = 0) -> Iterator[str]:
    """`first`: the axis from which on lengths are to be known."""
    if not isinstance(t, TensorType) or t.shape is None or not is_native(t):
        yield f"{what}: {t} is no tensor of native code"
    elif t.layout is not None or t.within is not None:
        yield f"{what}: {t} lies in another order"
    elif not symbols_of(t.shape[first:]) <= known:
        yield f"{what}: only a run knows the sizes of {t}"


def _changed(found: Sequence[Value], wanted: Sequence[Value], what: str) -> Iterator[str]:
    for a, b in zip(found, wanted, strict=True):
        if a.type != b.type:
            yield f"{what} changes from {b.type} to {a.type}"


def _states(step: HostStep, how: Iterations, body: Block) -> Iterator[str]:
    """What iterations hand on, and the slices of each."""
    graph, operands = body.graph, [v for v in step.node.inputs[how.n_ahead :] if v is not None]
    states = graph.inputs[how.n_ahead : how.n_ahead + how.n_states]
    yield from _changed(states, operands[: how.n_states], "a state")
    yield from _changed(graph.outputs[how.n_results_ahead :][: how.n_states], states, "a state")
    slices = graph.inputs[how.n_ahead + how.n_states :][: len(how.scanned)]
    pairs = [*zip(slices, operands[how.n_states :], how.scanned, strict=False)]
    rows = graph.outputs[how.n_results_ahead + how.n_states :]
    pairs += [*zip(rows, step.node.outputs[how.n_states :], how.stacked, strict=True)]
    for inner, outer, along in pairs:
        if not isinstance(outer.type, TensorType) or not isinstance(inner.type, TensorType) or outer.type.shape is None:
            yield f"{outer.type} has no slices"
            continue
        axis = along.axis_of(len(outer.type.shape))
        if inner.type != TensorType(outer.type.dtype, (*outer.type.shape[:axis], *outer.type.shape[axis + 1 :])):
            yield f"a slice of {outer.type} is {inner.type}"
    if how.is_counted:
        yield from _single([*graph.inputs[:2], graph.outputs[0]])


def _single(values: Sequence[Value]) -> Iterator[str]:
    for v in values:
        if not isinstance(v.type, TensorType) or any(dim != 1 for dim in v.type.shape or ()):
            yield f"the number or condition of a body is {v.type}, not one element"


def _inner(body: Block, known: frozenset[str]) -> Iterator[str]:
    for step in body.steps:
        if isinstance(step, NativeStep):
            yield from _sizes([*step.graph.inputs, *step.graph.outputs], known, "a value of a body")
        else:
            yield from _obstacles(step, known, is_inside=True)


__all__ = ["choose_native", "number_of", "obstacle"]
