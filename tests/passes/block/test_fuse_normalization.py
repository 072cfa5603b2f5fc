"""Normalisations taken apart by exporters, and look-alikes."""

from __future__ import annotations

import pytest

from parax.compiler.passes.block.fuse_normalization import FuseNormalization
from passes.check import check_pass

X = "graph @g(%x: f32[N,5,8]) {\n%a = const i64[1] [-1]\n %e = const f32[] 0.001\n"
LAYER = """%1 = ReduceMean(%x, %a)\n %2 = Sub(%x, %1)\n %3 = Mul(%2, %2)\n %4 = ReduceMean(%3, %a)
%5 = Add(%4, %e)\n %6 = Sqrt(%5)\n"""
PARAMETERS = "%s = const f32[8] [1, 2, 3, 4, 5, 6, 7, 8]\n %b = const f32[8] [1, 2, 3, 4, 5, 6, 7, 9]\n"
ONES = "%s = const f32[8] [1, 1, 1, 1, 1, 1, 1, 1]\n"


def graph(*body: str) -> str:
    return X + "".join(body) + ' return %y\n}'


def test_layer_normalization_with_scale_and_bias() -> None:
    check_pass(FuseNormalization(),
               graph(PARAMETERS, LAYER, "%7 = Div(%2, %6)\n %8 = Mul(%7, %s)\n %y = Add(%8, %b)\n"),
               graph(PARAMETERS, "%y = LayerNormalization(%x, %s, %b) {axis=2, epsilon=0.001}\n"))


@pytest.mark.parametrize("quotient", ["%y = Div(%2, %6)", "%7 = Reciprocal(%6)\n %y = Mul(%7, %2)"])
def test_layer_normalization_alone(quotient: str) -> None:
    check_pass(FuseNormalization(), graph(LAYER, quotient, "\n"),
               graph(ONES, "%y = LayerNormalization(%x, %s) {axis=2, epsilon=0.001}\n"))


def test_a_mean_that_is_not_taken_away_gives_rms_normalization() -> None:
    check_pass(FuseNormalization(),
               graph(PARAMETERS, "%3 = Mul(%x, %x)\n %4 = ReduceMean(%3, %a)\n %5 = Add(%4, %e)\n %6 = Sqrt(%5)\n"
                     "%7 = Reciprocal(%6)\n %8 = Mul(%x, %7)\n %y = Mul(%s, %8)\n"),
               graph(PARAMETERS, "%y = RMSNormalization(%x, %s) {axis=2, epsilon=0.001}\n"), evaluate=False)


def test_softmax() -> None:
    check_pass(FuseNormalization(),
               graph("%1 = ReduceMax(%x, %a)\n %2 = Sub(%x, %1)\n %3 = Exp(%2)\n %4 = ReduceSum(%3, %a)\n %y = Div(%3, %4)\n"),
               graph("%y = Softmax(%x) {axis=2}\n"))


@pytest.mark.parametrize(("body", "reason"), [
    (LAYER.replace("%3 = Mul(%2, %2)", "%3 = Mul(%2, %x)") + "%y = Div(%2, %6)\n", "own mean square"),
    (LAYER + "%y = Div(%x, %6)\n", "own mean square"),
    (LAYER.replace("(%3, %a)", "(%3, %a) {keepdims=0}").replace("%6 = Sqrt(%5)", "%7 = Sqrt(%5)\n %6 = Unsqueeze(%7, %a)")
     + "%y = Div(%2, %6)\n", "deviation"),
    ("%1 = ReduceMax(%x)\n %2 = Sub(%x, %1)\n %3 = Exp(%2)\n %4 = ReduceSum(%3, %a)\n %y = Div(%3, %4)\n", "along one axis"),
    ("%3 = Exp(%x)\n %4 = ReduceSum(%3, %a)\n %y = Div(%3, %4)\n", "greatest element"),
    ("%z = Exp(%x)\n %y = Div(%z, %x)\n", "own sum"),
])  # fmt: skip
def test_look_alikes_stay(body: str, reason: str) -> None:
    check_pass(FuseNormalization(), graph(body), None, refuses=reason)


def test_the_middle_axis_is_no_layer_normalization() -> None:
    check_pass(FuseNormalization(), graph(LAYER, "%y = Div(%2, %6)\n").replace("[-1]", "[1]"), None, refuses="last axes")


@pytest.mark.parametrize("eps", ["%z = const f32[1,1,1,1] 0.001", "%z = const f32[2,1,1] [0.001, 0.001]"])
def test_a_constant_of_higher_rank_or_more_rows_stays(eps: str) -> None:
    one = X.replace("[N,5,8]", "[1,5,8]")
    check_pass(FuseNormalization(), one + eps + "\n" + LAYER.replace("%e)", "%z)") + "%y = Div(%2, %6)\n return %y\n}", None,
               refuses="a shape of its own")
