"""The models that are trained as PyTorch modules with the same weights.

Those of pictures are read from ONNX by onnx2torch. The others are written as one would write them in PyTorch, with its
own layers for attention, LSTM and embeddings, since a reader of ONNX makes constants of weights that no layer owns.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as nnf
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from examples.models import Options, options_of
from parax.errors import InternalError

Loss = Callable[[Tensor, Tensor], Tensor]


def module_of(path: Path, name: str, changes: Options | None = None) -> tuple[nn.Module, Loss]:
    """The module, ready to be trained, and its loss of (result, labels).

    Args:
        path: the model. name: of it in the list. changes: to its options there.
    """
    if name not in MODULES:
        from onnx2torch import convert

        return convert(str(path)).train().to(memory_format=torch.channels_last), nnf.cross_entropy
    kind, loss = MODULES[name]
    module = kind(**options_of(name, changes)).train()
    _load(module, onnx.load(path))
    return module, loss


def _load(module: nn.Module, model: onnx.ModelProto) -> None:
    """Give a module the weights of an ONNX model, which have the names of its own.

    Raises:
        InternalError: a parameter that the model does not have, or one of the model's that was not taken.
    """
    products = {node.input[1] for node in model.graph.node if node.op_type == "MatMul"}
    weights = {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}
    weights = {key: value.T if key in products else value for key, value in weights.items()}
    for prefix, layer in module.named_modules():
        if isinstance(layer, nn.LSTM):
            weights.update(_lstm(f"{prefix}.", layer, weights))
    own = dict(module.named_parameters())
    if set(own) != set(weights):
        raise InternalError("other weights", where=type(module).__name__, found=sorted(set(own) ^ set(weights)))
    with torch.no_grad():
        for key, parameter in own.items():
            parameter.copy_(torch.from_numpy(np.array(weights[key])))


def _lstm(prefix: str, layer: nn.LSTM, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those of an LSTM as PyTorch names and orders them; ONNX orders the gates i, o, f, c, PyTorch i, f, c, o."""
    w, r, b = (weights.pop(prefix + name) for name in ("weight_ih", "weight_hh", "bias"))
    biases = np.split(b, 2, axis=1)
    found = {}
    for d, end in enumerate(("", "_reverse")[: 2 if layer.bidirectional else 1]):
        parts = (("weight_ih", w[d]), ("weight_hh", r[d]), ("bias_ih", biases[0][d]), ("bias_hh", biases[1][d]))
        for name, array in parts:
            i, o, f, c = np.split(array, 4)
            found[f"{prefix}{name}_l0{end}"] = np.concatenate([i, f, c, o])
    return found


class WordLM(nn.Module):
    """See examples.models.recurrent.word_lm."""

    def __init__(self, *, vocabulary: int, hidden: int, layers: int, **_: Any) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Embedding(vocabulary, hidden), nn.Linear(hidden, vocabulary)
        self.decoder.weight = self.encoder.weight
        self.rnn = nn.ModuleList(nn.LSTM(hidden, hidden) for _ in range(layers))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.encoder(ids).transpose(0, 1)
        for layer in self.rnn:
            x, _ = layer(x)
        return self.decoder(x.transpose(0, 1))


