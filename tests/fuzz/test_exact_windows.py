"""The judge's convolution against a plain one, on odd sizes, and how long a large kernel takes."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import exact_windows
from fuzz.compare import Expected
from fuzz.exact_windows import convolve

AUTO = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def _begins(sizes: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, Any]) -> list[tuple[int, int]]:
    """Where the first window begins, and how many there are, along each axis: ONNX's formulas for Conv."""
    found, rank = [], len(sizes)
    for i, (n, k) in enumerate(zip(sizes, kernel)):
        stride, extent = attributes["strides"][i], (k - 1) * attributes["dilations"][i] + 1
        if attributes["auto_pad"].startswith("SAME"):
            count = (n + stride - 1) // stride
            missing = max((count - 1) * stride + extent - n, 0)
            found.append((-(missing // 2 if attributes["auto_pad"] == "SAME_UPPER" else (missing + 1) // 2), count))
            continue
        begin, end = (attributes["pads"][i], attributes["pads"][i + rank]) if "pads" in attributes else (0, 0)
        found.append((-begin, (n + begin + end - extent) // stride + 1))
    return found


def _plain(x: np.ndarray, w: np.ndarray, b: np.ndarray, group: int, attributes: dict[str, Any]) -> np.ndarray:
    """One product after the other; padding is left out."""
    axes, outputs = _begins(x.shape[2:], w.shape[2:], attributes), w.shape[0] // group
    y = np.zeros((x.shape[0], w.shape[0], *(count for _, count in axes)))
    for image, channel, *window in np.ndindex(y.shape):
        total = float(b[channel])
        for c, *tap in np.ndindex(w.shape[1:]):
            at = [begin + i * stride + t * step for (begin, _), i, t, stride, step in zip(
                axes, window, tap, attributes["strides"], attributes["dilations"])]  # fmt: skip
            if all(0 <= p < n for p, n in zip(at, x.shape[2:])):
                seen = x[(image, channel // outputs * w.shape[1] + c, *at)]
                total += float(seen) * float(w[(channel, c, *tap)])
        y[(image, channel, *window)] = total
    return y


@st.composite
def _convolutions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, dict[str, Any]]:
    rank, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))

    def each(least: int, most: int, count: int = rank) -> list[int]:
        return draw(st.lists(st.integers(least, most), min_size=count, max_size=count))

    most = {1: 9, 2: 5, 3: 3}[rank]
    sizes, kernel, attributes = each(1, most), each(1, most - 1), {"strides": each(1, 3), "dilations": each(1, 3)}
    attributes["auto_pad"] = auto = draw(st.sampled_from(AUTO))
    if auto == "NOTSET" and draw(st.booleans()):
        attributes["pads"] = each(0, 2 * most, 2 * rank)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.standard_normal((draw(st.integers(0, 2)), group * draw(st.integers(1, 2)), *sizes))
    w = rng.standard_normal((group * draw(st.integers(1, 2)), x.shape[1] // group, *kernel))
    for array in (x, w):
        if draw(st.integers(0, 3)) == 0 and array.size:
            array.flat[draw(st.integers(0, array.size - 1))] = draw(st.sampled_from([np.inf, -np.inf, np.nan]))
    return x, w, rng.standard_normal(w.shape[0]), group, attributes


@settings(max_examples=200, deadline=None)
@given(_convolutions(), st.sampled_from([1, 40, exact_windows.MOST_SEEN]))
def test_a_convolution_is_the_plain_one(case: Any, most_seen: int) -> None:
    x, w, b, group, attributes = case
    if any(count < 1 for _, count in _begins(x.shape[2:], w.shape[2:], attributes)):
        with pytest.raises(ValueError, match="larger than the padded input"):
            convolve(x, w, b, group, attributes)
        return
    with patch.object(exact_windows, "MOST_SEEN", most_seen), np.errstate(all="ignore"):
        found = convolve(x, w, b, group, attributes)
        np.testing.assert_allclose(found, _plain(x, w, b, group, attributes), 1e-12, 1e-12)


def test_parts_hold_each_window_once_and_see_no_more_than_they_may() -> None:
    axes = exact_windows.axes_of((30, 1, 17), (3, 1, 5), {})
    with patch.object(exact_windows, "MOST_SEEN", 1000):
        cuts = list(exact_windows._parts(axes, 2))
    seen = np.zeros([a.places.shape[0] for a in axes], int)
    for cut in cuts:
        seen[cut] += 1
        assert seen[cut].size * 2 * 3 * 5 <= 1000
    assert (seen == 1).all() and len(cuts) > 1


def test_a_kernel_that_is_larger_than_the_image_takes_no_longer_than_the_image() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.random((8, 1, 1, 300)), rng.random((4, 1, 201, 401))
    began = time.monotonic()
    y = convolve(x, w, None, 1, {"pads": [202, 203, 201, 202], "dilations": [2, 1]})
    assert time.monotonic() - began < 5, "80,601 taps, of which nearly all meet padding only"
    row = next(k for k in range(201) if 2 * k - 202 == 0)
    padded = np.pad(x[:, 0, 0], ((0, 0), (203, 202)))
    wanted = [padded[:, i : i + 401] @ w[:, 0, row].T for i in range(y.shape[3])]
    np.testing.assert_allclose(y[:, :, 0], np.stack(wanted, -1), 1e-12)


@pytest.mark.parametrize("fp", ["strict", "default"])
def test_the_judge_knows_which_integers_a_large_kernel_may_give(fp: str) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(3, 7, shape).astype(np.float32) for shape in ((2, 1, 1, 300), (3, 1, 201, 401)))
    pads = [200, 60, 1, 60]
    (total,) = convolve(x, w, None, 1, {"pads": pads})[1, 2, 1, 9:10]
    b = np.array([0, 0, np.ceil(total) - total], np.float32)  # so this element is a whole number but for rounding
    text = f"""<ir_version: 9, opset_import: ["": 20]>
        g (float[2,1,1,300] x, float[3,1,201,401] w, float[3] b) => (int64[2,3,2,20] y) {{
            c = Conv<pads = {pads}>(x, w, b)\n y = Cast<to = 7>(c)
        }}"""
    expected = Expected(onnx.parser.parse_model(text), {"x": x, "w": w, "b": b})
    found = {"y": expected.others["onnxruntime"]["y"].copy()}
    for off, right in ((0, True), (-1, True), (1, False), (-2, False)):
        found["y"][1, 2, 1, 9] = int(np.ceil(total)) + off
        assert (expected.problem(found, fp) == "") == right, off
    assert not expected.imprecise, "float64 decides it"


def test_infinite_weights_do_not_meet_the_padding() -> None:
    w = np.array([[[np.inf, 1.0, 1.0]]])
    assert convolve(np.ones((1, 1, 2)), w, None, 1, {"pads": [1, 1]}).tolist() == [[[2.0, np.inf]]]
