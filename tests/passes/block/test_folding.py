"""Scales, shifts, margins and orders that move into constant weights. The results prove the weights' contents."""

from __future__ import annotations

import pytest

from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.block import fold_flatten
from parax.compiler.passes.block.fold_affine import FoldAffine
from parax.compiler.passes.block.fold_batch_norm import FoldBatchNorm
from parax.compiler.passes.block.fold_flatten import FoldFlatten
from parax.compiler.passes.block.fold_pad import FoldPad
from parax.compiler.passes.rewrite import Rewriter
from passes.check import check_pass

W = '%w = const f32[4,3,3,3] "w"\n'
B = '%b = const f32[4] [1, 2, 3, 4]\n'
STATISTICS = """%s = const f32[4] [1, 2, 0.5, 3]\n %t = const f32[4] [0, 1, -1, 2]
%m = const f32[4] [0.5, 0, 1, -1]\n %v = const f32[4] [1, 2, 0.5, 4]\n"""
CHANNELS = "%c = const f32[4,1,1] [2, 3, 4, 5]\n"


def image(body: str) -> str:
    return f"graph @g(%x: f32[N,3,6,6]) {{\n{body}\n}}"


def matrix(body: str) -> str:
    return f"graph @g(%x: f32[N,4]) {{\n{body}\n}}"


@pytest.mark.parametrize("operands", ["%x, %w", "%x, %w, %b"])
def test_batch_norm_moves_into_the_convolution_before_it(operands: str) -> None:
    check_pass(FoldBatchNorm(), image(f"{W}{B}{STATISTICS}%1 = Conv({operands})\n"
                                      "%2 = BatchNormalization(%1, %s, %t, %m, %v)\n return %2"),
               image(f"{W}{B}%2 = Conv(%x, %w, %b)\n return %2"))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_batch_norm_moves_into_convolutions_of_any_float_type(dtype: str) -> None:
    before = f"{W}{STATISTICS}%1 = Conv(%x, %w)\n%2 = BatchNormalization(%1, %s, %t, %m, %v)\n return %2"
    graph = parse_graph(image(before).replace("f32", dtype))
    assert FoldBatchNorm().run(graph, Rewriter(graph))
    (conv,) = graph.nodes_in_order()
    assert [str(v.type) for v in conv.inputs[1:]] == [f"{dtype}[4,3,3,3]", f"{dtype}[4]"]


def test_batch_norm_moves_into_a_grouped_transposed_convolution() -> None:
    text = 'graph @g(%x: f32[N,4,6,6]) {{\n%w = const f32[4,2,3,3] "w"\n{}\n return %2\n}}'
    check_pass(FoldBatchNorm(), text.format(f"{STATISTICS}%1 = ConvTranspose(%x, %w) {{group=2}}\n"
                                            "%2 = BatchNormalization(%1, %s, %t, %m, %v)"),
               text.format(f"{B}%2 = ConvTranspose(%x, %w, %b) {{group=2}}"))


def test_batch_norm_alone_is_a_scale_and_a_shift() -> None:
    text = "graph @g(%x: f32[N,4,6,6]) {{\n{}\n return %2\n}}"
    check_pass(FoldBatchNorm(), text.format(f"{STATISTICS}%2 = BatchNormalization(%x, %s, %t, %m, %v)"),
               text.format(f"{CHANNELS}%d = const f32[4,1,1] [0, 0, 0, 0]\n%1 = Mul(%x, %c)\n %2 = Add(%1, %d)"))


def test_batch_norm_of_computed_statistics_stays() -> None:
    check_pass(FoldBatchNorm(), """graph @g(%x: f32[N,4,6,6], %s: f32[4], %t: f32[4], %m: f32[4]) {
        %v = const f32[4] [1, 2, 3, 4]\n %2 = BatchNormalization(%x, %s, %t, %m, %v)\n return %2\n}""",
        None, refuses="statistics are not constant")


