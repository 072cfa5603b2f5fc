"""Draws digits: ten strokes-and-arcs shapes under random turns, shears, sizes, pens and noise, as 28×28 pictures.

Data for the bundled model (`train_digits.py`), made from nothing but this file and a seed.
"""

from __future__ import annotations

import numpy as np

SIDE = 28


def _arc(cx: float, cy: float, rx: float, ry: float, start: float, end: float) -> list[tuple[float, float]]:
    """Points of an elliptic arc; angles in degrees, 0 to the right, growing downwards."""
    angles = np.radians(np.linspace(start, end, 13))
    return [(cx + rx * float(np.cos(a)), cy + ry * float(np.sin(a))) for a in angles]


# digit → pen strokes, each a list of (x, y) in a unit square, y downwards
STROKES: dict[int, list[list[tuple[float, float]]]] = {
    0: [_arc(0.5, 0.5, 0.28, 0.42, 0, 360)],
    1: [[(0.32, 0.25), (0.52, 0.08), (0.52, 0.92)]],
    2: [[*_arc(0.5, 0.32, 0.26, 0.24, 180, 380), (0.24, 0.92), (0.78, 0.92)]],
    3: [[*_arc(0.46, 0.3, 0.26, 0.21, 200, 450), *_arc(0.46, 0.7, 0.29, 0.21, 270, 520)]],
    4: [[(0.62, 0.92), (0.62, 0.08), (0.2, 0.64), (0.82, 0.64)]],
    5: [[(0.74, 0.08), (0.3, 0.08), (0.27, 0.46), *_arc(0.48, 0.65, 0.27, 0.26, 235, 505)]],
    6: [[(0.66, 0.08), (0.36, 0.42), *_arc(0.5, 0.66, 0.25, 0.25, 200, 560)]],
    7: [[(0.22, 0.08), (0.78, 0.08), (0.42, 0.92)]],
    8: [_arc(0.5, 0.29, 0.22, 0.2, 90, 450), _arc(0.5, 0.7, 0.27, 0.21, 270, 630)],
    9: [_arc(0.5, 0.34, 0.25, 0.25, 0, 360), [(0.75, 0.34), (0.72, 0.6), (0.56, 0.92)]],
}


def draw(digit: int, rng: np.random.Generator) -> np.ndarray:
    """One picture, f32[28,28] in 0..1, ink is 1."""
    angle, shear = rng.uniform(-0.22, 0.22), rng.uniform(-0.2, 0.2)
    scale = rng.uniform(15, 21, size=2)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ np.array([[1, shear], [0, 1]])
    centre = SIDE / 2 + rng.uniform(-2.5, 2.5, size=2)
    pen = rng.uniform(0.9, 1.9)
    distance = np.full((SIDE, SIDE), np.inf)
    for stroke in STROKES[digit]:
        wobbled = np.array(stroke) + rng.normal(0, 0.012, (len(stroke), 2))
        points = ((wobbled - 0.5) * scale) @ turn.T + centre
        distance = np.minimum(distance, _distance(points))
    ink = np.clip(pen + 0.5 - distance, 0, 1) * rng.uniform(0.75, 1.0)
    return np.clip(ink + rng.normal(0, 0.06, ink.shape), 0, 1).astype(np.float32)


def _distance(points: np.ndarray) -> np.ndarray:
    """Distance of every pixel's centre from a polyline."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] + 0.5
    pixels = np.stack([x, y], axis=-1)[:, :, None, :]
    a, ab = points[:-1], np.diff(points, axis=0)
    along = np.clip(((pixels - a) * ab).sum(-1) / np.maximum((ab**2).sum(-1), 1e-9), 0, 1)
    nearest = a + along[..., None] * ab
    return np.sqrt(((pixels - nearest) ** 2).sum(-1)).min(-1)


def data_set(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` pictures f32[count,1,28,28] and their digits i64[count], every digit equally often."""
    rng = np.random.default_rng(seed)
    digits = rng.permutation(np.arange(count) % 10)
    return np.stack([draw(int(digit), rng) for digit in digits])[:, None], digits
