"""The table of `python -m benchmarks.training`, from the figures of its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from .training_peers import OWN, PEERS

WIDTH = 140  # where the output is no terminal


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print it: rows a second of every side, and parax's ratio and peak beside the fastest peer's."""
    sides = [side for side in PEERS if any(side in row["rates"] for row in rows)]
    heads = [f"{PEERS[side]} rows/s" for side in sides]
    table = Table("model", "batch", *heads, "parax rows/s", "ratio", "over", "its peak", "parax peak")
    for row in rows:
        low, high = row["rounds"]
        rates = [f"{row['rates'][side]:.1f}" if side in row["rates"] else "–" for side in (*sides, OWN)]
        peaks = (f"{row['peaks'][side] / 2**20:,.0f} MiB" for side in (row["peer"], OWN))
        table.add_row(row["model"], str(row["batch"]), *rates, f"{row['ratio']:.2f} ({low:.2f}–{high:.2f})",
                      PEERS[row["peer"]], *peaks)  # fmt: skip
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(table)
