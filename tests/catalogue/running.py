"""A case as a graph of ours, as a model for the oracle, and the comparison of their results."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper

from catalogue.cases import Case, Constant
from fuzz import exact
from parax.compiler.frontend.oracle import oracle
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.types import NARROW, DType, TensorType, evaluate, parse_type

NEWEST = {"reference": onnx.defs.onnx_opset_version(), "onnxruntime": 23}
TOLERANCE = {"f32": (1e-4, 2e-5), "f64": (1e-9, 1e-11), "f16": (4e-3, 2e-3), "bf16": (4e-2, 2e-2)}
OLD_MISTAKES = {
    "ReverseSequence": "1.28",  # leaves sequences of no length unwritten
    "QuantizeLinear": "1.24",  # divides in another type than the operator's
}
"""The ONNX Runtime that is the first to get it right; Python 3.10 has none newer than 1.23."""
IN_SINGLE = ("Erf", "Gelu")
"""What onnx.reference computes in float32, whatever the type."""
_SYMBOL = re.compile(r"([A-Za-z_]\w*)=(\d+)")


def values(text: str, case: Case, rng: np.random.Generator) -> tuple[TensorType, np.ndarray]:
    """The type that a text such as `f32[N=3,5]` names, and random content at its run-time size."""
    type_ = parse_type(_SYMBOL.sub(r"\1", text))
    static = parse_type(_SYMBOL.sub(r"\2", text))
    assert isinstance(type_, TensorType) and isinstance(static, TensorType) and type_.dtype.numpy is not None
    shape, numpy = static.static_shape, type_.dtype.numpy
    if type_.dtype.name == "bool":
        return type_, rng.integers(0, 2, shape).astype(bool)
    if type_.dtype.is_int:
        return type_, rng.integers(int(case.low), int(case.high), shape).astype(numpy)
    return type_, rng.uniform(case.low, case.high, shape).astype(numpy)


def sprinkled(array: np.ndarray, numbers: Sequence[object], share: float, rng: np.random.Generator) -> np.ndarray:
    """The array with that share of its elements, anywhere, replaced by some of the numbers."""
    with np.errstate(over="ignore"):
        return np.where(rng.random(array.shape) < share, rng.choice(numbers, array.shape), array).astype(array.dtype)


def assert_alike(a: np.ndarray, b: np.ndarray, epsilons: Mapping[str, float]) -> None:
    """Type and shape the same, and every element: within an epsilon, relative and absolute, where its type has one."""
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    epsilon = epsilons.get(a.dtype.name)
    if DType.from_numpy(a.dtype) in NARROW:  # whose NaN NumPy does not take for NaN
        a, b = a.astype(np.float64), b.astype(np.float64)
    if epsilon is None:
        np.testing.assert_array_equal(a, b)
    else:
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), epsilon, epsilon)


def build(case: Case) -> tuple[Graph, dict[str, np.ndarray], dict[str, int], list[np.ndarray | None]]:
    """The case as a graph, its feeds by input name, the symbols' values, and every operand's content."""
    graph, operands, feeds, contents = Graph("case"), [], {}, []
    symbols = {n: int(v) for o in case.operands if isinstance(o, str) for n, v in _SYMBOL.findall(o)}
    rng = np.random.default_rng(zlib.crc32(str(case).encode()))
    for i, operand in enumerate(case.operands):
        name = f"x{i}"
        if operand is None:
            operands.append(None)
            contents.append(None)
        elif isinstance(operand, Constant):
            operands.append(graph.add_constant(operand.array, name))
            contents.append(operand.array)
        else:
            if isinstance(operand, str):
                type_, array = values(operand, case, rng)
            else:
                type_, array = TensorType(DType.from_numpy(operand.dtype), operand.shape), operand
            operands.append(graph.add_input(name, type_))
            feeds[name] = array
            contents.append(array)
    op = lookup(case.domain, case.op).from_attributes(case.attrs)
    node = graph.add_node(op, operands, n_outputs=case.outputs, name="the.node")
    graph.set_outputs(node.outputs)
    return graph, feeds, symbols, contents


def expected(case: Case, contents: list[np.ndarray | None]) -> list[np.ndarray]:
    """What the oracle says."""
    if case.oracle == "onnxruntime" and case.op in OLD_MISTAKES:
        pytest.importorskip("onnxruntime", OLD_MISTAKES[case.op])
    model, feeds = onnx_model(case, contents)
    run = partial(exact.run, model) if not case.domain and case.op in IN_SINGLE else oracle(model, case.oracle)
    return list(run(feeds).values())


def onnx_model(case: Case, contents: list[np.ndarray | None]) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """The case as a model of one node, and its inputs."""
    names = ["" if c is None else f"x{i}" for i, c in enumerate(contents)]
    outputs = [f"y{i}" for i in range(case.outputs)]
    attrs = {k: _attribute(v) for k, v in case.attrs.items()}
    node = helper.make_node(case.op, names, outputs, domain=case.domain, **attrs)
    constant = [isinstance(o, Constant) for o in case.operands]
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(c.dtype), c.shape)
              for n, c, fixed in zip(names, contents, constant) if c is not None and not fixed]
    fixed = [numpy_helper.from_array(c, n) for n, c, f in zip(names, contents, constant) if c is not None and f]
    results = [helper.make_empty_tensor_value_info(o) for o in outputs]
    opset = case.opset or NEWEST[case.oracle]
    own = [helper.make_opsetid(case.domain, case.domain_opset)] if case.domain else []
    imports = [helper.make_opsetid("", opset), *own]
    model = helper.make_model(helper.make_graph([node], "case", inputs, results, fixed), opset_imports=imports,
                              ir_version=10)
    return model, {n: c for n, c, f in zip(names, contents, constant) if c is not None and not f}


def _attribute(value: Any) -> Any:
    if isinstance(value, DType):
        return value.code
    return numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value


def assert_whole(case: Case, found: np.ndarray, wanted: np.ndarray) -> None:
    """Equal; whole numbers, rounded of floats, up to the steps that the case allows."""
    if case.atol and wanted.dtype.kind in "iu":
        np.testing.assert_allclose(found.astype(np.int64), wanted.astype(np.int64), 0, case.atol)
    else:
        np.testing.assert_array_equal(found, wanted)


def assert_close(case: Case, found: np.ndarray, wanted: np.ndarray) -> None:
    """Equal types and shapes; values equal, floats up to the case's tolerance."""
    wanted = np.asarray(wanted)
    wanted = wanted.astype(object) if wanted.dtype.kind == "U" else wanted
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    if wanted.dtype.kind in "iubSUO":
        assert_whole(case, found, wanted)
        return
    if DType.from_numpy(wanted.dtype) in NARROW:
        np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))
        return
    rtol, atol = TOLERANCE[DType.from_numpy(wanted.dtype).name]
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64),
                               case.rtol if case.rtol is not None else rtol,
                               case.atol if case.atol is not None else atol)


def check_types(graph: Graph, symbols: Mapping[str, int], wanted: list[np.ndarray]) -> None:
    for value, array in zip(graph.outputs, wanted):
        shape = tuple(evaluate(d, symbols) for d in value.tensor.dims)
        assert (value.tensor.dtype, shape) == (DType.from_numpy(np.asarray(array).dtype), np.shape(array))
