"""A profile as tables of text: for terminals, prompts and notebooks.

Owns which columns there are and how numbers are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from .watch import NO_CORE

MOST_OPERATORS = 20
MOST_CHARACTERS = 48  # of a name
COLUMNS = ("operator", "name in the model", "ms", "share", "waiting", "GFLOP/s", "of peak", "GB/s", "predicted ms")


class Shown(NamedTuple):
    """A table."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(document: dict[str, Any], most: int = MOST_OPERATORS) -> list[Shown]:
    """The operators that took longest, what the others took, and where the cores' time went."""
    operators = document["operators"]
    peak = (document.get("machine") or {}).get("flops_per_core")
    n = max(1, len(document["cores"]))
    rows = [operator_row(own, n, peak) for own in operators[:most]]
    rest = operators[most:]
    whole = document["seconds_per_request"] or 1.0
    if rest:
        rows.append(_sum_row(f"{len(rest)} more operators", sum(own["seconds"] for own in rest), whole))
    if document.get("entering"):
        rows.append(_sum_row("entering, waiting for stages", document["entering"], whole))
    rows.append(_sum_row("outside: hand-off, Python, idle", document["outside"], whole))
    rows.append(_sum_row("together", document["seconds_per_request"], whole))
    cores = [_core_row(core) for core in document["cores"]]
    return [Shown(_title(document), COLUMNS, rows), Shown("", KIND_COLUMNS, _kind_rows(operators, whole)),
            Shown("", CORE_COLUMNS, cores)]  # fmt: skip


MOST_KINDS = 8
KIND_COLUMNS = ("kind", "operators", "ms", "share")
CORE_COLUMNS = ("core", "in kernels", "waiting", "in Python operators", "outside")


def _title(document: dict[str, Any]) -> str:
    latency, n = document["latency"], document["requests"]
    sizes = "; ".join(", ".join(f"{k}={v}" for k, v in own.items() if k != "requests") for own in document["sizes"][:3])
    shown = document["shown"] or {"instances": 0, "cores_each": 0}
    took = _arrangement(shown["instances"], shown["cores_each"])
    cut = "; the log was full: later requests are left out" if document.get("is_cut") else ""
    return (f"{_printable(document['plan'])}{f' ({sizes})' if sizes else ''}: {n} request{'' if n == 1 else 's'}, "
            f"p50 {_ms(latency['p50'])} ms, p99 {_ms(latency['p99'])} ms; {document['mode']}{took}{cut}")  # fmt: skip


def _arrangement(instances: int, cores_each: int) -> str:
    """What a request had of the session."""
    if not instances:
        return ""
    return f", a request on {instances} × {cores_each} core{'' if cores_each == 1 else 's'}"


def operator_row(own: dict[str, Any], n_cores: int, peak: float | None) -> list[str]:
    """One operator. Its rates are those of all cores while they work on it, waiting included."""
    seconds = own["seconds"]
    flops, nbytes, predicted = own.get("flops"), own.get("nbytes"), own.get("predicted")
    rate = flops / seconds if flops and seconds > 0 else None
    return [
        own["op"], _short(_printable(own["title"])), _ms(seconds), f"{own['share']:.1%}",
        f"{own['waiting'] / seconds:.0%}" if seconds > 0 else "",
        "" if rate is None else f"{rate / 1e9:,.0f}",
        "" if rate is None or not peak else f"{rate / (peak * n_cores):.0%}",
        f"{nbytes / seconds / 1e9:,.1f}" if nbytes and seconds > 0 else "",
        "" if predicted is None else _ms(predicted),
    ]  # fmt: skip


def _sum_row(name: str, seconds: float, whole: float) -> list[str]:
    return [name, "", _ms(seconds), f"{seconds / whole:.1%}", "", "", "", "", ""]


def _kind_rows(operators: Sequence[dict[str, Any]], whole: float) -> list[list[str]]:
    """What all operators of a name took together."""
    kinds: dict[str, list[float]] = {}
    for own in operators:
        kinds.setdefault(own["op"], []).append(own["seconds"])
    ordered = sorted(kinds.items(), key=lambda item: -sum(item[1]))
    rows = [(kind, each) for kind, each in ordered[:MOST_KINDS]]
    if len(ordered) > MOST_KINDS:
        rows.append((f"{len(ordered) - MOST_KINDS} more kinds", [s for _, each in ordered[MOST_KINDS:] for s in each]))
    return [[kind, str(len(each)), _ms(sum(each)), f"{sum(each) / whole:.1%}"] for kind, each in rows]


def _core_row(core: dict[str, Any]) -> list[str]:
    parts = [core[key] for key in ("kernels", "waiting", "host", "outside")]
    whole = sum(parts) or 1.0
    return ["the callers'" if core["core"] == NO_CORE else str(core["core"]), *(f"{p / whole:.1%}" for p in parts)]


def text(document: dict[str, Any]) -> str:
    """The tables as lines."""
    blocks = []
    for shown in tables(document):
        kept = _filled(shown)
        widths = [max(map(len, column)) for column in zip(*kept, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in kept]
        blocks.append("\n".join([*([shown.title] if shown.title else []), *lines]))
    return "\n\n".join(blocks)


def html(document: dict[str, Any]) -> str:
    """The tables in HTML."""
    cell = 'style="text-align: left"'
    found = []
    for shown in tables(document):
        head, *rows = _filled(shown)
        top = "".join(f"<th {cell}>{escape(name)}</th>" for name in head)
        body = "".join("<tr>" + "".join(f"<td {cell}>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
        caption = f"<caption>{escape(shown.title)}</caption>" if shown.title else ""
        found.append(f"<table>{caption}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>")
    return "".join(found)


def _filled(shown: Shown) -> list[list[str]]:
    """Column names and rows without the columns in which there is nothing."""
    kept = [i for i in range(len(shown.columns)) if any(row[i] for row in shown.rows)]
    return [[row[i] for i in kept] for row in (shown.columns, *shown.rows)]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)[1:-1]


def _short(name: str) -> str:
    return name if len(name) <= MOST_CHARACTERS else f"…{name[1 - MOST_CHARACTERS:]}"
