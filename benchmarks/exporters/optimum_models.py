"""Models of `transformers` as optimum exports them: decoders with a past, and with and without one in one file (If).

Owns which models these are, and inputs that fit the sizes that optimum names.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from .sources import Feeds, Written
from .torchvision_operators import torchvision

PREFIX = "optimum-"
VOCABULARY = 1000
TOKENS = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
WHISPER = {"d_model": 64, "num_mel_bins": 16, "max_target_positions": 40,
           "decoder_start_token_id": 1, **{f"{side}_{what}": n for side in ("encoder", "decoder")
           for what, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 128))}}  # fmt: skip
PICTURE = {**SMALL, "image_size": 32, "patch_size": 8}
MERGED = "decoder_model_merged.onnx"
EXPORTED: Mapping[str, tuple[str, str, str, str, Mapping[str, Any]]] = {
    "bert": ("bert", "Model", "feature-extraction", "model.onnx", {**TOKENS, **SMALL}),
    "roformer": ("roformer", "Model", "feature-extraction", "model.onnx", {**TOKENS, **SMALL}),
    "gpt2": ("gpt2", "ModelForCausalLM", "text-generation-with-past", "model.onnx",
             {**TOKENS, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "llama": ("llama", "ModelForCausalLM", "text-generation-with-past", "model.onnx",
              {**TOKENS, **SMALL, "num_key_value_heads": 2}),
    "t5": ("t5", "ModelForSeq2SeqLM", "text2text-generation-with-past", MERGED,
           {**TOKENS, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4,
            "decoder_start_token_id": 0}),
    "whisper": ("whisper", "ModelForSpeechSeq2Seq", "automatic-speech-recognition-with-past", MERGED,
                {**TOKENS, **WHISPER}),
    "clip": ("clip", "Model", "zero-shot-image-classification", "model.onnx",
             {"text_config": {**TOKENS, **SMALL}, "vision_config": PICTURE, "projection_dim": 32}),
    "vit": ("vit", "ModelForImageClassification", "image-classification", "model.onnx", PICTURE),
}  # fmt: skip
"""Model → family, class behind Auto, optimum's task, the file of those it writes, settings."""
IMAGE = {"num_channels": 3, "height": PICTURE["image_size"], "width": PICTURE["image_size"]}
SIZES = ({"encoder": 10, "past": 7, "batch": 2, "sequence_length": 5, **IMAGE},
         {"encoder": 10, "past": 9, "batch": 1, "sequence_length": 1, **IMAGE})  # fmt: skip
"""What symbols stand for, by what their names contain; the first that does."""


def _exported(name: str) -> Written:
    import torch

    torchvision()
    import transformers
    from optimum.exporters.onnx import onnx_export_from_model

    family, kind, task, file, settings = EXPORTED[name]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **settings)
    model = getattr(transformers, f"Auto{kind}").from_config(config).eval()
    folder = Path(tempfile.mkdtemp(prefix="parax-optimum-"))
    onnx_export_from_model(model, folder, task=task, do_validation=False)
    tool = f"optimum-onnx {version('optimum-onnx')}, transformers {version('transformers')}"
    return Written(folder / file, tool, feeds(onnx.load(folder / file, load_external_data=False)))


def feeds(model: onnx.ModelProto) -> Feeds:
    """Inputs of two choices of sizes; of a file with and without a past, of the latter, too."""
    rng = np.random.default_rng(0)
    found = [_feed(model, sizes, rng) for sizes in SIZES]
    if "use_cache_branch" in found[0]:
        found.append({**found[0], "use_cache_branch": np.array([False])})
    return found


def _feed(model: onnx.ModelProto, sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [d.dim_value or _size(d.dim_param, sizes) for d in tensor.shape.dim]
        found[value.name] = _values(value.name, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type), shape, rng)
    if "position_ids" in found:
        past = sizes["past"] if any(name.startswith("past") for name in found) else 0
        found["position_ids"] = np.broadcast_to(
            past + np.arange(sizes["sequence_length"]), found["position_ids"].shape
        ).copy()  # fmt: skip
    return found


def _size(symbol: str, sizes: Mapping[str, int]) -> int:
    """Of a sum of names and numbers, as optimum writes open sizes."""
    total = 0
    for part in symbol.split("+"):
        text = part.strip()
        total += int(text) if text.isdigit() else next(size for name, size in sizes.items() if name in text)
    return total


def _values(name: str, dtype: np.dtype, shape: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if name.endswith("input_ids"):
        return rng.integers(3, VOCABULARY, shape).astype(dtype)
    return np.ones(shape, dtype)


MODELS: Mapping[str, Callable[[], Written]] = {PREFIX + name: partial(_exported, name) for name in EXPORTED}
