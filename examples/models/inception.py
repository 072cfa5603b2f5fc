"""Inception-BN (Ioffe & Szegedy 2015) as in MXNet's examples, Inception-v3 (Szegedy et al. 2015) as in torchvision.

Both have convolution branches of different kernel shapes whose results are concatenated over channels.
"""

from __future__ import annotations

from .builder import ModelBuilder

BN_BLOCKS = (
    ("3a", 64, 64, 64, 64, 96, 32), ("3b", 64, 64, 96, 64, 96, 64), ("3c", 0, 128, 160, 64, 96, 0),
    ("4a", 224, 64, 96, 96, 128, 128), ("4b", 192, 96, 128, 96, 128, 128), ("4c", 160, 128, 160, 128, 160, 128),
    ("4d", 96, 128, 192, 160, 192, 128), ("4e", 0, 128, 192, 192, 256, 0),
    ("5a", 352, 192, 320, 160, 224, 128), ("5b", 352, 192, 320, 192, 224, 128),
)  # fmt: skip
"""Name, 1x1, 3x3 reduce, 3x3, double 3x3 reduce, double 3x3, pool projection. No 1x1 branch: the map is halved."""


def inception_bn(b: ModelBuilder, image: str, *, classes: int, **_: object) -> None:
    """image f32[N,3,H,W] → logits f32[N,classes]; convolutions have a bias before the normalisation, as in MXNet."""
    x = b.max_pool(_unit(b, image, "1", 3, 64, 7, 2, bias=True, gain=1.0), 3, 2, ceil=True)
    x = _unit(b, _unit(b, x, "2_red", 64, 64, 1, bias=True), "2", 64, 192, 3, bias=True)
    x, channels = b.max_pool(x, 3, 2, ceil=True), 192
    for block in BN_BLOCKS:
        with b.scope(block[0]):
            x, channels = _bn_block(b, x, channels, *block[1:], max_pool=block[0] == "5b")
    b.output(b.gemm(b.global_pool(x), "fc1", channels, classes, gain=4.0), "logits", [b.batch, classes])


def _bn_block(
    b: ModelBuilder, x: str, cin: int, c1: int, r3: int, c3: int, rd3: int, cd3: int, proj: int, *, max_pool: bool
) -> tuple[str, int]:
    stride = 1 if c1 else 2
    y3 = _unit(b, _unit(b, x, "3x3_reduce", cin, r3, 1, bias=True), "3x3", r3, c3, 3, stride, bias=True)
    yd = _unit(b, _unit(b, x, "d3x3_reduce", cin, rd3, 1, bias=True), "d3x3_0", rd3, cd3, 3, bias=True)
    yd = _unit(b, yd, "d3x3_1", cd3, cd3, 3, stride, bias=True)
    if not c1:
        return b.op("Concat", y3, yd, b.max_pool(x, 3, 2, 1), axis=1), c3 + cd3 + cin
    y1 = _unit(b, x, "1x1", cin, c1, 1, bias=True)
    pooled = b.max_pool(x, 3, 1, 1) if max_pool else b.average_pool(x, 3, 1, 1)
    yp = _unit(b, pooled, "proj", cin, proj, 1, bias=True)
    return b.op("Concat", y1, y3, yd, yp, axis=1), c1 + c3 + cd3 + proj


def inception_v3(b: ModelBuilder, image: str, *, classes: int, **_: object) -> None:
    """image f32[N,3,H,W], H and W at least 75 → logits f32[N,classes]; no auxiliary head."""
    x = _unit(b, image, "Conv2d_1a_3x3", 3, 32, 3, 2, 0, gain=1.0)
    x = _unit(b, x, "Conv2d_2a_3x3", 32, 32, 3, 1, 0)
    x = b.max_pool(_unit(b, x, "Conv2d_2b_3x3", 32, 64, 3), 3, 2)
    x = _unit(b, _unit(b, x, "Conv2d_3b_1x1", 64, 80, 1), "Conv2d_4a_3x3", 80, 192, 3, 1, 0)
    x, channels = b.max_pool(x, 3, 2), 192
    for name, pool_width in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        with b.scope(name):
            x, channels = _v3_a(b, x, channels, pool_width)
    with b.scope("Mixed_6a"):
        x, channels = _v3_b(b, x, channels)
    for name, width in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        with b.scope(name):
            x, channels = _v3_c(b, x, channels, width)
    with b.scope("Mixed_7a"):
        x, channels = _v3_d(b, x, channels)
    for name in ("Mixed_7b", "Mixed_7c"):
        with b.scope(name):
            x, channels = _v3_e(b, x, channels)
    b.output(b.gemm(b.global_pool(x), "fc", channels, classes, gain=4.0), "logits", [b.batch, classes])


