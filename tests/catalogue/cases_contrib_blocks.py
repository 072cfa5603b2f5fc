"""Cases of ONNX Runtime's weights in blocks and of layers in bytes, against ONNX Runtime.

Its DynamicQuantizeLSTM rounds activations to 8 bits, parax's does not: `test_contrib_layers.py` compares weights alone.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from catalogue.cases import Case, Operand, case, const

RNG = np.random.default_rng(37)
ours = partial(case, domain="com.microsoft", oracle="onnxruntime")
EIGHTS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
NARROW = {name: np.dtype(getattr(ml_dtypes, name)) for name in ("int4", "uint4", "float4_e2m1fn", *EIGHTS)}
IDS = np.array([[3, -1, 0], [6, 2, -7]])


def _whole(kind: str, *shape: int) -> np.ndarray:
    low = -8 if kind == "int4" else 0
    return RNG.integers(low, low + (256 if kind == "uint8" else 16), shape).astype(NARROW.get(kind, kind))


def _scales(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.uniform(0.01, 0.1, shape).astype(dtype)


def _table(kind: str, rows: int, columns: int, bits: int, block: int, *, ids: Operand = IDS, zeros: bool = False,
           dtype: Any = np.float32, constant: bool = True) -> Case:  # fmt: skip
    """Of rows: of bytes `columns` numbers each, packed."""
    parts, blocks = (8 // bits if kind == "uint8" else 1), -(-columns // block)
    data = _whole(kind, rows, columns // parts)
    more = [_whole(kind, rows, -(-blocks // parts))] if zeros else []
    fixed = [v if not constant else const(v) for v in (data, _scales(rows, blocks, dtype=dtype), *more)]
    return ours("GatherBlockQuantized", [fixed[0], ids, *fixed[1:]], {"bits": bits, "block_size": block})


def _axes(kind: str, shape: tuple[int, ...], gather: int, along: int, zeros: bool = False, ids: Operand = IDS) -> Case:
    """Of whole numbers of 4 bits, along any axes."""
    some = [-(-d // 16) if i == along % len(shape) else d for i, d in enumerate(shape)]
    more = [const(_whole(kind, *some))] if zeros else []
    return ours("GatherBlockQuantized", [const(_whole(kind, *shape)), ids, const(_scales(*some)), *more],
                {"block_size": 16, "gather_axis": gather, "quantize_axis": along})  # fmt: skip


def _floats(kind: str, scales: tuple[int, ...], block: int, dtype: Any = np.float32, **attrs: Any) -> Case:
    data = RNG.uniform(-6, 6, (7, 40)).astype(NARROW[kind])
    return ours("GatherBlockQuantized", [const(data), IDS.astype(np.int32), const(_scales(*scales, dtype=dtype))],
                {"block_size": block, **attrs})  # fmt: skip


def _bnb(a: str, n: int, k: int, block: int, kind: int, *, constant: bool = True) -> Case:
    b, absmax = _whole("uint8", -(-n * k // 2)), _scales(-(-n * k // block))
    operands = [const(v) if constant else v for v in (b, absmax)]
    return ours("MatMulBnb4", [a, *operands], {"K": k, "N": n, "block_size": block, "quant_type": kind})


def _lstm(kind: str, directions: int = 1, *, channels: bool = False, given: int = 3, lengths: bool = False,
          **attrs: Any) -> Case:  # fmt: skip
    """Of 3 rows of 4 steps of 9 numbers, 8 hidden; `given`: how many of the optional operands, of B, h, c and P."""
    columns = (directions, 32) if channels else (directions,)
    zero = np.zeros(columns, kind) if kind == "int8" else np.full(columns, 119, kind)
    low = -100 if kind == "int8" else 20
    weights = [const(RNG.integers(low, low + 200, (directions, n, 32)), kind) for n in (9, 8)]
    optional: list[Operand] = [f"f32[{directions},64]", f"f32[{directions},3,8]", f"f32[{directions},3,8]",
                               f"f32[{directions},24]"]  # fmt: skip
    optional = optional[:given] + [None] * (4 - given)
    steps: list[Operand] = []
    for scale in (0.004, 0.003):
        steps += [const(np.full(columns, scale, np.float32) * RNG.uniform(0.5, 1, columns), np.float32), const(zero)]
    long = np.array([4, 2, 3], np.int32) if lengths else None
    operands = ["f32[4,N=3,9]", *weights, optional[0], long, *optional[1:], *steps]
    return ours("DynamicQuantizeLSTM", operands, {"hidden_size": 8, **attrs}, outputs=3, low=-1, high=1, atol=0.03)


def _embed(kind: str, given: tuple[str, ...] = ()) -> Case:
    """Of 7 words, 9 positions and 3 segments, 12 numbers each."""
    low = -128 if kind == "int8" else 0
    tables = [const(RNG.integers(low, low + 256, shape), kind) for shape in ((7, 12), (9, 12), (3, 12), (12,), (12,))]
    scales = [const(RNG.uniform(0.01, 0.03, (1,) if i % 2 else ()), np.float32) for i in range(5)]
    zeros = [const(RNG.integers(low + 100, low + 150, ()), kind) for _ in range(5)]
    ids, segments = (RNG.integers(0, n, (2, 5)).astype(np.int32) for n in (7, 3))
    mask = np.array([[1, 1, 1, 0, 0], [1, 0, 2, 1, 1]], np.int32)
    operands: list[Operand] = [ids, segments, *tables, mask, *scales, *zeros]
    for i in (() if "segments" in given else (1, 4, 10, 15)):
        operands[i] = None
    if "mask" not in given:
        operands[7] = None
    return ours("QEmbedLayerNormalization", operands, {"epsilon": 1e-5}, outputs=2)


CASES = [
    _table("uint8", 7, 96, 4, 32), _table("uint8", 7, 70, 4, 16, zeros=True),
    _table("uint8", 7, 96, 2, 16, zeros=True, ids=IDS.astype(np.int32)), _table("uint8", 7, 40, 2, 16),
    _table("uint8", 7, 33, 8, 16, zeros=True), _table("uint8", 7, 64, 8, 128, ids="i64[N=2,3]"),
    _table("uint8", 7, 96, 4, 32, dtype=np.float16, zeros=True), _table("uint8", 7, 64, 4, 32, ids=np.array(5)),
    _table("uint8", 7, 64, 4, 32, ids=np.array([7, -8, 100, 0])),
    _table("uint8", 7, 64, 4, 32, ids=np.zeros((2, 0), int)),
    _table("uint8", 7, 64, 4, 16, zeros=True, constant=False), _table("uint8", 1, 64, 4, 32, ids=np.array([0, 1, -1])),
    *(_axes(kind, (7, 40), 0, 1, zeros) for kind in ("int4", "uint4") for zeros in (False, True)),
    _axes("int4", (40, 7), 1, 0, True), _axes("uint4", (3, 40, 7), 2, 1, True, np.array(2)),
    _axes("int4", (3, 7, 32), -2, -1), _axes("uint4", (40, 5), 0, 0, True),
    _axes("int4", (3, 20, 5), 1, 1, True, IDS.astype(np.int32)),
    *(_floats(kind, (7, 3), 16) for kind in NARROW if kind.startswith("float")),
    _floats("float8_e4m3fn", (7, 1), 0), _floats("float8_e5m2", (1, 3), 16, np.float16),
    _floats("float4_e2m1fn", (1, 1), 0), _floats("float8_e4m3fn", (7, 1), 0, gather_axis=1, quantize_axis=1),
    _floats("float8_e4m3fnuz", (1, 40), 16, gather_axis=1, quantize_axis=0),
    _bnb("f32[3,70]", 5, 70, 16, 0), _bnb("f32[3,70]", 5, 70, 32, 1), _bnb("f32[N=2,3,33]", 17, 33, 64, 1),
    _bnb("f32[33]", 3, 33, 16, 0), _bnb("f32[2,40]", 19, 40, 16, 1, constant=False),
    _lstm("int8"), _lstm("uint8", given=4), _lstm("int8", channels=True, given=0),
    _lstm("uint8", 2, channels=True, direction="bidirectional", lengths=True),
    _lstm("int8", direction="reverse", clip=0.5, given=1), _lstm("int8", input_forget=1),
    _lstm("int8", activations=["HardSigmoid", "LeakyRelu", "Tanh"], activation_alpha=[0.3, 0.1], activation_beta=[0.4]),
    _embed("uint8"), _embed("int8", ("segments", "mask")), _embed("uint8", ("segments",)), _embed("int8", ("mask",)),
]  # fmt: skip
