"""Old operator forms: what the upgraded graph computes against ONNX Runtime, or NumPy where that has no old form."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import helper

from parax.compiler.frontend.evaluate import evaluate_graph
from parax.compiler.frontend.importer import import_model
from parax.errors import InvalidModel

RNG = np.random.default_rng(0)


def build(op: str, opset: int, inputs: Mapping[str, np.ndarray], constants: Mapping[str, np.ndarray] | None = None,
          n_outputs: int = 1, domain: str = "", **attributes) -> onnx.ModelProto:  # fmt: skip
    names = [*inputs, *(constants or {})]
    outputs = [f"y{i}" for i in range(n_outputs)]
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [_info(name, array) for name, array in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [onnx.numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def computed(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    graph = import_model(model)
    return list(evaluate_graph(graph, inputs).values())


def by_onnxruntime(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    ort = pytest.importorskip("onnxruntime")
    for output, value in zip(model.graph.output, import_model(model).outputs):  # it wants types
        output.type.tensor_type.elem_type = value.tensor.dtype.code
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(inputs))


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X = f32(2, 3, 4)
IMAGE = f32(1, 2, 4, 4)
FOUR = [f32(3) for _ in range(3)] + [np.abs(f32(3)) + 1]

AGAINST_ONNXRUNTIME = {
    "softmax axis 1": ("Softmax", 11, {"x": X}, {}, {"axis": 1}),
    "softmax default axis": ("Softmax", 11, {"x": X}, {}, {}),
    "softmax axis 0": ("Softmax", 11, {"x": X}, {}, {"axis": 0}),
    "softmax axis -1": ("Softmax", 12, {"x": X}, {}, {"axis": -1}),
    "log-softmax": ("LogSoftmax", 9, {"x": X}, {}, {"axis": 1}),
    "hardmax": ("Hardmax", 11, {"x": X}, {}, {"axis": 1}),
    "squeeze": ("Squeeze", 11, {"x": f32(1, 3, 1)}, {}, {"axes": [0, 2]}),
    "squeeze everything": ("Squeeze", 11, {"x": f32(1, 3, 1)}, {}, {}),
    "unsqueeze": ("Unsqueeze", 11, {"x": X}, {}, {"axes": [0, 4]}),
    "sum": ("ReduceSum", 11, {"x": X}, {}, {"axes": [0, 2], "keepdims": 0}),
    "sum of all": ("ReduceSum", 11, {"x": X}, {}, {}),
    "mean": ("ReduceMean", 13, {"x": X}, {}, {"axes": [-1]}),
    "max": ("ReduceMax", 12, {"x": X}, {}, {"axes": [1]}),
    "log-sum-exp": ("ReduceLogSumExp", 13, {"x": X}, {}, {"axes": [1], "keepdims": 0}),
    "slice": ("Slice", 9, {"x": X}, {}, {"starts": [1, -3], "ends": [2, 1000], "axes": [1, 2]}),
    "slice all axes": ("Slice", 9, {"x": X}, {}, {"starts": [0, 1, 2], "ends": [1, 3, 4]}),
    "split": ("Split", 11, {"x": X}, {}, {"axis": 2, "split": [1, 3], "n_outputs": 2}),
    "split evenly": ("Split", 13, {"x": X}, {}, {"axis": 2, "n_outputs": 2}),
    "pad": ("Pad", 10, {"x": X}, {}, {"pads": [0, 1, 0, 0, 0, 2], "value": 2.5}),
    "pad by reflection": ("Pad", 10, {"x": X}, {}, {"pads": [0, 1, 0, 0, 0, 2], "mode": "reflect"}),
    "clip": ("Clip", 10, {"x": X}, {}, {"min": -0.5, "max": 0.25}),
    "clip infinities": ("Clip", 10, {"x": np.array([np.inf, -np.inf, 1], np.float32)}, {}, {}),
    "clip below": ("Clip", 7, {"x": X}, {}, {"min": 0.0}),
    "top-k": ("TopK", 9, {"x": X}, {}, {"k": 2, "axis": 1, "n_outputs": 2}),
    "resize": ("Resize", 10, {"x": IMAGE}, {"s": np.array([1, 1, 2, 3], np.float32)}, {"mode": "nearest"}),
    "resize down": ("Resize", 10, {"x": IMAGE}, {"s": np.array([1, 1, 0.6, 0.6], np.float32)}, {"mode": "nearest"}),
    "resize down and up": ("Resize", 10, {"x": IMAGE}, {"s": np.array([1, 1, 0.5, 2], np.float32)}, {}),
    "resize up and down": ("Resize", 10, {"x": IMAGE}, {"s": np.array([1, 1, 1.6, 0.7], np.float32)}, {}),
    "resize by run-time scales": ("Resize", 10, {"x": IMAGE, "s": np.array([1, 1, 0.7, 1.6], np.float32)}, {}, {}),
    "resize linearly by run-time scales": (
        "Resize", 10, {"x": IMAGE, "s": np.array([1, 1, 0.7, 1.6], np.float32)}, {}, {"mode": "linear"}),
    "resize linearly": ("Resize", 10, {"x": IMAGE}, {"s": np.array([1, 1, 2, 2], np.float32)}, {"mode": "linear"}),
    "upsample 7": ("Upsample", 7, {"x": IMAGE}, {}, {"scales": [1.0, 1.0, 2.0, 3.0]}),
    "upsample 9": ("Upsample", 9, {"x": IMAGE}, {"s": np.array([1, 1, 2, 2], np.float32)}, {"mode": "linear"}),
    "batch norm": ("BatchNormalization", 9, {"x": X}, dict(zip("sbmv", FOUR)), {"epsilon": 1e-3}),
    "dropout": ("Dropout", 10, {"x": X}, {}, {"ratio": 0.3}),
    "scatter": ("Scatter", 10, {"x": X}, {"i": np.zeros((1, 3, 4), np.int64), "u": f32(1, 3, 4)}, {"axis": 0}),
    "prelu": ("PRelu", 7, {"x": X}, {"s": f32(3, 1)}, {}),
    "concat": ("Concat", 4, {"x": X, "z": X}, {}, {"axis": 1}),
    "gemm": ("Gemm", 7, {"x": f32(2, 3)}, {"b": f32(3, 4), "c": f32(4)}, {"alpha": 0.5}),
    "lstm": ("LSTM", 7, {"x": f32(3, 2, 4)}, {"w": f32(1, 20, 4), "r": f32(1, 20, 5)}, {"hidden_size": 5}),
    "fused conv": ("FusedConv", 11, {"x": IMAGE}, {"w": f32(3, 2, 3, 3), "b": f32(3)},
                   {"activation": "LeakyRelu", "activation_params": [0.2], "domain": "com.microsoft"}),
    "fused gemm": ("FusedGemm", 11, {"x": f32(2, 3)}, {"b": f32(3, 4), "c": f32(4)},
                   {"activation": "Relu", "alpha": 0.5, "domain": "com.microsoft"}),
}  # fmt: skip


@pytest.mark.parametrize("case", AGAINST_ONNXRUNTIME)
def test_against_onnxruntime(case):
    op, opset, inputs, constants, attributes = AGAINST_ONNXRUNTIME[case]
    model = build(op, opset, inputs, constants, **attributes)
    for got, expected in zip(computed(model, inputs), by_onnxruntime(model, inputs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


A, B = f32(2, 3, 4), f32(3)
COLUMN = B.reshape(3, 1)
ONES = np.ones(3, np.float32)
AGAINST_NUMPY = {
    "add along an axis": ("Add", 6, {"a": A, "b": B}, {"broadcast": 1, "axis": 1}, lambda a, b: a + COLUMN),
    "multiply at the end": ("Mul", 6, {"a": A, "b": A[0, 0]}, {"broadcast": 1}, lambda a, b: a * b),
    "subtract in version 1": ("Sub", 1, {"a": A, "b": A}, {"consumed_inputs": [0, 0]}, lambda a, b: a - b),
    "compare along an axis": ("Greater", 1, {"a": A, "b": B}, {"broadcast": 1, "axis": 1}, lambda a, b: a > COLUMN),
    "reshape": ("Reshape", 1, {"a": A}, {"shape": [0, -1]}, lambda a: a.reshape(2, 12)),
    "cast": ("Cast", 1, {"a": A}, {"to": "INT32"}, lambda a: a.astype(np.int32)),
    "pad": ("Pad", 1, {"a": A[0]}, {"paddings": [1, 0, 0, 2]}, lambda a: np.pad(a, ((1, 0), (0, 2)))),
    "concat": ("Concat", 1, {"a": A, "b": A}, {}, lambda a, b: np.concatenate([a, b], 1)),
    "clip": ("Clip", 1, {"a": A}, {"max": 0.5, "consumed_inputs": [0]}, lambda a: np.minimum(a, np.float32(0.5))),
    "prelu": ("PRelu", 6, {"a": A, "b": B}, {}, lambda a, b: np.where(a < 0, a * COLUMN, a)),
    "dropout": ("Dropout", 6, {"a": A}, {"is_test": 1}, lambda a: a),
    "upsample": ("Upsample", 1, {"a": IMAGE}, {"height_scale": 2.0, "width_scale": 2.0},
                 lambda a: a.repeat(2, 2).repeat(2, 3)),
    "batch norm of elements": ("BatchNormalization", 7, {"a": f32(2, 2, 1), **dict.fromkeys("sbmv", ONES[:2, None])},
                               {"spatial": 0}, lambda a, s, b, m, v: (a - 1) / np.sqrt(np.float32(1 + 1e-5)) + 1),
    "batch norm with statistics": ("BatchNormalization", 6, {"a": A, **dict.fromkeys("sbmv", ONES)},
                                   {"is_test": 1}, lambda a, s, b, m, v: (a - 1) / np.sqrt(np.float32(1 + 1e-5)) + 1),
    "affine": ("Affine", 7, {"a": A}, {"alpha": 2.0, "beta": 1.0}, lambda a: 2 * a + 1),
    "image scaler": ("ImageScaler", 7, {"a": IMAGE}, {"scale": 2.0, "bias": [1.0, -1.0]},
                     lambda a: 2 * a + np.array([1, -1], np.float32).reshape(2, 1, 1)),
    "crop": ("Crop", 7, {"a": IMAGE}, {"border": [1, 0, 0, 2]}, lambda a: a[:, :, :2, 1:]),
    "crop to a size": ("Crop", 7, {"a": IMAGE}, {"border": [1, 0, 0, 0], "scale": [2, 3]}, lambda a: a[:, :, :2, 1:4]),
    "group norm": ("GroupNormalization", 18, {"a": f32(1, 4, 3), "s": f32(2), "b": f32(2)}, {"num_groups": 2},
                   lambda a, s, b: _group_norm(a, s, b)),
}  # fmt: skip


def _group_norm(a: np.ndarray, s: np.ndarray, b: np.ndarray) -> np.ndarray:
    groups = a.reshape(1, 2, -1)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    return (normal * s[:, None] + b[:, None]).reshape(a.shape)


@pytest.mark.parametrize("case", AGAINST_NUMPY)
def test_against_numpy(case):
    op, opset, inputs, attributes, formula = AGAINST_NUMPY[case]
    (got,) = computed(build(op, opset, inputs, **attributes), inputs)
    np.testing.assert_allclose(got, formula(*inputs.values()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "opset", "removed"),
    [("Upsample", 10, 10), ("Upsample", 18, 10), ("Scatter", 11, 11), ("Scatter", 18, 11), ("Affine", 10, 10),
     ("ImageScaler", 17, 10), ("Crop", 12, 10)],
)  # fmt: skip
def test_what_an_operator_set_no_longer_has_is_refused(op, opset, removed):
    model = build(op, opset, {"x": IMAGE}, {"s": np.array([1, 1, 2, 2], np.float32)} if op == "Upsample" else {})
    with pytest.raises(InvalidModel, match=f"{op} was removed from operator set {removed}"):
        import_model(model)


def test_an_operator_that_came_back_is_not_refused():
    """GroupNormalization of version 18 is deprecated, that of 21 is not."""
    attributes = {"num_groups": 2}
    model = build("GroupNormalization", 18, {"x": f32(2, 4, 3), "s": f32(2), "b": f32(2)}, **attributes)
    assert import_model(model).outputs[0].tensor.dims == (2, 4, 3)


def test_the_mask_of_dropout():
    got = computed(build("Dropout", 10, {"x": X}, n_outputs=2), {"x": X})
    assert got[1].dtype == bool
    assert got[1].shape == X.shape
    assert got[1].all()


def test_grid_sample_modes_are_renamed():
    model = build("GridSample", 16, {"x": IMAGE, "g": f32(1, 3, 3, 2)}, mode="bilinear")
    (node,) = import_model(model)
    assert node.op.mode == "linear"
