"""A small convolutional classifier with a residual block, and data that it is sure about."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, parser

from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.ir.text import parse_graph

CLASSES, SIDE = 5, 9
TEXT = """graph @small(%x: f32[N,3,9,9]) {
  %w = const f32[7,3,3,3] "w"\n  %u = const f32[7,7,3,3] "u"\n  %v = const f32[7,5] "v"
  %b = const f32[7] "b"\n  %c = const f32[5] "c"
  %a = Conv(%x, %w, %b) {pads=[1,1,1,1]} : f32[N,7,9,9]  # first
  %r = Relu(%a) : f32[N,7,9,9]
  %p = MaxPool(%r) {kernel_shape=[2,2], strides=[2,2]} : f32[N,7,4,4]
  %d = Conv(%p, %u) {pads=[1,1,1,1]} : f32[N,7,4,4]  # second
  %s = Add(%d, %p) : f32[N,7,4,4]  # residual
  %t = Relu(%s) : f32[N,7,4,4]
  %g = GlobalAveragePool(%t) : f32[N,7,1,1]
  %f = Flatten(%g) : f32[N,7]
  %scores = Gemm(%f, %v, %c) : f32[N,5]  # head
  return %scores\n}"""


def classifier(batch: int | None = None, *, seed: int = 0) -> ModelProto:
    """Random weights of He's scale. batch: rows of a request; None: any."""
    rng = np.random.default_rng(seed)
    shapes = {"w": (7, 3, 3, 3), "u": (7, 7, 3, 3), "v": (7, 5), "b": (7,), "c": (5,)}
    data = {name: (rng.standard_normal(shape) * (2 / max(1, np.prod(shape[1:]))) ** 0.5).astype(np.float32)
            for name, shape in shapes.items()}  # fmt: skip
    text = TEXT if batch is None else TEXT.replace("[N,", f"[{batch},")
    return to_onnx(parse_graph(text, data))


def images(rows: int, seed: int = 1) -> np.ndarray:
    """f32[rows,3,9,9]."""
    return np.random.default_rng(seed).standard_normal((rows, 3, SIDE, SIDE)).astype(np.float32)


def relu() -> ModelProto:
    """A model with nothing to quantise."""
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[N,4] x) => (float[N,4] y) { y = Relu (x) }'
    return parser.parse_model(text)
