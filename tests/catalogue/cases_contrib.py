"""Cases of ONNX Runtime's activations, products and normalisations, against ONNX Runtime, which has them for f32."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from catalogue.cases import Case, Operand, case, const

RNG = np.random.default_rng(23)
ours = partial(case, domain="com.microsoft", oracle="onnxruntime")


def _product(op: str, a: str, b: str, **attrs: float) -> Case:
    return ours(op, [a, b], attrs)


def _embed(given: Mapping[int, Operand], outputs: int = 2) -> Case:
    """Ids are numbers of 7 words, 9 positions and 3 segments."""
    ids = RNG.integers(0, 7, (2, 5)).astype(np.int32)
    operands: list[Operand] = [ids, None, "f32[7,12]", "f32[9,12]", None, "f32[12]", "f32[12]", None, None]
    for i, operand in given.items():
        operands[i] = operand
    while operands[-1] is None:
        operands.pop()
    return ours("EmbedLayerNormalization", operands, {"epsilon": 1e-5}, outputs=outputs)


SEGMENTS = {1: RNG.integers(0, 3, (2, 5)).astype(np.int32), 4: "f32[3,12]"}
MASK = {7: np.array([[1, 1, 1, 0, 0], [1, 0, 2, 1, 1]], np.int32)}
PLACES = RNG.integers(0, 9, (2, 5)).astype(np.int32)
POSITIONS = np.array([[0, 3, 1, 2, 6], [4, 4, 5, 0, 1]])

CASES = [
    ours("Gelu", ["f32[3,17]"]), ours("Gelu", ["f32[N=4,33]"], low=-9, high=9), ours("Gelu", ["f32[0,3]"]),
    ours("QuickGelu", ["f32[3,17]"]), ours("QuickGelu", ["f32[N=4,33]"], {"alpha": 0.5}), ours("QuickGelu", ["f32[]"]),
    ours("BiasGelu", ["f32[3,17]", "f32[17]"]),
    ours("BiasGelu", ["f32[N=2,3,33]", const(RNG.uniform(-1, 1, 33), np.float32)]),
    ours("FastGelu", ["f32[3,17]"]), ours("FastGelu", ["f32[N=2,3,33]", "f32[33]"], low=-5, high=5),
    _product("FusedMatMul", "f32[3,17]", "f32[17,5]"),
    _product("FusedMatMul", "f32[2,17,3]", "f32[2,5,17]", transA=1, transB=1, alpha=0.25),
    _product("FusedMatMul", "f32[N=3,4,17,5]", "f32[4,33,5]", transB=1, alpha=-2.0),
    _product("FusedMatMul", "f32[5,2,3,7]", "f32[2,3,7,4]", transBatchA=1),
    _product("FusedMatMul", "f32[7,2,3,5]", "f32[7,2,3,4]", transA=1, transBatchA=1, transBatchB=1),
    _product("FusedMatMul", "f32[2,5,7]", "f32[4,2,7]", transB=1, transBatchB=1),
    _product("FusedMatMul", "f64[3,7]", "f64[7,5]", alpha=3.0),
    _product("FusedMatMul", "f32[7]", "f32[7,5]", transA=1),
    _product("TransposeMatMul", "f32[17,3]", "f32[5,17]", transA=1, transB=1, alpha=0.5),
    _product("TransposeMatMul", "f32[N=2,3,17]", "f32[17,5]"),
    *(ours(op, [x, s, f"f32[{d}]", *more], {"epsilon": eps})
      for op, beta in (("SkipLayerNormalization", ["f32[17]"]), ("SkipSimplifiedLayerNormalization", []))
      for x, s, d, more, eps in (
          ("f32[2,3,17]", "f32[2,3,17]", 17, [], 1e-12), ("f32[2,3,17]", "f32[2,3,17]", 17, beta, 1e-5),
          ("f32[N=2,3,17]", "f32[N=2,3,17]", 17, [*beta, "f32[17]"], 1e-5))),
    ours("SkipLayerNormalization", ["f32[2,3,17]", "f32[1,3,17]", "f32[17]", "f32[17]"]),
    ours("SkipLayerNormalization", ["f32[2,3,17]", "f32[3,17]", "f32[17]", None, "f32[17]"]),
    ours("SkipLayerNormalization", ["f16[2,3,17]", "f16[2,3,17]", "f16[17]", "f16[17]", "f16[17]"]),
    ours("SkipSimplifiedLayerNormalization", ["f16[4,33]", "f16[4,33]", "f16[33]"]),
    case("SimplifiedLayerNormalization", ["f32[2,3,17]", "f32[17]"], oracle="onnxruntime"),
    case("SimplifiedLayerNormalization", ["f32[N=2,3,17]", "f32[3,17]"], {"axis": 1, "epsilon": 1e-3}, outputs=2,
         oracle="onnxruntime"),
    case("SimplifiedLayerNormalization", ["f64[2,17]", "f64[17]"], outputs=2, oracle="onnxruntime"),
    case("SimplifiedLayerNormalization", ["f16[2,17]", "f16[17]"], oracle="onnxruntime"),
    _embed({}), _embed({**SEGMENTS, **MASK}, outputs=3), _embed({8: PLACES}, outputs=3), _embed({8: PLACES[:1]}),
    _embed({**SEGMENTS, 8: PLACES}),
    *(ours("RotaryEmbedding", [x, ids, f"f32[9,{pairs}]", f"f32[9,{pairs}]"], {"interleaved": mixed, **attrs})
      for mixed in (0, 1) for x, ids, pairs, attrs in (
          ("f32[2,3,5,8]", POSITIONS, 4, {}), ("f32[2,5,24]", POSITIONS, 4, {}),
          ("f32[2,5,24]", np.array([3]), 4, {}), ("f32[N=2,3,5,8]", np.array([2]), 4, {}),
          ("f32[2,5,24]", POSITIONS, 2, {"num_heads": 3, "rotary_embedding_dim": 4}))),
    ours("RotaryEmbedding", ["f16[2,5,24]", POSITIONS, "f16[9,4]", "f16[9,4]"]),
]  # fmt: skip
