"""Windows of an image, transformed along both axes: what the products of a Winograd kernel read.

Padding costs no copy: rows outside the image are read from a row of zeros, columns outside are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from .....ir.types import F32, Dim, DType
from .....kernel_ir.builder import Builder, KValue
from .axes import Matrix, emit_product

Store = Callable[[int, KValue, KValue], None]
"""Takes the number of a point, the first channel of a vector, and the vector."""


@dataclass(frozen=True)
class WindowAxis:
    """One axis of a window.

    Attributes:
        inputs: that it spans. step: from tile to tile. pad: rows or columns before the image.
        parts: first input, stride and matrix of each transform; their points come one after the other.
    """

    inputs: int
    step: int
    pad: int
    parts: Sequence[tuple[int, int, Matrix]]


class Windows:
    """Emits the transform of a tile's window, one vector of channels after the other.

    Args:
        image: name of the operand, [N, C, H, W], channels innermost. zero: name of one with zeros for a window's line.
        strides: of the image. size: its height and width. source: what pixels are turned into before transforms.
    """

    def __init__(
        self, k: Builder, image: str, zero: str, strides: Sequence[Dim], size: Sequence[Dim],
        axes: tuple[WindowAxis, WindowAxis], lanes: int, source: DType = F32,
    ) -> None:  # fmt: skip
        self.k, self.image, self.zero, self.axes, self.lanes, self.source = k, image, zero, axes, lanes, source
        self.strides, self.size = [k.index(n) for n in strides], size

    def emit(self, tile: Sequence[KValue], channels: tuple[KValue | int, KValue | int], store: Store) -> None:
        """The window of a tile (image, row, column), for the channels [first, last) of whole vectors."""
        k, strides, (rows, columns), (n, th, tw) = self.k, self.strides, self.axes, tile
        height, width = (k.index(d) for d in self.size)
        h, w = th * rows.step - k.index(rows.pad), tw * columns.step - k.index(columns.pad)
        corner = k.gep(k[self.image], n * strides[0] + h * strides[2] + w * strides[3])
        inside = [(h + i >= 0) & (h + i < height) for i in range(rows.inputs)]
        starts = [k.select(ok, k.gep(corner, strides[2] * i), k[self.zero]) for i, ok in enumerate(inside)]
        whole = (w >= 0) & (w + columns.inputs <= width)

        def each(vector: Callable[[KValue], None]) -> None:
            k.for_(*channels, self.lanes, [], lambda c, _: vector(c))

        def within(j: int) -> KValue:
            return (w + j >= 0) & (w + j < width)

        k.if_(whole, lambda: each(lambda c: self._vector(starts, c, None, store)),
              lambda: each(lambda c: self._vector(starts, c, within, store)))  # fmt: skip

    def _vector(
        self, starts: list[KValue], c: KValue, within: Callable[[int], KValue] | None, store: Store
    ) -> None:  # fmt: skip
        """The transform of one vector of channels."""
        k = self.k
        zero, point = k.splat(k.const(0, self.source), self.lanes), 0
        for top, down, high in self.axes[0].parts:
            for left, right, wide in self.axes[1].parts:

                def column(at: int, own: list[KValue], high: Matrix = high) -> list[KValue]:
                    read = [k.cast(k.load(start, self.strides[3] * at + c, self.lanes), self.source) for start in own]
                    return emit_product(k, high, read)

                columns = []
                for j in range(len(wide[0])):
                    at, outside = left + j * right, [zero] * len(high)
                    read = partial(column, at, starts[top::down][: len(high[0])])
                    columns.append(read() if within is None else k.if_(within(at), read, outside.copy))
                for i in range(len(high)):
                    for value in emit_product(k, wide, [values[i] for values in columns]):
                        store(point, c, value)
                        point += 1
