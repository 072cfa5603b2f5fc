"""Convolutions whose output channels fill half a vector: tiles of two steps of k side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import default_target, host_targets, op, run_node
from backend.kernels import naive
from backend.kernels.naive import check, normal
from parax.compiler.backend.kernels.conv.winograd import lower as winograd
from parax.compiler.backend.kernels.matmul.blocking import best_tiles
from parax.compiler.backend.microkernels.emitter import SINGLE
from parax.compiler.backend.microkernels.two_steps import TWO_STEPS
from parax.compiler.ir.types import symbol
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

LAST = (0, 2, 3, 1)
LANES = default_target().f32_lanes
UNIT = 2.0**-24


@pytest.fixture(scope="module", autouse=True)
def _plain_sums() -> Iterator[None]:
    """Winograd has tests, and bounds, of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "applies", lambda s, target: False)
        yield


def conv(x: np.ndarray, w: np.ndarray, b: np.ndarray | None, target: Target | None = None, **how: Any) -> np.ndarray:
    """Channels last, by constant filters."""
    operands = [x, w, *([] if b is None else [b])]
    symbols = how.pop("symbols", None)
    (y,) = run_node(op("Conv", **how), operands, constants=range(1, len(operands)), layouts=[LAST], out_layouts=[LAST],
                    symbols=symbols, target=target)  # fmt: skip
    return y


def exact(x: np.ndarray, w: np.ndarray, b: np.ndarray | None, **how: Any) -> np.ndarray:
    """In f64."""
    return naive.conv(x, w, b, **{"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": 1, **how})


@pytest.mark.parametrize("columns, depth, taken", [
    (24, 16, True), (8, 2, True), (40, 6, True), (56, 8, True), (1, 8, True), (23, 8, True), (24, 15, False),
    (32, 16, False), (25, 16, False), (64, 8, False), (72, 8, False), (symbol("N"), 8, False), (24, symbol("K"), False),
])  # fmt: skip
def test_where_half_a_vector_would_be_wasted(columns: Any, depth: Any, taken: bool) -> None:
    lanes, emitter = best_tiles(TARGETS["x86-64-v4"], columns, depth)
    assert (lanes, emitter) == ((8, TWO_STEPS) if taken else (16, SINGLE))


@pytest.mark.parametrize("name", ["x86-64-v2", "aarch64"])
def test_not_where_vectors_are_short(name: str) -> None:
    assert best_tiles(TARGETS[name], 2, 8) == (4, SINGLE)


@thorough(40)
@given(
    data=st.data(),
    images=st.integers(1, 2),
    channels=st.integers(4, 40),
    group=st.sampled_from([1, 1, 2, 3]),
    outputs=st.integers(1, 4 * LANES),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    bias=st.booleans(),
    symbols=st.sampled_from([{}, {"N": 0}, {"N": 0, "H": 2, "W": 3}]),
)
def test_any_size(data: st.DataObject, images: int, channels: int, group: int, outputs: int, kernel: tuple[int, int],
                  bias: bool, symbols: dict[str, int]) -> None:  # fmt: skip
    strides = [data.draw(st.integers(1, 2)) for _ in kernel]
    pads = [data.draw(st.integers(0, n - 1)) for n in (*kernel, *kernel)]
    sides = [data.draw(st.integers(n, n + 12)) for n in kernel]
    x, w = normal(images, 2 * channels * group, *sides), normal(outputs * group, 2 * channels, *kernel, seed=1)
    b = normal(outputs * group, seed=2) if bias else None
    how = {"strides": strides, "pads": pads, "group": group}
    check(conv(x, w, b, symbols=symbols, **how), exact(x, w, b, **how), int(np.prod(w.shape[1:])))


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("outputs", [LANES // 2, 3 * LANES // 2, 7 * LANES // 2 - 3])
@pytest.mark.parametrize("channels, kernel, pixels", [(4096, 1, 5), (320, 3, 7), (32, 1, 31)])
def test_blocks_of_k(channels: int, kernel: int, pixels: int, outputs: int, target: Target) -> None:
    x, w, b = normal(1, channels, pixels, 3), normal(outputs, channels, kernel, kernel, seed=1), normal(outputs, seed=2)
    how = {"pads": [kernel // 2] * 4}
    check(conv(x, w, b, target, **how), exact(x, w, b, **how), channels * kernel**2)


@pytest.mark.parametrize("outputs", [LANES // 2, 3 * LANES // 2])
def test_every_element_keeps_its_own_bound(outputs: int) -> None:
    x, w = normal(1, 512, 9, 5), normal(outputs, 512, 1, 1, seed=1)
    x[0, ::7, 3, 2] *= 1e6
    w[3, 100:140] *= 1e-5
    bound = (512 + 8) * UNIT * exact(abs(x), abs(w), None)
    assert (abs(conv(x, w, None) - exact(x, w, None)) <= bound).all()


def test_infinity_and_nan_stay_in_their_pixel() -> None:
    x, w = normal(1, 16, 6, 5), normal(3 * LANES // 2, 16, 1, 1, seed=1)
    clean = conv(x, w, None)
    x[0, 5, 2, 2], x[0, 14, 4, 1] = np.inf, np.nan
    y = conv(x, w, None)
    assert (np.isinf(y[0, :, 2, 2]) & (np.sign(y[0, :, 2, 2]) == np.sign(w[:, 5, 0, 0]))).all()
    assert np.isnan(y[0, :, 4, 1]).all()
    y[0, :, 2, 2], y[0, :, 4, 1] = clean[0, :, 2, 2], clean[0, :, 4, 1]
    np.testing.assert_array_equal(y, clean)


def test_a_sum_of_negative_zeros_is_one() -> None:
    x, w = np.full((1, 8, 2, 2), -0.0, np.float32), np.ones((LANES // 2, 8, 1, 1), np.float32)
    assert np.signbit(conv(x, w, np.full(LANES // 2, -0.0, np.float32))).all()
