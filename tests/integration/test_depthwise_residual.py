"""A depthwise convolution whose tail adds its own input, before a pointwise one: found by the fuzzer."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

import parax
from parax.compiler.frontend.oracle import oracle


def test_a_depthwise_tail_may_add_its_own_input() -> None:
    """Then the two convolutions stay apart: the block hands no tensor to the first one's tail."""
    rng = np.random.default_rng(0)
    w, v = rng.standard_normal((17, 1, 3, 3)).astype(np.float32), rng.standard_normal((8, 17, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], group=17, pads=[1] * 4), helper.make_node("Add", ["c", "x"], ["a"]),
        helper.make_node("Conv", ["a", "v"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [3, 17, 17, 17])],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(v, "v")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = rng.standard_normal((3, 17, 17, 17)).astype(np.float32)
    with parax.compile(model).session() as session:
        found = session.run({"x": x})["y"]
    np.testing.assert_allclose(found, oracle(model, "onnxruntime")({"x": x})["y"], rtol=1e-4, atol=1e-4)
