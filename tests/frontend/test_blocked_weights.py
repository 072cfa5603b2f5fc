"""Models with ONNX Runtime's MatMulNBits: what the plan computes, how large it is, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.errors import InvalidModel, ParaxError, UnsupportedOp

ort = pytest.importorskip("onnxruntime")
K, N, SIZE = 200, 130, 32


def model(bits: int = 4, zeros: bool = False, rows: Any = "R", extra: list[np.ndarray | None] | None = None,
          **attributes: Any) -> onnx.ModelProto:  # fmt: skip
    """relu(x w) of K × N weights; `extra`: operands behind the zero points."""
    rng, blocks = np.random.default_rng(bits), -(-K // SIZE)
    operands: list[np.ndarray | None] = [rng.integers(0, 256, (N, blocks, SIZE * bits // 8)).astype(np.uint8),
                                         rng.uniform(0.01, 0.1, N * blocks).astype(np.float32)]  # fmt: skip
    operands.append(rng.integers(0, 256, N * -(-blocks * bits // 8)).astype(np.uint8) if zeros else None)
    operands += extra or []
    names = [f"w{i}" if o is not None else "" for i, o in enumerate(operands)]
    attributes = {"K": K, "N": N, "bits": bits, "block_size": SIZE} | attributes
    nodes = [helper.make_node("MatMulNBits", ["x", *names], ["p"], "product", domain="com.microsoft", **attributes),
             helper.make_node("Relu", ["p"], ["y"])]  # fmt: skip
    weights = [numpy_helper.from_array(o, n) for o, n in zip(operands, names) if o is not None]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 2, K])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 2, N])], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("instances", (1, 2))
@pytest.mark.parametrize(("bits", "zeros"), ((4, False), (4, True), (8, True)))
def test_as_onnxruntime(bits: int, zeros: bool, instances: int) -> None:
    given = model(bits, zeros)
    theirs = ort.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    with parax.compile(given).session(instances=instances) as session:
        for rows in (1, 3, 40):
            x = np.random.default_rng(rows).standard_normal((rows, 2, K)).astype(np.float32)
            y = session.run({"x": x})["y"]
            np.testing.assert_allclose(y, theirs.run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)


def test_columns_that_the_model_leaves_open_are_k() -> None:
    made = model()
    made.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "S"
    x = np.random.default_rng(0).standard_normal((3, 2, K)).astype(np.float32)
    expected = ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]
    with parax.compile(made).session() as session:
        np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-3)
        with pytest.raises(ParaxError, match="columns of the operand are not K"):
            session.run({"x": x[..., : K - 1]})


@pytest.mark.parametrize("level", (1, 2, 3, 4))
def test_every_level_of_accuracy_is_met(level: int) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, K)).astype(np.float32)
    exact = parax.compile(model(rows=1)).session().run({"x": x})["y"]
    found = parax.compile(model(rows=1, accuracy_level=level)).session().run({"x": x})["y"]
    np.testing.assert_allclose(found, exact, atol=0.02 * np.abs(exact).max())


def test_the_plan_holds_4_bits_a_weight(tmp_path: Any) -> None:
    plan = parax.compile(model())
    path = tmp_path / "plan.bin"
    plan.save(path)
    assert path.stat().st_size < 4 * K * N


REFUSED: list[tuple[str, type[ParaxError], dict[str, Any]]] = [
    ("g_idx", UnsupportedOp, {"extra": [np.zeros(K, np.int32)]}),
    ("2 bits", UnsupportedOp, {"bits": 2}),
    ("block_size", InvalidModel, {"block_size": 8}),
    ("block_size", InvalidModel, {"block_size": 48}),
    ("block_size", InvalidModel, {"block_size": 0}),
    ("B has another size", InvalidModel, {"block_size": 64}),
    ("columns of the operand are not K", InvalidModel, {"K": 100}),
    ("B has another size", InvalidModel, {"N": 7}),
    ("K and N of 1 or more", InvalidModel, {"N": -1}),
    ("bias has another size", InvalidModel, {"extra": [None, np.zeros(7, np.float32)]}),
]


@pytest.mark.parametrize(("message", "kind", "how"), REFUSED)
def test_what_is_wrong_is_said(message: str, kind: type[ParaxError], how: dict[str, Any]) -> None:
    with pytest.raises(kind, match="MatMulNBits") as error:
        parax.compile(model(**how))
    assert message in str(error.value)