def _v3_a(b: ModelBuilder, x: str, cin: int, pool_width: int) -> tuple[str, int]:
    y1 = _unit(b, x, "branch1x1", cin, 64, 1)
    y5 = _unit(b, _unit(b, x, "branch5x5_1", cin, 48, 1), "branch5x5_2", 48, 64, 5)
    y3 = _unit(b, _unit(b, x, "branch3x3dbl_1", cin, 64, 1), "branch3x3dbl_2", 64, 96, 3)
    y3 = _unit(b, y3, "branch3x3dbl_3", 96, 96, 3)
    yp = _unit(b, b.average_pool(x, 3, 1, 1), "branch_pool", cin, pool_width, 1)
    return b.op("Concat", y1, y5, y3, yp, axis=1), 224 + pool_width


def _v3_b(b: ModelBuilder, x: str, cin: int) -> tuple[str, int]:
    y3 = _unit(b, x, "branch3x3", cin, 384, 3, 2, 0)
    yd = _unit(b, _unit(b, x, "branch3x3dbl_1", cin, 64, 1), "branch3x3dbl_2", 64, 96, 3)
    yd = _unit(b, yd, "branch3x3dbl_3", 96, 96, 3, 2, 0)
    return b.op("Concat", y3, yd, b.max_pool(x, 3, 2), axis=1), 480 + cin


def _v3_c(b: ModelBuilder, x: str, cin: int, width: int) -> tuple[str, int]:
    y1 = _unit(b, x, "branch1x1", cin, 192, 1)
    y7 = _chain(b, x, "branch7x7", cin, [(width, 1), (width, (1, 7)), (192, (7, 1))])
    kernels: list[int | tuple[int, int]] = [1, (7, 1), (1, 7), (7, 1), (1, 7)]
    widths = [width, width, width, width, 192]
    yd = _chain(b, x, "branch7x7dbl", cin, list(zip(widths, kernels, strict=True)))
    yp = _unit(b, b.average_pool(x, 3, 1, 1), "branch_pool", cin, 192, 1)
    return b.op("Concat", y1, y7, yd, yp, axis=1), 768


def _v3_d(b: ModelBuilder, x: str, cin: int) -> tuple[str, int]:
    y3 = _unit(b, _unit(b, x, "branch3x3_1", cin, 192, 1), "branch3x3_2", 192, 320, 3, 2, 0)
    y7 = _chain(b, x, "branch7x7x3", cin, [(192, 1), (192, (1, 7)), (192, (7, 1))])
    y7 = _unit(b, y7, "branch7x7x3_4", 192, 192, 3, 2, 0)
    return b.op("Concat", y3, y7, b.max_pool(x, 3, 2), axis=1), 512 + cin


def _v3_e(b: ModelBuilder, x: str, cin: int) -> tuple[str, int]:
    y1 = _unit(b, x, "branch1x1", cin, 320, 1)
    y3 = _unit(b, x, "branch3x3_1", cin, 384, 1)
    y3 = b.op("Concat", *(_unit(b, y3, f"branch3x3_2{s}", 384, 384, k) for s, k in _SPLIT), axis=1)
    yd = _unit(b, _unit(b, x, "branch3x3dbl_1", cin, 448, 1), "branch3x3dbl_2", 448, 384, 3)
    yd = b.op("Concat", *(_unit(b, yd, f"branch3x3dbl_3{s}", 384, 384, k) for s, k in _SPLIT), axis=1)
    yp = _unit(b, b.average_pool(x, 3, 1, 1), "branch_pool", cin, 192, 1)
    return b.op("Concat", y1, y3, yd, yp, axis=1), 2048


_SPLIT: tuple[tuple[str, tuple[int, int]], ...] = (("a", (1, 3)), ("b", (3, 1)))


def _chain(
    b: ModelBuilder, x: str, name: str, cin: int, layers: list[tuple[int, int | tuple[int, int]]]
) -> str:  # fmt: skip
    for i, (width, kernel) in enumerate(layers, 1):
        x = _unit(b, x, f"{name}_{i}", cin, width, kernel)
        cin = width
    return x


def _unit(
    b: ModelBuilder, x: str, name: str, cin: int, cout: int, kernel: int | tuple[int, int], stride: int = 1,
    pad: int | None = None, *, bias: bool = False, gain: float | None = None,
) -> str:  # fmt: skip
    """Conv + BatchNormalization + Relu."""
    x = b.conv(x, f"{name}.conv", cin, cout, kernel, stride=stride, pad=pad, bias=bias, gain=gain)
    return b.op("Relu", b.batch_norm(x, f"{name}.bn", cout, epsilon=1e-3))
