"""Products of i16 become products of bytes: the graph, its numbers, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.verify import verify
from parax.compiler.passes.block.byte_products import ByteProducts
from parax.compiler.passes.rewrite import Rewriter
from passes.check import check_pass

W = np.random.default_rng(0).integers(-128, 128, (6, 4)).astype(np.int8)
FILTERS = np.random.default_rng(1).integers(-128, 128, (4, 8, 3, 3)).astype(np.int8)
PASS = ByteProducts(lambda node: True)


def matrix(body: str, dtype: str = "u8") -> str:
    return f"""graph @g(%x: {dtype}[N,6]) {{
%z = const i16[] 100
%w = const i8[6,4] "w"
%1 = Cast(%x) {{to=i16}}
{body}
return %y
}}"""


def image(body: str, channels: int = 8, dtype: str = "u8") -> str:
    return f"""graph @g(%x: {dtype}[N,{channels},5,5]) {{
%z = const i16[] 100
%b = const i32[4] [1, -2, 2147483647, 4]
%w = const i8[4,{channels},3,3] "w"
%1 = Cast(%x) {{to=i16}}
{body}
return %y
}}"""


LESS = "%2 = Sub(%1, %z)\n"


def rewritten(text: str, w: np.ndarray) -> Graph:
    graph = parse_graph(text, {"w": w})
    assert PASS.run(graph, Rewriter(graph))
    verify(graph)
    return graph


def names(graph: Graph) -> list[str]:
    """Of what the result needs."""
    needed, pending = [], [graph.outputs[0]]
    while pending:
        node = pending.pop().producer
        if node is not None and node not in needed:
            needed.append(node)
            pending += [v for v in node.inputs if v is not None]
    return sorted(node.op.name for node in needed)


def test_a_product_takes_the_zero_points_share_from_its_sums() -> None:
    graph = rewritten(matrix(LESS + "%y = parax::WideningMatMul(%2, %w)"), W)
    assert names(graph) == ["ByteMatMul", "Sub"]
    taken = graph.outputs[0].producer.operands[1].data
    np.testing.assert_array_equal(taken, 100 * W.sum(axis=0, dtype=np.int64))


def test_without_a_zero_point_nothing_is_taken() -> None:
    assert names(rewritten(matrix("%y = parax::WideningMatMul(%1, %w)"), W)) == ["ByteMatMul"]


@pytest.mark.parametrize("dtype", ["u8", "i8"])
def test_a_zero_point_that_is_computed_is_multiplied_by_the_columns_sums(dtype: str) -> None:
    text = matrix("%3 = Cast(%v) {to=i16}\n%2 = Sub(%1, %3)\n%y = parax::WideningMatMul(%2, %w)", dtype)
    graph = rewritten(text.replace("@g(%x", f"@g(%v: {dtype}[], %x"), W)
    signed = ["Add", "Add", "Cast"] if dtype == "i8" else []
    assert names(graph) == sorted(["ByteMatMul", "Cast", "Mul", "Sub", *signed])
    (share,) = (node for node in graph if node.op.name == "Mul")
    np.testing.assert_array_equal(share.operands[1].data, W.sum(axis=0, dtype=np.int64))


def test_signed_bytes_have_128_added_to_them() -> None:
    graph = rewritten(matrix(LESS + "%y = parax::WideningMatMul(%2, %w)", "i8"), W)
    assert names(graph) == ["Add", "ByteMatMul", "Cast", "Sub"]
    taken = graph.outputs[0].producer.operands[1].data
    np.testing.assert_array_equal(taken, 228 * W.sum(axis=0, dtype=np.int64))


def test_views_are_of_bytes() -> None:
    text = matrix(LESS + "%3 = Flatten(%2)\n%y = parax::WideningMatMul(%3, %w)").replace("[N,6]", "[N,2,3]")
    assert names(rewritten(text, W)) == ["ByteMatMul", "Flatten", "Sub"]


@pytest.mark.parametrize("dtype", ["u8", "i8"])
@pytest.mark.parametrize("bias", [False, True])
def test_a_convolution_starts_from_it_and_pads_with_zero_points(dtype: str, bias: bool) -> None:
    given = "%2, %w, %b" if bias else "%2, %w"
    graph = rewritten(image(LESS + f"%y = parax::WideningConv({given}) {{pads=[1,1,1,1]}}", dtype=dtype), FILTERS)
    node, zero = graph.outputs[0].producer, 100 if dtype == "u8" else 228
    assert node.op.name == "ByteConv" and node.op.margin == zero and list(node.op.pads) == [1, 1, 1, 1]
    start = np.array([1, -2, 2147483647, 4], np.int64) if bias else 0
    wanted = (start - zero * FILTERS.reshape(4, -1).sum(axis=1, dtype=np.int64)) & 0xFFFFFFFF
    np.testing.assert_array_equal(node.inputs[2].data, wanted.astype(np.uint32).view(np.int32))


REFUSED = {
    "weights of i16": (matrix("%y = parax::WideningMatMul(%1, %w)").replace("i8[6,4]", "i16[6,4]"),
                       W.astype(np.int16), "not bytes"),
    "a row of zero points": (matrix(LESS + "%y = parax::WideningMatMul(%2, %w)").replace(
        "i16[] 100", "i16[6] [1, 2, 3, 4, 5, 6]"), W, "not bytes"),
    "a sum of bytes": (matrix("%2 = Add(%1, %1)\n%y = parax::WideningMatMul(%2, %w)"), W, "not bytes"),
    "padding that is computed": (image("%3 = Cast(%v) {to=i16}\n%2 = Sub(%1, %3)\n%y = parax::WideningConv(%2, %w)")
                                 .replace("@g(%x", "@g(%v: u8[], %x"), FILTERS, "nobody knows"),
    "a zero point of i16": (matrix("%2 = Sub(%1, %v)\n%y = parax::WideningMatMul(%2, %w)").replace(
        "@g(%x", "@g(%v: i16[], %x"), W, "not bytes"),
    "six channels": (image(LESS + "%y = parax::WideningConv(%2, %w)", 6), FILTERS[:, :6].copy(), "no whole quads"),
    "ten channels": (image(LESS + "%y = parax::WideningConv(%2, %w)", 10),
                     np.ones((4, 10, 3, 3), np.int8), "no whole quads"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_products_that_stay(name: str) -> None:
    text, w, reason = REFUSED[name]
    check_pass(PASS, text, None, refuses=reason, data={"w": w}, evaluate=False)


def test_products_stay_where_no_target_multiplies_bytes() -> None:
    text = matrix(LESS + "%y = parax::WideningMatMul(%2, %w)")
    check_pass(ByteProducts(), text, None, refuses="no instructions", data={"w": W}, evaluate=False)
