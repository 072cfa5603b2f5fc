"""Attention written as products and a softmax."""

from __future__ import annotations

import pytest

from parax.compiler.passes.block.fuse_attention import FuseAttention
from passes.check import check_pass

HEAD = """graph @g(%q: f32[N,2,9,4], %k: f32[N,2,4,7], %v: f32[N,2,7,5], %m: f32[N,1,1,7]) {{
    %h = const f32[] 0.5\n %t = const f32[] 2.0\n {body}\n return %5\n}}"""
FUSED = "%5 = parax::DotProductAttention({operands}) {{scale={scale}}}"


@pytest.mark.parametrize(("scores", "operands", "scale"), [
    ("%3 = MatMul(%q, %k)", "%q, %k, %v", "1.0"),
    ("%1 = MatMul(%q, %k)\n %3 = Mul(%1, %h)", "%q, %k, %v", "0.5"),
    ("%1 = MatMul(%q, %k)\n %3 = Mul(%h, %1)", "%q, %k, %v", "0.5"),
    ("%1 = MatMul(%q, %k)\n %3 = Div(%1, %t)", "%q, %k, %v", "0.5"),
    ("%1 = MatMul(%q, %k)\n %3 = Add(%1, %m)", "%q, %k, %v, %m", "1.0"),
    ("%1 = MatMul(%q, %k)\n %2 = Div(%1, %t)\n %3 = Add(%m, %2)", "%q, %k, %v, %m", "0.5"),
])  # fmt: skip
def test_products_and_softmax_become_attention(scores: str, operands: str, scale: str) -> None:
    body = f"{scores}\n %4 = Softmax(%3)\n %5 = MatMul(%4, %v)"
    fused = FUSED.format(operands=operands, scale=scale).replace(" {scale=1.0}", "")
    check_pass(FuseAttention(), HEAD.format(body=body), HEAD.format(body=fused))


WHOLE = "%1 = MatMul(%q, %k)\n %2 = Mul(%1, %h)\n %3 = Add(%2, %m)\n %4 = Softmax(%3)\n %5 = MatMul(%4, %v)"


@pytest.mark.parametrize(("old", "new", "reason"), [
    ("return %5", "return %5, %4", "no softmax"),
    ("return %5", "return %5, %2", "no product"),
    ("Softmax(%3)", "Softmax(%3) {axis=1}", "no softmax"),
    ("Mul(%1, %h)", "Mul(%1, %m)", "not scaled by a number"),
    ("Mul(%1, %h)", "Div(%h, %1)", "not scaled by a number"),
    ("f32[] 0.5", "f32[1,1,1,1,1] 0.5", "a shape of its own"),
    ("f32[N,2,9,4]", "f32[N,2,3,4]", "too few queries"),
    ("f32[N,2,7,5]", "f32[1,2,7,5]", "differ"),
    ("f32[N,1,1,7]", "f32[3,N,2,9,7]", "larger than the scores"),
    ("f32", "f64", "not f32"),
])  # fmt: skip
def test_others_stay(old: str, new: str, reason: str) -> None:
    text = HEAD.format(body=WHOLE)
    assert old in text
    check_pass(FuseAttention(), text.replace(old, new), None, refuses=reason, evaluate=False)
