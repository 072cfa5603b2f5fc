"""Other instances of the same cores for requests of some sizes, by prediction: what a session does with one row where
it was planned for 64, and the reverse.

Owns the table of rows → instances × cores that a plan keeps. What things take is asked of the predictor.
"""

from __future__ import annotations

from dataclasses import replace

from ...runtime.manifest import SizeRule
from .candidate import PIPELINED, SEQUENTIAL, Candidate, Load, arrangements
from .choice import Choice
from .planner import Planner

# Chosen, not measured.
MIN_SPEEDUP = 1.10  # times as long as others take: what the planned instances must be predicted to
SMALL = 8  # rows: up to here every number is looked at, as an odd one leaves an instance idle; then powers of two
MOST = 64  # rows, the most that the table is about; chosen, not measured
MOST_NODES = 1500  # the table asks for dozens of predictions, each of a fifth of a millisecond a node


def size_rules(
    planner: Planner, choice: Choice, rows_a_call: int | None, least: int = 1, most: int | None = None
) -> tuple[SizeRule, ...]:
    """Where other instances are predicted to answer one request at a time clearly sooner than the chosen ones.

    Args:
        rows_a_call: at most, of large requests. least, most: rows of a request; None: any number.
    """
    chosen = choice.candidate
    if planner.symbol is None or rows_a_call is None or planner.n_cores == 1 or chosen.mode == PIPELINED:
        return ()
    if len(planner.graph) > MOST_NODES:
        return ()
    gain = _gain(planner, chosen, choice.load)
    sizes = [n for n in (*range(1, SMALL), *(1 << i for i in range(3, MOST.bit_length()))) if least <= n <= (most or n)]
    found: list[SizeRule] = []
    for n, following in zip(sizes, [*sizes[1:], None], strict=True):
        best = _best(planner, chosen, n, rows_a_call, gain)
        end = most if following is None else following - 1
        if best is None:
            continue
        last = found[-1] if found else None
        if last is not None and last.most == n - 1 and (last.instances, last.cores_each) == best:
            found[-1] = last._replace(most=end)
        else:
            found.append(SizeRule(n, end, *best))
    return tuple(found)


def _gain(planner: Planner, chosen: Candidate, load: Load) -> float:
    """How many times as long the sequential mode takes as the chosen one, for the load that it was chosen for."""
    if chosen.mode == SEQUENTIAL:
        return 1.0
    predict = planner.predictor.predict
    return predict(replace(chosen, mode=SEQUENTIAL), load).seconds / predict(chosen, load).seconds


def _best(planner: Planner, chosen: Candidate, rows: int, most: int, gain: float) -> tuple[int, int] | None:
    """Instances × cores for a request of so many rows; None: the chosen ones."""
    own = chosen.instances, chosen.cores_each
    seconds = {shape: _seconds(planner, *shape, rows, most) for shape in {own, *arrangements(planner.n_cores)}}
    best = min(seconds, key=lambda shape: seconds[shape])
    return best if best != own and seconds[own] / gain > seconds[best] * MIN_SPEEDUP else None


def _seconds(planner: Planner, instances: int, cores_each: int, rows: int, most: int) -> float:
    candidate = Candidate(instances, cores_each, min(most, -(-rows // instances)))
    found = planner.predictor.predict(candidate, Load(rows))
    return found.seconds + found.exposed_seconds
