"""What each node of a model takes while the model runs: lower quartiles of recorded runs, for some numbers of cores.

Owns the measuring of nodes, by which layers are planned and predictions are judged. A node's time is from the first
start of its kernels to the first start of the next node's, so that calls and barriers are in it and nodes add up to the
run. Requests follow one another at once while they are recorded, as under load: after a pause the cores must be woken,
which the first node would seem to take. It must not know what is made of it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Generic, TypeVar

from ...runtime.profiling.notes import notes_of
from ...runtime.profiling.recorder import KernelSpan, Recorder

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.plan import Plan
    from ...runtime.session import Session

ROUNDS = 6  # in which every number of cores has its turn
ROUND_SECONDS = 0.05  # of recorded runs in a turn, at least LEAST_RUNS of them
LEAST_RUNS, WARM_UPS = 2, 2  # the caches are the other session's before a turn
MOST_RUNS = 50  # in a turn: what the logs have room for
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
    keys = notes_of(traced.manifest).values
    found: dict[str, dict[int, float]] = defaultdict(dict)
    with ExitStack() as stack:
        recordings = {}
        for n in counts:
            session = stack.enter_context(traced.session(
                instances=1, cores=tuple(cores[:n]), cores_per_instance=n, micro_batch=rows, mode="sequential"
            ))  # fmt: skip
            recordings[n] = Recording(session, keys, inputs)
        times: dict[tuple[str, int], list[float]] = defaultdict(list)
        for _ in range(ROUNDS):
            for n, recording in recordings.items():
                for own, _ in recording.turn(ROUND_SECONDS):
                    for name, seconds in own.items():
                        times[name, n].append(seconds)
    for (name, n), listed in times.items():
        found[name][n] = lower_quartile(listed)
    return dict(found)


class Recording(Generic[Key]):
    """A session that runs the same request again and again and says what the nodes took."""

    def __init__(self, session: Session, keys: Sequence[Key], inputs: Mapping[str, np.ndarray], instances: int = 1):
        """`keys`: of each kernel call, its node. `instances`: of the session; one of them may serve for all."""
        self.session, self.keys, self.inputs = session, keys, inputs
        self.recorder = Recorder(session, 2 * (len(keys) + 1) * instances * (MOST_RUNS + WARM_UPS))

    def turn(self, seconds: float) -> list[tuple[dict[Key, float], float]]:
        """Run for so long: the nodes' seconds and the whole in each native call, but for each instance's first ones."""
        runs, began = 0, time.perf_counter()
        self.recorder.start()
        while runs < WARM_UPS + LEAST_RUNS or (runs < MOST_RUNS and time.perf_counter() - began < seconds):
            self.session.run(self.inputs)
            runs += 1
        return [slots(call, self.keys) for number, call in native_calls(self.recorder.stop()) if number >= WARM_UPS]


def native_calls(spans: Sequence[KernelSpan]) -> list[tuple[int, list[KernelSpan]]]:
    """Spans by native call: its number among those of its instance, and what its cores did in it."""
    seen: dict[tuple[int, int, int], int] = defaultdict(int)
    calls: dict[tuple[int, int], list[KernelSpan]] = defaultdict(list)
    for span in spans:
        key = span.instance, span.core, span.call
        calls[seen[key], span.instance].append(span)
        seen[key] += 1
    return [(number, own) for (number, _), own in sorted(calls.items(), key=lambda item: item[0])]


def lower_quartile(times: Sequence[float]) -> float:
    """What a run takes that is little disturbed: others share the machine."""
    return sorted(times)[(len(times) - 1) // 4]


def slots(spans: Sequence[KernelSpan], keys: Sequence[Key]) -> tuple[dict[Key, float], float]:
    """Seconds of each node and of the whole in one native call.

    Args:
        keys: of each kernel call, its node.
    """
    seconds: dict[Key, float] = defaultdict(float)
    first: dict[int, float] = {}
    for span in spans:
        first[span.call] = min(span.start, first.get(span.call, span.start))
    starts = [first[call] for call in range(len(keys))]
    starts.append(max(span.end for span in spans))
    for call, key in enumerate(keys):
        seconds[key] += starts[call + 1] - starts[call]
    return dict(seconds), starts[-1] - starts[0]


__all__ = ["Recording", "lower_quartile", "native_calls", "node_seconds", "slots"]
