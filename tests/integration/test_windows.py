"""Kernels that write and read windows of a larger tensor, on every target, against ONNX Runtime or onnx.reference."""

from __future__ import annotations

import numpy as np
import pytest

from backend.harness import host_targets
from parax import CompileOptions
from parax.compiler import driver
from parax.compiler.compilation import Compilation
from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.frontend.oracle import best_kind, oracle
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.views import is_window
from sampling import sampled

POINTWISE, TAPS = "{kernel_shape=[1,1]}", "{kernel_shape=[3,3], pads=[1,1,1,1]}"
HALVED = "{kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]}"
SKIPPING = "{kernel_shape=[1,1], strides=[2,2]}"
BLOCKS = {
    "convolutions of odd sizes, indirect and gathered": """(%x: f32[N,19,9,7], %z: f32[N,3,9,7]) {
      %a = const f32[5,19,1,1] "a"\n %b = const f32[33,19,3,3] "b"\n %c = const f32[11,3,3,3] "c"
      %d = const f32[8,49,1,1] "d"
      %1 = Relu(%x)\n %2 = Conv(%1, %a) POINTWISE\n %3 = Conv(%1, %b) TAPS\n %4 = Relu(%3)\n %5 = Conv(%z, %c) TAPS
      %6 = Concat(%2, %4, %5) {axis=1}\n %7 = Conv(%6, %d) POINTWISE\n return %7""",
    "Winograd, written and read": """(%x: f32[N,16,13,13]) {
      %a = const f32[32,16,3,3] "a"\n %b = const f32[16,16,3,3] "b"\n %c = const f32[32,32,3,3] "c"
      %d = const f32[16,48,3,3] "d"
      %1 = Relu(%x)\n %2 = Conv(%1, %a) TAPS\n %3 = Relu(%2)\n %4 = Conv(%1, %b) TAPS\n %5 = Conv(%3, %c) TAPS
      %6 = Concat(%3, %4) {axis=1}\n %7 = Conv(%6, %d) TAPS\n %8 = MaxPool(%3) HALVED\n %9 = Sigmoid(%8)
      return %7, %9, %5""",
    "pools and element-wise, with a residual": """(%x: f32[N,12,8,8]) {
      %a = const f32[12,12,3,3] "a"\n %1 = Sigmoid(%x)\n %2 = Conv(%1, %a) TAPS\n %3 = Add(%2, %1)
      %4 = MaxPool(%1) TAPS\n %5 = AveragePool(%1) TAPS\n %6 = Concat(%3, %4, %5, %1) {axis=1}\n %7 = Tanh(%6)
      return %7""",
    "depthwise, and what follows it": """(%x: f32[N,18,8,8]) {
      %a = const f32[18,1,3,3] "a"\n %b = const f32[24,18,1,1] "b"
      %2 = Sigmoid(%x)
      %3 = Conv(%2, %a) {group=18, kernel_shape=[3,3], pads=[1,1,1,1]}\n %4 = Relu(%3)\n %5 = Conv(%4, %b) POINTWISE
      %6 = Concat(%2, %5) {axis=1}\n %7 = Tanh(%6)\n return %7""",
    "transposed and skipped, as in a U-Net": """(%x: f32[N,6,8,8]) {
      %a = const f32[10,6,3,3] "a"\n %b = const f32[10,7,2,2] "b"\n %c = const f32[4,17,3,3] "c"
      %1 = Conv(%x, %a) TAPS\n %2 = Relu(%1)\n %3 = MaxPool(%2) {kernel_shape=[2,2], strides=[2,2]}
      %4 = ConvTranspose(%3, %b) {kernel_shape=[2,2], strides=[2,2]}\n %5 = Concat(%2, %4) {axis=1}
      %6 = Conv(%5, %c) TAPS\n return %6""",
    "one inside another, as in a DenseNet": """(%x: f32[N,6,8,8]) {
      %a = const f32[5,6,3,3] "a"\n %b = const f32[5,11,3,3] "b"\n %1 = Relu(%x)\n %2 = Conv(%1, %a) TAPS
      %3 = Concat(%1, %2) {axis=1}\n %4 = Sigmoid(%3)\n %5 = Conv(%4, %b) TAPS\n %6 = Concat(%3, %5) {axis=1}
      %7 = Tanh(%6)\n return %7""",
    "one after the other along the batch": """(%x: f32[3,5], %y: f32[2,5]) {
      %1 = Softmax(%x)\n %2 = Softmax(%y)\n %3 = Concat(%1, %2) {axis=0}\n %4 = Softmax(%3) {axis=0}\n return %4""",
    "parts of images: strides, Winograd, gathering, a pool": """(%x: f32[N,16,9,11], %z: f32[N,3,9,20]) {
      %a = const f32[20,16,1,1] "a"\n %b = const f32[16,16,3,3] "b"\n %c = const f32[11,3,3,3] "c"
      %d = const f32[16,16,1,1] "d"\n %f = const i64[2] [1, 2]\n %g = const i64[2] [8, 10]\n %h = const i64[2] [2, 3]
      %i = const f32[16,16,1,1] "i"\n %q = const i64[2] [8, 20]
      %0 = Conv(%x, %i) POINTWISE\n %1 = Relu(%0)\n %2 = Slice(%1, %f, %g, %h)\n %3 = Conv(%2, %a) SKIPPING
      %4 = Conv(%2, %b) TAPS\n %5 = Conv(%2, %d) POINTWISE\n %6 = Add(%4, %5)
      %8 = Slice(%z, %f, %q, %h)\n %9 = Conv(%8, %c) TAPS\n %10 = MaxPool(%2) HALVED
      return %3, %6, %9, %10""",
    "parts of images, for few channels": """(%x: f32[N,16,19,21]) {
      %a = const f32[2,16,3,3] "a"\n %b = const f32[2,16,1,1] "b"\n %f = const i64[2] [1, 2]
      %g = const i64[2] [18, 20]\n %h = const i64[2] [2, 3]\n %i = const f32[16,16,1,1] "i"
      %0 = Conv(%x, %i) POINTWISE\n %1 = Relu(%0)\n %2 = Slice(%1, %f, %g, %h)
      %3 = Conv(%2, %a) TAPS\n %4 = Conv(%2, %b) POINTWISE\n return %3, %4""",
    "channels, apart": """(%x: f32[N,48,7,7]) {
      %a = const f32[20,16,1,1] "a"\n %b = const f32[16,16,3,3] "b"\n %s = const i64[3] [16, 16, 16]
      %i = const f32[48,48,1,1] "i"\n %0 = Conv(%x, %i) POINTWISE\n %1 = Sigmoid(%0)
      %2, %3, %4 = Split(%1, %s) {axis=1}\n %5 = Conv(%2, %a) POINTWISE\n %6 = Conv(%3, %b) TAPS
      %7 = Mul(%6, %4)\n %8 = AveragePool(%4) TAPS\n %9 = Conv(%3, %a) SKIPPING\n %10 = Add(%7, %8)
      %11 = Conv(%10, %b) TAPS\n return %5, %9, %11""",
    "normalised, with a cropped residual": """(%x: f32[N,16,9,9]) {
      %a = const f32[16,16,3,3] "a"\n %s = const f32[16] "s"\n %f = const i64[2] [2, 2]\n %g = const i64[2] [7, 7]
      %h = const i64[2] [2, 3]\n %0 = Conv(%x, %a) TAPS\n %1 = Relu(%0)\n %2 = Slice(%1, %f, %g, %h)
      %3 = Conv(%1, %a) {kernel_shape=[3,3], dilations=[2,2]}\n %4 = InstanceNormalization(%3, %s, %s)
      %5 = Add(%4, %2)\n %i = const i64[2] [0, 1]\n %j = const i64[2] [4, 5]\n %6 = Slice(%5, %i, %j, %h)
      %7 = InstanceNormalization(%6, %s, %s)\n %8 = Conv(%7, %a) TAPS
      return %8""",
    "the caller's memory, in parts": """(%x: f32[N,32,5]) {
      %s = const i64[2] [16, 16]\n %1, %2 = Split(%x, %s) {axis=1}\n %3 = Tanh(%1)\n %4 = Mul(%3, %2)\n return %4""",
    "rows of tables, and elements of such rows": """(%x: f32[N,8], %y: f32[N,6]) {
      %t = const f32[8,21] "t"\n %u = const f32[6,3] "u"\n %i = ArgMax(%x) {axis=1, keepdims=0}
      %j = ArgMax(%y) {axis=1, keepdims=0}\n %1 = Gather(%t, %i) {axis=0}\n %2 = Gather(%u, %j) {axis=0}
      %k = ArgMax(%x) {axis=1}\n %3 = GatherElements(%1, %k) {axis=1}\n %4 = Concat(%1, %3, %2) {axis=1}
      %5 = Tanh(%4)\n return %5""",
    "straight into the caller's memory": """(%x: f32[N,9,5,5]) {
      %1 = Relu(%x)\n %2 = Exp(%x)\n %3 = Concat(%1, %2) {axis=1}\n return %3""",
}


