"""Loops that a model gives no end: neither a trip count nor a condition that could ever be false.

What only the run can tell is left to it: its loops can be interrupted, and `max_seconds` and `max_memory` end them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import InvalidModel
from ..ir.graph import Graph, Value

ENDLESS = 1 << 40
"""Trips that nobody waits for: twelve days at a microsecond each. Exporters write 2^63 - 1 for `while`."""


def refuse_endless(operands: Sequence[Value | None], body: Graph, where: str) -> None:
    """Raises InvalidModel for a Loop (its trip count, condition and states; its body) that never ends."""
    trips, condition = operands[0], operands[1]
    count = None if trips is None else _constant(trips)
    if trips is not None and (count is None or count < ENDLESS):
        return
    begins = True if condition is None else _constant(condition)
    goes_on = _source(body.outputs[0])
    stays = goes_on is body.inputs[1] or _constant(goes_on) == 1
    if begins and stays:
        raise InvalidModel("the loop never ends", where=where, expected="a trip count or a condition that changes",
                           found="neither", hint="give the Loop a trip count")  # fmt: skip


def _source(value: Value) -> Value:
    """The value that this one is a copy of."""
    while value.producer is not None and value.producer.op.name == "Identity":
        (value,) = value.producer.operands
    return value


def _constant(value: Value) -> int | None:
    """The only element, where it is known."""
    content = _source(value).data
    if content is None or content.size != 1 or content.dtype.kind not in "iub":
        return None
    return int(content.reshape(-1)[0])
