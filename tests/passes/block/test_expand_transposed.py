"""Transposed convolutions by weights that are given: what they become, and what that computes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import parax
from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.block.expand_transposed import ExpandTransposed
from parax.compiler.passes.rewrite import Rewriter
from passes.check import check_pass

GIVEN = "graph @g(%x: f32[N,4,5,6], %w: f32[4,3,2,2], %b: f32[3]) {{\n{}\n return %y\n}}"


def transposed(x: np.ndarray, w: np.ndarray, b: np.ndarray | None, s: dict[str, Any]) -> np.ndarray:
    """ConvTranspose by its definition in f64: every input adds its taps where they land."""
    rank, groups = x.ndim - 2, s.get("group", 1)
    strides, dilations = s.get("strides", [1] * rank), s.get("dilations", [1] * rank)
    pads, extra = s.get("pads", [0] * 2 * rank), s.get("output_padding", [0] * rank)
    sizes = [t * (n - 1) + e + (k - 1) * d + 1
             for n, k, t, d, e in zip(x.shape[2:], w.shape[2:], strides, dilations, extra, strict=True)]  # fmt: skip
    y = np.zeros((x.shape[0], groups * w.shape[1], *sizes))
    for group, tap in itertools.product(range(groups), np.ndindex(*w.shape[2:])):
        own = slice(group * w.shape[0] // groups, (group + 1) * w.shape[0] // groups)
        to = slice(group * w.shape[1], (group + 1) * w.shape[1])
        places = tuple(slice(k * d, k * d + t * (n - 1) + 1, t)
                       for k, d, t, n in zip(tap, dilations, strides, x.shape[2:], strict=True))  # fmt: skip
        found = np.einsum("nc...,cm->nm...", x[:, own].astype(np.float64), w[(own, slice(None), *tap)])
        y[(slice(None), to, *places)] += found
    kept = tuple(slice(b, n - e) for b, e, n in zip(pads[:rank], pads[rank:], sizes, strict=True))
    y = y[(slice(None), slice(None), *kept)]
    return y if b is None else y + b.reshape(1, -1, *[1] * rank)


CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((4, 5, 6), (4, 3, 2, 2), {"strides": [2, 2]}),
    ((4, 5, 7), (4, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    ((4, 5, 7), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((4, 5, 7), (4, 3, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((4, 5, 7), (4, 3, 4, 3), {"strides": [3, 2], "pads": [0, 1, 2, 0]}),
    ((6, 4, 5), (6, 2, 3, 3), {"strides": [2, 2], "group": 3}),
    ((4, 5, 6), (4, 3, 3, 2), {"strides": [2, 1], "dilations": [3, 2]}),
    ((4, 9), (4, 5, 3), {"strides": [3]}),
    ((2, 3, 4, 3), (2, 3, 2, 2, 2), {"strides": [2, 2, 2]}),
    ((17, 3, 5), (17, 33, 2, 2), {"strides": [2, 2]}),
    ((11, 5, 6), (11, 1, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 0], "group": 11}),
    ((6, 9), (6, 1, 3), {"strides": [3], "group": 6}),
    ((6, 3, 4, 3), (6, 1, 2, 2, 2), {"strides": [2, 2, 2], "group": 6}),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("x_shape, w_shape, settings", CASES)
def test_it_computes_what_the_operator_does(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], settings: dict[str, Any], bias: bool
) -> None:
    outputs = w_shape[1] * settings.get("group", 1)
    names = ["x", "w", *(["b"] if bias else [])]
    shapes = {"x": ["N", *x_shape], "w": w_shape, "b": [outputs]}
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", names, ["y"], **settings)], "up",
        [tensor(name, TensorProto.FLOAT, shapes[name]) for name in names],
        [tensor("y", TensorProto.FLOAT, ["N", *[None] * (len(x_shape))])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    rng = np.random.default_rng(4)
    w, b = (rng.standard_normal(shapes[name]).astype(np.float32) for name in ("w", "b"))
    with parax.compile(model).session() as session:
        for rows in (1, 3):
            x = rng.standard_normal((rows, *x_shape)).astype(np.float32)
            x[0, 0, 0] = np.inf if rows == 3 else 0.0
            (found,) = session.run({"x": x, "w": w, **({"b": b} if bias else {})}).values()
            with np.errstate(invalid="ignore"):
                expected = transposed(x, w, b if bias else None, settings)
            finite = np.isfinite(expected)
            np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-4, atol=1e-4)
            assert not np.isfinite(found[~finite]).any() and (rows == 1) == finite.all()


def test_phases_that_read_the_same_places_are_one_convolution() -> None:
    graph = parse_graph(GIVEN.format("%y = ConvTranspose(%x, %w, %b) {strides=[2,2]}"))
    assert ExpandTransposed().run(graph, Rewriter(graph))
    convolutions = [n for n in graph.nodes_in_order() if n.op.name == "Conv"]
    assert [str(n.output.type) for n in convolutions] == ["f32[N,12,5,6]"]
    assert str(graph.outputs[0].type) == "f32[N,3,10,12]"


@pytest.mark.parametrize("before, reason", [
    (GIVEN.format("%y = ConvTranspose(%x, %w) {strides=[3,3]}"), "nothing but the bias"),
    (GIVEN.format("%y = ConvTranspose(%x, %w) {strides=[2,2]}").replace("5,6", "H,6"), "a size is open"),
    (GIVEN.format('%c = const f32[4,3,2,2] "c"\n%y = ConvTranspose(%x, %c) {strides=[2,2]}'), "weights are constant"),
    (GIVEN.format("%y = ConvTranspose(%x, %w) {strides=[2,2]}").replace("f32", "f64"), "not f32"),
    (GIVEN.format("%y = ConvTranspose(%x, %w) {strides=[2,2], group=4}").replace("4,3", "4,1"), "one filter a channel"),
])  # fmt: skip
def test_others_stay(before: str, reason: str) -> None:
    check_pass(ExpandTransposed(), before, None, refuses=reason, evaluate="f64" not in before)


