"""Operators whose parameters only the run knows give what kernels give where the same parameters are constants.

Numpy computes the former (runtime/host_ops), in a text of its own for each operator; this holds both against each other
over the whole catalogue.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import parax
from catalogue.cases import Case, all_cases
from catalogue.running import assert_alike, build
from parax.compiler.frontend import upgrade_runtime
from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.ir.ops.resize import COORDINATES, ROUNDINGS
from parax.runtime.host_ops.reduce import KINDS as REDUCTIONS
from sampling import sampled

PARAMETERS = {**upgrade_runtime.PARAMETERS, "ConstantOfShape": (0,), **dict.fromkeys(REDUCTIONS, (1,)),
              "AffineGrid": (1,), "MelWeightMatrix": range(5)}  # fmt: skip
"""Operator → the operands that the run may bring."""
ROUNDED = ("Resize", "Col2Im", "DFT", "STFT", *REDUCTIONS)
"""Operators that add numbers: in another order here and there."""
EPSILON = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}

Feeds = dict[str, np.ndarray]


def cases() -> list[Case]:
    """Those whose parameters are constants."""
    return [case for case in all_cases() if case.op in PARAMETERS and "const" in str(case)]


@pytest.mark.parametrize("case", sampled(cases(), 4), ids=str)
def test_the_catalogue(case: Case) -> None:
    graph, feeds, _, _ = build(case)
    model = to_onnx(graph)
    nodes = [node for node in model.graph.node if node.op_type == case.op]
    assert len(nodes) == 1
    later, parameters = _opened(model, [nodes[0].input[i] for i in PARAMETERS[case.op] if i < len(nodes[0].input)])
    assert parameters
    _assert_agree(case.op, _run(model, feeds), _run(later, feeds | parameters))


DATA = np.arange(12, dtype=np.float32).reshape(3, 4)
FEW = (-2, -1, 0, 1, 3)
ODD: dict[str, tuple[np.ndarray | None, list[tuple[Any, ...]], dict[str, tuple[Any, ...]]]] = {
    "Slice": (DATA[0], list(product((-6, -5, -1, 0, 2, 4, 9), (-9, -5, -1, 0, 3, 9), (0,), (-2, -1, 1, 3))), {}),
    "Pad": (DATA, [(v,) for v in product((-2, 0, 3), (-1, 2), (0, -3, 1), (-2, 4))],
            {"mode": ("constant", "edge", "reflect", "wrap")}),
    "Trilu": (DATA, [(np.array(k),) for k in (-5, *FEW, 9)], {"upper": (0, 1)}),
    "CumSum": (DATA, [(np.array(k),) for k in (-3, *FEW)], {"exclusive": (0, 1), "reverse": (0, 1)}),
    "Tile": (DATA, [(v,) for v in product((-1, 0, 1, 2), (0, 1, 3))], {}),
    "Expand": (DATA, [(v,) for v in ((2, 3, 4), (1, 4), (3, 1), (4,), (0,), (3, 0), (-1, 4), ())], {}),
    "Reshape": (DATA, [(v,) for v in ((12,), (0, -1), (0, 0), (-1, -1), (5, -1), (0, 2, -1), (-2, 6), (0,))],
                {"allowzero": (0, 1)}),
    "Unsqueeze": (DATA, [(v,) for v in ((0,), (-1,), (0, 1), (-3,), (3,), (0, 0), (1, -4))], {}),
    "Squeeze": (DATA.reshape(1, 3, 1, 4), [(v,) for v in ((0,), (2, 0), (1,), (5,), (0, 0), (-4, 2))], {}),
    "Range": (None, [tuple(map(np.array, v)) for v in product((-3, 0, 5), (-4, 0, 5), (-2, 0, 1, 3))], {}),
    "ReduceMax": (DATA, [(v,) for v in ((0,), (-1,), (1, 0), (0, 0), (2,), (-3,), ())],
                  {"keepdims": (0, 1), "noop_with_empty_axes": (0, 1)}),
}  # fmt: skip
"""Operator → data, parameters that are odd, right or wrong, and attributes."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("op", ODD)
def test_odd_parameters(op: str) -> None:
    """The same result, or refused by both."""
    data, parameters, attributes = ODD[op]
    feeds = {} if data is None else {"x": data}
    for values in product(*attributes.values()):
        given = dict(zip(attributes, values, strict=True))
        plans: dict[Any, parax.Plan] = {}
        for row in parameters:
            arrays = {f"p{i}": np.array(p if np.ndim(p) or isinstance(p, np.ndarray) else [p], np.int64)
                      for i, p in enumerate(row)}  # fmt: skip
            model = _node(op, feeds, arrays, given)
            later, opened = _opened(model, list(arrays))
            shapes = tuple(a.shape for a in arrays.values())
            if shapes not in plans:
                plans[shapes] = _compiled(later)
            with plans[shapes].session(instances=1, cores_per_instance=1) as session:
                found = _or_refused(lambda opened=opened: session.run(feeds | opened)["y"])  # type: ignore[misc]
            expected = _or_refused(lambda model=model: _run(model, feeds)[0])  # type: ignore[misc]
            assert (found is None) == (expected is None), (row, given)
            if found is not None and expected is not None:
                np.testing.assert_array_equal(found, expected, f"{row} {given}")


