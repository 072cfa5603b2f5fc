"""A new last layer: found behind what goes through, drawn by a seed, and refused where it would be something else."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.compiler.frontend.head import Head, with_head

OLD, NEW, WIDTH = 5, 3, 4


def model(*nodes: onnx.NodeProto, x: tuple[int, ...] = (WIDTH,), y: tuple[Any, ...] = (OLD,), **arrays: Any) -> Any:
    """x[N, …] → the nodes → y[N, …]."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(
            rng.standard_normal(a).astype(np.float32) if isinstance(a, tuple) else np.asarray(a), name
        )
        for name, a in arrays.items()
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *x])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", *y])]
    graph = helper.make_graph(list(nodes), "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), name=f"the {op}", **attributes)


IMAGE = (2, 6, 6)
FITTING = {
    "gemm": model(node("Gemm", "x w b"), w=(WIDTH, OLD), b=(OLD,)),
    "gemm of a transposed weight": model(node("Gemm", "x w b", transB=1), w=(OLD, WIDTH), b=(1, OLD)),
    "gemm without a bias": model(node("Gemm", "x w"), w=(WIDTH, OLD)),
    "gemm with one number for all classes": model(node("Gemm", "x w b"), w=(WIDTH, OLD), b=(1,)),
    "softmax behind it": model(node("Gemm", "x w b", "s"), node("Softmax", "s", axis=-1), w=(WIDTH, OLD), b=(OLD,)),
    "matmul and add": model(node("MatMul", "x w", "s"), node("Add", "b s"), w=(WIDTH, OLD), b=(OLD,)),
    "matmul of many rows": model(node("MatMul", "x w"), x=(7, WIDTH), y=(7, OLD), w=(WIDTH, OLD)),
    "transpose before it": model(node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "x t"), w=(OLD, WIDTH)),
    "transpose of no perm": model(node("Transpose", "w", "t"), node("MatMul", "x t"), w=(OLD, WIDTH)),
    "convolution, mean and flatten": model(
        node("Conv", "x w b", "s"), node("Relu", "s", "r"), node("GlobalAveragePool", "r", "p"), node("Flatten", "p"),
        x=IMAGE, w=(OLD, 2, 1, 1), b=(OLD,),
    ),
    "convolution of every pixel": model(node("Conv", "x w b"), x=IMAGE, y=(OLD, 6, 6), w=(OLD, 2, 1, 1), b=(OLD,)),
    "reshape to the number of classes": model(
        node("Conv", "x w", "s"), node("GlobalAveragePool", "s", "p"), node("Reshape", "p to"), x=IMAGE,
        w=(OLD, 2, 1, 1), to=np.array([-1, OLD]),
    ),
    "squeeze": model(
        node("Conv", "x w", "s"), node("GlobalAveragePool", "s", "p"), node("Squeeze", "p at"), x=IMAGE,
        w=(OLD, 2, 1, 1), at=np.array([2, 3]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FITTING)
@pytest.mark.parametrize("init", ["glorot", "he"])
def test_the_last_layer_is_replaced(name: str, init: str) -> None:
    old = FITTING[name]
    before = old.SerializeToString()
    made, parameters = with_head(old, Head(NEW, init, seed=2))
    assert old.SerializeToString() == before
    onnx.checker.check_model(made, full_check=True)
    assert [d.dim_value for d in made.graph.output[0].type.tensor_type.shape.dim].count(NEW) == 1
    tensors = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
    assert parameters == tuple(n for n in ("w", "b") if n in tensors and tensors[n].size != 1)
    assert NEW in tensors["w"].shape and OLD not in tensors["w"].shape
    if "b" in parameters:
        assert tensors["b"].size == NEW and not tensors["b"].any()
    shape = (*made.graph.input[0].type.tensor_type.shape.dim,)
    x = np.random.default_rng(1).standard_normal((2, *(d.dim_value for d in shape[1:]))).astype(np.float32)
    plan = parax.compile(made)
    with plan.session() as session:
        found = session.run({"x": x})["y"]
    from onnxruntime import InferenceSession

    (expected,) = InferenceSession(made.SerializeToString()).run(None, {"x": x})
    assert found.shape == expected.shape and NEW in found.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_how_weights_begin() -> None:
    wide = model(node("Gemm", "x w b", transB=1), x=(400,), w=(OLD, 400), b=(OLD,))

    def weight(head: Head) -> np.ndarray:
        return numpy_helper.to_array(next(t for t in with_head(wide, head).model.graph.initializer if t.name == "w"))

    he, glorot = weight(Head(300, "he")), weight(Head(300, "glorot"))
    assert he.std() == pytest.approx(np.sqrt(2 / 400), rel=0.02) and abs(he.mean()) < 1e-3
    bound = np.sqrt(6 / (400 + 300))
    assert 0.999 * bound < np.abs(glorot).max() <= bound and glorot.std() == pytest.approx(bound / np.sqrt(3), rel=0.01)
    assert np.array_equal(he, weight(Head(300, "he"))) and not np.array_equal(he, weight(Head(300, "he", seed=1)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (model(node("Relu", "x"), y=(WIDTH,)), "no node makes"),
        (model(node("Gemm", "x w", "s"), node("Mul", "s k"), w=(WIDTH, OLD), k=(OLD,)), "Mul"),
        (model(node("MatMul", "x w", "s"), node("Relu", "s", "r"), node("Add", "r b"), w=(WIDTH, OLD), b=(OLD,)),
         "not its bias"),
        (model(node("Gemm", "x w", "s"), node("Gemm", "s w"), x=(OLD,), w=(OLD, OLD)), "shares a parameter"),
        (model(node("Conv", "x w", group=2), x=IMAGE, y=(4, 6, 6), w=(4, 1, 1, 1)), "grouped"),
        (model(node("Abs", "w", "a"), node("MatMul", "x a"), w=(WIDTH, OLD)), "no initializer"),
        (model(node("MatMul", "x w"), w=np.ones((WIDTH, OLD))), "no initializer of f32"),
        (model(node("Gemm", "x w b"), x=(WIDTH,), w=(WIDTH, OLD), b=(7, OLD)), "one number a class"),
        (model(node("MatMul", "x w", "s"), node("Reshape", "s to"), y=(OLD, OLD), x=(5, WIDTH), w=(WIDTH, OLD),
               to=np.array([-1, OLD, OLD])), "which of"),
    ],
)  # fmt: skip
def test_what_is_no_head(given: onnx.ModelProto, message: str) -> None:
    with pytest.raises(parax.UnsupportedOp, match=message):
        with_head(given, Head(NEW))


def test_settings_that_do_not_fit() -> None:
    for settings, where in (({"classes": 0}, "classes"), ({"classes": True}, "classes"), ({"init": "zeros"}, "init"),
                            ({"seed": -1}, "seed")):  # fmt: skip
        with pytest.raises(parax.UsageError, match=where):
            Head(**{"classes": NEW, **settings})
    with pytest.raises(parax.UsageError, match="no such output"):
        with_head(FITTING["gemm"], Head(NEW), "z")


def test_a_model_with_a_new_head_is_trained_and_exported(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, WIDTH)).astype(np.float32)
    data = {"x": x, "labels": x[:, :NEW].argmax(1)}
    with parax.Trainer(FITTING["softmax behind it"], head=Head(NEW, alone=True), batch=20,
                       optimizer=parax.Adam(lr=0.1)) as trainer:  # fmt: skip
        assert sorted(trainer.parameters) == ["b", "w"]
        trainer.fit(data, 20)
        assert trainer.evaluate([data])["accuracy"] > 0.9
        trainer.export(tmp_path / "m.onnx")
    from onnxruntime import InferenceSession

    (y,) = InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})
    assert (y.argmax(1) == data["labels"]).mean() > 0.9
