"""Bars of a timeline: from a simulated run, and from what a traced plan recorded.

Owns what is drawn of each: one call on every instance that takes part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...runtime.profiling.recorder import KernelSpan, Recorder
from ...runtime.stamps import MAX_CALLS
from .draw import Bar, Panel
from .measure import open_session
from .partition.simulate import Timeline
from .partition.works import Work

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.plan import Plan
    from .candidate import Candidate

WARM_UPS = 3


def predicted_panel(title: str, works: Sequence[Work], timeline: Timeline, n_cores: int) -> Panel:
    """A simulated run as bars, one for each core of each span."""
    bars = [
        Bar(core, span.start, span.end, works[span.work].name, works[span.work].cost.kind)
        for span in timeline.spans
        for core in range(span.cores[0], span.cores[0] + span.cores[1])
        if span.end > span.start
    ]
    return Panel(title, n_cores, bars)


def recorded_spans(
    traced: Plan, candidate: Candidate, cores: Sequence[int], inputs: Mapping[str, np.ndarray]
) -> list[KernelSpan]:
    """What ran when, during one request to a warm session of a traced plan."""
    with open_session(traced, candidate, cores) as session:
        recorder = Recorder(session)
        for _ in range(WARM_UPS):
            session.run(inputs)
        recorder.start()
        session.run(inputs)
        return recorder.stop()


def measured_panel(
    title: str, spans: Sequence[KernelSpan], labels: Sequence[str], kinds: Mapping[str, str], cores: Sequence[int]
) -> Panel:  # fmt: skip
    """Recorded spans of every instance's first call as bars.

    Args:
        labels: of the kernel calls, by number within their segment. kinds: label → kind of work.
        cores: in the order of the rows.
    """
    first = first_calls(spans)
    began = min((span.start for span in first), default=0.0)
    rows = {core: row for row, core in enumerate(cores)}
    bars = [
        Bar(rows[span.core], span.start - began, span.end - began, label, kinds.get(label, ""))
        for span in first
        for label in labels[span.call % MAX_CALLS : span.call % MAX_CALLS + 1]
    ]
    return Panel(title, len(cores), bars)


def first_calls(spans: Sequence[KernelSpan]) -> list[KernelSpan]:
    """Of every core, the spans before a kernel runs there for the second time."""
    seen: set[tuple[int, int]] = set()
    repeated: set[int] = set()
    kept = []
    for span in spans:
        key = span.core, span.call
        if key in seen:
            repeated.add(span.core)
        seen.add(key)
        if span.core not in repeated:
            kept.append(span)
    return kept
