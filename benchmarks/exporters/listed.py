"""The list of models, by name: where each is built, and whether torch's exporters write it.

Imports none of them, so that the list can be read without what builds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from .sources import Source

EXPORTERS = ("torchscript", "dynamo")
"""Of torch: by TorchScript, and by torch.export."""
TRACED: Mapping[str, str] = {
    **dict.fromkeys(("mask-rcnn", "faster-rcnn", "ssd", "ssdlite", "yolo", "detr"), "detection"),
    **dict.fromkeys(("convnext", "swin", "swin-timm", "efficientnet", "diffusion-unet"), "vision"),
    **dict.fromkeys(("gpt2-past", "llama-past", "whisper-encoder", "whisper-decoder", "t5-encoder", "t5-decoder",
                     "clip"), "language"),
    "tacotron-loop": "audio",
    **dict.fromkeys(("retinanet", "fcos", "keypoint-rcnn"), "detection"),
    **dict.fromkeys(("bert", "roberta", "deberta-v2", "albert", "electra", "distilbert", "gpt-neo", "opt", "bloom",
                     "falcon", "mistral", "qwen2", "gemma", "phi", "mamba", "bart", "mt5"), "text_families"),
    **dict.fromkeys(("vgg11", "densenet121", "googlenet", "shufflenet_v2_x0_5", "mnasnet0_5", "regnet_y_400mf",
                     "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "fcn_resnet50", "mobilevit_xxs",
                     "ghostnet_050", "vit_tiny_patch16_224", "mixer_s32_224", "levit_128s", "poolformer_s12",
                     "edgenext_xx_small", "hrnet_w18_small", "res2net50_26w_4s", "repvgg_a0", "vit", "swin-hf",
                     "segformer", "r3d_18", "wav2vec2", "siglip", "owlvit", "sam-encoder", "diffusion-vae"),
                    "sense_families"),
}  # fmt: skip
"""Model → module; torch's exporters write it."""
WRITTEN: Mapping[str, str] = {
    **dict.fromkeys(("silero-vad", "silero-vad-op15", "silero-vad-ifless", "silero-vad-half"), "audio"),
    **dict.fromkeys(("sklearn-forest", "sklearn-classifier", "sklearn-zipmap", "lightgbm", "lightgbm-binary",
                     "lightgbm-classifier", "xgboost-regressor", "xgboost-binary", "xgboost-classifier"), "tabular"),
    **dict.fromkeys(("yolo-half", "convnext-half", "efficientnet-half", "bert-half", "gpt2-past-half",
                     "whisper-encoder-half"), "halved"),
    **dict.fromkeys(("tf-mobilenetv2", "tf-efficientnetv2b0", "tf-densenet121", "tf-xception", "tf-nasnetmobile",
                     "tf-recurrent", "tf-transformer", "tf-segmentation", "tf-detector", "tf-crops", "tf-loop"),
                    "tensorflow_models"),
    **dict.fromkeys(("optimum-bert", "optimum-roformer", "optimum-gpt2", "optimum-llama", "optimum-t5",
                     "optimum-whisper", "optimum-clip", "optimum-vit"), "optimum_models"),
}  # fmt: skip
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
