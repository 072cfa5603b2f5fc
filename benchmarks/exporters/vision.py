"""Classifiers, backbones and a diffusion model's U-Net: networks of images without choices that depend on data."""

from __future__ import annotations

import torch

from .sources import Traced
from .torchvision_operators import torchvision


def classifier(module: torch.nn.Module, size: int) -> Traced:
    """A network of pictures (batch, 3, size, size); the batch stays open."""
    image = torch.randn(2, 3, size, size)
    return Traced(module.eval(), {"image": image}, ("scores",), {"image": {0: "batch"}}, resized={"image": image[:1]})


def convnext() -> Traced:
    """ConvNeXt-tiny of timm."""
    torch.manual_seed(0)
    torchvision()
    import timm

    return classifier(timm.create_model("convnext_tiny", pretrained=False), 224)


def swin() -> Traced:
    """Swin-tiny of torchvision: windows that are rolled."""
    torch.manual_seed(0)
    return classifier(torchvision().models.swin_t(weights=None), 224)


def swin_timm() -> Traced:
    """Swin-tiny of timm."""
    torch.manual_seed(0)
    torchvision()
    import timm

    return classifier(timm.create_model("swin_tiny_patch4_window7_224", pretrained=False), 224)


def efficientnet() -> Traced:
    """EfficientNet-B0 of torchvision."""
    torch.manual_seed(0)
    return classifier(torchvision().models.efficientnet_b0(weights=None), 224)


class _Denoiser(torch.nn.Module):
    def __init__(self, unet: torch.nn.Module) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, sample: torch.Tensor, step: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
        return self.unet(sample, step, prompt, return_dict=False)[0]


def diffusion_unet() -> Traced:
    """The conditional U-Net of diffusers (Stable Diffusion's, narrower): convolutions, self- and cross-attention."""
    torch.manual_seed(0)
    torchvision()
    from diffusers import UNet2DConditionModel

    unet = UNet2DConditionModel(
        sample_size=32, block_out_channels=(64, 128, 256, 256), cross_attention_dim=128, attention_head_dim=8,
        layers_per_block=1,
    )  # fmt: skip
    inputs = {"sample": torch.randn(2, 4, 32, 32), "step": torch.tensor(7), "prompt": torch.randn(2, 16, 128)}
    one = {**inputs, "sample": inputs["sample"][:1], "prompt": inputs["prompt"][:1]}
    opened = {"sample": {0: "batch"}, "prompt": {0: "batch"}}
    return Traced(_Denoiser(unet).eval(), inputs, ("noise",), opened, resized=one)


MODELS = {"convnext": convnext, "swin": swin, "swin-timm": swin_timm, "efficientnet": efficientnet,
          "diffusion-unet": diffusion_unet}  # fmt: skip
