"""Precisions side by side as a table: the look of what `parax plan --precisions` finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .choices import duration
from .console import Table

if TYPE_CHECKING:
    from ..side_by_side import PrecisionRow

COLUMNS = ("precision", "layers", "weights", "by fp32's", "predicted", "times fp32's speed: predicted", "measured",
           "lost")  # fmt: skip


def precision_table(name: str, rows: Sequence[PrecisionRow]) -> Table:
    """A line each; the first is fp32's. `name` is the model's."""
    metric = next((row.metric for row in rows if row.metric), "")
    how = f", lost by {metric} on samples held back" if metric else ""
    return Table(f"{name}: precisions side by side{how}", COLUMNS, [_cells(row, rows[0]) for row in rows])


def _cells(row: PrecisionRow, exact: PrecisionRow) -> list[str]:
    if row.reason:
        return [row.precision, row.reason, *[""] * (len(COLUMNS) - 2)]
    layers = f"{row.n_lowered} of {row.n_layers}" if row is not exact else ""
    share = row.weights_nbytes / exact.weights_nbytes if exact.weights_nbytes else 1.0
    predicted = faster = ""
    if row.predicted_seconds is not None:
        predicted = duration(row.predicted_seconds)
        faster = f"{exact.predicted_seconds / row.predicted_seconds:.2f}" if exact.predicted_seconds else ""
    measured = "" if row.gain is None else f"{row.gain.middle:.2f} ({row.gain.least:.2f} to {row.gain.greatest:.2f})"
    lost = "" if row.drop is None else f"{100 * row.drop:.3g} %"
    weights = f"{row.weights_nbytes / 2**20:,.2f} MiB"
    return [row.precision, layers, weights, f"{share:.2f}", predicted, faster, measured, lost]


__all__ = ["precision_table"]
