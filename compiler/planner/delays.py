"""Delayed start (ParaX) as a candidate: where instances that begin together would meet at the memory, some begin later.

Owns which delays are tried. Deep models, of which a call is long and memory-bound only here and there, get none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .candidate import SEQUENTIAL, Load
from .choice import GAIN, Row
from .planner import Planner

MEMORY_BOUND = 0.25  # of the kernels' time: below, there is nothing to take turns at
GROUPS = (2, 4)
SHARES = (0.125, 0.25, 0.5)  # of a call: how much later the last group begins


def delayed(planner: Planner, load: Load, rows: Sequence[Row]) -> list[Row]:
    """The best sequential candidate of several instances with the delay that is predicted to gain most, if any does.

    Args:
        rows: the candidates without a delay.
    """
    several = [row for row in rows if row.predicted.active > 1 and row.candidate.mode == SEQUENTIAL]
    if not several:
        return []
    plain = min(several, key=lambda row: row.cost(load))
    p = plain.predicted
    if p.memory_share < MEMORY_BOUND:
        return []
    found = []
    for groups in GROUPS:
        for share in SHARES:
            late = share * p.seconds / p.calls / (groups - 1)
            candidate = replace(plain.candidate, delay_groups=groups, delay_seconds=late)
            if groups <= p.active:
                found.append(Row(candidate, planner.predictor.predict(candidate, load)))
    best = min(found, key=lambda row: row.cost(load))
    return [best] if best.cost(load) <= plain.cost(load) * (1 - GAIN) else []
