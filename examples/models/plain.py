"""Networks without side branches: VGG16 (Simonyan & Zisserman 2014) and a multi-layer perceptron."""

from __future__ import annotations

from .builder import RECTIFIED, ModelBuilder

VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(b: ModelBuilder, image: str, *, size: int, classes: int, hidden: int, **_: object) -> None:
    """image f32[N,3,size,size], size a multiple of 32 → logits f32[N,classes]."""
    x, channels, index = image, 3, 0
    for stage in VGG16:
        for width in stage:
            x = b.op("Relu", b.conv(x, f"features.{index}", channels, width, 3, bias=True, centred=False))
            channels, index = width, index + 2
        x = b.max_pool(x, 2, 2)
        index += 1
    x = b.op("Flatten", x, axis=1)
    x = b.op("Relu", b.gemm(x, "classifier.0", channels * (size // 32) ** 2, hidden, gain=1.0))
    x = b.op("Relu", b.gemm(x, "classifier.3", hidden, hidden, gain=RECTIFIED))
    b.output(b.gemm(x, "classifier.6", hidden, classes), "logits", [b.batch, classes])


def mlp(b: ModelBuilder, x: str, *, features: int, hidden: int, layers: int, classes: int, **_: object) -> None:
    """x f32[N,features] → logits f32[N,classes]."""
    width = features
    for i in range(layers):
        x = b.op("Relu", b.gemm(x, f"layers.{2 * i}", width, hidden, gain=RECTIFIED))
        width = hidden
    b.output(b.gemm(x, f"layers.{2 * layers}", width, classes, gain=RECTIFIED), "logits", [b.batch, classes])
