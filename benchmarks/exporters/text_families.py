"""Families of transformers for text, each as small as its architecture allows, named as `transformers` does.

Owns which settings make each small; nothing of a past: `language` has decoders as they are served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from .sources import Traced
from .torchvision_operators import torchvision

VOCABULARY = 1000
BATCH, LENGTH = 2, 9
USUAL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
GROUPED = {**USUAL, "num_key_value_heads": 2}
ENCODERS: Mapping[str, Mapping[str, Any]] = {
    "bert": USUAL, "roberta": USUAL,
    "deberta-v2": {**USUAL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "albert": {**USUAL, "embedding_size": 32}, "electra": {**USUAL, "embedding_size": 32},
    "distilbert": {"dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4},
}  # fmt: skip
DECODERS: Mapping[str, Mapping[str, Any]] = {
    "gpt-neo": {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
                "window_size": 4},
    "opt": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 128,
            "word_embed_proj_dim": 32},
    "bloom": {"hidden_size": 64, "n_layer": 2, "n_head": 4}, "falcon": {**USUAL, "alibi": False},
    "mistral": {**GROUPED, "sliding_window": 4}, "qwen2": GROUPED, "gemma": {**GROUPED, "head_dim": 16}, "phi": USUAL,
    "mamba": {"hidden_size": 64, "num_hidden_layers": 2, "state_size": 8},
}  # fmt: skip
PAIRS: Mapping[str, Mapping[str, Any]] = {
    "bart": {"d_model": 64, **{f"{side}_{what}": n for side in ("encoder", "decoder")
             for what, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 128))}},
    "mt5": {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4},
}  # fmt: skip
TOKENS = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


class _Named(torch.nn.Module):
    """A model that takes named tensors, of which one result is handed out."""

    def __init__(self, model: torch.nn.Module, names: Sequence[str], result: str) -> None:
        super().__init__()
        self.model, self.names, self.result = model, names, result

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        found = self.model(**dict(zip(self.names, inputs, strict=True)), **_no_cache(self.model))
        return found[self.result]


def _no_cache(model: Any) -> Mapping[str, bool]:
    return {"use_cache": False} if hasattr(model.config, "use_cache") else {}


def model_of(family: str, kind: str, settings: Mapping[str, Any]) -> torch.nn.Module:
    """A model of that family with random weights: `kind` as in `AutoModel…`; every weight differs from 0 and 1."""
    torch.manual_seed(0)
    torchvision()
    import transformers

    config = transformers.AutoConfig.for_model(family.replace("-", "_") if family == "gpt-neo" else family, **settings)
    model = getattr(transformers, f"AutoModel{kind}").from_config(config, attn_implementation="eager")
    return model.eval()  # type: ignore[no-any-return]


def named(model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], result: str,
          opened: Mapping[int, str] | None = None) -> Traced:  # fmt: skip
    """The model on those inputs, whose axes in `opened` stay open and are one shorter in another example."""
    axes = opened or {}
    shorter = {name: value[tuple(slice(0, n - (axis in axes)) for axis, n in enumerate(value.shape))]
               for name, value in inputs.items()}  # fmt: skip
    return Traced(_Named(model, list(inputs), result).eval(), inputs, (result,), {name: axes for name in inputs},
                  resized=shorter if axes else None)  # fmt: skip


OPEN = {0: "batch", 1: "length"}


def _ids() -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (BATCH, LENGTH))


def _mask() -> torch.Tensor:
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[1, -3:] = 0
    return mask


def _encoder(family: str) -> Traced:
    model = model_of(family, "", {**TOKENS, **ENCODERS[family]})
    return named(model, {"input_ids": _ids(), "attention_mask": _mask()}, "last_hidden_state", OPEN)


def _decoder(family: str) -> Traced:
    model = model_of(family, "ForCausalLM", {**TOKENS, **DECODERS[family]})
    inputs = {"input_ids": _ids(), **({} if family == "mamba" else {"attention_mask": torch.ones_like(_mask())})}
    # the trace of a recurrence has as many steps as its example
    return named(model, inputs, "logits", {0: "batch"} if family == "mamba" else OPEN)


def _pair(family: str) -> Traced:
    model = model_of(family, "ForSeq2SeqLM", {**TOKENS, **PAIRS[family], "decoder_start_token_id": 2})
    inputs = {"input_ids": _ids(), "attention_mask": _mask(), "decoder_input_ids": _ids()}
    return named(model, inputs, "logits", OPEN)


MODELS: Mapping[str, Callable[[], Traced]] = {
    **{name: partial(_encoder, name) for name in ENCODERS},
    **{name: partial(_decoder, name) for name in DECODERS},
    **{name: partial(_pair, name) for name in PAIRS},
}