def _or_refused(run: Callable[[], np.ndarray]) -> np.ndarray | None:
    try:
        return run()
    except parax.InternalError:
        raise
    except parax.ParaxError:
        return None


def _node(op: str, feeds: Feeds, constants: Feeds, attributes: dict[str, Any]) -> onnx.ModelProto:
    made = next(iter(feeds.values())).dtype if feeds else next(iter(constants.values())).dtype
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
              for name, array in feeds.items()]  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node(op, [*feeds, *constants], ["y"], **attributes)], "g", inputs,
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(made), None)],
        [numpy_helper.from_array(a, n) for n, a in constants.items()])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.sample(3)
@pytest.mark.parametrize("by", ["scales", "sizes"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_nearest_positions_fall_to_the_same_side(coordinates: str, rounding: str, by: str) -> None:
    rng = np.random.default_rng(zlib.crc32(f"{coordinates}{rounding}".encode()))
    x = rng.standard_normal((1, 1, 9, 12)).astype(np.float32)
    for pair in ((0.3, 2.6), (1.5, 0.7), (1.0, 0.5)):
        scales = np.array([1, 1, *pair], np.float32)
        sizes = np.floor(scales * x.shape).astype(np.int64)
        given = scales if by == "scales" else sizes
        model = _resize(x, given, coordinates, nearest_mode=rounding)
        later, parameters = _opened(model, [by, "roi"])
        _assert_agree("nearest", _run(model, {"x": x}), _run(later, {"x": x} | parameters))


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.float16, np.float32])
@pytest.mark.parametrize("how", [{"mode": "linear"}, {"mode": "cubic"}, {"mode": "cubic", "exclude_outside": 1}],
                         ids=str)  # fmt: skip
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners", "tf_crop_and_resize"])
def test_interpolated_numbers_are_the_same(coordinates: str, how: dict[str, Any], dtype: type) -> None:
    """To the last unit of integers, which are cut off, 49.999997 to 49, and do not wrap around below 0."""
    x = np.random.default_rng(5).integers(0, 100, (1, 2, 9, 12)).astype(dtype)
    for pair in ((0.3, 2.6), (2.0, 1.5), (1.0, 0.5)):
        scales = np.array([1, 1, *pair], np.float32)
        model = _resize(x, scales, coordinates, **how)
        later, parameters = _opened(model, ["scales", "roi"])
        ours, theirs = _run(later, {"x": x} | parameters), _run(model, {"x": x})
        assert ours is not None and theirs is not None
        np.testing.assert_allclose(ours[0], theirs[0], rtol=0 if np.dtype(dtype).kind in "iu" else 1e-6)


def _resize(x: np.ndarray, given: np.ndarray, coordinates: str, **how: Any) -> onnx.ModelProto:
    crop = coordinates == "tf_crop_and_resize"
    names = ["x", "roi" if crop else "", *(("scales", "") if given.dtype == np.float32 else ("", "sizes"))]
    node = helper.make_node("Resize", names, ["y"], coordinate_transformation_mode=coordinates, **how)
    made = helper.np_dtype_to_tensor_dtype(x.dtype)
    constants = {"scales" if given.dtype == np.float32 else "sizes": given}
    constants |= {"roi": np.array([0, 0, 0.1, 0.2, 1, 1, 0.9, 0.7], np.float32)} if crop else {}
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", made, x.shape)],
                              [helper.make_tensor_value_info("y", made, None)],
                              [numpy_helper.from_array(a, name) for name, a in constants.items()])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def _opened(model: onnx.ModelProto, names: list[str]) -> tuple[onnx.ModelProto, Feeds]:
    """The model with constants of these names as inputs, and their contents."""
    later, parameters = onnx.ModelProto.FromString(model.SerializeToString()), {}
    for tensor in [t for t in later.graph.initializer if t.name in names]:
        parameters[tensor.name] = numpy_helper.to_array(tensor)
        later.graph.initializer.remove(tensor)
    for node in [n for n in later.graph.node if n.op_type == "Constant" and n.output[0] in names]:
        parameters[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        later.graph.node.remove(node)
    for name, array in parameters.items():
        code = helper.np_dtype_to_tensor_dtype(array.dtype)
        later.graph.input.append(helper.make_tensor_value_info(name, code, array.shape))
    for output in later.graph.output:
        output.type.tensor_type.ClearField("shape")
    return later, parameters


def _compiled(model: onnx.ModelProto) -> parax.Plan:
    return parax.compile(model, options=parax.CompileOptions(opt_level=0, cache=False, calibrate=False))


def _run(model: onnx.ModelProto, feeds: Feeds) -> list[np.ndarray]:
    with _compiled(model).session(instances=1, cores_per_instance=1) as session:
        return list(session.run(feeds).values())


def _assert_agree(op: str, kernels: list[np.ndarray], host: list[np.ndarray]) -> None:
    for a, b in zip(kernels, host, strict=True):
        assert_alike(a, b, EPSILON if op in ROUNDED else {})
