"""What each node of a model takes while the model runs: lower quartiles of recorded runs, for some numbers of cores.

Owns the measuring of nodes, by which layers are planned and predictions are judged. A node's time is from the first
start of its kernels to the first start of the next node's, so that calls and barriers are in it and nodes add up to the
run. It must not know what is made of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from ...runtime.trace import KernelSpan, Recorder

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.plan import Plan

ROUNDS = 6  # in which every number of cores has its turn
ROUND_SECONDS = 0.05  # of recorded runs in a turn, at least LEAST_RUNS of them
LEAST_RUNS, WARM_UPS = 2, 2  # the caches are the other session's before a turn
FEWEST_CALLS = 2 * ROUNDS * (LEAST_RUNS + WARM_UPS)  # of which measuring consists, on two numbers of cores
Key = TypeVar("Key", bound=Hashable)


def node_seconds(
    traced: Plan, inputs: Mapping[str, np.ndarray], rows: int | None, cores: Sequence[int], counts: Iterable[int]
) -> dict[str, dict[int, float]]:
    """Seconds of every node in a call of one instance: name of its first output → number of cores → seconds.

    Args:
        traced: a plan of one native step, built to record. inputs: of a request that is one call.
        rows: of the call; None where requests are not cut. counts: numbers of cores, the first of `cores`.
    """
    keys = traced.manifest.provenance["values"]
    found: dict[str, dict[int, float]] = defaultdict(dict)
    with ExitStack() as stack:
        recorders = {}
        for n in counts:
            session = stack.enter_context(traced.session(
                instances=1, cores=tuple(cores[:n]), cores_per_instance=n, micro_batch=rows, mode="sequential"
            ))  # fmt: skip
            recorders[n] = session, Recorder(session)
        times: dict[tuple[str, int], list[float]] = defaultdict(list)
        for _ in range(ROUNDS):
            for n, (session, recorder) in recorders.items():
                for _ in range(WARM_UPS):
                    session.run(inputs)
                spent, runs = 0.0, 0
                while runs < LEAST_RUNS or spent < ROUND_SECONDS:
                    recorder.start()
                    session.run(inputs)
                    own, total = slots(recorder.stop(), keys)
                    spent, runs = spent + total, runs + 1
                    for name, seconds in own.items():
                        times[name, n].append(seconds)
    for (name, n), listed in times.items():
        found[name][n] = lower_quartile(listed)
    return dict(found)


def lower_quartile(times: Sequence[float]) -> float:
    """What a run takes that is little disturbed: others share the machine."""
    return sorted(times)[(len(times) - 1) // 4]


def slots(spans: Sequence[KernelSpan], keys: Sequence[Key]) -> tuple[dict[Key, float], float]:
    """Seconds of each node and of the whole call in one run, means over instances.

    Args:
        keys: of each kernel call, its node.
    """
    instances = sorted({span.instance for span in spans})
    seconds: dict[Key, float] = defaultdict(float)
    total = 0.0
    for instance in instances:
        own = [span for span in spans if span.instance == instance]
        first: dict[int, float] = {}
        for span in own:
            first[span.call] = min(span.start, first.get(span.call, span.start))
        starts = [first[call] for call in range(len(keys))]
        starts.append(max(span.end for span in own))
        for call, key in enumerate(keys):
            seconds[key] += (starts[call + 1] - starts[call]) / len(instances)
        total += (starts[-1] - starts[0]) / len(instances)
    return dict(seconds), total


__all__ = ["lower_quartile", "node_seconds", "slots"]
