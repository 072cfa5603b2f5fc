"""A node on constants gives what it gives on inputs, also where onnx.reference, which folds constants, is wrong."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import parax
from parax import CompileOptions

RNG = np.random.default_rng(1)


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


def with_inf(array: np.ndarray) -> np.ndarray:
    array.reshape(-1)[3] = np.inf
    return array


def with_nan(array: np.ndarray) -> np.ndarray:
    array.reshape(-1)[3] = np.nan
    return array


NEAR = (normal(2, 4, 3, 6) * 0.08 + 2).astype(np.float32)  # a variance far below the square of the mean
FAR = (normal(3, 40) * 500).astype(np.float32)
SMALL = (normal(3, 1) * 1e-4).astype(np.float16)  # whose squares no half holds
CORNERS = np.full((1, 4), -90, np.float32)  # of a region off any image

CASES = {
    "ReduceL2 f16": ("ReduceL2", [SMALL, np.array([1])], {}),
    "Softmax f16": ("Softmax", [normal(3, 40, dtype="float16")], {}),
    "MaxPool NaN": ("MaxPool", [with_nan(normal(2, 2, 5, 6))], {"kernel_shape": [2, 2]}),
    "AveragePool NaN": ("AveragePool", [with_nan(normal(2, 2, 5, 6))], {"kernel_shape": [2, 2]}),
    "ConvTranspose groups": ("ConvTranspose", [normal(1, 4, 3, 3), normal(4, 1, 2, 2), normal(4)], {"group": 4}),
    "Erf f64": ("Erf", [normal(9, dtype="float64")], {}),
    "Gelu f64": ("Gelu", [normal(9, dtype="float64")], {}),
    "HardSwish f64": ("HardSwish", [normal(9, dtype="float64")], {}),
    "GlobalMaxPool rank 3": ("GlobalMaxPool", [normal(5, 7, 6)], {}),
    "LpNormalization": ("LpNormalization", [normal(3, 4)], {"p": 1}),
    "LRN": ("LRN", [normal(2, 7, 3, 3)], {"size": 5, "alpha": 0.5}),
    "GridSample": ("GridSample", [normal(1, 2, 5, 6), normal(1, 3, 3, 2)],
                   {"mode": "cubic", "padding_mode": "border"}),
    "GridSample f64": ("GridSample", [normal(1, 2, 5, 6, dtype="float64"), normal(1, 3, 3, 2, dtype="float64")], {}),
    "Resize": ("Resize", [normal(1, 1, 9, 12), None, np.array([1, 1, 0.5, 0.7], np.float32)],
               {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}),
    "Conv dilated": ("Conv", [with_inf(normal(1, 1, 6, 6)), normal(1, 1, 2, 2)], {"dilations": [2, 2]}),
    "ReduceSumSquare i32": ("ReduceSumSquare", [np.arange(4, dtype=np.int32).reshape(1, 4), np.array([1])], {}),
    "MeanVarianceNormalization": ("MeanVarianceNormalization", [NEAR], {"axes": [1, 2, 3]}),
    "GroupNormalization": ("GroupNormalization", [NEAR, normal(4), normal(4)], {"num_groups": 2}),
    "InstanceNormalization": ("InstanceNormalization", [NEAR, normal(4), normal(4)], {}),
    "LayerNormalization": ("LayerNormalization", [NEAR, normal(6)], {}),
    "ReduceLogSumExp -inf": ("ReduceLogSumExp", [np.full((2, 3), -np.inf, np.float32), np.array([1])], {}),
    **{f"{op} far": (op, [FAR], {}) for op in ("LogSoftmax", "Softmax", "Softplus", "Sigmoid", "Mish", "Gelu", "Elu",
                                               "Celu", "Selu", "HardSwish", "Tanh", "Softsign", "Hardmax")},
    "PRelu 0": ("PRelu", [np.array([-2, -0.0, 0, 3], np.float32), np.array([np.inf], np.float32)], {}),
    "ReduceMean u64": ("ReduceMean", [np.array([[2**64 - 2]], np.uint64)], {"noop_with_empty_axes": 1}),
    "LpNormalization f16": ("LpNormalization", [np.array([[6e-8, 6e-8], [6e4, 6e4]], np.float16)], {}),
    "GRU reverse": ("GRU", [normal(4, 2, 3), normal(1, 12, 3), normal(1, 12, 4)],
                    {"hidden_size": 4, "direction": "reverse"}),
    "LSTM reverse": ("LSTM", [normal(4, 2, 3), normal(1, 16, 3), normal(1, 16, 4)],
                     {"hidden_size": 4, "direction": "reverse"}),
    "RoiAlign": ("RoiAlign", [with_inf(normal(1, 1, 2, 2))[:, :, ::-1, ::-1].copy(), CORNERS, np.array([0])], {}),
    "Det f16": ("Det", [normal(2, 3, 3, dtype="float16")], {}),
    "AffineGrid f64": ("AffineGrid", [normal(1, 2, 3, dtype="float64"), np.array([1, 1, 3, 4])], {}),
}  # fmt: skip


def results(op: str, operands: list[np.ndarray | None], attributes: dict, folded: bool) -> np.ndarray:
    """What the node gives for operands that are constants, or the first of them an input."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(operands)]
    given = {n: a for n, a in zip(names, operands) if a is not None}
    free = {} if folded else {"x0": given["x0"]}
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
              for n, a in free.items()]  # fmt: skip
    fixed = [numpy_helper.from_array(a, n) for n, a in given.items() if n not in free]
    node = helper.make_node(op, names, ["y"], **attributes)
    y = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(given["x0"].dtype), None)
    model = helper.make_model(helper.make_graph([node], "g", inputs, [y], fixed),
                              opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10)  # fmt: skip
    with parax.compile(model).session(instances=1) as session:
        return np.asarray(session.run(free)["y"]).copy()


