"""Attention of a few queries, read where keys and values lie: as the products and the softmax one by one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import parax
from parax.compiler.backend.kernels.attention import few

F32 = onnx.TensorProto.FLOAT
LOWEST = np.finfo(np.float32).min


def model(depth: int, columns: int, heads: int, shared: int = 1) -> bytes:
    """q f32[N,S,heads·shared,D], k f32[N,T,heads,D], v f32[N,T,heads,E], mask f32[S,T] → y f32[N,heads·shared,S,E]."""
    nodes = [helper.make_node("Transpose", ["q"], ["qt"], perm=[0, 2, 1, 3])]
    wide = heads * shared
    for name in "kv":
        nodes.append(helper.make_node("Transpose", [name], [f"{name}t"], perm=[0, 2, 1, 3]))
        if shared > 1:
            nodes += [
                helper.make_node("Unsqueeze", [f"{name}t", "two"], [f"{name}u"]),
                helper.make_node("Shape", [f"{name}u"], [f"{name}s"]),
                helper.make_node("Mul", [f"{name}s", "times"], [f"{name}w"]),
                helper.make_node("Expand", [f"{name}u", f"{name}w"], [f"{name}x"]),
                helper.make_node("Reshape", [f"{name}x", f"{name}r"], [f"{name}all"]),
            ]
        else:
            nodes.append(helper.make_node("Identity", [f"{name}t"], [f"{name}all"]))
    nodes += [
        helper.make_node("Transpose", ["kall"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["qt", "turned"], ["products"]),
        helper.make_node("Mul", ["products", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "mask"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["powers"], axis=-1),
        helper.make_node("MatMul", ["powers", "vall"], ["y"]),
    ]
    shapes = {"q": ["N", "S", wide, depth], "k": ["N", "T", heads, depth], "v": ["N", "T", heads, columns],
              "mask": ["S", "T"]}  # fmt: skip
    constants = {"scale": np.float32(0.3), "two": np.array([2]), "times": np.array([1, 1, shared, 1, 1]),
                 "kr": np.array([0, wide, -1, depth]), "vr": np.array([0, wide, -1, columns])}  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, F32, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info("y", F32, ["N", wide, "S", columns])],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, shared: int) -> np.ndarray:
    q, k, v = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    k, v = k.repeat(shared, 1), v.repeat(shared, 1)
    with np.errstate(invalid="ignore", over="ignore"):
        scores = ((q @ k.swapaxes(-1, -2) * 0.3).astype(np.float32) + mask).astype(np.float64)
        e = np.exp(scores - scores.max(-1, keepdims=True, initial=LOWEST))
        return (e / e.sum(-1, keepdims=True)) @ v


def feeds(rng: np.random.Generator, n: int, s: int, t: int, depth: int, columns: int, heads: int, shared: int) -> dict:
    shapes = {"q": (n, s, heads * shared, depth), "k": (n, t, heads, depth), "v": (n, t, heads, columns),
              "mask": (s, t)}  # fmt: skip
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.usefixtures("any_target")
@pytest.mark.parametrize("target", ["x86-64-v2", "native"])
@pytest.mark.parametrize(("depth", "columns", "heads", "shared"), [
    (1, 3, 2, 1), (8, 8, 1, 3), (16, 64, 3, 2), (17, 90, 2, 4), (64, 31, 2, 1), (130, 128, 1, 2)])  # fmt: skip
def test_odd_sizes(depth: int, columns: int, heads: int, shared: int, target: str) -> None:
    plan, rng = parax.compile(model(depth, columns, heads, shared), target=target), np.random.default_rng(depth)
    with plan.session(1) as session:
        for s in (1, 2, few.MOST, few.MOST + 1, 20):
            for n, t in ((1, 1), (2, 7), (1, 8), (1, 33), (2, 600)):
                given = feeds(rng, n, s, t, depth, columns, heads, shared)
                found = session.run(given)["y"]
                np.testing.assert_allclose(found, reference(**given, shared=shared), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("queries", [1, few.MOST + 1])
def test_masked_keys_and_numbers_that_are_none(queries: int) -> None:
    with parax.compile(model(16, 16, 2)).session(1) as session:
        given = feeds(np.random.default_rng(0), 1, queries, 29, 16, 16, 2, 1)
        for hidden in (-np.inf, LOWEST):
            given["mask"] = np.zeros((queries, 29), np.float32)
            given["mask"][:, 5:] = hidden
            wanted = reference(**given, shared=1)
            np.testing.assert_allclose(session.run(given)["y"], wanted, rtol=2e-4, atol=2e-5)
        assert np.isfinite(session.run(given | {"mask": np.full((queries, 29), LOWEST)})["y"]).all()
        assert np.isnan(session.run(given | {"mask": np.full((queries, 29), -np.inf, np.float32)})["y"]).all()
        given["mask"][:] = 0
        given["k"][0, 3, 1] = np.nan
        found = session.run(given)["y"]
        assert np.isnan(found[0, 1]).all() and np.isfinite(found[0, 0]).all()


@pytest.mark.parametrize("shared", [1, 4])
def test_the_model_is_attention_and_repeats_nothing(shared: int) -> None:
    graph = parax.compile(model(16, 16, 2, shared)).graph
    assert graph.count("DotProductAttention") == 1 and "Expand" not in graph
