"""Small networks of five kinds, as one writes them in PyTorch, that both sides of `training_curves` train."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as nnf


def normalised(before: int, after: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution and BatchNorm."""
    conv = nn.Conv2d(before, after, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after))


class Residual(nn.Module):
    """Two convolutions and a way around them (He et al., 2015)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = normalised(before, after, 3, stride), normalised(after, after, 3)
        self.around = nn.Identity() if before == after and stride == 1 else normalised(before, after, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.around(x))


class ResNet(nn.Module):
    """f32[N, 1, H, W] → scores [N, classes]."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = normalised(1, 16, 3)
        self.blocks = nn.Sequential(Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2))
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(torch.relu(self.stem(x))).mean((2, 3)))


class Separable(nn.Module):
    """A depthwise and a pointwise convolution (Howard et al., 2017)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.depthwise, self.pointwise = normalised(before, before, 3, stride, before), normalised(before, after, 1)

    def forward(self, x: Tensor) -> Tensor:
        return nnf.relu6(self.pointwise(nnf.relu6(self.depthwise(x))))


class MobileNet(nn.Module):
    """f32[N, 1, H, W] → scores [N, classes]."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = normalised(1, 16, 3)
        self.blocks = nn.Sequential(Separable(16, 32, 1), Separable(32, 64, 2), Separable(64, 64, 1))
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(nnf.relu6(self.stem(x))).mean((2, 3)))


class UNet(nn.Module):
    """f32[N, 1, H, W] → scores of every place [N, classes, H, W] (Ronneberger et al., 2015), two halvings deep."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.top, self.middle, self.bottom = normalised(1, 8, 3), normalised(8, 16, 3), normalised(16, 32, 3)
        self.up2, self.join2 = nn.ConvTranspose2d(32, 16, 2, 2), normalised(32, 16, 3)
        self.up1, self.join1 = nn.ConvTranspose2d(16, 8, 2, 2), normalised(16, 8, 3)
        self.head = nn.Conv2d(8, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = torch.relu(self.top(x))
        b = torch.relu(self.middle(nnf.max_pool2d(a, 2)))
        c = torch.relu(self.bottom(nnf.max_pool2d(b, 2)))
        b = torch.relu(self.join2(torch.cat([b, self.up2(c)], 1)))
        return self.head(torch.relu(self.join1(torch.cat([a, self.up1(b)], 1))))


class Recurrent(nn.Module):
    """Characters i64[N, T] → scores of the next ones [N, classes, T], by an LSTM layer."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(classes, 32), nn.LSTM(32, 96, batch_first=True)
        self.head = nn.Linear(96, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(x))[0]).transpose(1, 2)


class Transformer(nn.Module):
    """Characters i64[N, T] → scores of the next ones [N, classes, T], by two blocks (Vaswani et al., 2017)."""

    def __init__(self, classes: int, length: int, width: int = 48) -> None:
        super().__init__()
        self.embedding, self.place = nn.Embedding(classes, width), nn.Parameter(torch.randn(length, width) / 10)
        self.blocks = nn.Sequential(Attending(width, length), Attending(width, length))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embedding(x) + self.place))).transpose(1, 2)


class Attending(nn.Module):
    """Attention of three heads to what came before, and a layer that is wider, each around a normalisation."""

    HEADS = 3

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inside, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.register_buffer("later", torch.full((length, length), -1e4).triu(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.inside(self.norm1(x)).unflatten(2, (3, self.HEADS, -1)).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + self.later, -1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + self.narrow(nnf.gelu(self.wide(self.norm2(x))))
