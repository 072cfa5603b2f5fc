"""Makes a profile of a session: has it record, and puts what was recorded together with what the plan says of it.

Owns the `with` block of Session.profile.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...errors import InvalidInput, ResourceLimit, UsageError
from ..cpu import cpu_name
from ..dims import Dim, evaluate
from ..stamps import MAX_CALLS
from .accounting import Account, account
from .notes import Notes, notes_of
from .profile import FORMAT, Profile
from .profiled import Profiled
from .recorder import Log, Recorder
from .watch import Request, Watch

MOST_STAMPS = 1 << 18  # of a thread: 4 MiB of memory
MOST_SPANS = 20_000  # in a profile's timeline
QUANTILES = (0.5, 0.9, 0.99)


@contextmanager
def profiling(session: Profiled, capacity: int = MOST_STAMPS) -> Iterator[Profile]:
    """See Session.profile."""
    notes = notes_of(session.plan.manifest)
    recorder = Recorder(session, capacity) if session.plan.manifest.native_steps() else None
    profile = Profile()
    with _watched(session) as watch:
        if recorder is not None:
            recorder.start()
        began = time.perf_counter()
        try:
            yield profile
        finally:
            log = recorder.finish() if recorder is not None else Log.empty()
    added = account(log, watch.requests, watch.hosts)
    profile.fill(_Document(session, notes, added, began).json())


@contextmanager
def _watched(session: Profiled) -> Iterator[Watch]:
    """Note the session's requests and host steps while the body runs.

    Raises:
        UsageError: somebody else does.
    """
    if session.watch is not None:
        raise UsageError("the session is being profiled already", where=f"session of {session.plan.name!r}",
                         hint="end the other `with session.profile()` block first")  # fmt: skip
    watch = Watch([spec.name for spec in session.plan.manifest.inputs])
    session.watch = session.program.watch = watch
    try:
        yield watch
    finally:
        session.watch = session.program.watch = None


class _Document:
    """A profile's JSON form in the making."""

    def __init__(self, session: Profiled, notes: Notes, added: Account, began: float) -> None:
        self.session, self.notes, self.added, self.began = session, notes, added, began
        self.n_requests = len(added.requests)
        self.n_cores = max(1, len(added.cores))
        self.sizes = self._sizes()

    def json(self) -> dict[str, Any]:
        """All of it."""
        session, added = self.session, self.added
        each = max(1, self.n_requests)
        latencies = [r.end - r.start for r in added.requests] or [0.0]
        shown = self._shown()
        inside = self._kernels_of(shown)
        operators = self._operators(inside)
        return {
            "format": FORMAT, "plan": session.plan.name, "cpu": cpu_name(), "target": session.target,
            "mode": session.mode, "instances": session.instances, "cores_per_instance": len(session.core_groups[0]),
            "requests": self.n_requests, "native_calls": added.n_native, "is_cut": added.is_cut,
            "seconds_per_request": added.in_flight / each,
            "latency": {"mean": float(np.mean(latencies)),
                        **{f"p{q * 100:.0f}": float(np.quantile(latencies, q)) for q in QUANTILES}},
            "outside": sum(core.outside for core in added.cores) / self.n_cores / each,
            "entering": self._entering() / self.n_cores / each,
            "sizes": [{"requests": n, **values} for values, n in self.sizes],
            "cores": [core._asdict() for core in added.cores],
            "machine": dict(self.notes.machine) if self.notes.machine is not None else None,
            "operators": operators, "timeline": self._timeline(shown, operators), "memory": self._memory(inside),
            "shown": None if shown is None else {
                "start": shown.start - self.began, "seconds": shown.end - shown.start,
                "instances": len(np.unique(inside["instance"])), "cores_each": len(np.unique(inside["tid"])),
            },
        }  # fmt: skip

    def _kernels_of(self, request: Request | None) -> np.ndarray:
        """The kernels that ran while it did."""
        kernels = self.added.kernels
        if request is None:
            return kernels[:0]
        return kernels[(kernels["start"] >= request.start) & (kernels["end"] <= request.end)]

    def _sizes(self) -> list[tuple[dict[str, int], int]]:
        """The values of the open dimensions, as far as inputs tell them, with how many requests had them."""
        found = []
        for shapes, n in Counter(r.shapes for r in self.added.requests if r.shapes is not None).items():
            try:
                found.append((self.session.executor.signature.bind(shapes).values, n))
            except (InvalidInput, ResourceLimit):  # a default was left out
                continue
        return found

    def _mean(self, dim: Dim, of_a_call: bool = False) -> float | None:
        """What a dimension is on average over the requests, or over native calls; None where they do not tell."""
        sizes = [(self._of_a_call(values) if of_a_call else values, n) for values, n in self.sizes]
        try:
            total = sum(n * evaluate(dim, values) for values, n in sizes)
        except (KeyError, InvalidInput):
            return None
        n = sum(n for _, n in self.sizes)
        return total / n if n else None

    def _entering(self) -> float:
        """Seconds of all cores waiting in native code that count with no kernel."""
        added = self.added
        return sum(core.waiting for core in added.cores) - sum(added.waiting.values())

    def _number(self, call: int) -> int | None:
        """The operator of a call."""
        segment, place = divmod(call, MAX_CALLS)
        calls = self.notes.calls[segment] if segment < len(self.notes.calls) else ()
        return calls[place][0] if place < len(calls) else None

    def _operators(self, inside: np.ndarray) -> list[dict[str, Any]]:
        """A record each, the longest first; `inside`: the shown request's kernels."""
        busy, waiting = Counter[int](), Counter[int]()
        for found, listed in ((self.added.busy, busy), (self.added.waiting, waiting)):
            for call, seconds in found.items():
                number = self._number(call)
                if number is not None:
                    listed[number] += seconds  # type: ignore[assignment]
        for output, seconds in self.added.host.items():
            if output in self.notes.hosts:
                busy[self.notes.hosts[output]] += seconds  # type: ignore[assignment]
        scale = self.n_cores * max(1, self.n_requests)
        whole = self.added.in_flight * self.n_cores
        kernels: dict[int, list[str]] = {}
        for number, name in (pair for calls in self.notes.calls for pair in calls):
            kernels.setdefault(number, []).append(name)
        threads: dict[int, set[int]] = {}
        for call, tid in zip(inside["call"].tolist(), inside["tid"].tolist()):
            number = self._number(call)
            if number is not None:
                threads.setdefault(number, set()).add(tid)
        rows = []
        for number in busy:
            own = self.notes.operators[number]
            spent = busy[number] + waiting[number]
            rows.append({
                "number": number, "title": own.title, "names": list(own.names), "op": own.op, "value": own.value,
                "kernels": kernels.get(number, []), "cores": len(threads.get(number, ())),
                "host": number in self.notes.hosts.values(),
                "seconds": spent / scale, "waiting": waiting[number] / scale, "share": spent / whole if whole else 0.0,
                "flops": self._mean(own.flops), "nbytes": self._mean(own.nbytes), "predicted": None,
            })  # fmt: skip
        return sorted(rows, key=lambda row: -row["seconds"])

    def _shown(self) -> Request | None:
        """The request whose time is drawn: that of median latency."""
        ordered = sorted(self.added.requests, key=lambda r: r.end - r.start)
        return ordered[(len(ordered) - 1) // 2] if ordered else None

    def _timeline(self, shown: Request | None, operators: list[dict[str, Any]]) -> list[list[Any]]:
        """From that request's begin on, while there is room: [core, start, end, place among the operators]."""
        if shown is None:
            return []
        place = {own["number"]: i for i, own in enumerate(operators)}
        kernels = self.added.kernels
        kernels = np.sort(kernels[kernels["start"] >= shown.start], order="start")[:MOST_SPANS]
        spans = []
        for core, call, start, end in zip(*(kernels[key].tolist() for key in ("core", "call", "start", "end"))):
            number = self._number(call)
            if number is not None:
                spans.append([core, start - self.began, end - self.began, place[number]])
        hosts = [[h.core, h.start - self.began, h.end - self.began, place[self.notes.hosts[h.output]]]
                 for h in self.added.hosts if h.start >= shown.start and h.output in self.notes.hosts]  # fmt: skip
        return sorted(spans + hosts[:MOST_SPANS], key=lambda span: span[1])

    def _memory(self, inside: np.ndarray) -> list[list[float]]:
        """[seconds, bytes of an arena in use] from each kernel of the shown request on, one native call after another.

        Args:
            inside: that request's kernels; the first instance's count, where several share it.
        """
        leading = inside[inside["tid"] == 0]
        first = np.sort(leading[leading["instance"] == leading["instance"][:1]], order="start")
        points = []
        for call, start in zip(first["call"].tolist(), first["start"].tolist()):
            number = self._number(call)
            live = self.notes.operators[number].live if number is not None else None
            nbytes = None if live is None else self._mean(live, of_a_call=True)
            if nbytes is not None:
                points.append([start - self.began, nbytes])
        return points

    def _of_a_call(self, values: dict[str, int]) -> dict[str, int]:
        """The sizes of a native call, where requests are cut: the same, but for the rows."""
        batch = self.session.plan.manifest.batch
        if batch is None or batch.symbol not in values:
            return values
        calls = max(1, round(self.added.n_native / max(1, self.n_requests)))
        return {**values, batch.symbol: -(-values[batch.symbol] // calls)}
