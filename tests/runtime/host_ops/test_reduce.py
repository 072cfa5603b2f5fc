"""Reductions along axes that only the run knows: the runtime's numpy against onnx.reference, and the whole way."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from backend.harness import Program
from backend.ways import USUAL
from parax.compiler import onnx_backend
from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.frontend.importer import import_model
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import DType
from parax.errors import InvalidInput, UnsupportedOp
from parax.runtime.host_ops import HOST_OPS
from parax.runtime.host_ops.reduce import KINDS

X = np.random.default_rng(2).uniform(0.5, 2, (2, 3, 1, 4)).astype(np.float32)


def model(kind: str, keepdims: int, dtype: int = onnx.TensorProto.FLOAT) -> onnx.ModelProto:
    node = helper.make_node(kind, ["x", "axes"], ["y"], keepdims=keepdims, name="the.node")
    inputs = [helper.make_tensor_value_info("x", dtype, X.shape), helper.make_tensor_value_info("axes", 7, [2])]
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_the_reference(kind: str, keepdims: int) -> None:
    reduce = HOST_OPS["parax", "ReduceAtRuntime"]({"kind": kind, "keepdims": keepdims})
    reference = ReferenceEvaluator(model(kind, keepdims))
    for axes in ([0, 1], [-1, 0], [3, 2]):
        feeds = {"x": X, "axes": np.array(axes)}
        (wanted,), (found,) = reference.run(None, feeds), reduce([X, feeds["axes"]])
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, 1e-5)


def extremes(dtype: type, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Integers of any size, so that sums of them wrap around; and small ones."""
    limits = np.iinfo(dtype)
    large = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return np.where(rng.random(shape) < 0.5, large, rng.integers(0, 9, shape).astype(dtype))


@pytest.mark.sample(5)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ReduceLogSumExp"])
def test_integers_are_what_kernels_make_of_them(kind: str, dtype: type) -> None:
    rng = np.random.default_rng(5)
    reduce = HOST_OPS["parax", "ReduceAtRuntime"]({"kind": kind})
    for shape in ((20, 3, 20), (3, 2, 1), (1, 2, 1), (2, 4, 0)):
        inputs = [extremes(dtype, shape, rng) for _ in range(4)]
        text = f"""graph @g(%x: {DType.from_numpy(np.dtype(dtype)).name}[{",".join(map(str, shape))}]) {{
          %a = const i64[2] [0, 2]
          %y = {kind}(%x, %a)
          return %y
        }}"""
        runs = [({"x": x}, dict[str, int]()) for x in inputs]
        for x, (kernels,) in zip(inputs, Program(parse_graph(text)).run_all(runs, USUAL), strict=True):
            (host,) = reduce([x, np.array([0, 2])])
            assert host.dtype == kernels.dtype
            np.testing.assert_array_equal(host, kernels)


@pytest.mark.parametrize("axes", [[0, 0], [4, 1], [-5, 0], [1, -3]])
def test_refuses_bad_axes(axes: list[int]) -> None:
    with pytest.raises(InvalidInput, match="ReduceSum: bad axes"):
        HOST_OPS["parax", "ReduceAtRuntime"]({"kind": "ReduceSum"})([X, np.array(axes)])


@pytest.mark.parametrize("keepdims", [0, 1])
def test_compiled_model_takes_any_axes(keepdims: int) -> None:
    compiled = onnx_backend.prepare(model("ReduceMax", keepdims))
    for axes in ((0, 1), (-1, 0), (3, 2)):
        (found,) = compiled.run([X, np.array(axes)])
        np.testing.assert_array_equal(found, X.max(axes, keepdims=bool(keepdims)))


def test_integers_are_refused_where_kernels_refuse_them() -> None:
    with pytest.raises(UnsupportedOp, match="wrong type"):
        import_model(model("ReduceLogSumExp", 1, onnx.TensorProto.INT32))


def test_comes_back_as_the_onnx_operator() -> None:
    exported = to_onnx(import_model(model("ReduceL2", 0)))
    (node,) = exported.graph.node
    assert node.op_type == "ReduceL2"
    onnx.checker.check_model(exported)
