"""Line plots as SVG text: axes, a few series, a legend. Knows nothing of what is plotted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 400, 70, 50, 40, 150
TICKS = 6
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#ff9da6", "#9d755d")

Series = Sequence[tuple[float, float]]


def lines(title: str, x_label: str, y_label: str, series: Mapping[str, Series], counts: bool = False) -> str:
    """An SVG document; the y axis begins at 0.

    Args:
        series: name → points (x, y), at least one point in all.
        counts: each x of a point is labelled, and twice as many are as far from them everywhere; else even parts are.
    """
    points = [point for own in series.values() for point in own]
    scale: Callable[[float], float] = math.log2 if counts else float
    x0, x1 = scale(min(x for x, _ in points)), scale(max(x for x, _ in points))
    heights = round_ticks(max(y for _, y in points))

    def at(x: float, y: float) -> tuple[float, float]:
        across = (scale(x) - x0) / ((x1 - x0) or 1.0)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y / heights[-1] * (HEIGHT - BOTTOM - TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{WIDTH / 2:.0f}" y="20" text-anchor="middle" font-size="14">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_label)}</text>',
        f'<text transform="translate(16 {HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>',
    ]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    for y in heights:
        (left, height), (right, _) = at(first, y), at(last, y)
        parts.append(f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{height:.1f}" y2="{height:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6:.1f}" y="{height + 4:.1f}" text-anchor="end">{y:.3g}</text>')
    marks = {x for x, _ in points} if counts else {x for x in round_ticks(last) if first <= x <= last}
    for x in sorted(marks):
        across, foot = at(x, 0.0)
        parts.append(f'<text x="{across:.1f}" y="{foot + 16:.1f}" text-anchor="middle">{x:.4g}</text>')
    for number, (name, own) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across:.1f},{height:.1f}" for across, height in (at(x, y) for x, y in own))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 10}" y="{TOP + 16 * number}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def round_ticks(greatest: float) -> list[float]:
    """0 and up to TICKS multiples of 1, 2 or 5 times a power of ten, the last of them at `greatest` or above it."""
    if greatest <= 0:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(greatest / TICKS))
    step = next(power * n for n in (1, 2, 5, 10) if power * n * TICKS >= greatest * (1 - 1e-9))
    return [step * k for k in range(math.ceil(greatest / step * (1 - 1e-9)) + 1)]