@pytest.mark.parametrize("name", CASES)
def test_constants_and_inputs_give_the_same(name: str) -> None:
    op, operands, attributes = CASES[name]
    folded, run = (results(op, operands, attributes, how) for how in (True, False))
    assert (folded.shape, folded.dtype) == (run.shape, run.dtype)
    rtol = 1e-13 if run.dtype == np.float64 else 1e-5
    np.testing.assert_allclose(folded, run, rtol, rtol)


EXTREMES = np.array([np.inf, -np.inf, 3e9, -3e9, 1e30, -1e30, 0.3, -0.3], np.float32)


@pytest.mark.parametrize("to", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("x", [EXTREMES, EXTREMES[6:]], ids=["extremes", "small"])
def test_constants_saturate(x: np.ndarray, to: type) -> None:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]> g () => (y)
        <float scale = {{0.1}}> {{ y = QuantizeLinear<output_dtype = {code}>(x, scale) }}""")
    model.graph.initializer.append(numpy_helper.from_array(x, "x"))
    with parax.compile(model).session(instances=1) as session:
        found = session.run({})["y"]
    with np.errstate(over="ignore"):
        wanted = np.clip(np.rint(x.astype(np.float64) / 0.1), np.iinfo(to).min, np.iinfo(to).max)
    np.testing.assert_array_equal(found, wanted.astype(to))


def test_what_is_all_zeros_has_the_same_scale() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (a, b, c, d, e, f)
        <float[3] zeros = {0, 0, 0}> { a, b, c = DynamicQuantizeLinear(x) d, e, f = DynamicQuantizeLinear(zeros) }""")
    with parax.compile(model).session(instances=1) as session:
        found = session.run({"x": np.zeros(3, np.float32)})
    for run, folded in ("ad", "be", "cf"):
        np.testing.assert_array_equal(found[run], found[folded])


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("statistics", ["constant", "inputs"])
def test_halves_are_normalised_where_their_shift_is_none(statistics: str, level: int) -> None:
    """mean · scale / √var = 170,000 is beyond f16, the results are not."""
    given = {"s": [200, 200], "b": [1, 2], "m": [600, 600], "v": [0.5, 0.25]}
    arrays = {name: np.array(values, np.float16) for name, values in given.items()}
    inputs = "" if statistics == "constant" else "".join(f", float16[2] {name}" for name in given)
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]> g (float16[1,2] x{inputs}) => (y)
        {{ y = BatchNormalization(x, s, b, m, v) }}""")
    if statistics == "constant":
        model.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in arrays.items())
    feeds = {"x": np.array([[600, 601]], np.float16), **({} if statistics == "constant" else arrays)}
    with parax.compile(model, options=CompileOptions(opt_level=level)).session(instances=1) as session:
        np.testing.assert_allclose(session.run(feeds)["y"], [[1, 402]], atol=0.1)


@pytest.mark.parametrize("factor", [3e-5, 1.0, 3e5])
def test_halves_scaled_into_a_convolution_keep_their_digits(factor: float) -> None:
    x, w = np.full((1, 1, 1, 4), 0.25, np.float16), np.array([1, 0.01], np.float16).reshape(2, 1, 1, 1)
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> g (float16[1,1,1,4] x) => (y)
        { c = Conv(x, w) y = BatchNormalization<epsilon = 0.0>(c, one, zero, m, v) }""")
    parts = {"w": w, "one": np.ones(2, np.float16), "zero": np.zeros(2, np.float16), "m": np.zeros(2, np.float32),
             "v": np.full(2, factor**-2, np.float32)}  # fmt: skip
    model.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in parts.items())
    with parax.compile(model).session(instances=1) as session:
        found = session.run({"x": x})["y"].astype(np.float64)
    wanted = np.broadcast_to(w.reshape(1, 2, 1, 1).astype(np.float64) * 0.25 * factor, found.shape)
    inside = np.abs(wanted) < 65504
    np.testing.assert_allclose(found[inside], wanted[inside], rtol=2e-3, atol=6e-8)


