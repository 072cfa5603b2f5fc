"""The chosen candidate among those predicted or measured, and the reasons in words.

Owns the rule of choice and what a plan stores of it; runs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .candidate import LAYERED, PIPELINED, SEQUENTIAL, Candidate, Load
from .predict import Prediction

TOLERANCE = 0.02  # modes and delays so near the best are equal: the simplest of them is taken
EVEN = 0.01  # the same for instances and rows a call: those that need least memory are taken
GAIN = 0.03  # what is not plain has to promise so much, as predictions err
MOST_DOUBT = 0.5  # of measured seconds; disturbed runs tell no less than this


@dataclass(frozen=True)
class Measured:
    """What running a candidate took: medians over the quicker half of interleaved rounds, and (greatest − least) /
    median of these.
    """

    seconds: float
    items_per_second: float
    spread: float
    rounds: int


@dataclass(frozen=True)
class Row:
    """A candidate with what is known of it."""

    candidate: Candidate
    predicted: Prediction
    measured: Measured | None = None

    @property
    def seconds(self) -> float:
        """The best knowledge of a request's seconds."""
        return self.measured.seconds if self.measured else self.predicted.seconds

    @property
    def items_per_second(self) -> float:
        """The best knowledge of the throughput."""
        return self.measured.items_per_second if self.measured else self.predicted.items_per_second

    def cost(self, load: Load) -> float:
        """What the choice makes small: a request's seconds, or under a saturated load the seconds an item."""
        if self.measured is not None:
            m = self.measured
            return 1.0 / m.items_per_second if load.saturated and m.items_per_second > 0 else m.seconds
        p = self.predicted
        each = p.items_per_second * p.seconds  # items in a request's time; none where a batch is fixed to 0 rows
        return (p.seconds + p.exposed_seconds) / (each if load.saturated and each > 0 else 1.0)


@dataclass(frozen=True)
class Choice:
    """What was chosen for a load on a machine, from which rows, and why.

    Attributes:
        rows: measured ones first, each part best first. simulated: whether the machine is only described.
    """

    load: Load
    hint: str
    machine: str
    n_cores: int
    simulated: bool
    chosen: Row
    rows: tuple[Row, ...]
    reasons: tuple[str, ...]

    @property
    def candidate(self) -> Candidate:
        """The chosen one."""
        return self.chosen.candidate

    def to_json(self) -> dict[str, Any]:
        """As a plan's manifest stores it: figures rounded, timelines left out."""
        return {
            "load": {"rows": self.load.rows, "saturated": self.load.saturated}, "hint": self.hint,
            "machine": self.machine, "cores": self.n_cores, "simulated": self.simulated,
            "candidates": [row_to_json(row) for row in self.rows],
            "chosen": self.rows.index(self.chosen), "reasons": list(self.reasons),
        }  # fmt: skip


def row_to_json(row: Row) -> dict[str, Any]:
    """A row with its figures to three digits."""
    p, m = row.predicted, row.measured
    document: dict[str, Any] = {"name": row.candidate.name, **row.candidate.to_json()}
    document["predicted"] = {
        name: _rounded(getattr(p, name))
        for name in ("seconds", "items_per_second", "memory_share", "barrier_share", "idle_share", "utilisation")
    }
    if m is not None:
        document["measured"] = {
            "seconds": _rounded(m.seconds), "items_per_second": _rounded(m.items_per_second),
            "spread": _rounded(m.spread), "rounds": m.rounds,
        }  # fmt: skip
    return document


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def choose(
    rows: Sequence[Row], plain: Sequence[Row], load: Load, hint: str, machine: str, n_cores: int, simulated: bool
) -> Choice:
    """Pick a row: of those measured if there are any, else of all.

    Among rows within TOLERANCE of the best the simplest win, and of these, within EVEN, that with least memory. By
    prediction alone, rows that are not `plain` must promise GAIN over the best that is. Where measured times are
    spread, predictions decide between all that may be the best.
    """
    known = [row for row in rows if row.measured]
    rivals = rivals_of_best(known, load)
    if known and max(doubt(row) for row in rivals) <= TOLERANCE:
        chosen = _simplest(known, load)
    else:
        able = {row.candidate for row in rivals} or {row.candidate for row in rows}
        open_, own = ([replace(row, measured=None) for row in some if row.candidate in able] for some in (rows, plain))
        least = min((row.cost(load) for row in own), default=math.inf)
        promising = min(row.cost(load) for row in open_) <= least * (1 - GAIN)
        candidate = _simplest(open_ if promising or not own else own, load).candidate
        chosen = next(row for row in rows if row.candidate == candidate)
    ordered = sorted(rows, key=lambda row: (row.measured is None, row.cost(load)))
    reasons = reasons_for(chosen, ordered, load)
    return Choice(load, hint, machine, n_cores, simulated, chosen, tuple(ordered), tuple(reasons))


