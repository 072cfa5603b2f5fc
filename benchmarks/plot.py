"""Line plots as SVG text: axes, a few series, a legend. Knows nothing of what is plotted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 400, 70, 50, 40, 150
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#ff9da6", "#9d755d")

Series = Sequence[tuple[float, float]]


def lines(title: str, x_label: str, y_label: str, series: Mapping[str, Series], ticks: int | None = None) -> str:
    """An SVG document; the y axis begins at 0.

    Args:
        series: name → points (x, y), at least one point in all.
        ticks: how many even parts of the x axis are labelled; None: each x of a point.
    """
    points = [point for own in series.values() for point in own]
    x0, x1 = min(x for x, _ in points), max(x for x, _ in points)
    y1 = max(y for _, y in points) or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - x0) / ((x1 - x0) or 1.0)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y / y1 * (HEIGHT - BOTTOM - TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{WIDTH / 2:.0f}" y="20" text-anchor="middle" font-size="14">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_label)}</text>',
        f'<text transform="translate(16 {HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>',
    ]
    for step in range(5):
        y = y1 * step / 4
        (left, height), (right, _) = at(x0, y), at(x1, y)
        parts.append(f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{height:.1f}" y2="{height:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6:.1f}" y="{height + 4:.1f}" text-anchor="end">{y:.3g}</text>')
    marks = {x for x, _ in points} if ticks is None else {x0 + (x1 - x0) * k / ticks for k in range(ticks + 1)}
    for x in sorted(marks):
        across, foot = at(x, 0.0)
        parts.append(f'<text x="{across:.1f}" y="{foot + 16:.1f}" text-anchor="middle">{x:.4g}</text>')
    for number, (name, own) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across:.1f},{height:.1f}" for across, height in (at(x, y) for x, y in own))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 10}" y="{TOP + 16 * number}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
