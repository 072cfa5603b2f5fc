"""MobileNet-v1 (Howard et al. 2017) and v2 (Sandler et al. 2018), width multiplier 1."""

from __future__ import annotations

from .builder import ModelBuilder

V1 = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
    (512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip
"""(output channels, stride) of each depthwise + pointwise pair."""

V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""(expansion, output channels, repeats, first stride) of each group of inverted residuals."""


def mobilenet_v1(b: ModelBuilder, image: str, *, classes: int, **_: object) -> None:
    """image f32[N,3,H,W] → logits f32[N,classes]."""
    x, channels = b.conv(image, "features.0.conv", 3, 32, 3, stride=2, gain=1.0), 32
    x = b.op("Relu", b.batch_norm(x, "features.0.bn", channels))
    for i, (width, stride) in enumerate(V1, 1):
        with b.scope(f"features.{i}"):
            x = b.conv(x, "depthwise", channels, channels, 3, stride=stride, group=channels, centred=False)
            x = b.op("Relu", b.batch_norm(x, "depthwise_bn", channels))
            x = b.op("Relu", b.batch_norm(b.conv(x, "pointwise", channels, width, 1), "pointwise_bn", width))
        channels = width
    b.output(b.gemm(b.global_pool(x), "classifier", channels, classes, gain=4.0), "logits", [b.batch, classes])


def mobilenet_v2(b: ModelBuilder, image: str, *, classes: int, **_: object) -> None:
    """image f32[N,3,H,W] → logits f32[N,classes]; ReLU6 is Clip(0, 6)."""
    x, channels = b.conv(image, "features.0.0", 3, 32, 3, stride=2, gain=1.0), 32
    x = _relu6(b, b.batch_norm(x, "features.0.1", channels))
    index = 1
    for expansion, width, repeats, first_stride in V2:
        for i in range(repeats):
            with b.scope(f"features.{index}.conv"):
                x = _inverted_residual(b, x, channels, width, first_stride if i == 0 else 1, expansion)
            channels, index = width, index + 1
    x = _relu6(b, b.batch_norm(b.conv(x, f"features.{index}.0", channels, 1280, 1), f"features.{index}.1", 1280))
    b.output(b.gemm(b.global_pool(x), "classifier.1", 1280, classes, gain=4.0), "logits", [b.batch, classes])


def _inverted_residual(b: ModelBuilder, x: str, cin: int, cout: int, stride: int, expansion: int) -> str:
    y, hidden = x, cin * expansion
    if expansion != 1:  # the input is linear, not rectified: variance 1 / fan-in keeps its scale
        y = _relu6(b, b.batch_norm(b.conv(y, "0.0", cin, hidden, 1, gain=1.0), "0.1", hidden))
    y = b.conv(y, "1.0", hidden, hidden, 3, stride=stride, group=hidden, centred=False)
    y = _relu6(b, b.batch_norm(y, "1.1", hidden))
    residual = stride == 1 and cin == cout
    y = b.batch_norm(b.conv(y, "2", hidden, cout, 1), "3", cout, gamma=0.6 if residual else 1.0)
    return b.op("Add", x, y) if residual else y


def _relu6(b: ModelBuilder, x: str) -> str:
    return b.op("Clip", x, b.constant(0.0), b.constant(6.0))
