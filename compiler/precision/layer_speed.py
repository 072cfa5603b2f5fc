"""Which layers are slower in 8 bits than in f32, by profiles of both plans, recorded in turns.

Knows seconds of kernels, not of plans: what a rounding beside a layer costs may be counted elsewhere, so a choice that
rests on this is measured as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace

from ...runtime.session import Session
from ..driver import compile_graph
from ..ir.graph import Graph
from ..options import CompileOptions
from .samples import Request
from .trials import trial_options

ROUNDS = 5
CALLS = 8  # of each plan in a round
Seconds = dict[str, float]


def slower_nodes(
    lower: Graph, exact: Graph, nodes: Collection[str], requests: Sequence[Request], options: CompileOptions
) -> set[str]:
    """The nodes, by their ONNX names, whose kernels take longer in the first graph than in the second.

    Args:
        nodes: to compare; one that has no kernel of its own in either is not among the results.
    """
    profiled = replace(trial_options(options), profile=True)
    rounds: list[tuple[Seconds, Seconds]] = []
    with ExitStack() as stack:
        sessions = [stack.enter_context(compile_graph(g.clone(), profiled).session()) for g in (lower, exact)]
        for session in sessions:
            session.run(requests[0].inputs)
        for _ in range(ROUNDS):
            ours, theirs = (_seconds(session, nodes, requests) for session in sessions)
            rounds.append((ours, theirs))
    return {name for name in nodes if _least(rounds, name, 0) > _least(rounds, name, 1)}


def _seconds(session: Session, nodes: Collection[str], requests: Sequence[Request]) -> Seconds:
    """Of a request; a kernel that serves several of the nodes counts in equal parts."""
    with session.profile() as profile:
        for i in range(CALLS):
            session.run(requests[i % len(requests)].inputs)
    found: Seconds = {}
    for operator in profile.operators:
        served = [name for name in operator["names"] if name in nodes]
        for name in served:
            found[name] = found.get(name, 0.0) + operator["seconds"] / len(served)
    return found


def _least(rounds: Sequence[tuple[Seconds, Seconds]], name: str, side: int) -> float:
    """The quickest round: whatever disturbs one adds to its time."""
    return min(each[side].get(name, 0.0) for each in rounds)
