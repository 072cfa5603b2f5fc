"""ResNeXt-50 (Xie et al. 2017): residual blocks of many parallel paths, in two of the paper's equivalent forms.

Form (c) is one grouped convolution, as torchvision writes it. Form (b) spells the paths out as small convolutions whose
results are concatenated: the form in which a compiler has to find the parallelism itself.
"""

from __future__ import annotations

from .builder import ModelBuilder
from .resnet import BLOCKS, BRANCH_GAMMA


def resnext(
    b: ModelBuilder, image: str, *, cardinality: int, width: int, grouped: bool, classes: int, **_: object
) -> None:  # fmt: skip
    """image f32[N,3,H,W] → logits f32[N,classes].

    Args:
        cardinality: paths of a block. width: channels of a path in the first stage, doubled in every further one.
        grouped: form (c) instead of form (b).
    """
    x = b.conv(image, "conv1", 3, 64, 7, stride=2, gain=1.0)
    x = b.max_pool(b.op("Relu", b.batch_norm(x, "bn1", 64)), 3, 2, 1)
    channels = 64
    for stage, n_blocks in enumerate(BLOCKS[50]):
        for i in range(n_blocks):
            with b.scope(f"layer{stage + 1}.{i}"):
                inner, out, stride = width << stage, 256 << stage, 2 if stage and not i else 1
                paths = _grouped if grouped else _paths
                y = paths(b, x, channels, cardinality, inner, stride)
                y = b.conv(y, "conv3", cardinality * inner, out, 1)
                y = b.batch_norm(y, "bn3", out, gamma=BRANCH_GAMMA)
                if channels != out:
                    x = b.batch_norm(b.conv(x, "downsample.0", channels, out, 1, stride=stride), "downsample.1", out)
                x, channels = b.op("Relu", b.op("Add", y, x)), out
    b.output(b.gemm(b.global_pool(x), "fc", channels, classes, gain=4.0), "logits", [b.batch, classes])


def _grouped(b: ModelBuilder, x: str, cin: int, cardinality: int, inner: int, stride: int) -> str:
    width = cardinality * inner
    y = _unit(b, x, "1", cin, width, 1)
    return _unit(b, y, "2", width, width, 3, stride, cardinality)


def _paths(b: ModelBuilder, x: str, cin: int, cardinality: int, inner: int, stride: int) -> str:
    ends = []
    for path in range(cardinality):
        with b.scope(f"path{path}"):
            ends.append(_unit(b, _unit(b, x, "1", cin, inner, 1), "2", inner, inner, 3, stride))
    return b.op("Concat", *ends, axis=1)


def _unit(
    b: ModelBuilder, x: str, number: str, cin: int, cout: int, kernel: int, stride: int = 1, group: int = 1
) -> str:  # fmt: skip
    """Conv + BatchNormalization + Relu."""
    y = b.conv(x, f"conv{number}", cin, cout, kernel, stride=stride, group=group)
    return b.op("Relu", b.batch_norm(y, f"bn{number}", cout))
