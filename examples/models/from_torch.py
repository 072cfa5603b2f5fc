"""BERT-base, ViT-B/16 and the language model as PyTorch's exporter writes them: the patterns that users' files contain.

`python -m examples.models.from_torch bert-base -o bert.onnx`, with the extra `export` (torch, transformers). Weights
are random but seeded. Inputs are those of the model of the same name in the list, so that `feeds` suits them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, ViTConfig, ViTForImageClassification

from . import MODELS, feeds, options_of


class Named(nn.Module):
    """Calls a transformers model with keyword arguments and returns its outputs as a tuple of tensors."""

    def __init__(self, model: nn.Module, inputs: list[str], outputs: list[str]) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, inputs, outputs

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Values in the order of `inputs` → tensors in the order of `outputs`."""
        found = self.model(**dict(zip(self.inputs, values, strict=True)))
        return tuple(getattr(found, name) for name in self.outputs)


class WordLanguageModel(nn.Module):
    """Embedding, LSTM layers, output layer; ids int64[N,T] → logits f32[N,T,vocabulary]."""

    def __init__(self, vocabulary: int, hidden: int, layers: int, tied: bool) -> None:
        super().__init__()
        self.encoder = nn.Embedding(vocabulary, hidden)
        self.rnn = nn.LSTM(hidden, hidden, layers, batch_first=True)
        self.decoder = nn.Linear(hidden, vocabulary)
        if tied:
            self.decoder.weight = self.encoder.weight
        nn.init.normal_(self.encoder.weight, std=0.3)

    def forward(self, ids: Tensor) -> Tensor:
        """See the class."""
        logits: Tensor = self.decoder(self.rnn(self.encoder(ids))[0])
        return logits


def bert() -> nn.Module:
    """BERT-base with eager attention, so that the export shows MatMul and Softmax."""
    model = BertModel(BertConfig(attn_implementation="eager"))
    names = [value.name for value in MODELS["bert-base"].inputs]
    return Named(model, names, ["last_hidden_state", "pooler_output"])


def vit() -> nn.Module:
    """ViT-B/16 with 1000 classes."""
    config = ViTConfig(num_labels=1000, attn_implementation="eager", initializer_range=0.05)
    return Named(ViTForImageClassification(config), ["pixel_values"], ["logits"])


def word_lm() -> nn.Module:
    """The language model with the list's sizes."""
    options = options_of("word-lm")
    return WordLanguageModel(*(options[key] for key in ("vocabulary", "hidden", "layers", "tied")))


BUILDERS: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
    "bert-base": (bert, ["last_hidden_state", "pooler_output"]),
    "vit": (vit, ["logits"]),
    "word-lm": (word_lm, ["logits"]),
}
"""name → (module, names of the outputs)."""


def export(name: str, path: Path, seed: int = 0) -> None:
    """Write the exported model with a symbolic batch N, opset 17, by the TorchScript exporter."""
    make, outputs = BUILDERS[name]
    torch.manual_seed(seed)
    module = make().eval()
    example = feeds(name, batch=2, seed=seed)
    torch.onnx.export(
        module,
        tuple(torch.from_numpy(array) for array in example.values()),
        path,
        input_names=list(example),
        output_names=outputs,
        dynamic_axes={tensor: {0: "N"} for tensor in (*example, *outputs)},
        opset_version=17,
        dynamo=False,
    )


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.models.from_torch", description=__doc__)
    parser.add_argument("name", choices=sorted(BUILDERS))
    parser.add_argument("-o", "--output", type=Path, help="the file to write (default: NAME-torch.onnx)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    export(args.name, args.output or Path(f"{args.name}-torch.onnx"), args.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