def test_indices_count_all_images() -> None:
    x = normal(3, 2, 4, 4)
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2])
    outputs = [helper.make_tensor_value_info("i", onnx.TensorProto.INT64, None)]
    graph = helper.make_graph([node], "g", [], outputs, [numpy_helper.from_array(x, "x")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    with parax.compile(model).session() as s:
        found = s.run({})["i"]
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (2, 3)).max((-2, -1))
    np.testing.assert_array_equal(x.ravel()[found], windows)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_products_beyond_the_type_wrap_around(dtype: type) -> None:
    """What is known of integers when compiling does not wrap: then it is left to a kernel."""
    x = np.full(16, 1 << 20, dtype)
    node = helper.make_node("ReduceProd", ["x"], ["y"], keepdims=0)
    outputs = [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(x.dtype), [])]
    graph = helper.make_graph([node], "g", [], outputs, [numpy_helper.from_array(x, "x")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    with parax.compile(model).session() as s:
        assert s.run({})["y"] == np.prod(x, dtype=dtype)


@pytest.mark.parametrize(("x", "to", "want"), [
    (np.array([1 + 2**-8 + 2**-40]), "BFLOAT16", 1.0078125),  # a tie once rounded to f32
    (np.array([2**-134 + 2**-160]), "BFLOAT16", 2.0**-133),
    (np.array([-1], np.float32), "UINT8", 0),
    (np.array([np.inf], np.float32), "INT8", 127),
    (np.array([np.inf], np.float16), "INT64", 2**63 - 1),
], ids=str)  # fmt: skip
def test_constants_are_cast_once_and_saturate(x: np.ndarray, to: str, want: float) -> None:
    code = onnx.TensorProto.DataType.Value(to)
    nodes = [helper.make_node("Cast", ["x"], ["a"], to=code)]
    graph = helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("a", code, [1])],
                              [numpy_helper.from_array(x, "x")])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10)
    with parax.compile(model).session(instances=1) as session:
        (found,) = session.run({})["a"]
    assert found == want
