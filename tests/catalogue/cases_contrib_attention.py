"""Cases of ONNX Runtime's attention, against ONNX Runtime."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from catalogue.cases import Case, Operand, case, const

RNG = np.random.default_rng(37)
ours = partial(case, domain="com.microsoft", oracle="onnxruntime")
N, S, PAST = 2, 5, 3


def _mask(*shape: int) -> np.ndarray:
    """Zeros and ones, of which the first of each row is one."""
    mask = RNG.integers(0, 2, shape)
    mask[..., 0] = 1
    return mask.astype(np.int32)


def _filled(*operands: Operand) -> list[Operand]:
    """Operands without those that are left out at the end."""
    given = list(operands)
    while given[-1] is None:
        given.pop()
    return given


def _attention(mask: np.ndarray | None = None, bias: str | None = "f32[72]", past: str | None = None,
               added: str | None = None, x: str = "f32[2,5,7]", columns: int = 72, outputs: int = 1,
               **attrs: Any) -> Case:  # fmt: skip
    operands = _filled(x, f"f32[7,{columns}]", bias, mask, past, added)
    return ours("Attention", operands, {"num_heads": 3, **attrs}, outputs=outputs)


def _quantised(weights: str = "i8", mask: np.ndarray | None = None, columns: bool = False, past: str | None = None,
               outputs: int = 1, **attrs: Any) -> Case:  # fmt: skip
    kind = np.int8 if weights == "i8" else np.uint8
    w = const(RNG.integers(-50 if weights == "i8" else 0, 50, (7, 72)), kind)
    scale = const(RNG.uniform(0.001, 0.01, 72), np.float32) if columns else const(0.005)
    zero = const(RNG.integers(0, 9, 72), kind) if columns else const(3, kind)
    operands = ["u8[2,5,7]", w, const(RNG.uniform(-1, 1, 72), np.float32), const(0.02), scale, mask,
                const(100, np.uint8), zero, past]  # fmt: skip
    return ours("QAttention", _filled(*operands), {"num_heads": 3, **attrs}, low=0, high=256 if past is None else 2,
                outputs=outputs)  # fmt: skip


def _heads(query: str = "f32[2,5,24]", key: str | None = "f32[2,4,24]", value: str | None = "f32[2,4,24]",
           bias: str | None = None, mask: np.ndarray | None = None, added: str | None = None, past: str | None = None,
           outputs: int = 1, **attrs: Any) -> Case:  # fmt: skip
    operands = _filled(query, key, value, bias, mask, added, past, past)
    return ours("MultiHeadAttention", operands, {"num_heads": 3, **attrs}, outputs=outputs)


def _grouped(new: str, total: int, lengths: list[int], past: int | None = None, rotated: int = 0,
             ids: Any = None, bias: str | None = None, sink: bool = False, packed: bool = False, size: int = 16,
             **attrs: Any) -> Case:  # fmt: skip
    """Of 4 queries to 2 keys. ONNX Runtime rotates heads of 16 numbers and more."""
    n = "N=2" if "N" in new else str(len(lengths))
    cache = None if past is None else f"f32[{n},2,{past},{size}]"
    tables = f"f32[16,{rotated // 2}]" if rotated else None
    query, keys = f"f32[{new},{(8 if packed else 4) * size}]", None if packed else f"f32[{new},{2 * size}]"
    operands = [query, keys, keys, cache, cache, np.array(lengths, np.int32) - 1, const(total, np.int32), tables,
                tables, None if ids is None else np.array(ids), bias, "f32[4]" if sink else None]  # fmt: skip
    attrs = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": int(rotated > 0), **attrs}
    return ours("GroupQueryAttention", _filled(*operands), attrs, outputs=3)


LENGTHS, STARTS = np.array([4, 5], np.int32), np.array([4, 5, 0, 2], np.int32)
PACKED = np.array([4, 2, 0, 5, 10, 0, 4, 6], np.int32)
OLD = "f32[2,2,3,3,8]"

CASES = [
    _attention(), _attention(bias=None), _attention(unidirectional=1), _attention(scale=0.3),
    _attention(x="f32[N=2,S=5,7]"), _attention(x="f32[N=2,5,7]", unidirectional=1), _attention(x="f32[1,1,7]"),
    _attention(LENGTHS), _attention(STARTS), _attention(PACKED), _attention(_mask(2, 5)), _attention(_mask(2, 5, 5)),
    _attention(_mask(2, 5), unidirectional=1), _attention(_mask(2, 5, 5), unidirectional=1),
    _attention(STARTS, unidirectional=1), _attention(_mask(2, 5), mask_filter_value=-2.0),
    _attention(LENGTHS, mask_filter_value=-1.5, unidirectional=1),
    _attention(x="f32[N=2,S=5,7]", mask=_mask(2, 5)), _attention(x="f32[N=2,S=5,7]", mask=LENGTHS),
    _attention(added="f32[2,3,5,5]"), _attention(_mask(2, 5), added="f32[1,1,5,5]", unidirectional=1),
    _attention(columns=66, bias="f32[66]", qkv_hidden_sizes=[24, 24, 18]),
    _attention(outputs=2), _attention(past=OLD, outputs=2), _attention(past=OLD, outputs=2, unidirectional=1),
    _attention(_mask(2, 8), past=OLD, outputs=2, unidirectional=1), _attention(_mask(2, 5, 8), past=OLD, outputs=2),
    _attention(np.array([7, 8], np.int32), past=OLD, outputs=2),
    _attention(past="f32[2,2,3,P=3,8]", outputs=2, unidirectional=1),
    _attention(past="f32[2,2,3,0,8]", outputs=2, unidirectional=1),
    _heads(), _heads(bias="f32[72]"), _heads(bias="f32[66]", value="f32[2,4,18]"), _heads(scale=0.2),
    _heads(mask=np.array([3, 4], np.int32)), _heads(mask=_mask(2, 4)), _heads(mask=_mask(2, 5, 4)),
    _heads(mask=_mask(2, 4), mask_filter_value=-1.0), _heads(added="f32[1,3,5,4]"), _heads(outputs=3),
    _heads("f32[N=2,S=5,24]", "f32[N=2,L=4,24]", "f32[N=2,L=4,24]", mask=_mask(2, 4)),
    _heads("f32[2,5,24]", "f32[2,5,24]", "f32[2,5,24]", unidirectional=1),
    _heads("f32[2,5,24]", "f32[2,5,24]", "f32[2,5,24]", "f32[72]", past="f32[2,3,6,8]", outputs=3, unidirectional=1),
    _heads("f32[N=2,1,24]", "f32[N=2,1,24]", "f32[N=2,1,24]", past="f32[N=2,3,P=6,8]", outputs=3),
    _heads("f32[2,2,24]", "f32[2,2,24]", "f32[2,2,24]", mask=_mask(2, 8), past="f32[2,3,6,8]", outputs=3),
    _heads(key="f32[2,3,4,8]", value="f32[2,3,4,8]"), _heads(key="f32[2,3,4,8]", value="f32[2,3,4,8]", bias="f32[72]"),
    _heads("f32[2,12,24]", "f32[2,40,24]", "f32[2,40,24]", mask=_mask(2, 40)),
    _grouped("2,5", 5, [5, 5]), _grouped("2,5", 5, [5, 3]), _grouped("2,5", 5, [5, 3], packed=True, scale=0.2),
    _grouped("2,1", 7, [7, 5], 6), _grouped("2,1", 7, [7, 5], 10), _grouped("2,1", 7, [7, 5], 7),
    _grouped("2,5", 5, [5, 3], 10), _grouped("1,3", 9, [9], 6), _grouped("N=2,1", 7, [7, 5], 6),
    _grouped("2,5", 5, [5, 3], rotated=16), _grouped("1,3", 9, [9], 6, 16, rotary_interleaved=1),
    _grouped("2,1", 7, [7, 5], 6, 16, size=32), _grouped("2,1", 7, [7, 5], 6, 16, [[3], [9]]),
    _grouped("2,3", 3, [3, 3], rotated=16, ids=[[2, 3, 4], [1, 4, 2]]), _grouped("1,2", 8, [8], 6, 16, [[3, 9]]),
    _grouped("2,5", 5, [5, 5], local_window_size=2), _grouped("2,1", 7, [7, 5], 6, local_window_size=3),
    _grouped("2,5", 5, [5, 3], softcap=0.5), _grouped("2,5", 5, [5, 3], smooth_softmax=1),
    _grouped("2,5", 5, [5, 3], sink=True), _grouped("2,5", 5, [5, 3], causal=0), _grouped("1,3", 9, [9], 6, causal=0),
    _grouped("2,5", 5, [5, 3], bias="f32[2,4,5,5]", softcap=0.5), _grouped("2,1", 7, [7, 5], 10, bias="f32[1,1,1,7]"),
    _grouped("2,40", 40, [40, 31]),
    _quantised(), _quantised("u8"), _quantised(columns=True), _quantised(mask=LENGTHS, unidirectional=1),
    _quantised(mask=_mask(2, 5)), _quantised(past=OLD, outputs=2, unidirectional=1, scale=0.2),
]  # fmt: skip
