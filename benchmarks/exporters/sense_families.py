"""Families of networks that see and hear: torchvision's, timm's, and those of `transformers` and `diffusers`, small.

Owns which settings make each small; detectors are in `detection`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from .sources import Traced
from .text_families import LENGTH, TOKENS, USUAL, VOCABULARY, model_of, named
from .torchvision_operators import torchvision
from .vision import classifier

TORCHVISION = ("vgg11", "densenet121", "googlenet", "shufflenet_v2_x0_5", "mnasnet0_5", "regnet_y_400mf")
LARGE = {"vgg11": 224}
"""Height and width where they are not 64: the exporter needs a multiple of what pooling leaves."""
SEGMENTING = ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "fcn_resnet50")
TIMM = {"mobilevit_xxs": 128, "ghostnet_050": 96, "vit_tiny_patch16_224": 224, "mixer_s32_224": 224, "levit_128s": 224,
        "poolformer_s12": 96, "edgenext_xx_small": 128, "hrnet_w18_small": 96, "res2net50_26w_4s": 96,
        "repvgg_a0": 96}  # fmt: skip
"""Model of timm → height and width of its pictures."""
HEADS = {"hidden_sizes": [16, 32, 64, 64], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4],
         "decoder_hidden_size": 32}  # fmt: skip
PICTURES: Mapping[str, Mapping[str, Any]] = {
    "vit": {**USUAL, "image_size": 32, "patch_size": 8},
    "swin-hf": {"image_size": 64, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    "segformer": HEADS,
}
TWO = {"text_config": {**TOKENS, **USUAL}, "vision_config": {**USUAL, "image_size": 32, "patch_size": 8}}


def _torchvision(name: str) -> Traced:
    torch.manual_seed(0)
    options = {"aux_logits": False, "init_weights": True} if name == "googlenet" else {}
    return classifier(getattr(torchvision().models, name)(weights=None, **options), LARGE.get(name, 64))


def _timm(name: str) -> Traced:
    torch.manual_seed(0)
    torchvision()
    import timm

    return classifier(timm.create_model(name, pretrained=False), TIMM[name])


class _Out(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.model(image)["out"]


def _segmenting(name: str) -> Traced:
    torch.manual_seed(0)
    make = getattr(torchvision().models.segmentation, name)
    return classifier(_Out(make(weights=None, weights_backbone=None, num_classes=5)), 64)


def _video() -> Traced:
    """ResNet of 18 layers and three dimensions."""
    torch.manual_seed(0)
    clip = torch.randn(2, 3, 4, 32, 32)
    return Traced(torchvision().models.video.r3d_18(weights=None).eval(), {"clip": clip}, ("scores",),
                  {"clip": {0: "batch"}}, resized={"clip": clip[:1]})  # fmt: skip


def _picture(name: str) -> Traced:
    kind, result = ("ForSemanticSegmentation", "logits") if name == "segformer" else ("", "last_hidden_state")
    settings = PICTURES[name]
    size = settings.get("image_size", 64)
    image = torch.randn(2, 3, size, size)
    return named(model_of(name.removesuffix("-hf"), kind, settings), {"pixel_values": image}, result, {0: "batch"})


def _wav2vec2() -> Traced:
    settings = {**USUAL, "conv_dim": [32, 32, 32], "conv_stride": [5, 2, 2], "conv_kernel": [10, 3, 3],
                "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
    sound = {"input_values": torch.randn(2, 1600)}
    return named(model_of("wav2vec2", "", settings), sound, "last_hidden_state", {0: "batch"})


def _siglip() -> Traced:
    inputs = {"input_ids": torch.randint(3, VOCABULARY, (2, LENGTH)), "pixel_values": torch.randn(2, 3, 32, 32)}
    return named(model_of("siglip", "", TWO), inputs, "logits_per_image")


def _owlvit() -> Traced:
    ids = torch.randint(3, VOCABULARY, (2, LENGTH))
    inputs = {"input_ids": ids, "pixel_values": torch.randn(2, 3, 32, 32), "attention_mask": torch.ones_like(ids)}
    settings = {**TWO, "projection_dim": 64}
    return named(model_of("owlvit", "ForZeroShotObjectDetection", settings), inputs, "pred_boxes")


class _First(torch.nn.Module):
    def __init__(self, call: Callable[..., Any], model: torch.nn.Module) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.call(self.model, *inputs)


def _sam() -> Traced:
    """The picture encoder of SAM: attention in windows, with relative positions."""
    settings = {"vision_config": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "mlp_dim": 128,
                "image_size": 64, "patch_size": 8, "window_size": 3, "global_attn_indexes": [1],
                "output_channels": 32}}  # fmt: skip
    model = model_of("sam", "ForMaskGeneration", settings)
    return named(model.vision_encoder, {"pixel_values": torch.randn(1, 3, 64, 64)}, "last_hidden_state")


def _vae() -> Traced:
    """The autoencoder of Stable Diffusion, narrower: a picture to the mean of its latents and back."""
    torch.manual_seed(0)
    torchvision()
    from diffusers import AutoencoderKL

    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    vae = AutoencoderKL(block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8, **blocks)
    image = torch.randn(2, 3, 32, 32)
    return Traced(_First(_through, vae).eval(), {"image": image}, ("again",), {"image": {0: "batch"}},
                  resized={"image": image[:1]})  # fmt: skip


def _through(vae: Any, image: torch.Tensor) -> torch.Tensor:
    return vae.decode(vae.encode(image).latent_dist.mode(), return_dict=False)[0]  # type: ignore[no-any-return]


MODELS: Mapping[str, Callable[[], Traced]] = {
    **{name: partial(_torchvision, name) for name in TORCHVISION},
    **{name: partial(_segmenting, name) for name in SEGMENTING},
    **{name: partial(_timm, name) for name in TIMM},
    **{name: partial(_picture, name) for name in PICTURES},
    "r3d_18": _video, "wav2vec2": _wav2vec2, "siglip": _siglip, "owlvit": _owlvit, "sam-encoder": _sam,
    "diffusion-vae": _vae,
}  # fmt: skip
