"""If, Loop and Scan in the text of step_text.py: their bodies stand in Python's own branches and loops.

Owns what control.py does for plans that are not written out. Knows no native code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from .manifest import Block, HostStep, TensorSpec
from .step_blocks import PreparedBlock, PreparedStep
from .step_names import Names, Operand, Unwritten, joint, tuple_text

Given = Sequence[Operand | None]


class Writer(Protocol):
    """The text while it is written."""

    names: Names
    specs: Mapping[str, TensorSpec]
    lines: list[str]
    indent: int

    def emit(self, text: str) -> None: ...

    def block(self, prepared: PreparedBlock, given: Sequence[Operand], own: set[str]) -> list[Operand]: ...


def control_step(writer: Writer, prepared: PreparedStep, step: HostStep, given: Given) -> list[Operand]:
    """Write an operator that runs bodies; its results, one for each of its outputs.

    Raises:
        Unwritten: it is given, or gives, what only control.py knows to handle.
    """
    results = {"If": _branches, "Loop": _loop, "Scan": _scan}[step.op](writer, prepared, step, given)
    if len(results) != len(step.outputs):
        raise Unwritten
    return results


def _branches(writer: Writer, prepared: PreparedStep, step: HostStep, given: Given) -> list[Operand]:
    """If: what the branch that is taken gives."""
    results = [writer.names.new("v") for _ in step.outputs]
    sides = []
    for name, head in (("then_branch", f"if {_truth(given[0])}:"), ("else_branch", "else:")):
        writer.emit(head)
        writer.indent += 1
        side = writer.block(prepared.bodies[name], _all(given[1:]), set())
        if len(side) != len(results):
            raise Unwritten
        writer.emit(f"{tuple_text(results)} = {tuple_text(o.var for o in side)}" if results else "pass")
        writer.indent -= 1
        sides.append(side)
    found = []
    for var, name, *ends in zip(results, step.outputs, *sides, strict=True):
        spec = None if name is None else writer.specs.get(name)
        is_known = spec is not None and spec.dims is not None and all(writer.names.agree(o.spec, spec) for o in ends)
        found.append(Operand(var, spec if is_known else None, joint(ends)))
    return found


def _truth(operand: Operand | None) -> str:
    """The text of a condition."""
    return f"bool({_element(operand, 'the condition')})"


def _element(operand: Operand | None, what: str) -> str:
    """The text of the only element of a value."""
    if operand is None:
        raise Unwritten
    var = operand.var
    return f"({var}.item() if {var}.__class__ is ndarray and {var}.size == 1 else single({var}, {what!r}))"


class _Iterations(NamedTuple):
    """A loop that is written.

    Attributes:
        head: its first line. begin: lines that make what the body is given beside states. ahead, behind: of the
            body's inputs, those around the states. new: variables of these that each iteration makes.
        end: writes what the loop makes of the body's results; what is left of them are states and scan outputs.
    """

    head: str
    begin: list[str]
    ahead: list[Operand]
    behind: list[Operand]
    new: list[Operand]
    end: Callable[[list[Operand]], list[Operand]]


def _loop(writer: Writer, prepared: PreparedStep, step: HostStep, given: Given) -> list[Operand]:
    """Loop: while there are trips left and the condition holds."""
    names, body = writer.names, prepared.bodies["body"]
    own = len(given) - int(step.attrs.get("captures", 0))
    limit, condition = (*given[:2], None, None)[:2]
    going, i = names.new("g"), names.new("i")
    tests = [going]
    if limit is not None:
        most = names.new("n")
        writer.emit(f"{most} = int({_element(limit, 'the trip count')})")
        tests.append(f"{i} < {most}")
    writer.emit(f"{going}, {i} = {_truth(condition) if condition is not None else 'True'}, 0")
    counters = [Operand(names.new("v")), Operand(names.new("v"))]
    made = (f"array({i}, int64)", f"array({going})")
    begin = [f"{operand.var} = {text if _is_read(body.block, place) else 'None'}"
             for place, (operand, text) in enumerate(zip(counters, made, strict=True))]  # fmt: skip

    def end(results: list[Operand]) -> list[Operand]:
        if not results:
            raise Unwritten
        writer.emit(f"{going} = {_truth(results[0])}")
        writer.emit(f"{i} += 1")
        return results[1:]

    head = f"while {' and '.join(tests)}:"
    loop = _Iterations(head, begin, counters, _all(given[own:]), counters, end)
    return _iterations(writer, prepared, step, loop, _all(given[2:own]))


def _is_read(block: Block, place: int) -> bool:
    """Whether anything reads an input of a block."""
    name = block.inputs[place] if place < len(block.inputs) else ""
    reads = any(name in step.inputs for step in block.steps)
    return reads or name in block.outputs or any(bind.output == place for bind in block.binds)


def _scan(writer: Writer, prepared: PreparedStep, step: HostStep, given: Given) -> list[Operand]:
    """Scan: once for each slice of the scanned operands."""
    count, names = int(step.attrs["num_scan_inputs"]), writer.names
    own = len(given) - int(step.attrs.get("captures", 0))
    if count < 1 or own < count:
        raise Unwritten
    slices, attrs, i = names.new("z"), names.constant(step.attrs), names.new("i")
    scanned = ", ".join(operand.var for operand in _all(given[own - count : own]))
    writer.emit(f"{slices} = scan_slices({attrs}, [{scanned}])")
    now = [Operand(names.new("v")) for _ in range(count)]
    begin = [f"{operand.var} = scan_slice({slices}[{place}], {i})" for place, operand in enumerate(now)]
    head = f"for {i} in range(len({slices}[0])):"
    loop = _Iterations(head, begin, [], [*now, *_all(given[own:])], now, lambda results: results)
    found = _iterations(writer, prepared, step, loop, _all(given[: own - count]))
    writer.emit(f"{slices} = None")
    return found


def _iterations(
    writer: Writer, prepared: PreparedStep, step: HostStep, loop: _Iterations, states: list[Operand]
) -> list[Operand]:
    """A loop: its states are variables that the body reads and the end of an iteration sets."""
    names, body = writer.names, prepared.bodies["body"]
    carried = [Operand(names.new("v"), spec) for spec in _lasting(writer, body, len(loop.ahead), states)]
    stacks = names.new("z")
    if carried:
        writer.emit(f"{tuple_text(o.var for o in carried)} = {tuple_text(o.var for o in states)}")
    writer.emit(f"{stacks} = None")
    writer.emit(loop.head)
    writer.indent += 1
    for text in (f"allowance.tick({step.op!r})", *loop.begin):
        writer.emit(text)
    own = {operand.var for operand in (*carried, *loop.new)}
    results = loop.end(writer.block(body, [*loop.ahead, *carried, *loop.behind], own))
    scans = results[len(states) :]
    if len(results) < len(states):
        raise Unwritten
    if scans:
        writer.emit(f"if {stacks} is None: {stacks} = Stacks({len(scans)})")
        writer.emit(f"{stacks}.push({tuple_text(o.var for o in scans)})")
    if carried:
        writer.emit(f"{tuple_text(o.var for o in carried)} = {tuple_text(o.var for o in results[: len(states)])}")
    writer.indent -= 1
    left = [Operand(operand.var) for operand in carried]  # of no iteration, what the loop was given
    return [*left, *_stacked(writer, prepared, step, stacks, len(states), len(scans))]


def _lasting(writer: Writer, body: PreparedBlock, ahead: int, states: list[Operand]) -> list[TensorSpec | None]:
    """What each state is in every iteration, where what the loop is given and native code gives is that."""
    native = {name for step in body.block.steps if not isinstance(step, HostStep) for name in step.outputs}
    first = 1 if ahead else 0  # of Loop's results: the condition
    ends = body.block.outputs[first : first + len(states)]
    if len(ends) < len(states) or len(body.block.inputs) < ahead + len(states):
        raise Unwritten
    found: list[TensorSpec | None] = []
    for name, end, operand in zip(body.block.inputs[ahead:], ends, states, strict=False):
        spec = writer.specs.get(name)
        is_known = spec is not None and spec.dims is not None and end in native
        stays = is_known and writer.names.agree(operand.spec, spec) and writer.names.agree(writer.specs.get(end), spec)
        found.append(spec if stays else None)
    return found


def _stacked(
    writer: Writer, prepared: PreparedStep, step: HostStep, stacks: str, begin: int, count: int
) -> list[Operand]:
    """What becomes of a loop's scan outputs."""
    names = writer.names
    found = [names.new("v") for _ in range(count)]
    if not found:
        return []
    stacked = f"{stacks}.stacked()"
    if step.op == "Scan":
        stacked = f"scan_results({names.constant(step.attrs)}, {stacked})"
    writer.emit(f"if {stacks} is not None: {tuple_text(found)} = {stacked}")
    writer.emit("else:")
    for var, name in zip(found, step.outputs[begin:], strict=False):
        spec = names.constant(None if name is None else writer.specs.get(name))
        bound = names.constant(prepared.bound)
        writer.emit(f" {var} = empty_scan({spec}, {names.values}, {bound})")
    writer.emit(f"{stacks} = None")
    return [Operand(var, None, frozenset((var,))) for var in found]


def _all(given: Given) -> list[Operand]:
    """Operands all of which are given."""
    found = [operand for operand in given if operand is not None]
    if len(found) < len(given):
        raise Unwritten
    return found
