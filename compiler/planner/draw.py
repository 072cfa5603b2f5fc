"""A timeline of cores × operators as SVG: what was predicted above what was measured; and an HTML page around it.

Owns the drawing; knows spans, not where they come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, ROW, GAP, HEAD, AXIS = 1200, 90, 22, 4, 26, 24
LEAST_PIXELS = 0.3  # narrower spans are not drawn
MOST_TICKS = 10
COLOURS = {
    "conv": "#4c78a8", "conv1x1": "#72a0cf", "winograd": "#2f5d8c", "grouped": "#9ecae9", "few-channels": "#1f3f60",
    "depthwise": "#f58518", "conv-transpose": "#a0cbe8", "matmul": "#54a24b", "strassen": "#3d7d37",
    "batched-matmul": "#88d27a", "attention": "#2e6b34", "recurrent": "#b79a20", "pool": "#e45756",
    "reduce": "#d67195", "norm": "#b279a2", "softmax": "#ff9da6", "elementwise": "#bab0ac",
    "movement": "#d8b5a5", "lookup": "#9d755d", "host": "#79706e",
}  # fmt: skip
OTHER = "#cccccc"


@dataclass(frozen=True)
class Bar:
    """An operator on a core from `start` to `end` seconds."""

    core: int
    start: float
    end: float
    label: str
    kind: str


@dataclass(frozen=True)
class Panel:
    """Bars under a title; `n_cores` rows."""

    title: str
    n_cores: int
    bars: Sequence[Bar]

    @property
    def seconds(self) -> float:
        """The end of the last bar."""
        return max((bar.end for bar in self.bars), default=0.0)


def svg(panels: Sequence[Panel]) -> str:
    """The panels below one another, on one time axis."""
    seconds = max((panel.seconds for panel in panels), default=0.0) or 1e-9
    scale = (WIDTH - LEFT - 10) / seconds
    parts, top = [], 0
    for panel in panels:
        parts.append(f'<text x="4" y="{top + 17}" font-weight="bold">{escape(panel.title)}</text>')
        top += HEAD
        for core in range(panel.n_cores):
            y = top + core * (ROW + GAP)
            parts.append(f'<text x="4" y="{y + 15}">core {core}</text>')
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{seconds * scale:.1f}" height="{ROW}" fill="#f4f4f4"/>')
        parts += [_bar(bar, top, scale) for bar in panel.bars if (bar.end - bar.start) * scale >= LEAST_PIXELS]
        top += panel.n_cores * (ROW + GAP)
    parts += _axis(seconds, scale, top)
    top += AXIS
    below, height = legend(sorted({bar.kind for panel in panels for bar in panel.bars}), top)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">\n'
            '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join([*parts, *below]) + "\n</svg>\n")


def html(title: str, heading: Sequence[str], table: tuple[Sequence[str], Sequence[Sequence[str]]], drawing: str) -> str:
    """A page of its own: heading lines, the table of candidates, the drawing."""
    columns, rows = table
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    lines = "\n".join(f"<p>{escape(line)}</p>" for line in heading)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<style>body {{ font-family: sans-serif; margin: 2em; max-width: {WIDTH + 40}px }}
table {{ border-collapse: collapse; font-size: 14px }}
td, th {{ border-bottom: 1px solid #ddd; padding: 3px 12px 3px 0; text-align: left }}
p {{ margin: .3em 0 }} svg {{ margin-top: 1em; max-width: 100%; height: auto }}</style></head>
<body><h1>{escape(title)}</h1>
{lines}
<table><tr>{head}</tr>
{body}
</table>
{drawing}</body></html>
"""


def _bar(bar: Bar, top: int, scale: float) -> str:
    y = top + bar.core * (ROW + GAP)
    x, width = LEFT + bar.start * scale, (bar.end - bar.start) * scale
    what = f"{bar.label} ({bar.kind}): {(bar.end - bar.start) * 1e6:.1f} µs from {bar.start * 1e3:.3f} ms"
    return (f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW}" fill="{COLOURS.get(bar.kind, OTHER)}" '
            f'stroke="white" stroke-width="0.3"><title>{escape(what)}</title></rect>')


def _axis(seconds: float, scale: float, top: int) -> list[str]:
    step = _tick(seconds)
    ticks = [i * step for i in range(int(seconds / step) + 1)]
    return [
        f'<line x1="{LEFT + t * scale:.1f}" y1="{top}" x2="{LEFT + t * scale:.1f}" y2="{top + 5}" stroke="#888"/>'
        f'<text x="{LEFT + t * scale:.1f}" y="{top + 18}" fill="#555">{t * 1e3:g} ms</text>'
        for t in ticks
    ]


def _tick(seconds: float) -> float:
    """1, 2 or 5 times a power of ten, so that at most MOST_TICKS fit."""
    step = 1e-7
    while True:
        for factor in (1, 2, 5):
            if seconds / (step * factor) <= MOST_TICKS:
                return step * factor
        step *= 10


def legend(kinds: Sequence[str], top: int) -> tuple[list[str], int]:
    """Which colour is which kind, from `top` on; and where it ends."""
    parts, x, y = [], LEFT, top + 8
    for kind in kinds:
        if x > WIDTH - 120:
            x, y = LEFT, y + 20
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{COLOURS.get(kind, OTHER)}"/>'
                     f'<text x="{x + 16}" y="{y + 11}">{escape(kind)}</text>')
        x += 26 + 8 * len(kind)
    return parts, y + 24