@pytest.mark.usefixtures("any_target")
@pytest.mark.parametrize("target", sampled([target.name for target in host_targets()], 3))
@pytest.mark.parametrize("name", sampled(BLOCKS, 2))
def test_windows_hold_what_copies_would(name: str, target: str) -> None:
    text = BLOCKS[name].replace("POINTWISE", POINTWISE).replace("TAPS", TAPS)
    text = text.replace("HALVED", HALVED).replace("SKIPPING", SKIPPING)
    graph = parse_graph(f"graph @g{text}\n}}")
    model = to_onnx(graph)
    run = Compilation(CompileOptions(cache=False, targets=(target,)), lambda phase, fraction: None)
    driver.optimise(graph, run)
    plan = driver.build_plan(graph, run)
    assert any(is_window(v) for node in graph for v in node.outputs), plan.graph
    assert not any(node.op.name in ("Slice", "Split") for node in graph), plan.graph
    random = np.random.default_rng(3)
    given = {i.name: random.standard_normal([d if isinstance(d, int) else 3 for d in i.shape]).astype(np.float32)
             for i in plan.inputs}  # fmt: skip
    expected = oracle(model, best_kind())(given)
    for n_cores in (1, 2):
        with plan.session(instances=1, cores_per_instance=n_cores) as session:
            for key, array in session.run(given).items():
                np.testing.assert_allclose(array, expected[key], 1e-3, 1e-4)
