"""Where the cores' time went while requests were in flight: in kernels, waiting between them, in Python, or elsewhere.

Owns the sums, which add up: of every core, the time in which a request was in flight is

    kernels + waiting + host + outside

Waiting is what passes in native code between the end of one kernel and the begin of the next on the same core, or the
return: other cores are not done yet. It counts with the kernel that was done first; with none counts what passes
between the entry and the first kernel, and what a pipeline's stage waits between two micro-batches or after the last.
Outside is the rest: hand-off, Python, and cores that have nothing to do. It must not
know operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .recorder import Log
from .watch import NO_CORE, HostSpan, Request


class CoreTime(NamedTuple):
    """One core's seconds; `core` is watch.NO_CORE for Python on behalf of a plan without native code."""

    core: int
    kernels: float
    waiting: float
    host: float
    outside: float


class Account(NamedTuple):
    """All of it.

    Attributes:
        requests: those that count, in order. in_flight: seconds in which at least one of them was.
        cores: those that did anything. busy, waiting: of each call number, the seconds of all cores.
        host: of each host step by its first output, the seconds of Python alone.
        n_native: native calls, each counted once. kernels, hosts: the spans that count. is_cut: a log was full.
    """

    requests: list[Request]
    in_flight: float
    cores: list[CoreTime]
    busy: dict[int, float]
    waiting: dict[int, float]
    host: dict[str, float]
    n_native: int
    kernels: np.ndarray
    hosts: list[HostSpan]
    is_cut: bool


def account(log: Log, requests: Sequence[Request], hosts: Sequence[HostSpan]) -> Account:
    """Add up what was recorded, as far as it belongs to requests that were recorded whole."""
    kept = sorted(r for r in requests if log.full_at is None or r.end <= log.full_at)
    busy_times = merged(kept)
    wholes = log.wholes[_inside(log.wholes["start"], busy_times)]
    kernels, waits = _waits(log.kernels, wholes)
    own_hosts = [span for span in hosts if _inside(np.array([span.start]), busy_times)[0]]
    host_seconds = self_seconds(own_hosts, wholes)
    in_flight = float(sum(end - start for start, end in busy_times))
    cores = _per_core(kernels, wholes, own_hosts, host_seconds, in_flight)
    host: dict[str, float] = {}
    for span, seconds in zip(own_hosts, host_seconds):
        host[span.output] = host.get(span.output, 0.0) + seconds
    return Account(
        kept, in_flight, cores, _sums(kernels["call"], kernels["end"] - kernels["start"]),
        _sums(kernels["call"], waits), host, int(np.sum(wholes["tid"] == 0)), kernels, own_hosts,
        len(kept) < len(requests),
    )  # fmt: skip


def merged(requests: Sequence[Request]) -> list[tuple[float, float]]:
    """The stretches of time in which at least one of the requests, which are in order, was in flight."""
    found: list[tuple[float, float]] = []
    for request in requests:
        if found and request.start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], request.end)
        else:
            found.append((request.start, request.end))
    return found


def _inside(times: np.ndarray, stretches: Sequence[tuple[float, float]]) -> np.ndarray:
    """Which of the times are in one of the stretches, which are in order."""
    starts, ends = np.array([s for s, _ in stretches]), np.array([e for _, e in stretches])
    place = np.searchsorted(starts, times, "right") - 1
    return (place >= 0) & (times <= ends[place]) if len(stretches) else np.zeros(len(times), bool)


def _waits(kernels: np.ndarray, wholes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The kernels inside of these entries, and the waiting that counts with each."""
    kept, waits = [kernels[:0]], [np.zeros(0)]
    for instance, tid in sorted(set(zip(wholes["instance"].tolist(), wholes["tid"].tolist()))):
        own = wholes[(wholes["instance"] == instance) & (wholes["tid"] == tid)]
        spans = kernels[(kernels["instance"] == instance) & (kernels["tid"] == tid)]
        place = np.searchsorted(own["start"], spans["start"], "right") - 1
        is_in = (place >= 0) & (spans["end"] <= own["end"][place])
        spans, place = spans[is_in], place[is_in]
        following = np.append(spans["start"][1:], np.inf)
        goes_on = np.append(place[1:] == place[:-1], False)
        begins_anew = goes_on & (np.append(spans["call"][1:], 0) < spans["call"])  # with the next micro-batch
        is_stage = np.isin(place, place[begins_anew])
        wait = np.minimum(following, own["end"][place]) - spans["end"]
        kept.append(spans)
        waits.append(np.where(begins_anew | (is_stage & ~goes_on), 0.0, wait))
    return np.concatenate(kept), np.concatenate(waits)


def self_seconds(hosts: Sequence[HostSpan], wholes: np.ndarray) -> list[float]:
    """Of each host step the seconds without the steps of its bodies, native ones (`wholes`) included."""
    seconds = [span.end - span.start for span in hosts]
    items = [(_line(span), span.start, -span.end, i) for i, span in enumerate(hosts)]
    leaders = wholes[wholes["tid"] == 0]
    items += [((core, 0), start, -end, -1) for core, start, end in
              zip(leaders["core"].tolist(), leaders["start"].tolist(), leaders["end"].tolist())]  # fmt: skip
    around: list[tuple[float, int]] = []  # end and number of the steps that a time lies in, on the present line
    on = None
    for line, start, negative, i in sorted(items):
        around = around if line == on else []
        on = line
        while around and around[-1][0] <= start:
            around.pop()
        if around:
            seconds[around[-1][1]] -= -negative - start
        if i >= 0:
            around.append((-negative, i))
    return [max(0.0, s) for s in seconds]


def _line(span: HostSpan) -> tuple[int, int]:
    """Steps on a line follow one another or lie inside of each other: an instance serves one request at a time."""
    return span.core, span.thread if span.core == NO_CORE else 0


def _per_core(
    kernels: np.ndarray, wholes: np.ndarray, hosts: Sequence[HostSpan], host_seconds: Sequence[float], in_flight: float
) -> list[CoreTime]:
    native = _sums(wholes["core"], wholes["end"] - wholes["start"])
    busy = _sums(kernels["core"], kernels["end"] - kernels["start"])
    python: dict[int, float] = {}
    for span, seconds in zip(hosts, host_seconds):
        python[span.core] = python.get(span.core, 0.0) + seconds
    found = []
    for core in sorted({*native, *python}):
        inside, host = native.get(core, 0.0), python.get(core, 0.0)
        own = busy.get(core, 0.0)
        found.append(CoreTime(core, own, inside - own, host, max(0.0, in_flight - inside - host)))
    return found


def _sums(keys: np.ndarray, values: np.ndarray) -> dict[int, float]:
    found, place = np.unique(keys, return_inverse=True)
    return dict(zip(found.tolist(), np.bincount(place, values, len(found)).tolist()))
