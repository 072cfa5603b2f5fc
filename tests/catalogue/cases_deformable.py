"""Cases of DeformConv."""

from __future__ import annotations

from typing import Any

from catalogue.cases import Case, case

RUNTIME = {"oracle": "onnxruntime", "opset": 22}  # onnx.reference has two axes only, and grids in other places


def _planes(dtype: str, channels: int, out: int, kernel: tuple[int, int], size: tuple[int, int],
            positions: tuple[int, int], bias: bool, mask: bool, n: str = "2", **attrs: Any) -> Case:  # fmt: skip
    taps, (h, w), (oh, ow) = kernel[0] * kernel[1] * attrs.get("offset_group", 1), size, positions
    group = attrs.get("group", 1)
    return case("DeformConv", [
        f"{dtype}[{n},{channels},{h},{w}]", f"{dtype}[{out},{channels // group},{kernel[0]},{kernel[1]}]",
        f"{dtype}[{n},{taps * 2},{oh},{ow}]", f"{dtype}[{out}]" if bias else None,
        *([f"{dtype}[{n},{taps},{oh},{ow}]"] if mask else [])], attrs, **RUNTIME)  # fmt: skip


CASES = [
    _planes("f32", 3, 4, (3, 3), (9, 11), (7, 9), bias=False, mask=False),
    _planes("f32", 4, 6, (3, 2), (8, 21), (5, 21), bias=True, mask=True, group=2, offset_group=4, strides=[2, 1],
            pads=[2, 1, 1, 0]),
    _planes("f32", 6, 4, (2, 3), (12, 20), (11, 16), bias=True, mask=False, offset_group=3, dilations=[1, 2]),
    _planes("f32", 2, 2, (1, 1), (5, 40), (5, 40), bias=False, mask=True, group=2, kernel_shape=[1, 1]),
    _planes("f64", 3, 2, (3, 3), (6, 7), (4, 5), bias=True, mask=True, n="1"),
    _planes("f32", 3, 2, (3, 3), (6, 7), (4, 5), bias=True, mask=True, n="N=3"),
    # the reference adds halves
    case("DeformConv", ["f16[1,2,5,6]", "f16[3,2,2,2]", "f16[1,8,4,5]"], opset=22, rtol=3e-2, atol=3e-2),
]
