"""A plan's steps with what they need to run: operators looked up once, uses and constraints counted.

Knows no request and no native code.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from ..errors import IncompatiblePlan
from .control import CONTROL_OPS, ControlOp
from .dims import symbols_of
from .manifest import Block, Constraint, HostStep, Manifest, Step

if TYPE_CHECKING:
    from .host_ops import HostOp


class PreparedStep(NamedTuple):
    """A step with what it needs to run.

    Attributes:
        host: for an operator that Python executes. control, bodies: for one that runs bodies; of a native loop, which
            native_loops.py runs, all are absent.
        dead: values that nothing needs afterwards. constraints: what can be checked afterwards, and not before.
        bound: symbols that have a value before.
    """

    step: Step
    host: HostOp | None
    control: ControlOp | None
    bodies: dict[str, PreparedBlock]
    dead: list[str]
    constraints: list[Constraint]
    bound: frozenset[str]


class PreparedBlock(NamedTuple):
    """A block with its steps made ready, and the constraints that hold from the beginning."""

    block: Block
    steps: list[PreparedStep]
    constraints: list[Constraint]


def prepared(manifest: Manifest) -> PreparedBlock:
    """The whole plan.

    Raises:
        IncompatiblePlan: a host operator that this runtime has not.
    """
    return _prepared(manifest.main(), {s.name for s in manifest.symbols if s.input is not None}, manifest.constants)


def _prepared(block: Block, bound: set[str], constants: Collection[str]) -> PreparedBlock:
    bound = bound | {bind.symbol for bind in block.binds}
    pending = list(block.constraints)

    def checkable() -> list[Constraint]:
        found = [c for c in pending if symbols_of(c.left) | symbols_of(c.right) <= bound]
        pending[:] = [c for c in pending if c not in found]
        return found

    first = checkable()
    steps = []
    for step, dead in zip(block.steps, _last_uses(block, constants), strict=True):
        bodies: dict[str, PreparedBlock] = {}
        host, control, before = None, None, frozenset(bound)
        if isinstance(step, HostStep):
            if step.bodies:
                control = _control_op(step)
            elif step.native is None:
                host = _host_op(step)
            bodies = {name: _prepared(body, bound, constants) for name, body in step.bodies.items()}
            bound |= {bind.symbol for bind in step.binds}
        steps.append(PreparedStep(step, host, control, bodies, dead, checkable(), before))
    return PreparedBlock(block, steps, first)


def _last_uses(block: Block, constants: Collection[str]) -> list[list[str]]:
    """Per step, the values that nothing needs afterwards."""
    needed = {*block.outputs, *constants}
    dead: list[list[str]] = []
    for step in reversed(block.steps):
        names = {name for name in (*step.inputs, *step.outputs) if name is not None}
        dead.append(sorted(names - needed))
        needed |= names
    return dead[::-1]


def _control_op(step: HostStep) -> ControlOp:
    try:
        return CONTROL_OPS[step.op]
    except KeyError:
        hint = "use a newer parax"
        raise IncompatiblePlan("this runtime lacks a control operator", found=step.op, hint=hint) from None


def _host_op(step: HostStep) -> HostOp:
    from .host_ops import HOST_OPS  # here: most plans have no host operators

    try:
        prepare = HOST_OPS[step.domain, step.op]
    except KeyError:
        name = f"{step.domain or 'ai.onnx'}.{step.op}"
        raise IncompatiblePlan("this runtime lacks a host operator", found=name, hint="use a newer parax") from None
    return prepare(step.attrs)
