"""The model list: for each name its body, inputs, options and a small edition. Owns names and sizes, no operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .inception import inception_bn, inception_v3
from .mobilenet import mobilenet_v1, mobilenet_v2
from .nasnet import nasnet
from .ncf import ncf
from .plain import mlp, vgg16
from .recurrent import gnmt, word_lm
from .resnet import cifar_resnet, resnet
from .resnext import resnext
from .transformer import bert, vit
from .unet import unet

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Input:
    """A graph input without its batch axis, which always comes first.

    Attributes:
        shape: option names stand for their values.
        high: for integers, the exclusive upper bound of the values, a number or an option; None for f32.
        kind: how `feeds` fills it: "image", "normal", "ids", "mask" (ones, then zeros), "length" (1..high-1).
    """

    name: str
    shape: tuple[int | str, ...]
    kind: str
    high: int | str | None = None
    dtype: type = np.float32


@dataclass(frozen=True)
class Model:
    """One row of the model list.

    Attributes:
        body: body(builder, *inputs, **options) adds the operators and declares the outputs.
        options: every option with its default.
        small: options that make an edition of the same operators for tests.
        classifies: the first output holds class scores, so that top-1 means something.
    """

    about: str
    body: Callable[..., None]
    inputs: tuple[Input, ...]
    options: Options
    small: Options = field(default_factory=dict)
    classifies: bool = False


def _image_model(about: str, body: Callable[..., None], small: Options, size: int = 224, **options: Any) -> Model:
    inputs = (Input("image", (3, "size", "size"), "image"),)
    return Model(about, body, inputs, {"size": size, "classes": 1000, **options}, small, classifies=True)


_IDS = Input("input_ids", ("length",), "ids", "vocabulary", np.int64)
_BERT_INPUTS = (
    _IDS,
    Input("attention_mask", ("length",), "mask", 2, np.int64),
    Input("token_type_ids", ("length",), "ids", 2, np.int64),
)
_GNMT_INPUTS = (
    Input("source", ("source_size",), "ids", "source_vocabulary", np.int64),
    Input("source_length", (), "length", "source_size", np.int32),
    Input("target", ("target_size",), "ids", "target_vocabulary", np.int64),
)
_CIFAR = {"size": 32, "classes": 10, "shortcut": "conv"}
_UNET = {"size": 128, "width": 32, "depth": 3, "classes": 2, "up": "transpose"}
_IMAGE = (Input("image", (3, "size", "size"), "image"),)

MODELS: dict[str, Model] = {
    "resnet18": _image_model("ResNet-18", resnet, {"size": 64}, depth=18),
    "resnet50": _image_model("ResNet-50 v1.5", resnet, {"size": 64}, depth=50),
    "resnet101": _image_model("ResNet-101 v1.5", resnet, {"size": 64}, depth=101),
    "vgg16": _image_model("VGG-16", vgg16, {"size": 32, "hidden": 256}, hidden=4096),
    "mobilenet-v1": _image_model("MobileNet v1", mobilenet_v1, {"size": 96}),
    "mobilenet-v2": _image_model("MobileNet v2", mobilenet_v2, {"size": 96}),
    "inception-bn": _image_model("Inception-BN", inception_bn, {"size": 64}),
    "inception-v3": _image_model("Inception v3 (its paper's size is 299)", inception_v3, {"size": 96}),
    "nasnet": _image_model(
        "NASNet-A mobile (4 @ 1056)", nasnet, {"size": 64, "cells": 1, "width": 16}, cells=4, width=44
    ),
    "resnext50": _image_model(
        "ResNeXt-50 32x4d, grouped", resnext, {"size": 64}, cardinality=32, width=4, grouped=True
    ),
    "resnext50-paths": _image_model(
        "ResNeXt-50 8x16d, every path spelled out", resnext, {"size": 64}, cardinality=8, width=16, grouped=False
    ),
    "cifar-resnet20": Model("CIFAR ResNet-20", cifar_resnet, _IMAGE, _CIFAR | {"depth": 20}, {}, True),
    "cifar-resnet56": Model(
        "CIFAR ResNet-56, shortcuts without weights", cifar_resnet, _IMAGE,
        _CIFAR | {"depth": 56, "shortcut": "pad"}, {"depth": 14}, True,
    ),
    "word-lm": Model(
        "word language model, 2 x LSTM 650", word_lm, (_IDS,),
        {"vocabulary": 10000, "hidden": 650, "layers": 2, "length": 35, "tied": True},
        {"vocabulary": 500, "hidden": 50, "length": 7},
    ),
    "gnmt": Model(
        "GNMT, 8-layer LSTM encoder and decoder, attention, hidden 128", gnmt, _GNMT_INPUTS,
        {"source_vocabulary": 17191, "target_vocabulary": 7709, "hidden": 128, "layers": 8, "source_size": 30,
         "target_size": 30},
        {"source_vocabulary": 300, "target_vocabulary": 200, "hidden": 32, "layers": 3, "source_size": 9,
         "target_size": 7},
    ),
    "ncf": Model(
        "NeuMF on MovieLens-1M", ncf, (Input("user", (), "ids", "users", np.int64),
                                       Input("item", (), "ids", "items", np.int64)),
        {"users": 6040, "items": 3706, "factors": 64, "width": 256},
    ),
    "bert-base": Model(
        "BERT-base, S=128 (length=S: symbolic)", bert, _BERT_INPUTS,
        {"layers": 12, "hidden": 768, "heads": 12, "length": 128, "vocabulary": 30522, "positions": 512,
         "norm": "fused"},
        {"layers": 2, "hidden": 96, "heads": 3, "length": "S", "vocabulary": 300, "norm": "decomposed"},
    ),
    "vit": Model(
        "ViT-B/16", vit, _IMAGE,
        {"size": 224, "patch": 16, "layers": 12, "hidden": 768, "heads": 12, "classes": 1000, "norm": "fused"},
        {"size": 64, "layers": 2, "hidden": 96, "heads": 3}, True,
    ),
    "unet": Model("small U-Net, ConvTranspose", unet, _IMAGE, _UNET, {"size": 32, "width": 8}),
    "unet-resize": Model(
        "small U-Net, bilinear Resize", unet, _IMAGE, _UNET | {"up": "resize"}, {"size": 32, "width": 8}
    ),
    "mlp": Model(
        "perceptron 784-512-512-10", mlp, (Input("x", ("features",), "normal"),),
        {"features": 784, "hidden": 512, "layers": 2, "classes": 10}, {}, True,
    ),
}  # fmt: skip
