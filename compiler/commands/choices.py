"""A choice of the planner as tables: its candidates, predicted and measured, and the reasons.

Owns the look of what `parax plan` finds and what a plan stores; reads it as JSON values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .console import Table

COLUMNS = ("", "candidate", "predicted", "items/s", "measured", "items/s", "spread", "off by", "memory-bound",
           "barriers", "idle", "of peak")  # fmt: skip
Json = Mapping[str, Any]


def choice_tables(name: str, choice: Json) -> list[Table]:
    """Tables of a choice, as `Choice.to_json` describes it; `name` is the model's."""
    return [
        Table(heading(name, choice), COLUMNS, candidate_lines(choice)),
        Table("why", ("",), [[reason] for reason in choice["reasons"]]),
    ]


def heading(name: str, choice: Json) -> str:
    """The model, the load and the machine in a line."""
    rows, cores = choice["load"]["rows"], choice["cores"]
    how = "a request for every instance" if choice["load"]["saturated"] else "one request at a time"
    machine = f"{choice['machine']}, {cores} core{'s' if cores > 1 else ''}"
    simulated = " (simulated)" if choice["simulated"] else ""
    return f"{name}, {rows} row{'s' if rows > 1 else ''} a request, {how}; {machine}{simulated}"


def candidate_lines(choice: Json) -> list[list[str]]:
    """A line for each candidate, the chosen one marked."""
    saturated = choice["load"]["saturated"]
    return [_cells(row, number == choice["chosen"], saturated) for number, row in enumerate(choice["candidates"])]


def _cells(row: Json, is_chosen: bool, saturated: bool) -> list[str]:
    p, m = row["predicted"], row.get("measured")
    measured: Sequence[str] = ("", "", "", "")
    if m:
        by_items = saturated and m["items_per_second"] > 0  # a batch may be fixed to no rows
        off = p["items_per_second"] / m["items_per_second"] if by_items else p["seconds"] / m["seconds"]
        measured = (
            duration(m["seconds"]), f"{m['items_per_second']:,.4g}", f"±{m['spread'] / 2:.0%}", f"{off - 1:+.0%}",
        )  # fmt: skip
    shares = (p[key] for key in ("memory_share", "barrier_share", "idle_share", "utilisation"))
    return [
        "→" if is_chosen else "", row["name"], duration(p["seconds"]), f"{p['items_per_second']:,.4g}", *measured,
        *(f"{share:.0%}" for share in shares),
    ]  # fmt: skip


def duration(seconds: float) -> str:
    """For people: 2.5 s, 12.3 ms, 45.6 µs."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
