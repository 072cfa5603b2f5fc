"""Depthwise convolutions of bytes and i16 by constant i8 against integers: exact, whatever padding consists of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backend.harness import Program
from backend.kernels import naive
from backend.kernels.test_widening import LAST, found, graph_of, whole
from parax.compiler.backend.host import resolve_target
from parax.compiler.targets.target import TARGETS, Target

NATIVE = resolve_target("native")
LAYERS: list[tuple[tuple[int, ...], tuple[int, int], dict[str, Any]]] = [
    ((2, 5, 7, 9), (3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 33, 6, 11), (3, 3), {"pads": [0, 1, 1, 0], "strides": [2, 2]}),
    ((1, 16, 20, 20), (5, 5), {"pads": [2, 2, 2, 2]}),
    ((1, 8, 9, 9), (3, 2), {"dilations": [2, 1], "pads": [2, 0, 2, 1]}),
    ((3, 24, 1, 1), (1, 1), {}),
]


def check(layer: int, target: Target, dtype: type = np.uint8, margin: int = 0, images: str | None = None) -> None:
    shape, kernel, given = LAYERS[layer]
    attributes = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], **given}
    x = whole(*shape, low=0, high=255).astype(dtype)
    x = x if dtype is np.uint8 else x - margin
    w = whole(shape[1], 1, *kernel, low=-128, high=127, seed=1).astype(np.int8)
    b = whole(shape[1], low=-100_000, high=100_000, seed=2).astype(np.int32)
    more = {"margin": margin} if dtype is np.uint8 else {}
    graph = graph_of("ByteConv" if more else "WideningConv", x, [w, b], images, LAST, group=shape[1],
                     kernel_shape=list(kernel), **more, **attributes)  # fmt: skip
    assert "depthwise" in Program(graph, target, (images,) if images else ()).calls[0][1].func.name
    top, left, bottom, right = attributes["pads"]
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=margin if more else 0)
    wanted = naive.conv(padded, w, b.astype(np.float64), **{**attributes, "pads": [0] * 4}, group=shape[1])
    for y in found(graph, {"x": x}, {images: len(x)} if images else {}, [target], tiled=False):
        assert y.dtype == np.int32
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("margin", [0, 117, 255])
@pytest.mark.parametrize("layer", range(len(LAYERS)))
def test_bytes(layer: int, margin: int) -> None:
    check(layer, NATIVE, margin=margin)


@pytest.mark.parametrize("layer", range(len(LAYERS)))
def test_shorts(layer: int) -> None:
    check(layer, NATIVE, np.int16, margin=100)


def test_any_number_of_images() -> None:
    check(0, NATIVE, margin=3, images="N")


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_every_target(name: str) -> None:
    check(0, TARGETS[name], margin=9)


@pytest.mark.parametrize("bias", [2**24, -(2**24)])
def test_sums_that_f32_may_round_are_integers_in_plain_loops(bias: int) -> None:
    x, w = whole(1, 4, 3, 3, low=0, high=255).astype(np.uint8), np.ones((4, 1, 1, 1), np.int8)
    b = np.full(4, bias + 1, np.int32)
    graph = graph_of("ByteConv", x, [w, b], None, LAST, group=4, kernel_shape=[1, 1], margin=0)
    (y,) = found(graph, {"x": x}, {}, [NATIVE], tiled=False)
    np.testing.assert_array_equal(y, x.astype(np.int32) + (bias + 1))