AFTER_PRODUCTS = {
    "scale": (image, f"{W}{CHANNELS}%1 = Conv(%x, %w)\n %2 = Mul(%1, %c)", f"{W}%2 = Conv(%x, %w)"),
    "scale with bias": (image, f"{W}{B}{CHANNELS}%1 = Conv(%x, %w, %b)\n %2 = Mul(%1, %c)", f"{W}{B}%2 = Conv(%x, %w, %b)"),
    "number": (image, f"{W}{B}%c = const f32[] 2.0\n%1 = Conv(%x, %w, %b)\n %2 = Mul(%c, %1)", f"{W}{B}%2 = Conv(%x, %w, %b)"),
    "quotient": (image, f"{W}{CHANNELS}%1 = Conv(%x, %w)\n %2 = Div(%1, %c)", f"{W}%2 = Conv(%x, %w)"),
    "shift": (image, f"{W}{CHANNELS}%1 = Conv(%x, %w)\n %2 = Add(%1, %c)", f"{W}{B}%2 = Conv(%x, %w, %b)"),
    "taken away": (image, f"{W}{B}{CHANNELS}%1 = Conv(%x, %w, %b)\n %2 = Sub(%c, %1)", f"{W}{B}%2 = Conv(%x, %w, %b)"),
    "columns": (matrix, '%w = const f32[4,4] "w"\n %c = const f32[4] [1, 2, 3, 4]\n %1 = MatMul(%x, %w)\n %2 = Mul(%1, %c)',
                '%w = const f32[4,4] "w"\n %2 = MatMul(%x, %w)'),
    "Gemm": (matrix, f'%w = const f32[4,4] "w"\n {B}%1 = Gemm(%x, %w, %b) {{transB=1, beta=2}}\n %2 = Mul(%1, %b)\n',
             f'%w = const f32[4,4] "w"\n {B}%2 = Gemm(%x, %w, %b) {{transB=1, beta=2}}'),
    "scale past a shift": (matrix, f'%w = const f32[4,4] "w"\n {B}%c = const f32[] 0.5\n %1 = MatMul(%x, %w)\n %3 = Add(%1, %b)\n %2 = Mul(%3, %c)',
                           f'%w = const f32[4,4] "w"\n {B}%c = const f32[4] [1, 1, 1, 1]\n %1 = MatMul(%x, %w)\n %3 = Mul(%1, %c)\n %2 = Add(%3, %b)'),
}  # fmt: skip


@pytest.mark.parametrize("name", AFTER_PRODUCTS)
def test_scales_and_shifts_behind_products(name: str) -> None:
    wrap, before, after = AFTER_PRODUCTS[name]
    if name == "scale past a shift":  # the next round folds the rest
        after = f'%w = const f32[4,4] "w"\n {B}%1 = MatMul(%x, %w)\n %2 = Add(%1, %b)'
        check_twice(wrap(f"{before}\n return %2"), wrap(f"{after}\n return %2"))
        return
    check_pass(FoldAffine(), wrap(f"{before}\n return %2"), wrap(f"{after}\n return %2"))


def check_twice(before: str, after: str) -> None:
    """FoldAffine until it has nothing left to do."""

    class Twice(FoldAffine):
        def run(self, graph, rw):  # type: ignore[no-untyped-def]
            return any([FoldAffine().run(graph, rw), FoldAffine().run(graph, rw)])

    check_pass(Twice(), before, after)


def test_a_scale_before_a_convolution() -> None:
    check_pass(FoldAffine(), image(f"{W}%c = const f32[3,1,1] [2, 3, 4]\n %1 = Mul(%x, %c)\n %2 = Conv(%1, %w)\n return %2"),
               image(f"{W}%2 = Conv(%x, %w)\n return %2"))


def test_a_scale_before_a_grouped_convolution() -> None:
    text = 'graph @g(%x: f32[N,4,6,6]) {{\n%w = const f32[6,2,3,3] "w"\n{}\n return %2\n}}'
    check_pass(FoldAffine(), text.format(f"{CHANNELS}%1 = Mul(%x, %c)\n %2 = Conv(%1, %w) {{group=2, pads=[1,1,1,1]}}"),
               text.format("%2 = Conv(%x, %w) {group=2, pads=[1,1,1,1]}"))


@pytest.mark.parametrize(("body", "reason"), [
    (f"{W}%c = const f32[3,1,1] [2, 3, 4]\n %1 = Add(%x, %c)\n %2 = Conv(%1, %w) {{pads=[1,1,1,1]}}", "not a scale"),
    (f"{W}%c = const f32[3,1,1] [2, 3, 4]\n %1 = Sub(%x, %c)\n %2 = Conv(%1, %w)", "not a scale"),  # they would cancel
    (f"{W}%c = const f32[] 1e-38\n %1 = Conv(%x, %w)\n %2 = Mul(%1, %c)", "moderate"),
    (f"{W}%c = const f32[] 1e-38\n %1 = Mul(%x, %c)\n %2 = Conv(%1, %w)", "moderate"),
    (f"{W}%c = const f32[] inf\n %1 = Conv(%x, %w)\n %2 = Mul(%1, %c)", "moderate"),
    (f"{W}{CHANNELS}%1 = Conv(%x, %w)\n %2 = Mul(%1, %c)\n %3 = Relu(%1)\n %4 = Add(%2, %3)", "single use"),
    (f"{W}%c = const f32[4,4] \"c\"\n %1 = Conv(%x, %w)\n %2 = Mul(%1, %c)", "along the weights' columns"),
    (f"{W}{CHANNELS}%1 = Conv(%x, %w)\n %2 = Div(%c, %1)", "along the weights' columns"),
    ("%w = const f32[3,1,1,1] [2, 3, 4]\n %c = const f32[] 0.7\n %1 = Conv(%x, %w) {group=3}\n %3 = Mul(%1, %c)\n"
     "%2 = Floor(%3)", "one product"),
])  # fmt: skip
def test_scales_and_shifts_that_stay(body: str, reason: str) -> None:
    last = "%4" if "%4" in body else "%2"
    check_pass(FoldAffine(), image(f"{body}\n return {last}"), None, refuses=reason)


