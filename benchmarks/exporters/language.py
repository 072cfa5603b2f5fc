"""Transformers of the `transformers` package: with the keys and values of the past as inputs and outputs, as decoders
are served.

Owns the modules that turn a cache into tensors and back, as exporters take tensors only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .sources import Traced
from .torchvision_operators import torchvision

LAYERS = 2
VOCABULARY = 1000
PAST, NEW, BATCH = 5, 3, 2


class _WithPast(torch.nn.Module):
    """A causal language model: ids, mask, past keys and values → scores, all keys and values."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, *past: torch.Tensor) -> Sequence[torch.Tensor]:
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        found = self.model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
        return found.logits, *_flat(found.past_key_values)


def _flat(cache: Any) -> list[torch.Tensor]:
    return [part for layer in cache.layers for part in (layer.keys, layer.values)]


def _causal(model: torch.nn.Module, heads: int, width: int) -> Traced:
    def example(batch: int, past: int, new: int) -> Mapping[str, torch.Tensor]:
        found = {"ids": torch.randint(0, VOCABULARY, (batch, new)),
                 "mask": torch.ones(batch, past + new, dtype=torch.int64)}  # fmt: skip
        return found | {name: torch.randn(batch, heads, past, width) for name in names}

    names = [f"past.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    outputs = ["scores", *(name.replace("past", "present") for name in names)]
    opened = {"ids": {0: "batch", 1: "new"}, "mask": {0: "batch", 1: "total"}}
    opened |= {name: {0: "batch", 2: "past"} for name in names}
    return Traced(_WithPast(model).eval(), example(BATCH, PAST, NEW), outputs, opened, resized=example(1, 9, 2))


def gpt2() -> Traced:
    """GPT-2 with past."""
    torch.manual_seed(0)
    torchvision()
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=128, n_layer=LAYERS, n_head=4)
    return _causal(GPT2LMHeadModel(config), 4, 32)


def llama() -> Traced:
    """LLaMA with past: rotary positions, groups of queries."""
    torch.manual_seed(0)
    torchvision()
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=128, intermediate_size=256, num_hidden_layers=LAYERS,
                         num_attention_heads=4, num_key_value_heads=2)  # fmt: skip
    return _causal(LlamaForCausalLM(config), 2, 32)


class _Encoder(torch.nn.Module):
    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.encoder(*inputs).last_hidden_state


class _DecoderWithPast(torch.nn.Module):
    """The decoder of an encoder and decoder: ids, the encoder's result, past keys and values of itself → scores, all.

    The keys and values of what the encoder gave come as inputs, too, as exporters of served models have them.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, encoded: torch.Tensor, *past: torch.Tensor) -> Sequence[torch.Tensor]:
        from transformers import DynamicCache, EncoderDecoderCache
        from transformers.modeling_outputs import BaseModelOutput

        own, cross = DynamicCache(), DynamicCache()
        for layer in range(len(past) // 4):
            own.update(past[4 * layer], past[4 * layer + 1], layer)
            cross.update(past[4 * layer + 2], past[4 * layer + 3], layer)
        found = self.model(decoder_input_ids=ids, encoder_outputs=BaseModelOutput(last_hidden_state=encoded),
                           past_key_values=EncoderDecoderCache(own, cross), use_cache=True)  # fmt: skip
        return found.logits, *_flat(found.past_key_values.self_attention_cache)


def _decoder(model: torch.nn.Module, encoded: int) -> Traced:
    """Four heads of 32; the encoder's result has `encoded` positions of 128."""

    def example(batch: int, past: int) -> Mapping[str, torch.Tensor]:
        found = {"ids": torch.randint(0, VOCABULARY, (batch, 1)), "encoded": torch.randn(batch, encoded, 128)}
        return found | {n: torch.randn(batch, 4, encoded if "cross" in n else past, 32) for n in names}

    names = [f"past.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value", "cross.key", "cross.value")]
    outputs = ["scores", *(n.replace("past", "present") for n in names if "cross" not in n)]
    opened = {"ids": {0: "batch"}, "encoded": {0: "batch"}}
    opened |= {n: {0: "batch"} if "cross" in n else {0: "batch", 2: "past"} for n in names}
    return Traced(_DecoderWithPast(model).eval(), example(BATCH, PAST), outputs, opened, resized=example(1, 9))


