"""The figures of `benchmarks.peers` as tables: statistics, rows, Rich and Markdown. Pure: JSON values in, text out.

Every reader of a results file goes through here, so that the terminal and the README show the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median
from typing import Any

Record = Mapping[str, Any]
SIDES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "torch": "PyTorch"}
RUN_MODES = ("throughput", "latency")
NOTHING = "–"


@dataclass(frozen=True)
class Figure:
    """Several measurements of one thing: their median and spread, (greatest − least) / median."""

    median: float
    spread: float


@dataclass(frozen=True)
class Table:
    """A title, column names, rows of text; all but the first columns hold numbers."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[str]]
    n_words: int = 1


def figure(values: Sequence[float]) -> Figure:
    """Median and spread of at least one value."""
    middle = median(values)
    return Figure(middle, (max(values) - min(values)) / middle if middle else 0.0)


def best(record: Record, side: str) -> Record | None:
    """The fastest set-up of a side, or None where it took no part."""
    own = [each for each in record.get("contestants", []) if each["side"] == side]
    return max(own, key=lambda each: each["rate"]) if own else None


def against_best_peer(record: Record) -> Record | None:
    """parax's best set-up over the best of all peers: the peer, and median, least and greatest of the rounds' ratios.

    The same two set-ups are compared round by round, so that a machine that slows down slows both.
    """
    ours = best(record, "parax")
    peers = [found for side in SIDES if (found := best(record, side))]
    if ours is None or not peers:
        return None
    theirs = max(peers, key=lambda each: each["rate"])
    each = [a / b for a, b in zip(ours["rates"], theirs["rates"], strict=True)]
    return {"peer": theirs["side"], "ratio": median(each), "least": min(each), "greatest": max(each)}


def of_peak(record: Record, side: str, flops_per_second: float) -> float | None:
    """Share of the measured f32 peak that a side's best set-up reaches, by the direct algorithm's flops."""
    found = best(record, side)
    if found is None or not record.get("flops"):
        return None
    return float(found["rate"] * record["flops"] / flops_per_second)


def mean_ratio(ratios: Sequence[float]) -> float:
    """Geometric mean."""
    return exp(sum(map(log, ratios)) / len(ratios))


def speed_table(document: Record, mode: str) -> Table:
    """One row per model: rate of each side at its best, ratio to the best peer, spread, share of peak."""
    sides = [side for side in SIDES if any(best(models.get(mode, {}), side) for models in document["models"].values())]
    peak, rows, ratios = document["machine"]["flops_all"], [], []
    for name, models in document["models"].items():
        record = models.get(mode)
        if record is None:
            continue
        ours, ratio = best(record, "parax"), against_best_peer(record)
        row = [name, str(record.get("batch", NOTHING)), _rate(ours, mode)]
        row += [_rate(best(record, side), mode) for side in sides]
        if ratio is not None:
            ratios.append(ratio["ratio"])
        row.append(f"{ratio['ratio']:.2f} ({ratio['least']:.2f}–{ratio['greatest']:.2f})" if ratio else NOTHING)
        row += [_percent(ours["spread"] if ours else None), _percent(of_peak(record, "parax", peak))]
        row += [ours["setup"] if ours else record.get("problem", NOTHING)[:80]]
        rows.append(row)
    if len(ratios) > 1:
        filler = [""] * len(sides)
        rows.append(["geometric mean", "", "", *filler, f"{mean_ratio(ratios):.2f}", "", "", ""])
    what = "items/s" if mode == "throughput" else "ms"
    title = "Throughput, items/s" if mode == "throughput" else "Latency of one request at a time, ms (p50)"
    columns = ("model", "batch", f"parax {what}", *(f"{SIDES[side]} {what}" for side in sides))
    return Table(title, (*columns, "ratio to the best peer", "spread", "f32 peak", "parax set-up"), rows)


def cost_table(document: Record) -> Table:
    """One row per model: compile time and memory, plan size, cold start, peak and second-instance memory."""
    rows = []
    for name, models in document["models"].items():
        made, start, memory = (models.get(key, {}) for key in ("compile", "start", "memory"))
        if not (made or start or memory):
            continue
        ours = _start(start, "parax")
        peers = [seconds for side in SIDES if (seconds := _start(start, side)) is not None]
        rows.append([
            name, _number(made.get("seconds"), 1.0, 1), _number(made.get("peak"), 1e6), _number(made.get("plan"), 1e6),
            *(_number(_start(start, side), 1e-3) for side in _CORE_SIDES),
            f"{ours / min(peers):.2f}" if ours and peers else NOTHING,
            *(_number(start.get(side, {}).get("peak"), 1e6) for side in _CORE_SIDES),
            *(_number(memory.get(side, {}).get("growth"), 1e6, 1) for side in _CORE_SIDES),
            *(_number(memory.get("plan", {}).get(part), 1e6, 1) for part in ("weights", "arena")),
        ])  # fmt: skip
    columns = (
        "model", "compile s", "compile MB", "plan MB", "cold start ms: parax", "ORT", "OpenVINO", "parax ÷ best peer",
        "peak MB: parax", "ORT", "OpenVINO", "2nd instance MB: parax", "ORT", "OpenVINO", "weights MB", "arena MB",
    )  # fmt: skip
    return Table("Compiling, starting, memory", columns, rows)


_CORE_SIDES = ("parax", "onnxruntime", "openvino")


def all_tables(document: Record) -> list[Table]:
    """Every table that has a row."""
    tables = [*(speed_table(document, mode) for mode in RUN_MODES), cost_table(document)]
    return [table for table in tables if table.rows]


def problems(document: Record) -> list[str]:
    """What failed or was left out, one line each."""
    return [
        f"{name}, {part}: {record['problem']}"
        for name, models in document["models"].items()
        for part, record in models.items()
        if record.get("problem")
    ]


def markdown(table: Table) -> str:
    """A table in Markdown under a bold title."""
    cells = [table.columns, *table.rows]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
    rule = "|" + "|".join("---" if i < table.n_words else "---:" for i in range(len(table.columns))) + "|"
    return "\n".join([f"**{table.title}**", "", lines[0], rule, *lines[1:]])


def _start(start: Record, side: str) -> float | None:
    found = start.get(side)
    return None if found is None else float(found["seconds"]["median"])


def _rate(found: Record | None, mode: str) -> str:
    if found is None:
        return NOTHING
    if mode == "throughput":
        return f"{found['rate']:,.0f}" if found["rate"] >= 100 else f"{found['rate']:.2f}"
    return f"{found['p50'] * 1e3:.3g}" if found["p50"] < 0.1 else f"{found['p50'] * 1e3:.0f}"


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.0%}"


def _number(value: float | None, unit: float, digits: int = 0) -> str:
    return NOTHING if value is None else f"{value / unit:,.{digits}f}"
