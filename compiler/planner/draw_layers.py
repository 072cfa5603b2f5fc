"""Layers and stages as an SVG picture: who runs which operators, and the `Result` nodes between layers.

Owns the drawing. From top to bottom the layers, columns are cores, a box an operator; the branches of a shared layer
lie side by side over all its cores. It must not know how layers are found.
"""

from __future__ import annotations

from html import escape

from .draw import COLOURS, OTHER, legend
from .partitioned import LayerLine, Partitioned

WIDTH, LEFT, RIGHT, HEAD = 1200, 120, 10, 44
ROW, GAP, RESULT = 18, 4, 16
LETTER = 6.6  # width, in pixels


def layers_svg(title: str, found: Partitioned) -> str:
    """The picture. Operators are coloured by kind; titles of boxes say names in full, those of results what passes."""
    per_core = (WIDTH - LEFT - RIGHT) / found.schedule.n_cores
    parts = [f'<text x="4" y="17" font-weight="bold">{escape(title)}</text>']
    if per_core > len("core 00") * LETTER:
        parts += [f'<text x="{LEFT + core * per_core + 2:.1f}" y="36" fill="#555">core {core}</text>'
                  for core in range(found.schedule.n_cores)]  # fmt: skip
    top = HEAD
    kinds: set[str] = set()
    for line in found.layers:
        kinds |= {kind for _, operators in line.branches() for _, kind in operators}
        height = _layer(parts, line, per_core, top)
        top += height + GAP
        if line.handed_on:
            _result(parts, line, per_core, top)
            top += RESULT + GAP
    below, height = legend(sorted(kinds - {"view"}), top)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">\n'
            '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join([*parts, *below]) + "\n</svg>\n")


def _layer(parts: list[str], line: LayerLine, per_core: float, top: int) -> int:
    """The boxes of a layer; its height."""
    branches = list(line.branches())
    shared = len(branches) if line.layer.shared else 1
    height = max([len(operators) for _, operators in branches], default=1) * ROW
    stage = f"stage {line.stage}, " if line.stage else ""
    parts.append(f'<text x="4" y="{top + 13}">{stage}layer {line.number}</text>')
    if height > ROW:
        parts.append(f'<text x="4" y="{top + 13 + ROW}" fill="#555">{line.seconds * 1e6:.1f} µs</text>')
    for i, (cores, operators) in enumerate(branches):
        width = len(cores) * per_core / shared
        x = LEFT + cores.start * per_core + (i * width if shared > 1 else 0)
        parts.append(f'<rect x="{x:.1f}" y="{top}" width="{width - 2:.1f}" height="{height}" fill="#f4f4f4"/>')
        parts += [_box(name, kind, x, top + row * ROW, width - 2) for row, (name, kind) in enumerate(operators)]
    return height


def _box(name: str, kind: str, x: float, y: int, width: float) -> str:
    fits = max(0, int(width / LETTER) - 1)
    label = name if len(name) <= fits else "…" + name[len(name) - fits + 1 :] if fits > 2 else ""
    colour = "none" if kind == "view" else COLOURS.get(kind, OTHER)
    return (f'<g><rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" fill="{colour}" fill-opacity="0.55">'
            f'</rect><title>{escape(f"{name} ({kind})")}</title>'
            f'<text x="{x + 3:.1f}" y="{y + 13}">{escape(label)}</text></g>')


def _result(parts: list[str], line: LayerLine, per_core: float, top: int) -> None:
    """A bar over the cores of the layer, which meet there."""
    first, last = _cores(line)
    values = line.handed_on
    x, width = LEFT + first * per_core, (last - first) * per_core - 2
    text = f"Result: {len(values)} value{'' if len(values) == 1 else 's'}"
    parts.append(f'<g><rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{RESULT}" rx="6" fill="#333"/>'
                 f'<title>{escape(" ".join(values))}</title>'
                 f'<text x="{x + width / 2:.1f}" y="{top + 12}" text-anchor="middle" fill="white">{text}</text></g>')


def _cores(line: LayerLine) -> tuple[int, int]:
    used = [cores for cores, _ in line.branches()]
    return min(cores.start for cores in used), max(cores.stop for cores in used)


__all__ = ["layers_svg"]
