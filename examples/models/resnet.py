"""ResNet 18/50/101 for ImageNet and 20/56 for CIFAR-10 (He et al. 2015, "Deep residual learning").

The ImageNet nets put the stride on the 3x3 convolution of a bottleneck, as torchvision does (v1.5).
"""

from __future__ import annotations

import numpy as np

from .builder import ModelBuilder

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
BRANCH_GAMMA = 0.25
"""Scale of the last normalisation of a residual branch: small, so that rounding errors do not grow."""


def resnet(b: ModelBuilder, image: str, *, depth: int, classes: int, **_: object) -> None:
    """image f32[N,3,H,W] → logits f32[N,classes]."""
    x = b.conv(image, "conv1", 3, 64, 7, stride=2, gain=1.0)
    x = b.op("Relu", b.batch_norm(x, "bn1", 64))
    x = b.max_pool(x, 3, 2, 1)
    channels = 64
    block, expansion = (_basic, 1) if depth < 50 else (_bottleneck, 4)
    for stage, n_blocks in enumerate(BLOCKS[depth]):
        for i in range(n_blocks):
            width = 64 << stage
            with b.scope(f"layer{stage + 1}.{i}"):
                x = block(b, x, channels, width, 2 if stage and not i else 1)
            channels = width * expansion
    b.output(b.gemm(b.global_pool(x), "fc", channels, classes, gain=4.0), "logits", [b.batch, classes])


def cifar_resnet(b: ModelBuilder, image: str, *, depth: int, classes: int, shortcut: str, **_: object) -> None:
    """image f32[N,3,32,32] → logits f32[N,classes]; shortcut: "conv" (1x1) or "pad" (strided slice + zero channels)."""
    x = b.op("Relu", b.batch_norm(b.conv(image, "conv1", 3, 16, 3, gain=1.0), "bn1", 16))
    channels = 16
    for stage in range(3):
        for i in range((depth - 2) // 6):
            width = 16 << stage
            with b.scope(f"layer{stage + 1}.{i}"):
                x = _basic(b, x, channels, width, 2 if stage and not i else 1, shortcut)
            channels = width
    b.output(b.gemm(b.global_pool(x), "fc", channels, classes, gain=4.0), "logits", [b.batch, classes])


def _basic(b: ModelBuilder, x: str, cin: int, width: int, stride: int, shortcut: str = "conv") -> str:
    y = b.op("Relu", b.batch_norm(b.conv(x, "conv1", cin, width, 3, stride=stride), "bn1", width))
    y = b.batch_norm(b.conv(y, "conv2", width, width, 3), "bn2", width, gamma=BRANCH_GAMMA)
    return b.op("Relu", b.op("Add", y, _shortcut(b, x, cin, width, stride, shortcut)))


def _bottleneck(b: ModelBuilder, x: str, cin: int, width: int, stride: int) -> str:
    y = b.op("Relu", b.batch_norm(b.conv(x, "conv1", cin, width, 1), "bn1", width))
    y = b.op("Relu", b.batch_norm(b.conv(y, "conv2", width, width, 3, stride=stride), "bn2", width))
    y = b.batch_norm(b.conv(y, "conv3", width, 4 * width, 1), "bn3", 4 * width, gamma=BRANCH_GAMMA)
    return b.op("Relu", b.op("Add", y, _shortcut(b, x, cin, 4 * width, stride, "conv")))


def _shortcut(b: ModelBuilder, x: str, cin: int, cout: int, stride: int, kind: str) -> str:
    if cin == cout and stride == 1:
        return x
    if kind == "conv":
        return b.batch_norm(b.conv(x, "downsample.0", cin, cout, 1, stride=stride), "downsample.1", cout)
    starts, ends = b.constant([0, 0], np.int64), b.constant([2**63 - 1] * 2, np.int64)
    x = b.op("Slice", x, starts, ends, b.constant([2, 3], np.int64), b.constant([stride, stride], np.int64))
    before = (cout - cin) // 2
    return b.op("Pad", x, b.constant([0, before, 0, 0, 0, cout - cin - before, 0, 0], np.int64), mode="constant")
