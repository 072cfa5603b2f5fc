"""The weights of a plan while they are made: in memory that grows, each once, and let go where they came from."""

from __future__ import annotations

import numpy as np
import pytest

import parax
from parax import CompileOptions
from parax.compiler import driver
from parax.compiler.backend.lowering import WeightStore
from parax.compiler.compilation import Compilation
from parax.compiler.ir.text import parse_graph
from parax.errors import InternalError

TEXT = """graph @g(%x: f32[N,256]) {
    %w = const f32[256,256] "w"
    %b = const f32[256,256] "b"
    %1 = MatMul(%x, %w)
    %2 = Relu(%1)
    %3 = MatMul(%2, %w)
    %4 = MatMul(%3, %b)
    %5 = Transpose(%w)
    return %4, %5
}"""


def test_contents_stay_while_the_memory_grows() -> None:
    rng = np.random.default_rng(0)
    sizes = (0, 1, 63, 64, 5000, 1 << 20, 9 << 20, 7)
    store, arrays = WeightStore(), [rng.integers(0, 255, n, np.uint8) for n in sizes]
    weights = [store.add(array) for array in arrays]
    assert [store.add(array) for array in arrays] == weights
    blob = np.frombuffer(store.to_bytes(), np.uint8)
    assert blob.size == store.nbytes and blob.ctypes.data % WeightStore.ALIGN == 0
    kept = np.zeros(blob.size, bool)
    for weight, array in zip(weights, arrays, strict=True):
        place = slice(weight.offset, weight.offset + weight.nbytes)
        np.testing.assert_array_equal(blob[place], array)
        assert weight.offset % WeightStore.ALIGN == 0 and not kept[place].any()
        kept[place] = True
    assert not blob[~kept].any()


def test_what_is_made_in_place_is_stored_once() -> None:
    store, content = WeightStore(), np.arange(12, dtype=np.float32).reshape(3, 4)

    def fill(place: np.ndarray) -> None:
        assert not place.any() and place.shape == (3, 4)
        place[:] = content

    first = store.add(content.astype(np.float16))
    weight = store.make((3, 4), np.float32, fill)
    assert weight.nbytes == 48 and weight != first
    assert store.make((3, 4), np.float32, fill) == weight == store.add(np.asfortranarray(content))
    after = store.make((2, 9), np.int8, lambda place: None)  # where the duplicates were for a while
    blob = np.frombuffer(store.to_bytes(), np.uint8)
    np.testing.assert_array_equal(blob[weight.offset :][:48].view(np.float32), content.ravel())
    assert after.offset == weight.offset + WeightStore.ALIGN and not blob[weight.offset + 48 :].any()


def test_an_empty_store() -> None:
    assert bytes(WeightStore().to_bytes()) == b""


@pytest.mark.usefixtures("any_target")
@pytest.mark.parametrize("targets", [("native",), ("x86-64-v2", "x86-64-v3")])
def test_constants_go_once_no_kernel_needs_them(targets: tuple[str, ...]) -> None:
    rng = np.random.default_rng(0)
    data = {name: rng.standard_normal((256, 256), np.float32) for name in "wb"}
    graph = parse_graph(TEXT, data)
    run = Compilation(CompileOptions(targets=targets, cache=False), lambda phase, done: None)
    driver.optimise(graph, run)
    plan = driver.build_plan(graph, run, spend=True)
    left = [v for node in graph for v in node.operands if v.data is not None and v.data.nbytes >= 1 << 16]
    assert all(not any(v.data.strides) for v in left if v.data is not None)
    with pytest.raises(InternalError, match="lowered before"):
        driver.build_plan(graph, run)
    x = rng.standard_normal((3, 256), np.float32)
    found = plan.session().run({"x": x})
    expected = np.maximum(x @ data["w"], 0) @ data["w"] @ data["b"]
    np.testing.assert_allclose(found[plan.outputs[0].name], expected, 1e-3, 1e-2)
    np.testing.assert_array_equal(found[plan.outputs[1].name], data["w"].T)


def test_a_graph_that_is_not_spent_can_be_lowered_again() -> None:
    data = {name: np.eye(256, dtype=np.float32) for name in "wb"}
    graph = parse_graph(TEXT, data)
    run = Compilation(CompileOptions(cache=False), lambda phase, done: None)
    driver.optimise(graph, run)
    first, second = (driver.build_plan(graph, run) for _ in range(2))
    assert bytes(first.weights) == bytes(second.weights)
    assert isinstance(first, parax.Plan)