def _whisper() -> torch.nn.Module:
    torch.manual_seed(0)
    torchvision()
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sizes = {f"{side}_{what}": n for side in ("encoder", "decoder")
             for what, n in (("layers", LAYERS), ("attention_heads", 4), ("ffn_dim", 256))}  # fmt: skip
    config = WhisperConfig(vocab_size=VOCABULARY, d_model=128, max_source_positions=100, max_target_positions=64,
                           bos_token_id=1, eos_token_id=2, pad_token_id=0, decoder_start_token_id=1,
                           **sizes)  # fmt: skip
    return WhisperForConditionalGeneration(config).eval()


def whisper_encoder() -> Traced:
    """Whisper's encoder: 200 frames of 80 mel bands."""
    frames = torch.randn(BATCH, 80, 200)
    return Traced(_Encoder(_whisper().get_encoder()), {"frames": frames}, ("encoded",), {"frames": {0: "batch"}},
                  resized={"frames": frames[:1]})  # fmt: skip


def whisper_decoder() -> Traced:
    """Whisper's decoder with past."""
    return _decoder(_whisper(), 100)


def _t5() -> torch.nn.Module:
    torch.manual_seed(0)
    torchvision()
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=VOCABULARY, d_model=128, d_kv=32, d_ff=256, num_layers=LAYERS, num_heads=4,
                      feed_forward_proj="gated-gelu", decoder_start_token_id=0)  # fmt: skip
    return T5ForConditionalGeneration(config).eval()


def t5_encoder() -> Traced:
    """T5's encoder."""
    ids = torch.randint(0, VOCABULARY, (BATCH, 7))
    inputs = {"ids": ids, "mask": torch.ones_like(ids)}
    return Traced(_Encoder(_t5().get_encoder()), inputs, ("encoded",),
                  {name: {0: "batch", 1: "length"} for name in inputs},
                  resized={name: value[:1, :5] for name, value in inputs.items()})  # fmt: skip


def t5_decoder() -> Traced:
    """T5's decoder with past: relative positions by buckets."""
    return _decoder(_t5(), 7)


class _Clip(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, image: torch.Tensor) -> Sequence[torch.Tensor]:
        found = self.model(input_ids=ids, attention_mask=mask, pixel_values=image)
        return found.logits_per_image, found.text_embeds, found.image_embeds


def clip() -> Traced:
    """CLIP: texts and pictures, and how they fit."""
    torch.manual_seed(0)
    torchvision()
    from transformers import CLIPConfig, CLIPModel

    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
    config = CLIPConfig(text_config={**sizes, "vocab_size": VOCABULARY, "eos_token_id": VOCABULARY - 1},
                        vision_config={**sizes, "image_size": 96, "patch_size": 16}, projection_dim=64)  # fmt: skip
    ids = torch.randint(1, VOCABULARY - 1, (3, 9))
    ids[:, -2] = VOCABULARY - 1
    inputs = {"ids": ids, "mask": torch.ones_like(ids), "image": torch.randn(BATCH, 3, 96, 96)}
    opened = {"ids": {0: "texts", 1: "length"}, "mask": {0: "texts", 1: "length"}, "image": {0: "images"}}
    return Traced(_Clip(CLIPModel(config).eval()), inputs, ("fit", "texts", "images"), opened,
                  resized={name: value[:1] for name, value in inputs.items()})  # fmt: skip


MODELS = {
    "gpt2-past": gpt2, "llama-past": llama, "whisper-encoder": whisper_encoder, "whisper-decoder": whisper_decoder,
    "t5-encoder": t5_encoder, "t5-decoder": t5_decoder, "clip": clip,
}  # fmt: skip