def rivals_of_best(known: Sequence[Row], load: Load) -> list[Row]:
    """Of measured rows, those that may be the best: it lies within what their times and its own are spread."""
    if not known:
        return []
    best = min(known, key=lambda row: row.cost(load))
    return [row for row in known if row.cost(load) <= best.cost(load) * (1 + max(doubt(row), doubt(best)))]


def doubt(row: Row) -> float:
    """Of a measured row's cost, the share that it may be off by."""
    assert row.measured is not None
    return min(MOST_DOUBT, row.measured.spread / 2)


def _simplest(rows: Sequence[Row], load: Load) -> Row:
    """Of the rows within TOLERANCE of the best the simplest, and of these, within EVEN, that with least memory."""
    best = min(row.cost(load) for row in rows)
    near = [row for row in rows if row.cost(load) <= best * (1 + TOLERANCE)]
    simple = min(complexity(row.candidate) for row in near)
    near = [row for row in near if complexity(row.candidate) == simple]
    best = min(row.cost(load) for row in near)
    even = [row for row in near if row.cost(load) <= best * (1 + EVEN)]
    return min(even, key=lambda row: (row.candidate.instances * (row.candidate.rows or load.rows), row.cost(load)))


def complexity(candidate: Candidate) -> tuple[int, int]:
    """What makes one of two equal candidates preferable: a simple mode, few delays."""
    return (SEQUENTIAL, LAYERED, PIPELINED).index(candidate.mode), candidate.delay_groups


def reasons_for(chosen: Row, rows: Sequence[Row], load: Load) -> list[str]:
    """Why the chosen row wins, in words with figures; a rival that was not measured is compared by prediction."""
    c, p = chosen.candidate, chosen.predicted
    known = "measured" if chosen.measured else "predicted"
    reasons = [f"{known}: {amount(chosen.seconds)} a request, {chosen.items_per_second:,.4g} items/s"]
    for what, differs in _RIVALS:
        rivals = [row for row in rows if differs(row.candidate, c)]
        if rivals:
            rival = min(rivals, key=lambda row: (row.measured is None, row.cost(load)))
            how, ratio = _ratio(rival, chosen, load)
            reasons.append(f"{what}: {rival.candidate.name} is {how} to take {ratio:.2f} times as long"
                           f"{_because(rival.predicted, p)}")  # fmt: skip
    reasons.append(f"memory sets the pace in {p.memory_share:.0%} of the kernels' time, barriers take "
                   f"{p.barrier_share:.0%}, cores idle {p.idle_share:.0%}, {p.utilisation:.0%} of the arithmetic peak")
    return reasons


def _ratio(rival: Row, chosen: Row, load: Load) -> tuple[str, float]:
    """How it is known, and how many times as long a rival takes."""
    if rival.measured and chosen.measured:
        return "measured", rival.cost(load) / chosen.cost(load)
    a, b = (replace(row, measured=None).cost(load) for row in (rival, chosen))
    return "predicted", a / b


_RIVALS = (
    ("other instances", lambda a, b: (a.instances, a.cores_each) != (b.instances, b.cores_each)
     and a.mode == b.mode),
    ("other starts", lambda a, b: a.delay_groups != b.delay_groups
     and replace(a, delay_groups=1, delay_seconds=0.0) == replace(b, delay_groups=1, delay_seconds=0.0)),
    ("fewer rows a call", lambda a, b: _same_but_rows(a, b) and (a.rows or 0) < (b.rows or 0)),
    ("more rows a call", lambda a, b: _same_but_rows(a, b) and (a.rows or 0) > (b.rows or 0)),
    ("another mode", lambda a, b: a.mode != b.mode),
)  # fmt: skip


def _same_but_rows(a: Candidate, b: Candidate) -> bool:
    return replace(a, rows=None) == replace(b, rows=None)


def _because(rival: Prediction, own: Prediction) -> str:
    """The share that grows most from the chosen to its rival, if one does."""
    shares: Mapping[str, float] = {
        "barriers": rival.barrier_share - own.barrier_share,
        "memory-bound kernels": rival.memory_share - own.memory_share,
        "idle cores": rival.idle_share - own.idle_share,
    }
    name = max(shares, key=lambda key: shares[key])
    figures = {
        "barriers": (rival.barrier_share, own.barrier_share),
        "memory-bound kernels": (rival.memory_share, own.memory_share),
        "idle cores": (rival.idle_share, own.idle_share),
    }[name]
    return f" ({name}: {figures[0]:.0%} of the time, here {figures[1]:.0%})" if shares[name] >= 0.02 else ""


def amount(seconds: float) -> str:
    """A duration for people: 12.3 ms, 45.6 µs."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1 or unit == "µs":
            return f"{seconds * scale:.3g} {unit}"
    raise AssertionError("the loop ends at µs")
