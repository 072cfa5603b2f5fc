"""A small U-Net (Ronneberger et al. 2015): down by max pooling, up by transposed convolution or resize, then Concat."""

from __future__ import annotations

from .builder import ModelBuilder


def unet(b: ModelBuilder, image: str, *, size: int, width: int, depth: int, classes: int, up: str, **_: object) -> None:
    """image f32[N,3,size,size], size a multiple of 2**depth → per-pixel logits f32[N,classes,size,size].

    up: "transpose" (ConvTranspose 2x2) or "resize" (bilinear Resize + 1x1 convolution).
    """
    skips: list[str] = []
    x, channels = image, 3
    for level in range(depth):
        with b.scope(f"down{level}"):
            x = _double_conv(b, x, channels, width << level)
        channels = width << level
        skips.append(x)
        x = b.max_pool(x, 2, 2)
    with b.scope("bottom"):
        x = _double_conv(b, x, channels, width << depth)
    channels = width << depth
    for level in reversed(range(depth)):
        with b.scope(f"up{level}"):
            x = _upsample(b, x, channels, width << level, up)
            x = b.op("Concat", skips.pop(), x, axis=1)
            x = _double_conv(b, x, 2 * (width << level), width << level)
        channels = width << level
    b.output(b.conv(x, "head", channels, classes, 1, bias=True), "mask", [b.batch, classes, size, size])


def _upsample(b: ModelBuilder, x: str, cin: int, cout: int, up: str) -> str:
    if up == "transpose":
        w = b.weight("up.weight", b.normal(cin, cout, 2, 2, std=(2.0 / cin) ** 0.5))
        bias = b.weight("up.bias", b.normal(cout, std=0.05))
        return b.op("ConvTranspose", x, w, bias, layer="up", kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4)
    scales = b.constant([1, 1, 2, 2])
    x = b.op("Resize", x, None, scales, mode="linear", coordinate_transformation_mode="half_pixel")
    return b.conv(x, "up", cin, cout, 1, bias=True)


def _double_conv(b: ModelBuilder, x: str, cin: int, cout: int) -> str:
    for i, channels in enumerate((cin, cout)):
        x = b.conv(x, f"conv{i}", channels, cout, 3, gain=1.0 if channels == 3 else None)
        x = b.op("Relu", b.batch_norm(x, f"bn{i}", cout))
    return x
