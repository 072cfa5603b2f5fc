"""The curves of a training as one page of HTML that needs no network: loss, metrics, rate, gradient and speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from ..charts import altair, page_of_charts

WIDTH, HEIGHT = 1000, 240  # pixels
MOST_POINTS = 1000  # of a curve: more are means of neighbours
_LOG_FROM = 30.0  # greatest loss over the least from where an axis is logarithmic
Curve = list[dict[str, Any]]


def report(records: Sequence[Mapping[str, Any]], title: str) -> str:
    """The page.

    Args:
        records: of steps and evaluations, as a training's log has them.

    Raises:
        UsageError: altair or vl-convert is missing.
    """
    alt = altair()
    steps = [record for record in records if "evaluation" not in record]
    tests = [{"step": record["step"], **record["evaluation"]} for record in records if "evaluation" in record]
    losses = [*_curve(steps, "loss", "steps"), *_curve(tests, "loss", "evaluation")]
    drawn = [("Loss", "Of the batch of each step before it, and of each evaluation.", _chart(alt, losses, "loss"))]
    for name in _names([*steps, *tests], ("step", "epoch", "loss", "norm", "rate", "rows_per_second")):
        own = [*_curve(steps, name, "steps"), *_curve(tests, name, "evaluation")]
        drawn.append((name.capitalize(), "Of steps and evaluations.", _chart(alt, own, name)))
    for name, heading, text in (
        ("rate", "Learning rate", "What the schedule gives."),
        ("norm", "Gradient", "The norm of each step's gradient, before it is clipped."),
        ("rows_per_second", "Speed", "Rows a second, the wait for data included."),
    ):
        drawn.append((heading, text, _chart(alt, _curve(steps, name, "steps"), name)))
    facts = f"{len(steps)} steps, {len(tests)} evaluations"
    return page_of_charts(title, facts, [d for d in drawn if d[2] is not None], _table(tests))


def _names(records: Sequence[Mapping[str, Any]], known: Sequence[str]) -> list[str]:
    """What else the records have numbers of, in order."""
    return list(dict.fromkeys(n for r in records for n, v in r.items() if n not in known and isinstance(v, float)))


def _curve(records: Sequence[Mapping[str, Any]], name: str, of: str) -> Curve:
    """Points of finite numbers, at most MOST_POINTS."""
    found = np.array([(r["step"], r[name]) for r in records if name in r and np.isfinite(r[name])], np.float64)
    if not len(found):
        return []
    parts = np.array_split(found, min(len(found), MOST_POINTS))
    return [{"step": float(part[:, 0].mean()), "value": float(part[:, 1].mean()), "of": of} for part in parts]


def _chart(alt: Any, points: Curve, name: str) -> Any:
    """A line for each of the curves; None without a point."""
    if not points:
        return None
    values = [point["value"] for point in points]
    is_log = min(values) > 0 and max(values) > _LOG_FROM * min(values)
    scale = alt.Scale(type="log") if is_log else alt.Scale(zero=False)
    return (
        alt.Chart(alt.Data(values=points), width=WIDTH, height=HEIGHT)
        .mark_line(point=len(points) < 60)
        .encode(
            x=alt.X("step:Q", title="step"), y=alt.Y("value:Q", title=name, scale=scale),
            color=alt.Color("of:N", title=None),
            tooltip=["of:N", alt.Tooltip("step:Q", format=".0f"), alt.Tooltip("value:Q", format=".5g")],
        )
        .interactive(bind_y=False)
    )  # fmt: skip


def _table(tests: Sequence[Mapping[str, Any]]) -> str:
    """The evaluations, as HTML."""
    names = list(dict.fromkeys(name for test in tests for name in test))
    if not names:
        return "<p>There was no evaluation.</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = "".join("<tr>" + "".join(f"<td>{_cell(test.get(name))}</td>" for name in names) + "</tr>" for test in tests)
    return f"<table><caption>Evaluations</caption><tr>{head}</tr>{rows}</table>"


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else escape(str("" if value is None else value))
