"""Which graphs may be cut into micro-batches. Refusing is always allowed; letting rows mix never is."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.frontend.oracle import best_kind, oracle
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.dataflow.batch_rows import batch_rows
from passes.check import feeds

INDEPENDENT = {
    "element-wise": ("%x: f32[N,4]", "%1 = Relu(%x)\n return %1"),
    "shared operand": ("%x: f32[N,4], %b: f32[4]", "%1 = Add(%x, %b)\n return %1"),
    "convolution": ("%x: f32[N,3,8,8]", '%w = const f32[4,3,3,3] "w"\n %1 = Conv(%x, %w)\n return %1'),
    "pool": ("%x: f32[N,3,8,8]", "%1 = MaxPool(%x) {kernel_shape=[2,2]}\n return %1"),
    "flatten": ("%x: f32[N,3,2,2]", "%1 = Flatten(%x)\n return %1"),
    "merge and split": ("%x: f32[N,6,4]", """
        %a = const i64[2] [-1, 4]\n %b = const i64[3] [-1, 6, 4]
        %1 = Reshape(%x, %a)\n %2 = Softmax(%1)\n %3 = Reshape(%2, %b)\n return %3"""),
    "matrix product": ("%x: f32[N,5,4]", '%w = const f32[4,6] "w"\n %1 = MatMul(%x, %w)\n return %1'),
    "vector product": ("%x: f32[N,5]", '%w = const f32[5] "w"\n %1 = MatMul(%x, %w)\n return %1'),
    "product with itself": ("%x: f32[N,5,4]", """
        %1 = Transpose(%x) {perm=[0,2,1]}\n %2 = MatMul(%x, %1)\n return %2"""),
    "Gemm": ("%x: f32[N,4]", '%w = const f32[6,4] "w"\n %1 = Gemm(%x, %w) {transB=1}\n return %1'),
    "softmax of features": ("%x: f32[N,4]", "%1 = Softmax(%x)\n return %1"),
    "reduction of features": ("%x: f32[N,4]", "%a = const i64[1] [1]\n %1 = ReduceSum(%x, %a)\n return %1"),
    "sequence first": ("%x: f32[7,N,4]", "%a = const i64[1] [0]\n %1 = ReduceMax(%x, %a) {keepdims=0}\n return %1"),
    "transposed": ("%x: f32[N,5,4]", "%1 = Transpose(%x) {perm=[1,0,2]}\n return %1"),
    "concat of features": ("%x: f32[N,4], %y: f32[N,3]", "%1 = Concat(%x, %y) {axis=1}\n return %1"),
    "embedding": ("%x: i64[N,5]", '%t = const f32[4,6] "t"\n %1 = Gather(%t, %x)\n return %1'),
    "gather of features": ("%x: f32[N,4]", "%i = const i64[2] [3, 0]\n %1 = Gather(%x, %i) {axis=1}\n return %1"),
    "slice of features": ("%x: f32[N,8]", """
        %b = const i64[1] [1]\n %e = const i64[1] [7]\n %s = const i64[1] [2]
        %1 = Slice(%x, %b, %e, %b, %s)\n return %1"""),
    "layer norm": ("%x: f32[N,4]", '%s = const f32[4] "s"\n %1 = LayerNormalization(%x, %s)\n return %1'),
    "expanded token": ("%x: f32[N,5,4]", """
        %t = const f32[1,1,4] "t"\n %z = const i64[] 0\n %0 = const i64[1] [0]\n %r = const i64[2] [1, 4]
        %1 = Shape(%x)\n %2 = Gather(%1, %z)\n %3 = Unsqueeze(%2, %0)\n %4 = Concat(%3, %r) {axis=0}
        %5 = Expand(%t, %4)\n %6 = Concat(%5, %x) {axis=1}\n return %6"""),
    "shape arithmetic": ("%x: f32[N,6]", """
        %z = const i64[] 0\n %0 = const i64[1] [0]\n %r = const i64[2] [2, 3]
        %1 = Shape(%x)\n %2 = Gather(%1, %z)\n %3 = Unsqueeze(%2, %0)\n %4 = Concat(%3, %r) {axis=0}
        %5 = Reshape(%x, %4)\n return %5"""),
    "shape arithmetic in i32": ("%x: f32[N,2,3]", """
        %0 = const i64[1] [0]\n %r = const i32[1] [3]\n %t = const i32[1] [2]
        %1 = Shape(%x)\n %2 = Gather(%1, %0)\n %c = Cast(%2) {to=i32}\n %3 = Mul(%c, %t)
        %4 = Concat(%3, %r) {axis=0}\n %5 = Cast(%4) {to=i64}\n %6 = Reshape(%x, %5)\n %7 = Softmax(%6)
        %8 = Reshape(%7, %1)\n return %8"""),
    "recurrent": ("%x: f32[5,N,4]", """
        %w = const f32[1,24,4] "w"\n %r = const f32[1,24,6] "r"
        %1 = LSTM(%x, %w, %r) {hidden_size=6}\n return %1"""),
    "rows of open length": ("%x: f32[N,S,4], %m: bool[N,S]", """
        %z = const i64[] 0\n %o = const i64[] 1\n %0 = const i64[1] [0]\n %2 = const i64[1] [2]\n %f = const i64[2] [2, 2]
        %1 = Shape(%x)\n %n = Gather(%1, %z)\n %l = Gather(%1, %o)\n %n1 = Unsqueeze(%n, %0)\n %l1 = Unsqueeze(%l, %0)
        %s = Concat(%n1, %l1, %f) {axis=0}\n %3 = Reshape(%x, %s)\n %4 = Transpose(%3) {perm=[0,2,1,3]}
        %5 = Transpose(%3) {perm=[0,2,3,1]}\n %6 = MatMul(%4, %5)\n %7 = Range(%z, %l, %o)\n %8 = Cast(%7) {to=f32}
        %9 = Add(%6, %8)\n %c = Cast(%m) {to=f32}\n %a = const i64[2] [1, 2]\n %u = Unsqueeze(%c, %a)
        %v = Add(%9, %u)\n %w = Softmax(%v)\n return %w"""),
    "running sums of features": ("%x: f32[N,4]", "%a = const i64[] 1\n %1 = CumSum(%x, %a)\n return %1"),
    "elements of features": ("%x: f32[N,4], %y: f32[N,4]", """
        %1, %2 = TopK(%y, %k) {axis=1}\n %3 = GatherElements(%x, %2) {axis=1}
        %4 = ScatterElements(%x, %2, %3) {axis=1}\n return %4""".replace("%1, %2", "%k = const i64[1] [2]\n %1, %2")),
    "places in a table": ("%x: f32[N,4]", """
        %t = const f32[4,6] "t"\n %1 = ArgMax(%x) {axis=1}\n %2 = GatherND(%t, %1)\n return %2"""),
    "places in each row": ("%x: f32[N,4]", "%1 = ArgMax(%x) {axis=1}\n %2 = GatherND(%x, %1) {batch_dims=1}\n return %2"),
    "hardmax of features": ("%x: f32[N,4]", "%1 = Hardmax(%x)\n return %1"),
    "one-hot": ("%x: f32[N,4]", """
        %d = const i64[] 4\n %v = const f32[2] [0, 1]\n %1 = ArgMax(%x) {axis=1, keepdims=0}
        %2 = OneHot(%1, %d, %v) {axis=0}\n return %2"""),
    "reversed sequences": ("%x: f32[5,N,2], %y: f32[5,N]", """
        %1 = ArgMax(%y) {axis=0, keepdims=0}\n %2 = ReverseSequence(%x, %1)\n return %2"""),
    "triangles": ("%x: f32[N,4,4]", "%1 = Trilu(%x)\n return %1"),
    "padded features": ("%x: f32[N,4]", "%p = const i64[4] [0, 1, 0, 2]\n %1 = Pad(%x, %p)\n return %1"),
}  # fmt: skip

MIXED = {
    "softmax over the batch": ("%x: f32[N,4]", "%1 = Softmax(%x) {axis=0}\n return %1"),
    "sum over the batch": ("%x: f32[N,4]", "%a = const i64[1] [0]\n %1 = ReduceSum(%x, %a)\n return %1"),
    "mean over everything": ("%x: f32[N,4]", "%1 = ReduceMean(%x)\n return %1"),
    "cumulative sum over the batch": ("%x: f32[N,4]", "%a = const i64[] 0\n %1 = CumSum(%x, %a)\n return %1"),
    "batch in the features": ("%x: f32[N,4]", "%s = const i64[2] [4, -1]\n %1 = Reshape(%x, %s)\n return %1"),
    "rows in pairs": ("%x: f32[N,4]", """
        %s = const i64[2] [-1, 8]\n %b = const i64[2] [-1, 4]
        %1 = Reshape(%x, %s)\n %2 = Softmax(%1)\n %3 = Reshape(%2, %b)\n return %3"""),
    "contracts over the batch": ("%x: f32[N,4], %y: f32[5,N]", "%1 = MatMul(%y, %x)\n return %1"),
    "row by row product": ("%x: f32[N,4]", """
        %1 = Transpose(%x)\n %2 = MatMul(%x, %1)\n %a = const i64[1] [1]\n %3 = ReduceSum(%2, %a)\n return %3"""),
    "gather from the batch": ("%x: f32[N,4], %i: i64[2]", "%1 = Gather(%x, %i)\n return %1"),
    "rows picked by rows": ("%x: f32[N,4], %i: i64[N]", "%1 = Gather(%x, %i)\n return %1"),
    "slice of the batch": ("%x: f32[N,4]", """
        %b = const i64[1] [1]\n %e = const i64[1] [9]\n %a = const i64[1] [0]
        %1 = Slice(%x, %b, %e, %a)\n return %1"""),
    "batch reversed": ("%x: f32[N,4]", """
        %b = const i64[1] [-1]\n %e = const i64[1] [-9223372036854775807]\n %a = const i64[1] [0]
        %1 = Slice(%x, %b, %e, %a, %b)\n return %1"""),
    "batch shifted": ("%x: f32[N,4]", "%p = const i64[4] [1, 0, -1, 0]\n %1 = Pad(%x, %p)\n return %1"),
    "joined along the batch": ("%x: f32[N,4], %y: f32[N,4]", "%1 = Concat(%x, %y) {axis=0}\n return %1"),
    "batch against batch": ("%x: f32[N,1], %y: f32[1,N]", "%1 = Sub(%x, %y)\n return %1"),
    "two names for one size": ("%x: f32[N,4], %y: f32[M,4]", "%1 = Add(%x, %y)\n return %1"),
    "count as data": ("%x: f32[N,4]", """
        %z = const i64[] 0\n %1 = Shape(%x)\n %2 = Gather(%1, %z)\n %3 = Cast(%2) {to=f32}
        %4 = Div(%x, %3)\n return %4"""),
    "count as index": ("%x: f32[N,4]", """
        %o = const i64[] 1\n %z = const i64[] 0\n %t = const f32[100,4] "t"
        %1 = Shape(%x)\n %2 = Gather(%1, %z)\n %3 = Gather(%t, %2)\n %4 = Add(%x, %3)\n return %4"""),
    "numbered rows": ("%x: f32[N,4]", """
        %z = const i64[] 0\n %o = const i64[] 1\n %1 = Shape(%x)\n %2 = Gather(%1, %z)\n %3 = Range(%z, %2, %o)
        %4 = Cast(%3) {to=f32}\n %a = const i64[1] [1]\n %5 = Unsqueeze(%4, %a)\n %6 = Add(%x, %5)\n return %6"""),
    "indices of a pool": ("%x: f32[N,3,8,8]", "%1, %2 = MaxPool(%x) {kernel_shape=[2,2]}\n return %1, %2"),
    "normalised over the batch": ("%x: f32[N,4]", """
        %s = const f32[] 1.0\n %1 = LayerNormalization(%x, %s) {axis=0}\n return %1"""),
    "recurrent over the batch": ("%x: f32[N,5,4]", """
        %w = const f32[1,24,4] "w"\n %r = const f32[1,24,6] "r"
        %1 = LSTM(%x, %w, %r) {hidden_size=6}\n return %1"""),
    "a result for all rows": ("%x: f32[N,4], %y: f32[4]", "%1 = Relu(%x)\n %2 = Relu(%y)\n return %1, %2"),
    "batch repeated": ("%x: f32[N,4]", "%r = const i64[2] [2, 1]\n %1 = Tile(%x, %r)\n return %1"),
    "running sums over the batch": ("%x: f32[N,4]", "%a = const i64[] 0\n %1 = CumSum(%x, %a)\n return %1"),
    "elements of the batch": ("%x: f32[N,4], %i: i64[N,4]", "%1 = GatherElements(%x, %i)\n return %1"),
    "elements of more rows": ("%x: f32[N,8], %i: i64[N,4]", """
        %s = const i64[2] [-1, 4]\n %1 = Reshape(%x, %s)\n %2 = GatherElements(%1, %i) {axis=1}\n return %2"""),
    "elements of shared data": ("%i: i64[N,4]", '%t = const f32[9,4] "t"\n %1 = GatherElements(%t, %i) {axis=1}\n return %1'),
    "scattered over the batch": ("%x: f32[N,4], %i: i64[N,4]", "%1 = ScatterElements(%x, %i, %x)\n return %1"),
    "places in the batch": ("%x: f32[N,4], %i: i64[N,1]", "%1 = GatherND(%x, %i)\n return %1"),
    "the batch reversed by lengths": ("%x: f32[N,5], %l: i64[5]", "%1 = ReverseSequence(%x, %l)\n return %1"),
    "a triangle of the batch": ("%x: f32[N,4]", "%1 = Trilu(%x)\n return %1"),
    "greatest of the batch": ("%x: f32[N,4]", "%1 = ArgMax(%x) {axis=0, keepdims=0}\n return %1"),
}  # fmt: skip


def graph_of(case: tuple[str, str]) -> Graph:
    return parse_graph(f"graph @g({case[0]}) {{\n{case[1]}\n}}")


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_rows_are_found_and_are_independent(name: str) -> None:
    if name == "reversed sequences":
        pytest.importorskip("onnxruntime", "1.28")  # older ones leave sequences of no length unwritten
    graph = graph_of(INDEPENDENT[name])
    misses: list[str] = []
    rows = batch_rows(graph, misses)
    assert rows is not None and rows.symbol == "N", misses
    run = oracle(to_onnx(graph), best_kind())
    whole = feeds(graph, {"N": 5}, -2, 2, 0)
    want = run(whole)
    parts = [
        run({k: np.take(v, range(*cut), rows.axes[k]) if k in rows.axes else v for k, v in whole.items()})
        for cut in ((0, 2), (2, 5))
    ]
    for output, expected in want.items():
        got = np.concatenate([part[output] for part in parts], rows.axes[output])
        np.testing.assert_allclose(got, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_influence_each_other_are_refused_with_a_reason(name: str) -> None:
    misses: list[str] = []
    assert batch_rows(graph_of(MIXED[name]), misses) is None
    assert misses


@pytest.mark.parametrize(("others", "splits"), [("", False), ("8,", False), ("9,", True), ("S,", False)])
def test_rows_of_weights_that_stay_packed_are_apart_where_they_are_many_anyway(others: str, splits: bool) -> None:
    """Up to eight rows at a time they are multiplied otherwise, so that nobody may add to them or take from them."""
    graph = graph_of((f"%x: f32[N,{others}32]", """
        %q = const u8[6,1,16] "q"\n %s = const f32[6,1] "s"
        %1 = parax::BlockedMatMul(%x, %q, %s) {block_size=32}\n return %1"""))  # fmt: skip
    misses: list[str] = []
    rows = batch_rows(graph, misses)
    assert (rows is not None and rows.symbol == "N") == splits
    assert splits or any("few rows" in miss for miss in misses)
