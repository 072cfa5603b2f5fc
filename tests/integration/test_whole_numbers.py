"""Products of quantised tensors are exact sums of whole numbers, whatever is done for speed, scaled once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax

SCALES = {"a_scale": 0.1, "b_scale": 1.0, "y_scale": 1.0}
"""Every tenth sum lies half way between two results, so that the least error beside it shows."""
MOST = 8  # of what is multiplied: larger sums leave the result's range


def model(node: onnx.NodeProto, x: np.ndarray, constants: dict[str, np.ndarray], output: int) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(a, name) for name, a in constants.items()])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def run(made: onnx.ModelProto, feeds: dict[str, np.ndarray], fast: bool = False) -> np.ndarray:
    plan = parax.compile(made, options=parax.CompileOptions(cache=False, calibrate=False, fast_fp=fast))
    with plan.session(instances=1) as session:
        return session.run(feeds)["y"]


def scalars(x: type, w: type) -> dict[str, np.ndarray]:
    zeros = {"a_zero": np.array(128 if x == np.uint8 else -17, x), "b_zero": np.array(130 if w == np.uint8 else -17, w),
             "y_zero": np.array(128, np.uint8)}  # fmt: skip
    return {**{name: np.array(s, np.float32) for name, s in SCALES.items()}, **zeros}


def quantised(total: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(total.astype(np.float32) * np.float32(0.1)) + 128, 0, 255).astype(np.uint8)


def numbers(rng: np.random.Generator, zero: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    limits = np.iinfo(zero.dtype)
    return np.clip(rng.integers(-MOST, MOST + 1, shape) + int(zero), limits.min, limits.max).astype(zero.dtype)


def check(linear: str, integer: str, x: np.ndarray, w: np.ndarray, given: dict[str, np.ndarray], total: np.ndarray,
          fast: bool) -> None:  # fmt: skip
    """The operator that says the sums, and the one that scales and rounds them."""
    zeros = {name: given[name] for name in ("a_zero", "b_zero")}
    names = ["x", "a_scale", "a_zero", "w", "b_scale", "b_zero", "y_scale", "y_zero"]
    sums = model(helper.make_node(integer, ["x", "w", *zeros], ["y"]), x, {"w": w, **zeros}, TensorProto.INT32)
    scaled = model(helper.make_node(linear, names, ["y"]), x, {**given, "w": w}, TensorProto.UINT8)
    np.testing.assert_array_equal(run(sums, {"x": x}, fast), total)
    np.testing.assert_array_equal(run(scaled, {"x": x}, fast), quantised(total))


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("types", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)])
@pytest.mark.parametrize("size", [(3, 96, 16, 33), pytest.param((1, 512, 1024, 512), marks=pytest.mark.slow)])
def test_matrix_products(size: tuple[int, ...], types: tuple[type, type], fast: bool) -> None:
    rng = np.random.default_rng(0)
    given = scalars(*types)
    x, w = numbers(rng, given["a_zero"], size[:3]), numbers(rng, given["b_zero"], size[2:])
    total = (x.astype(np.int64) - int(given["a_zero"])) @ (w.astype(np.int64) - int(given["b_zero"]))
    check("QLinearMatMul", "MatMulInteger", x, w, given, total, fast)


@pytest.mark.sample(3)
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("types", [(np.uint8, np.int8), (np.uint8, np.uint8)])
@pytest.mark.parametrize("kernel", [1, 3])
def test_convolutions(kernel: int, types: tuple[type, type], fast: bool) -> None:
    rng = np.random.default_rng(1)
    given = scalars(*types)
    x, w = numbers(rng, given["a_zero"], (2, 32, 28, 28)), numbers(rng, given["b_zero"], (64, 32, kernel, kernel))
    centred = x.astype(np.int64) - int(given["a_zero"])
    windows = np.lib.stride_tricks.sliding_window_view(centred, (kernel, kernel), (2, 3))
    total = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64) - int(given["b_zero"]), optimize=True)
    check("QLinearConv", "ConvInteger", x, w, given, total, fast)


@pytest.mark.parametrize("kernel", [(17, 17), (1, 301)])
def test_one_channels_taps_beyond_f32(kernel: tuple[int, int]) -> None:
    x, w = (np.full((channels, 3 // channels, *kernel), 255, np.uint8) for channels in (1, 3))
    made = model(helper.make_node("ConvInteger", ["x", "w"], ["y"], group=3), x, {"w": w}, TensorProto.INT32)
    np.testing.assert_array_equal(run(made, {"x": x}), np.full((1, 3, 1, 1), 255 * 255 * kernel[0] * kernel[1]))


def test_sums_of_open_length_wrap() -> None:
    x, w = np.full((1, 40000), 255, np.uint8), np.full((40000, 1), 255, np.uint8)
    made = model(helper.make_node("MatMulInteger", ["x", "w"], ["y"]), x, {}, TensorProto.INT32)
    made.graph.input.append(helper.make_tensor_value_info("w", TensorProto.UINT8, ["K", 1]))
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "K"
    assert run(made, {"x": x, "w": w}).item() == 255 * 255 * 40000 - 2**32