def test_margins_of_zeros_become_the_convolutions() -> None:
    check_pass(FoldPad(), image(f"{W}%p = const i64[8] [0, 0, 1, 2, 0, 0, 3, 4]\n %1 = Pad(%x, %p)\n"
                                "%2 = Conv(%1, %w) {pads=[1,0,1,0]}\n return %2"),
               image(f"{W}%2 = Conv(%x, %w) {{pads=[2,2,4,4]}}\n return %2"))


def test_margins_become_those_of_a_pool_that_counts_them() -> None:
    text = image("%p = const i64[8] [0, 0, 1, 1, 0, 0, 1, 1]\n %1 = Pad(%x, %p)\n"
                 "%2 = AveragePool(%1) {{kernel_shape=[3,3]{}}}\n return %2").replace("{{", "{").replace("}}", "}")
    check_pass(FoldPad(), text.replace("{}", ", count_include_pad=1"),
               image("%2 = AveragePool(%x) {count_include_pad=1, kernel_shape=[3,3], pads=[1,1,1,1]}\n return %2"))
    check_pass(FoldPad(), text.replace("{}", ""), None, refuses="leaves its own padding out")
    alone = text.replace("{}", ", count_include_pad=1").replace("[3,3]", "[1,1]")
    check_pass(FoldPad(), alone, None, refuses="padding alone")


@pytest.mark.parametrize(("pad", "reason"), [
    ("%p = const i64[8] [0, 0, 1, 1, 0, 0, 1, 1]\n %v = const f32[] 1.0\n %1 = Pad(%x, %p, %v)", "not of zeros"),
    ('%p = const i64[8] [0, 0, 1, 1, 0, 0, 1, 1]\n %1 = Pad(%x, %p) {mode="edge"}', "not of zeros"),
    ("%p = const i64[8] [0, 0, -1, 1, 0, 0, 1, 1]\n %1 = Pad(%x, %p)", "crops"),
    ("%p = const i64[8] [1, 0, 0, 0, 0, 0, 0, 0]\n %1 = Pad(%x, %p)", "batch"),
])  # fmt: skip
def test_margins_that_stay(pad: str, reason: str) -> None:
    check_pass(FoldPad(), image(f"{W}{pad}\n%2 = Conv(%1, %w)\n return %2"), None, refuses=reason)


@pytest.mark.parametrize("product", ["MatMul(%2, %w)", "Gemm(%2, %w, %b)", "Gemm(%2, %t, %b) {transB=1}"])
def test_weights_behind_a_flatten_take_the_activations_order(product: str) -> None:
    text = """graph @g(%x: f32[N,3,2,5]{{0,2,3,1}}) {{
        %w = const f32[30,4] "w"\n %t = const f32[4,30] "t"\n %b = const f32[4] [1, 2, 3, 4]\n {}\n return %3\n}}"""
    check_pass(FoldFlatten(), text.format(f"%1 = parax::Relayout(%x)\n %2 = Flatten(%1)\n %3 = {product}"),
               text.format("%s = const i64[2] [-1, 30]\n %1 = Transpose(%x) {perm=[0,2,3,1]} : f32[N,2,5,3]\n"
                           f" %2 = Reshape(%1, %s)\n %3 = {product}"))


@pytest.mark.parametrize("body", [
    "%2 = Flatten(%1)\n %3 = Gemm(%2, %y)",  # the weights are not constant
    '%w = const f32[30,4] "w"\n %2 = Flatten(%1)\n %4 = Gemm(%2, %w)\n %5 = Relu(%2)\n %3 = Concat(%4, %5) {axis=1}',
    '%w = const f32[10,4] "w"\n %s = const i64[2] [-1, 10]\n %2 = Reshape(%1, %s)\n %3 = MatMul(%2, %w)',
])  # fmt: skip
def test_flattens_that_stay(body: str) -> None:
    check_pass(FoldFlatten(), f"""graph @g(%x: f32[N,3,2,5]{{0,2,3,1}}, %y: f32[30,4]) {{
        %1 = parax::Relayout(%x)\n {body}\n return %3\n}}""", None, refuses="something else")


def test_large_weights_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_flatten, "MOST_NBYTES", 30 * 4 * 4 - 1)
    check_pass(FoldFlatten(), """graph @g(%x: f32[N,3,2,5]{0,2,3,1}) {
        %w = const f32[30,4] "w"\n %1 = parax::Relayout(%x)\n %2 = Flatten(%1)\n %3 = MatMul(%2, %w)\n return %3\n}""",
               None, refuses="too large")
