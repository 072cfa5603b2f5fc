"""The list of models, by name: where each is built, and whether torch's exporters write it.

Imports none of them, so that the list can be read without what builds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from .sources import Source

TRACED: Mapping[str, str] = {
    **dict.fromkeys(("mask-rcnn", "faster-rcnn", "ssd", "ssdlite", "yolo", "detr"), "detection"),
    **dict.fromkeys(("convnext", "swin", "swin-timm", "efficientnet", "diffusion-unet"), "vision"),
    **dict.fromkeys(("gpt2-past", "llama-past", "whisper-encoder", "whisper-decoder", "t5-encoder", "t5-decoder",
                     "clip"), "language"),
    "tacotron-loop": "audio",
}  # fmt: skip
"""Model → module; torch's exporters write it."""
WRITTEN: Mapping[str, str] = {
    **dict.fromkeys(("silero-vad", "silero-vad-op15", "silero-vad-ifless", "silero-vad-half"), "audio"),
    **dict.fromkeys(("sklearn-forest", "sklearn-classifier", "sklearn-zipmap", "lightgbm"), "tabular"),
}
"""Model → module; another tool writes it, or has written it."""
MODULES = {**TRACED, **WRITTEN}
NAMES = tuple(MODULES)


def build(name: str) -> Source:
    """The model.

    Raises:
        ImportError: what builds it is not installed.
    """
    module = import_module(f"{__package__}.{MODULES[name]}")
    return module.MODELS[name]()  # type: ignore[no-any-return]
