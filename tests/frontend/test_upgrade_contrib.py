"""ONNX Runtime's operators that are ONNX's in another form: against ONNX Runtime, or NumPy where it has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from frontend.test_upgrades import build, by_onnxruntime, computed, f32
from parax.compiler.frontend.importer import import_model
from parax.errors import ParaxError

RNG = np.random.default_rng(11)
OURS = {"domain": "com.microsoft"}
BYTES = RNG.integers(0, 256, (2, 7, 8, 5)).astype(np.uint8)
LENGTHS = {"q": np.array([9], np.int64), "k": np.array([14], np.int64)}

AGAINST_ONNXRUNTIME: dict[str, tuple[str, Mapping[str, np.ndarray], Mapping[str, np.ndarray], dict[str, Any]]] = {
    "pool": ("NhwcMaxPool", {"x": BYTES}, {}, {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    "pool of i8": ("NhwcMaxPool", {"x": BYTES.view(np.int8)}, {}, {"kernel_shape": [2, 2], "dilations": [2, 1]}),
    "pool, rounded up": ("NhwcMaxPool", {"x": BYTES}, {}, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "triangle": ("Trilu", {"x": f32(2, 4, 5)}, {"k": np.array(1, np.int64)}, {"upper": 1}),
    "triangle below": ("Trilu", {"x": f32(3, 3)}, {}, {"upper": 0}),
    "range": ("Range", {}, {"a": np.float32([1.5]), "b": np.float32([7]), "d": np.float32([2])}, {}),
    "range by one": ("Range", {}, {"a": np.int64([-2]), "b": np.int64([4])}, {}),
    "expanded": ("ExpandDims", {"x": f32(2, 3)}, {"axis": np.array([-2], np.int32)}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", AGAINST_ONNXRUNTIME)
def test_against_onnxruntime(name: str) -> None:
    op, inputs, constants, attributes = AGAINST_ONNXRUNTIME[name]
    model = build(op, 17, inputs, constants, **OURS, **attributes)
    (got,), (expected,) = computed(model, inputs), by_onnxruntime(model, inputs)
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), [((2, 1, 1, 5), 3), ((1, 1, 4, 5), -1), ((4, 5), 2), ((3, 1, 5), -3)])
@pytest.mark.parametrize(("dtype", "epsilon"), [(np.float64, 1e-12), (np.float32, 1e-5), (np.float16, 2e-3)])
def test_softmax_of_a_sum(shape: tuple[int, ...], axis: int, dtype: type, epsilon: float) -> None:
    """ONNX Runtime has it on GPUs alone."""
    given = {"x": f32(2, 3, 4, 5).astype(dtype), "b": f32(*shape).astype(dtype)}
    (y,) = computed(build("BiasSoftmax", 17, given, **OURS, axis=axis, is_inner_broadcast=1), given)
    total = np.exp(given["x"].astype(np.float64) + given["b"].astype(np.float64))
    axes = tuple(range(axis % 4, 4))
    assert y.dtype == dtype
    np.testing.assert_allclose(y.astype(np.float64), total / total.sum(axes, keepdims=True), epsilon, epsilon)


@pytest.mark.parametrize(("n", "both", "farthest"), [(32, 1, 128), (32, 0, 128), (16, 1, 12), (6, 0, 7), (4, 1, 2)])
def test_buckets_of_places(n: int, both: int, farthest: int) -> None:
    """As T5's code for PyTorch has them, of keys that it does not mask; ONNX Runtime has the operator on GPUs alone.

    What the optimiser writes of T5's table is its transpose, under the shape of the table itself.
    """
    own, queries, keys = f32(n, 3), 150, 180
    table = np.ascontiguousarray(own.T).reshape(own.shape)
    lengths = {"q": np.array([queries], np.int64), "k": np.array([keys], np.int64)}
    model = build("RelativePositionBias", 17, {"t": table}, lengths, **OURS, is_bidirectional=both,
                  max_distance=farthest)  # fmt: skip
    (y,) = computed(model, {"t": table})
    place = np.arange(keys)[None] - np.arange(queries)[:, None]
    each, before = n // 2 if both else n, np.zeros_like(place)
    if both:
        before, distance = (place > 0) * each, np.abs(place)
    else:
        distance = -np.minimum(place, 0)
    near = each // 2
    share = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(near)) / np.float32(np.log(farthest / near))
    far = near + (share * np.float32(each - near)).astype(np.int64)
    wanted = own[before + np.where(distance < near, distance, np.minimum(far, each - 1))].transpose(2, 0, 1)
    seen = np.full(place.shape, True) if both else place <= 0
    assert y.shape == (1, 3, queries, keys)
    np.testing.assert_array_equal(y[0][:, seen], wanted[:, seen])
    if not both:
        np.testing.assert_array_equal(y[0, 0, :, :queries], y[0, 0, :, :queries].T)


def _normalised(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, groups: int, silu: int) -> np.ndarray:
    """Of x with its channels last, in f64."""
    n, h, w, c = x.shape
    parts = x.astype(np.float64).reshape(n, h * w, groups, c // groups)
    mean, var = (f(parts, axis=(1, 3), keepdims=True) for f in (np.mean, np.var))
    y = ((parts - mean) / np.sqrt(var + 1e-4)).reshape(x.shape) * gamma + beta
    return y / (1 + np.exp(-y)) if silu else y


@pytest.mark.parametrize("silu", [0, 1])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize(("dtype", "epsilon"), [(np.float32, 1e-5), (np.float16, 4e-3)])
def test_normalisations_of_groups(silu: int, last: int, dtype: type, epsilon: float) -> None:
    """ONNX Runtime has them on GPUs alone."""
    x, gamma, beta = f32(2, 3, 5, 8).astype(dtype), f32(8), f32(8)
    given = {"x": x if last else np.moveaxis(x, -1, 1), "gamma": gamma, "beta": beta}
    how = {"groups": 4, "activation": silu, "epsilon": 1e-4, "channels_last": last}
    (y,) = computed(build("GroupNorm", 17, given, **OURS, **how), given)
    assert y.dtype == dtype
    y = y if last else np.moveaxis(y, 1, -1)
    np.testing.assert_allclose(y.astype(np.float64), _normalised(x, gamma, beta, 4, silu), epsilon, epsilon)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("rank", [2, 4])
@pytest.mark.parametrize("biased", [False, True])
def test_normalisations_of_sums(last: int, rank: int, biased: bool) -> None:
    x, skip, gamma, beta, bias = f32(2, 3, 5, 8), f32(2, 1, 1, 8), f32(8), f32(8), f32(8)
    total = x + skip + bias * biased

    def laid(image: np.ndarray) -> np.ndarray:
        return image if last else np.moveaxis(image, -1, 1)

    given = {"x": laid(x), "gamma": gamma, "beta": beta, "skip": skip[:, 0, 0] if rank == 2 else laid(skip)}
    given |= {"bias": bias} if biased else {}
    how = {"groups": 2, "activation": 1, "epsilon": 1e-4, "channels_last": last}
    y, s = computed(build("SkipGroupNorm", 17, given, n_outputs=2, **OURS, **how), given)
    np.testing.assert_allclose(s, laid(total), 1e-6, 1e-6)
    np.testing.assert_allclose(y, laid(_normalised(total, gamma, beta, 2, 1)), 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("op", "inputs", "constants", "attributes"),
    [
        ("GroupNorm", {"x": f32(2, 3, 5, 8), "g": f32(8), "b": f32(8)}, {}, {"groups": 3, "activation": 0}),
        ("GroupNorm", {"x": f32(2, 3, 5, 8), "g": f32(8), "b": f32(8)}, {}, {"groups": 2, "activation": 2}),
        ("GroupNorm", {"x": f32(2, 3, 8), "g": f32(8), "b": f32(8)}, {}, {"groups": 2, "activation": 0}),
        ("GroupNorm", {"x": f32(2, 3, 5, 8), "g": f32(8)}, {}, {"groups": 2, "activation": 0}),
        ("SkipGroupNorm", {"x": f32(2, 3, 5, 8), "g": f32(8), "b": f32(8), "s": f32(2, 3, 5, 9)}, {}, {"groups": 2}),
        ("SkipGroupNorm", {"x": f32(1, 3, 5, 8), "g": f32(8), "b": f32(8), "s": f32(2, 3, 5, 8)}, {}, {"groups": 2}),
        ("NhwcMaxPool", {"x": BYTES[0, 0]}, {}, {"kernel_shape": [2, 2]}),
        ("NhwcMaxPool", {"x": BYTES}, {}, {}),
        ("BiasSoftmax", {"x": f32(2, 3), "b": f32(3)}, {}, {"axis": 2, "is_inner_broadcast": 1}),
        ("BiasSoftmax", {"x": f32(2, 3), "b": f32(4, 2, 3)}, {}, {"axis": 1, "is_inner_broadcast": 1}),
        ("RelativePositionBias", {"t": f32(32)}, LENGTHS, {"max_distance": 128}),
        ("RelativePositionBias", {"t": f32(32, 2)}, LENGTHS, {"max_distance": 16}),
        ("RelativePositionBias", {"t": f32(1, 2)}, LENGTHS, {"max_distance": 16}),
        ("Trilu", {"x": f32(3)}, {}, {}),
        ("Range", {}, {"a": np.int64([0]), "b": np.int64([4]), "d": np.int64([0])}, {}),
        ("ExpandDims", {"x": f32(2, 3), "axis": np.array([0], np.int32)}, {}, {}),
        ("ExpandDims", {"x": f32(2, 3)}, {"axis": np.array([4], np.int32)}, {}),
    ],
)
def test_bad_input(op: str, inputs: Mapping[str, np.ndarray], constants: Mapping[str, np.ndarray],
                   attributes: dict[str, Any]) -> None:  # fmt: skip
    with pytest.raises(ParaxError) as caught:
        import_model(build(op, 17, inputs, constants, **OURS, **attributes))
    assert op in str(caught.value)
