"""Inferred shapes of the shape operators and contractions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph, Value
from parax.compiler.ir.ops.geometry import window_geometry
from parax.compiler.ir.types import evaluate, parse_type, symbol
from parax.errors import InvalidModel, ResourceLimit, UnsupportedOp


def output(op: str, *types: str | np.ndarray | None, **attributes: object) -> Value:
    graph = Graph("g")
    g = GraphBuilder(graph, name="node")
    inputs = [graph.add_input(f"x{i}", parse_type(t)) if isinstance(t, str) else t for i, t in enumerate(types)]
    result = getattr(g, op)(*inputs, **attributes)
    assert isinstance(result, Value)
    return result


CASES = [
    ("Reshape", ("f32[N,64,7,7]", np.array([0, -1])), {}, "f32[N,3136]"),
    ("Reshape", ("f32[N,S,768]", np.array([0, -1, 12, 64])), {}, "f32[N,S,12,64]"),
    ("Reshape", ("f32[0,3]", np.array([3, 0])), {"allowzero": 1}, "f32[3,0]"),
    ("Reshape", ("f32[]", np.array([1, 1])), {}, "f32[1,1]"),
    ("Flatten", ("f32[N,3,4]",), {}, "f32[N,12]"),
    ("Flatten", ("f32[N,3,4]",), {"axis": 0}, "f32[1,12*N]"),
    ("Flatten", ("f32[N,3,4]",), {"axis": -1}, "f32[3*N,4]"),
    ("Squeeze", ("f32[1,N,1]",), {}, "f32[N]"),
    ("Squeeze", ("f32[1,N,1]", np.array([-1])), {}, "f32[1,N]"),
    ("Unsqueeze", ("f32[N]", np.array([0, -1])), {}, "f32[1,N,1]"),
    ("Transpose", ("f32[N,3,4]",), {}, "f32[4,3,N]"),
    ("Transpose", ("f32[N,3,4]",), {"perm": [0, 2, 1]}, "f32[N,4,3]"),
    ("Concat", ("f32[N,3]", "f32[N,4]"), {"axis": -1}, "f32[N,7]"),
    ("Concat", ("f32[N,S]", "f32[N,1]"), {"axis": 1}, "f32[N,S+1]"),
    ("MatMul", ("f32[N,8,S,64]", "f32[64,T]"), {}, "f32[N,8,S,T]"),
    ("MatMul", ("f32[3]", "f32[3]"), {}, "f32[]"),
    ("MatMul", ("f32[3]", "f32[2,3,4]"), {}, "f32[2,4]"),
    ("MatMul", ("f32[2,3]", "f32[3]"), {}, "f32[2]"),
    ("Gemm", ("f32[N,8]", "f32[5,8]", "f32[5]"), {"transB": 1}, "f32[N,5]"),
    ("Gemm", ("f32[8,N]", "f32[8,5]", "f32[N,1]"), {"transA": 1}, "f32[N,5]"),
    ("Conv", ("f32[N,3,224,224]", "f32[64,3,7,7]"), {"pads": [3] * 4, "strides": [2, 2]}, "f32[N,64,112,112]"),
    ("Conv", ("f32[N,3,S]", "f32[8,3,3]"), {"pads": [1, 1], "strides": [2]}, "f32[N,8,floor((S+1)/2)]"),
    ("Conv", ("f32[N,3,S]", "f32[8,3,3]"), {"auto_pad": "SAME_LOWER"}, "f32[N,8,S]"),
    ("Conv", ("f32[1,4,9,9]", "f32[8,2,3,3]"), {"group": 2, "dilations": [2, 3]}, "f32[1,8,5,3]"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "types", "attributes", "expected"), CASES)
def test_inferred_shapes(op: str, types: tuple[str, ...], attributes: dict[str, object], expected: str) -> None:
    assert str(output(op, *types, **attributes).type) == expected


@pytest.mark.parametrize("shape", ["N,0", "0,N", "N,0,M", "0,0", "2,3", "N,3"])
def test_content_is_known_of_numbers_alone(shape: str) -> None:
    """A product of 0 may have symbols beside the 0."""
    graph = Graph("g")
    g = GraphBuilder(graph, name="node")
    sizes = g.Shape(graph.add_input("x", parse_type(f"f32[{shape}]")))
    made = [g.ConstantOfShape(sizes, value=np.array([7])), g.Expand(g.const(np.array(7)), sizes)]
    if "0" in shape:
        made.append(g.Reshape(g.const(np.zeros(0, np.int64)), sizes, allowzero=1))
    for value in made:
        assert str(value.type) == f"i64[{shape}]"
        assert (value.known is None) == any(letter in shape for letter in "NM")


REFUSED = [
    ("Reshape", ("f32[2,3]", np.array([4, -1])), {}, "do not divide evenly"),
    ("Reshape", ("f32[2,3]", np.array([5])), {}, "number of elements"),
    ("Reshape", ("f32[2,3]", np.array([-1, -1])), {}, "malformed shape"),
    ("Reshape", ("f32[2,3]", np.array([-2, 3])), {}, "malformed shape"),
    ("Reshape", ("f32[2,3]", np.array([2, 3, 0])), {}, "no input dimension to copy"),
    ("Reshape", ("f32[0,3]", np.array([0, -1])), {}, "ambiguous"),
    ("Reshape", ("f32[2]", "i64[2]"), {}, "known at compile time"),
    ("Flatten", ("f32[2]",), {"axis": 2}, "axis out of range"),
    ("Squeeze", ("f32[1,2]", np.array([1])), {}, "must be 1"),
    ("Squeeze", ("f32[1,2]", np.array([2])), {}, "axis out of range"),
    ("Squeeze", ("f32[1,1]", np.array([0, -2])), {}, "duplicate axes"),
    ("Transpose", ("f32[2,3]",), {"perm": [0, 0]}, "no permutation"),
    ("Concat", ("f32[2]", "f32[2,2]"), {"axis": 0}, "equal ranks"),
    ("Concat", ("f32[2,3]", "f32[3,3]"), {"axis": 1}, "dimension 0 of input 1"),
    ("Concat", ("f32[2]",), {"axis": 1}, "axis out of range"),
    ("MatMul", ("f32[2,3]", "f32[2,3]"), {}, "inner dimensions"),
    ("MatMul", ("f32[]", "f32[2]"), {}, "scalar"),
    ("Gemm", ("f32[2,3,4]", "f32[4,5]"), {}, "must be matrices"),
    ("Gemm", ("f32[2,3]", "f32[3,4]", "f32[3]"), {}, "does not broadcast"),
    ("Conv", ("f32[1,3,8,8]", "f32[4,2,3,3]"), {}, "channels"),
    ("Conv", ("f32[1,3,8,8]", "f32[4,3,3]"), {}, "same rank"),
    ("Conv", ("f32[1,3,8,8]", "f32[4,3,9,9]"), {}, "larger than the padded input"),
    ("Conv", ("f32[1,4,8,8]", "f32[3,2,3,3]"), {"group": 2}, "multiple of group"),
    ("Conv", ("f32[1,4,8,8]", "f32[3,4,3,3]"), {"group": 0}, "group must be positive"),
    ("Conv", ("f32[1,4,8,8]", "f32[3,4,3,3]"), {"strides": [0, 1]}, "malformed strides"),
    ("Conv", ("f32[1,4,8,8]", "f32[3,4,3,3]"), {"pads": [1, 1]}, "malformed pads"),
    ("Conv", ("f32[1,4,8,8]", "f32[3,4,3,3]"), {"kernel_shape": [1, 1]}, "contradicts"),
    ("Conv", ("f32[1,4,8,8]", "f32[3,4,3,3]"), {"auto_pad": "SAME"}, "unknown auto_pad"),
    ("Conv", ("f32[1,4,8,8]", "f32[3,4,3,3]", "f32[4]"), {}, "one element per output channel"),
    ("Clip", ("f32[2]", "f32[2]"), {}, "must be a scalar"),
    ("Resize", ("f32[N]", None, np.float32([1e30])), {}, "resized beyond all measure"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "types", "attributes", "message"), REFUSED)
def test_wrong_shapes_name_the_node(
    op: str, types: tuple[str, ...], attributes: dict[str, object], message: str
) -> None:
    with pytest.raises((InvalidModel, ResourceLimit, UnsupportedOp), match=f'^{op} "node": .*{message}'):
        output(op, *types, **attributes)


@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_symbolic_windows_evaluate_to_the_static_ones(auto_pad: str, ceil_mode: bool) -> None:
    pads = [1, 2] if auto_pad == "NOTSET" else None
    for kernel, stride, dilation, size in itertools.product((1, 2, 3), (1, 2, 3), (1, 2), (5, 6, 7, 8, 13)):
        shared = {"strides": [stride], "dilations": [dilation], "pads": pads}
        args = {**shared, "auto_pad": auto_pad, "ceil_mode": ceil_mode}
        static = window_geometry((size,), (kernel,), **args)
        symbolic = window_geometry((symbol("S"),), (kernel,), **args)
        for name in ("pads_begin", "pads_end", "output"):
            (dim,) = getattr(symbolic, name)
            assert (evaluate(dim, {"S": size}),) == getattr(static, name)


@pytest.mark.parametrize(
    ("op", "types", "attributes", "limits"),
    [
        ("Conv", ("f32[N,3,H,8]", "f32[4,3,3,3]"), {}, {"min(3,H)"}),
        ("Conv", ("f32[N,3,H,8]", "f32[4,3,3,3]"), {"pads": [1, 1, 1, 1]}, set()),
        ("Conv", ("f32[N,3,H,8]", "f32[4,3,3,3]"), {"auto_pad": "SAME_UPPER"}, set()),
        ("MaxPool", ("f32[N,3,H,8]",), {"kernel_shape": [3, 3], "ceil_mode": 1}, {"min(3,H)"}),
    ],
)
def test_open_sizes_hold_a_window(
    op: str, types: tuple[str, ...], attributes: dict[str, object], limits: set[str]
) -> None:
    assert {str(a) for a, _ in output(op, *types, **attributes).graph.constraints} == limits


@pytest.mark.parametrize("scale", [2, 0.5, 1.5, 4, 1 / 3, 4 / 3, 7 / 3, 0.7, 1.3, 0.8333, 1e-30])
def test_open_sizes_are_resized_as_static_ones(scale: float) -> None:
    scales = np.array([1, scale], np.float32)
    y = output("Resize", "f32[N,S]", None, scales)
    for n in (*range(1, 120), 999, 1000, 5006, 65536, 70000):
        size = {"S": n}
        if all(evaluate(a, size) == evaluate(b, size) for a, b in y.graph.constraints):
            assert evaluate(y.type.shape[1], size) == output("Resize", f"f32[2,{n}]", None, scales).type.shape[1]
        else:
            assert n == 70000 or scale in (7 / 3, 1.3, 0.8333)


def test_views_keep_row_major_order() -> None:
    value = output("Reshape", "f32[2,3,4]", np.array([4, 6]))
    data = np.arange(24).reshape(2, 3, 4)
    node = value.producer
    for index in np.ndindex(4, 6):
        source = node.op.index_map(node.context(), index)
        assert data[tuple(source)] == data.reshape(4, 6)[index]


def test_transpose_index_map() -> None:
    node = output("Transpose", "f32[2,3,4]", perm=[2, 0, 1]).producer
    data = np.arange(24).reshape(2, 3, 4)
    for index in np.ndindex(4, 2, 3):
        assert data[tuple(node.op.index_map(node.context(), index))] == data.transpose(2, 0, 1)[index]
