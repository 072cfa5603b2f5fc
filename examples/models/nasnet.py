"""NASNet-A for mobiles (Zoph et al. 2018, "Learning transferable architectures"): cells of many parallel branches.

A cell sees the outputs of the two cells before it. Separable convolutions are applied twice, as in the paper; windows
are padded symmetrically. 4 @ 1056 is `cells=4, width=44`.
"""

from __future__ import annotations

import numpy as np

from .builder import ModelBuilder

SUM_GAMMA = 0.7
"""Scale of the normalisation of a branch that another is added to: the sum keeps the variance of one."""

ENTRY_GAMMA = 0.75
"""Scale of the normalisation of a cell's inputs: it takes back what sums of equal maps add to the variance."""


def nasnet(b: ModelBuilder, image: str, *, cells: int, width: int, classes: int, **_: object) -> None:
    """image f32[N,3,H,W] → logits f32[N,classes]; no auxiliary head.

    Args:
        cells: normal cells in each of the three groups. width: channels of a branch in the first group.
    """
    x = b.batch_norm(b.conv(image, "stem.conv", 3, 32, 3, stride=2, gain=1.0), "stem.bn", 32)
    cell = Cells(b, x, 32)
    for i, shrink in enumerate((4, 2)):
        cell.reduction(f"stem_{i}", width // shrink)
    for group in range(3):
        if group:
            cell.reduction(f"reduction_{group}", width << group)
        for i in range(cells):
            cell.normal(f"cell_{group}_{i}", width << group)
    x = b.global_pool(b.op("Relu", cell.current))
    b.output(b.gemm(x, "fc", cell.channels, classes, gain=4.0), "logits", [b.batch, classes])


class Cells:
    """The outputs of the last two cells, and the cells that follow on them.

    Attributes:
        current, channels, strides: the last cell's output, its channels, the image's size over its map's.
        previous, previous_channels, previous_strides: those of the cell before it.
    """

    def __init__(self, b: ModelBuilder, x: str, channels: int) -> None:
        self.b = b
        self.current, self.channels, self.strides = x, channels, 2
        self.previous, self.previous_channels, self.previous_strides = x, channels, 2

    def normal(self, name: str, width: int) -> None:
        """A cell that keeps the map's size; 6 × width channels."""
        b = self.b
        with b.scope(name):
            h, p = self._entries(width)
            y1 = b.op("Add", self._separable(h, "left1", width, 5), self._separable(p, "right1", width, 3))
            y2 = b.op("Add", self._separable(p, "left2", width, 5), self._separable(p, "right2", width, 3))
            y3 = b.op("Add", b.average_pool(h, 3, 1, 1), p)
            y4 = b.op("Add", b.average_pool(p, 3, 1, 1), b.average_pool(p, 3, 1, 1))
            y5 = b.op("Add", self._separable(h, "left5", width, 3), h)
            self._leave(b.op("Concat", p, y1, y2, y3, y4, y5, axis=1), 6 * width, 1)

    def reduction(self, name: str, width: int) -> None:
        """A cell that halves the map; 4 × width channels."""
        b = self.b
        with b.scope(name):
            h, p = self._entries(width)
            y1 = b.op("Add", self._separable(h, "left1", width, 5, 2), self._separable(p, "right1", width, 7, 2))
            y2 = b.op("Add", b.max_pool(h, 3, 2, 1), self._separable(p, "right2", width, 7, 2))
            y3 = b.op("Add", b.average_pool(h, 3, 2, 1), self._separable(p, "right3", width, 5, 2))
            y4 = b.op("Add", y2, b.average_pool(y1, 3, 1, 1))
            y5 = b.op("Add", self._separable(y1, "left5", width, 3), b.max_pool(h, 3, 2, 1))
            self._leave(b.op("Concat", y2, y3, y4, y5, axis=1), 4 * width, 2)

    def _entries(self, width: int) -> tuple[str, str]:
        """Both inputs with `width` channels and the current map's size."""
        b = self.b
        h = b.conv(b.op("Relu", self.current), "begin", self.channels, width, 1)
        h = b.batch_norm(h, "begin_bn", width, gamma=ENTRY_GAMMA)
        p = self.previous
        if self.previous_strides != self.strides:
            p = self._halved(b.op("Relu", p), self.previous_channels, width)
        elif self.previous_channels != width:
            p = b.conv(b.op("Relu", p), "adjust", self.previous_channels, width, 1)
        else:
            return h, p
        return h, b.batch_norm(p, "adjust_bn", width, gamma=ENTRY_GAMMA)

    def _halved(self, x: str, channels: int, width: int) -> str:
        """Half of the channels from the even pixels, half from the odd ones."""
        b = self.b
        odd = b.op("Pad", x, b.constant([0, 0, 0, 0, 0, 0, 1, 1], np.int64), mode="constant")
        ends, axes = b.constant([2**63 - 1] * 2, np.int64), b.constant([2, 3], np.int64)
        odd = b.op("Slice", odd, b.constant([1, 1], np.int64), ends, axes)
        parts = [
            b.conv(b.average_pool(pixels, 1, 2), f"adjust_{name}", channels, n, 1)
            for name, pixels, n in (("even", x, width // 2), ("odd", odd, width - width // 2))
        ]
        return b.op("Concat", *parts, axis=1)

    def _separable(self, x: str, name: str, width: int, kernel: int, stride: int = 1) -> str:
        """Twice: Relu, depthwise and pointwise convolution, BatchNormalization; the stride in the first."""
        b = self.b
        for i in (1, 2):
            x = b.conv(
                b.op("Relu", x), f"{name}.depthwise{i}", width, width, kernel, stride=stride, group=width, centred=False
            )
            gamma = SUM_GAMMA if i == 2 else 1.0
            x = b.batch_norm(b.conv(x, f"{name}.pointwise{i}", width, width, 1), f"{name}.bn{i}", width, gamma=gamma)
            stride = 1
        return x

    def _leave(self, x: str, channels: int, stride: int) -> None:
        self.previous, self.previous_channels, self.previous_strides = self.current, self.channels, self.strides
        self.current, self.channels, self.strides = x, channels, self.strides * stride
