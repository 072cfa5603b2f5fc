"""If, Loop and Scan: which bodies run, how often, and what becomes of their results. Knows no plan and no native code.

Operands and body inputs end with the captured values. A scan output of no iterations is None: only the plan knows its
type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InvalidInput
from .limits import current

Body = Callable[[list[Any]], list[Any]]
ControlOp = Callable[[Mapping[str, Any], list[Any], Mapping[str, Body]], list[Any]]


def single(value: Any, what: str) -> Any:
    """The only element of an operand.

    Raises:
        InvalidInput: it has none or several.
    """
    array = np.asarray(value)
    if array.size != 1:
        raise InvalidInput(f"{what} must be one element", found=list(array.shape))
    return array.item()


def truth(value: Any) -> bool:
    """A condition. Raises InvalidInput: it is not one element."""
    return bool(single(value, "the condition"))


def run_if(attributes: Mapping[str, Any], operands: list[Any], bodies: Mapping[str, Body]) -> list[Any]:
    """The results of the branch that the condition chooses. Raises InvalidInput for a condition that is not one."""
    return bodies["then_branch" if truth(operands[0]) else "else_branch"](operands[1:])


def run_loop(attributes: Mapping[str, Any], operands: list[Any], bodies: Mapping[str, Body]) -> list[Any]:
    """Final states and stacked scan outputs.

    Raises:
        InvalidInput: a trip count or condition that is not one element.
        ResourceLimit: scan outputs grow beyond the request's memory, or its time is over.
    """
    own = len(operands) - int(attributes.get("captures", 0))
    states, captured = operands[2:own], operands[own:]
    limit, condition = (*operands[:2], None, None)[:2]  # both may be left out
    trips = None if limit is None else int(single(limit, "the trip count"))
    going, i = condition is None or truth(condition), 0
    scans: Stacks | None = None
    allowance = current()
    while going and (trips is None or i < trips):
        allowance.tick("Loop")
        results = bodies["body"]([np.array(i, np.int64), np.array(going), *states, *captured])
        going, states = truth(results[0]), results[1 : 1 + len(states)]
        scans = scans or Stacks(len(results) - 1 - len(states))
        scans.push(results[1 + len(states) :])
        i += 1
    return [*states, *(scans.stacked() if scans else ())]


def run_scan(attributes: Mapping[str, Any], operands: list[Any], bodies: Mapping[str, Body]) -> list[Any]:
    """Final states and stacked scan outputs, over slices of the scanned operands.

    Raises:
        ResourceLimit: scan outputs grow beyond the request's memory, or its time is over.
    """
    count = int(attributes["num_scan_inputs"])
    own = len(operands) - int(attributes.get("captures", 0))
    states, scanned, captured = operands[: own - count], operands[own - count : own], operands[own:]
    slices = scan_slices(attributes, scanned)
    scans: Stacks | None = None
    allowance = current()
    for i in range(len(slices[0])):
        allowance.tick("Scan")
        results = bodies["body"]([*states, *(scan_slice(x, i) for x in slices), *captured])
        states = results[: len(states)]
        scans = scans or Stacks(len(results) - len(states))
        scans.push(results[len(states) :])
    return states if scans is None else [*states, *scan_results(attributes, scans.stacked())]


def scan_slices(attributes: Mapping[str, Any], scanned: Sequence[Any]) -> list[Any]:
    """The scanned operands, iterations first, in the order of the iterations."""
    axes = attributes.get("scan_input_axes") or [0] * len(scanned)
    backward = attributes.get("scan_input_directions") or [0] * len(scanned)
    return [np.moveaxis(x, a, 0)[:: -1 if b else 1] for x, a, b in zip(scanned, axes, backward, strict=True)]


def scan_slice(turned: Any, i: int) -> Any:
    """What iteration `i` gets of an operand of `scan_slices`."""
    return np.ascontiguousarray(turned[i]).reshape(turned.shape[1:])


def scan_results(attributes: Mapping[str, Any], stacked: Sequence[Any]) -> list[Any]:
    """Stacked scan outputs, with the iterations along the axes and in the order that Scan wants."""
    axes = attributes.get("scan_output_axes") or [0] * len(stacked)
    reverse = attributes.get("scan_output_directions") or [0] * len(stacked)
    return [np.moveaxis(x[:: -1 if b else 1], 0, a) for x, a, b in zip(stacked, axes, reverse, strict=True)]


class Stacks:
    """Scan outputs while they grow."""

    def __init__(self, count: int) -> None:
        self.rows: list[list[Any]] = [[] for _ in range(count)]
        self.nbytes = 0

    def push(self, values: Sequence[Any]) -> None:
        """One iteration's elements. Raises ResourceLimit if they do not fit."""
        allowance = current()
        for rows, value in zip(self.rows, values, strict=True):
            rows.append(value)
            nbytes = value.nbytes
            allowance.afford(nbytes, "scan outputs")
            allowance.stacked += nbytes
            self.nbytes += nbytes

    def stacked(self) -> list[Any]:
        """One array per output, a new first axis counting iterations."""
        for rows in self.rows:
            if any(row.shape != rows[0].shape for row in rows):
                raise _ragged(rows)
        allowance = current()
        allowance.afford(self.nbytes, "scan outputs")  # the rows and the whole for a moment
        stacked = [np.stack(rows) for rows in self.rows]
        allowance.stacked -= self.nbytes
        return stacked


def _ragged(rows: Sequence[Any]) -> InvalidInput:
    shapes = sorted({row.shape for row in rows})[:4]
    return InvalidInput("a scan output changes its shape between iterations", expected="one shape", found=shapes)


CONTROL_OPS: Mapping[str, ControlOp] = {"If": run_if, "Loop": run_loop, "Scan": run_scan}
