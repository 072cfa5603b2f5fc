"""What `training_curves` trains: five networks on real pictures, drawn shapes and real text, nothing downloaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import torch
from torch import nn

from parax.runtime.train.data.open import digits

from . import training_curves_models as models

LENGTH, SIDE, SHAPES = 32, 16, 4
ROWS_OF_TEXT, KEPT_OF_TEXT = 6000, 400
Arrays = tuple[np.ndarray, np.ndarray]
"""What the model is given, and the labels."""


@dataclass(frozen=True)
class Data:
    """A task.

    Attributes:
        train, test: the latter is kept apart. classes: that labels number.
    """

    train: Arrays
    test: Arrays
    classes: int


@dataclass(frozen=True)
class Case:
    """A network, its task, and torch's optimiser, which both sides take, with the greatest rate.

    Attributes:
        module: made for a task after torch's generator was seeded. batch: rows of a step.
    """

    module: Callable[[Data], nn.Module]
    data: Callable[[], Data]
    optimizer: Callable[[Iterable[Any]], torch.optim.Optimizer]
    batch: int


@cache
def pictures() -> Data:
    """scikit-learn's digits, f32[N, 1, 8, 8]: 1,472 to train on, 325 kept apart."""
    x, labels = digits().arrays.values()
    order, n = np.random.default_rng(0).permutation(len(x)), 1472
    return Data((x[order[:n]], labels[order[:n]]), (x[order[n:]], labels[order[n:]]), 10)


@cache
def shapes() -> Data:
    """Noisy pictures of a disc, a square and a cross, f32[N, 1, 16, 16], that may hide each other; of each place, which
    of them is seen there, or 0 for none.
    """
    rng, n, kept = np.random.default_rng(0), 1280, 256
    labels = np.zeros((n, SIDE, SIDE), np.int64)
    down, right = np.mgrid[:SIDE, :SIDE]
    for picture in labels:
        for shape in rng.permutation(np.arange(1, SHAPES)):
            (y, x), r = rng.integers(2, SIDE - 2, 2), rng.integers(2, 5)
            dy, dx = abs(down - y), abs(right - x)
            inside = (dy**2 + dx**2 <= r * r, np.maximum(dy, dx) < r, (np.minimum(dy, dx) == 0) & (dy + dx <= r))
            picture[inside[shape - 1]] = shape
    seen = (labels > 0) + 0.4 * rng.standard_normal(labels.shape)
    x = seen[:, None].astype(np.float32)
    return Data((x[kept:], labels[kept:]), (x[:kept], labels[:kept]), SHAPES)


@cache
def text() -> Data:
    """The topics of Python's own help(): 32 characters, i64[N, 32], and those that follow each of them."""
    characters = np.frombuffer("\n".join(topics[name] for name in sorted(topics)).encode(), np.uint8)
    known, tokens = np.unique(characters, return_inverse=True)
    starts = LENGTH * np.random.default_rng(0).permutation((len(tokens) - 1) // LENGTH)[: ROWS_OF_TEXT + KEPT_OF_TEXT]
    rows = tokens.astype(np.int64)[starts[:, None] + np.arange(LENGTH + 1)]
    x, labels = np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])
    n = len(x) - KEPT_OF_TEXT
    return Data((x[:n], labels[:n]), (x[n:], labels[n:]), len(known))


_SGD = partial(torch.optim.SGD, lr=0.02, momentum=0.9, weight_decay=1e-4)
CASES = {
    "resnet": Case(lambda data: models.ResNet(data.classes), pictures, _SGD, 64),
    "mobilenet": Case(lambda data: models.MobileNet(data.classes), pictures, _SGD, 64),
    "unet": Case(lambda data: models.UNet(data.classes), shapes, partial(torch.optim.Adam, lr=5e-3), 32),
    "lstm": Case(lambda data: models.Recurrent(data.classes), text, partial(torch.optim.Adam, lr=5e-3), 32),
    "transformer": Case(lambda data: models.Transformer(data.classes, LENGTH), text,
                        partial(torch.optim.AdamW, lr=3e-3), 32),
}  # fmt: skip