class Encoder(nn.Module):
    """GNMT's: one layer both ways over the sequences' own lengths, then forward ones."""

    def __init__(self, vocabulary: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedder = nn.Embedding(vocabulary, hidden)
        widths = [hidden, 2 * hidden, *[hidden] * (layers - 2)]
        self.rnn_layers = nn.ModuleList(nn.LSTM(w, hidden, bidirectional=i == 0) for i, w in enumerate(widths))

    def forward(self, source: Tensor, length: Tensor) -> Tensor:
        x = self.embedder(source).transpose(0, 1)
        packed, _ = self.rnn_layers[0](pack_padded_sequence(x, length.long(), enforce_sorted=False))
        x, _ = pad_packed_sequence(packed, total_length=source.shape[1])
        for i, layer in enumerate(self.rnn_layers[1:]):
            y, _ = layer(x)
            x = y + x if i else y
        return x.transpose(0, 1)


class Attended(nn.LSTM):
    """GNMT's first decoder layer with the attention that its results ask: normalised Bahdanau attention."""

    def __init__(self, hidden: int) -> None:
        super().__init__(hidden, hidden)
        self.linear_q, self.linear_k = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
        self.normalize_bias, self.linear_att = nn.Parameter(torch.empty(hidden)), nn.Parameter(torch.empty(1, hidden))

    def attended(self, x: Tensor, memory: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """Results [T,N,H] and contexts [T,N,H] of inputs [T,N,H]."""
        x, _ = self(x)
        q, k = self.linear_q(x.transpose(0, 1)).unsqueeze(2), self.linear_k(memory).unsqueeze(1)
        scores = nnf.linear(torch.tanh(q + k + self.normalize_bias), self.linear_att).squeeze(3)
        outside = torch.arange(memory.shape[1]) >= length.unsqueeze(1)
        weights = torch.softmax(scores.masked_fill(outside.unsqueeze(1), -65504.0), 2)
        return x, (weights @ memory).transpose(0, 1)


class Decoder(nn.Module):
    """GNMT's: every layer behind the first sees its input and the context."""

    def __init__(self, vocabulary: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedder, self.att_rnn = nn.Embedding(vocabulary, hidden), Attended(hidden)
        self.rnn_layers = nn.ModuleList(nn.LSTM(2 * hidden, hidden) for _ in range(layers - 1))
        self.classifier = nn.Linear(hidden, vocabulary)

    def forward(self, target: Tensor, memory: Tensor, length: Tensor) -> Tensor:
        x = self.embedder(target).transpose(0, 1)
        x, context = self.att_rnn.attended(x, memory, length)
        for i, layer in enumerate(self.rnn_layers):
            y, _ = layer(torch.cat([x, context], 2))
            x = y + x if i else y
        return self.classifier(x.transpose(0, 1))


class Gnmt(nn.Module):
    """See examples.models.recurrent.gnmt."""

    def __init__(self, *, source_vocabulary: int, target_vocabulary: int, hidden: int, layers: int, **_: Any) -> None:
        super().__init__()
        self.encoder = Encoder(source_vocabulary, hidden, layers)
        self.decoder = Decoder(target_vocabulary, hidden, layers)

    def forward(self, source: Tensor, length: Tensor, target: Tensor) -> Tensor:
        return self.decoder(target, self.encoder(source, length), length)


class Ncf(nn.Module):
    """See examples.models.ncf; its scores, which PyTorch's loss of scores takes."""

    def __init__(self, *, users: int, items: int, factors: int, width: int) -> None:
        super().__init__()
        self.mf_user_embed, self.mf_item_embed = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.mlp_user_embed, self.mlp_item_embed = nn.Embedding(users, width // 2), nn.Embedding(items, width // 2)
        widths = (width, width, width // 2, width // 4)
        self.mlp = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.final = nn.Linear(factors + widths[-1], 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        x = torch.cat([self.mlp_user_embed(user), self.mlp_item_embed(item)], 1)
        for layer in self.mlp:
            x = torch.relu(layer(x))
        return self.final(torch.cat([self.mf_user_embed(user) * self.mf_item_embed(item), x], 1))


class BertLayer(nn.Module):
    """One layer of the encoder."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        projections = nn.ModuleDict({name: nn.Linear(hidden, hidden) for name in ("query", "key", "value")})
        joined = nn.ModuleDict({"dense": nn.Linear(hidden, hidden), "LayerNorm": nn.LayerNorm(hidden, 1e-12)})
        self.attention = nn.ModuleDict({"self": projections, "output": joined})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(hidden, 4 * hidden)})
        narrow = {"dense": nn.Linear(4 * hidden, hidden), "LayerNorm": nn.LayerNorm(hidden, 1e-12)}
        self.output = nn.ModuleDict(narrow)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        own = self.attention["self"]
        q, k, v = (own[name](x).unflatten(2, (self.heads, -1)).transpose(1, 2) for name in ("query", "key", "value"))
        y = nnf.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)
        x = self.attention["output"]["LayerNorm"](x + self.attention["output"]["dense"](y))
        y = self.output["dense"](nnf.gelu(self.intermediate["dense"](x)))
        return self.output["LayerNorm"](x + y)


class Bert(nn.Module):
    """See examples.models.transformer.bert, and a classifier."""

    def __init__(self, *, layers: int, hidden: int, heads: int, vocabulary: int, positions: int, **_: Any) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict({
            "word_embeddings": nn.Embedding(vocabulary, hidden), "token_type_embeddings": nn.Embedding(2, hidden),
            "position_embeddings": nn.Embedding(positions, hidden), "LayerNorm": nn.LayerNorm(hidden, 1e-12),
        })  # fmt: skip
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(BertLayer(hidden, heads) for _ in range(layers))})
        self.pooler, self.classifier = nn.ModuleDict({"dense": nn.Linear(hidden, hidden)}), nn.Linear(hidden, 2)

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        own = self.embeddings
        x = own["word_embeddings"](ids) + own["token_type_embeddings"](types)
        x = own["LayerNorm"](x + own["position_embeddings"](torch.arange(ids.shape[1])))
        added = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.encoder["layer"]:
            x = layer(x, added)
        return self.classifier(torch.tanh(self.pooler["dense"](x[:, 0])))


def _of_tokens(scores: Tensor, labels: Tensor) -> Tensor:
    return nnf.cross_entropy(scores.flatten(0, 1), labels.flatten())


MODULES: dict[str, tuple[type[nn.Module], Loss]] = {
    "word-lm": (WordLM, _of_tokens),
    "gnmt": (Gnmt, _of_tokens),
    "bert-base": (Bert, nnf.cross_entropy),
    "ncf": (Ncf, nnf.binary_cross_entropy_with_logits),
}
