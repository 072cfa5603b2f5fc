"""BERT (Devlin et al. 2018) and ViT (Dosovitskiy et al. 2020) in the operator patterns of PyTorch's exports.

BERT follows the transformers library (separate query, key and value layers, additive mask, normalisation after the
residual), ViT follows timm (one qkv layer, a class token, normalisation before each branch).
"""

from __future__ import annotations

import numpy as np

from .builder import ModelBuilder, Size

MASKED = float(np.finfo(np.float32).min)


def bert(
    b: ModelBuilder, ids: str, mask: str, token_types: str, *, layers: int, hidden: int, heads: int, length: int | str,
    vocabulary: int, positions: int, norm: str, **_: object,
) -> None:  # fmt: skip
    """ids, mask, token_types int64[N,S] → last_hidden_state f32[N,S,hidden], pooler_output f32[N,hidden].

    norm: "fused" (LayerNormalization, opset 17) or "decomposed" (ReduceMean, Pow, Sqrt…, as exports before opset 17).
    """
    n, s = b.size(ids, 0, b.batch), b.size(ids, 1, length)
    with b.scope("embeddings"):
        x = _bert_embeddings(b, ids, token_types, s, hidden=hidden, vocabulary=vocabulary, positions=positions)
        x = layer_norm(b, x, "LayerNorm", hidden, 1e-12, norm)
    bias = _bert_mask(b, mask)
    for layer in range(layers):
        with b.scope(f"encoder.layer.{layer}"):
            y = _bert_attention(b, x, bias, n, s, hidden, heads)
            x = layer_norm(b, b.op("Add", y, x), "attention.output.LayerNorm", hidden, 1e-12, norm)
            y = gelu(b, b.linear(x, "intermediate.dense", hidden, 4 * hidden))
            y = b.linear(y, "output.dense", 4 * hidden, hidden)
            x = layer_norm(b, b.op("Add", y, x), "output.LayerNorm", hidden, 1e-12, norm)
    first = b.op("Gather", x, b.constant(0, np.int64), axis=1)
    pooled = b.op("Tanh", b.gemm(first, "pooler.dense", hidden, hidden))
    b.output(x, "last_hidden_state", [b.batch, length, hidden])
    b.output(pooled, "pooler_output", [b.batch, hidden])


def vit(
    b: ModelBuilder, image: str, *, size: int, patch: int, layers: int, hidden: int, heads: int, classes: int,
    norm: str, **_: object,
) -> None:  # fmt: skip
    """image f32[N,3,size,size], size a multiple of patch → logits f32[N,classes]."""
    tokens = (size // patch) ** 2 + 1
    n = b.size(image, 0, b.batch)
    w = b.weight("patch_embed.proj.weight", b.normal(hidden, 3, patch, patch, std=(3 * patch * patch) ** -0.5))
    bias = b.weight("patch_embed.proj.bias", b.normal(hidden, std=0.05))
    x = b.op("Conv", image, w, bias, layer="patch_embed.proj", kernel_shape=[patch] * 2, strides=[patch] * 2)
    x = b.op("Transpose", b.reshape(x, [n, hidden, tokens - 1]), perm=[0, 2, 1])
    token = b.weight("cls_token", b.normal(1, 1, hidden, std=0.5))
    x = b.op("Concat", b.op("Expand", token, b.shape_vector([n, 1, hidden])), x, axis=1)
    x = b.op("Add", x, b.weight("pos_embed", b.normal(1, tokens, hidden, std=0.3)))
    for layer in range(layers):
        with b.scope(f"blocks.{layer}"):
            y = layer_norm(b, x, "norm1", hidden, 1e-6, norm)
            x = b.op("Add", x, _vit_attention(b, y, n, tokens, hidden, heads))
            y = layer_norm(b, x, "norm2", hidden, 1e-6, norm)
            y = gelu(b, b.linear(y, "mlp.fc1", hidden, 4 * hidden))
            x = b.op("Add", x, b.linear(y, "mlp.fc2", 4 * hidden, hidden))
    x = layer_norm(b, x, "norm", hidden, 1e-6, norm)
    x = b.op("Gather", x, b.constant(0, np.int64), axis=1)
    b.output(b.gemm(x, "head", hidden, classes), "logits", [b.batch, classes])


def layer_norm(b: ModelBuilder, x: str, layer: str, width: int, epsilon: float, norm: str) -> str:
    """Normalisation over the last axis as one operator, or as the nine that exporters wrote before opset 17."""
    scale = b.weight(f"{layer}.weight", b.uniform(width, 0.8, 1.2))
    shift = b.weight(f"{layer}.bias", b.normal(width, std=0.1))
    if norm == "fused":
        return b.op("LayerNormalization", x, scale, shift, layer=layer, axis=-1, epsilon=epsilon)
    with b.scope(layer):
        centred = b.op("Sub", x, b.op("ReduceMean", x, axes=[-1]))
        variance = b.op("ReduceMean", b.op("Pow", centred, b.constant(2.0)), axes=[-1])
        deviation = b.op("Sqrt", b.op("Add", variance, b.constant(epsilon)))
        return b.op("Add", b.op("Mul", b.op("Div", centred, deviation), scale), shift)


def gelu(b: ModelBuilder, x: str) -> str:
    """x · (1 + erf(x / √2)) / 2 in the five operators of nn.GELU's export."""
    y = b.op("Add", b.op("Erf", b.op("Div", x, b.constant(2.0**0.5))), b.constant(1.0))
    return b.op("Mul", b.op("Mul", x, y), b.constant(0.5))


def _bert_embeddings(
    b: ModelBuilder, ids: str, token_types: str, s: Size, *, hidden: int, vocabulary: int, positions: int
) -> str:  # fmt: skip
    words = b.weight("word_embeddings.weight", b.normal(vocabulary, hidden, std=0.5))
    types = b.weight("token_type_embeddings.weight", b.normal(2, hidden, std=0.2))
    table = b.weight("position_embeddings.weight", b.normal(positions, hidden, std=0.3))
    x = b.op("Add", b.op("Gather", words, ids, axis=0), b.op("Gather", types, token_types, axis=0))
    axes, start = b.constant([1], np.int64), b.constant([0], np.int64)
    all_positions = b.constant(np.arange(positions)[None], np.int64)
    position_ids = b.op("Slice", all_positions, start, b.shape_vector([s]), axes)
    return b.op("Add", x, b.op("Gather", table, position_ids, axis=0))


def _bert_mask(b: ModelBuilder, mask: str) -> str:
    """int64[N,S] of 0 and 1 → f32[N,1,1,S]: 0 where attended, the lowest number where not."""
    axes = b.constant([1], np.int64)
    wide = b.op("Unsqueeze", b.op("Unsqueeze", mask, axes), b.constant([2], np.int64))
    return b.op("Mul", b.op("Sub", b.constant(1.0), b.op("Cast", wide, to=1)), b.constant(MASKED))


def _bert_attention(b: ModelBuilder, x: str, bias: str, n: Size, s: Size, hidden: int, heads: int) -> str:
    depth = hidden // heads
    parts = []
    for part, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        y = b.linear(x, f"attention.self.{part}", hidden, hidden)
        parts.append(b.op("Transpose", b.reshape(y, [n, s, heads, depth]), perm=perm))
    query, key, value = parts
    scores = b.op("Div", b.op("MatMul", query, key), b.constant(depth**0.5))
    y = b.op("MatMul", b.op("Softmax", b.op("Add", scores, bias), axis=-1), value)
    y = b.reshape(b.op("Transpose", y, perm=[0, 2, 1, 3]), [n, s, hidden])
    return b.linear(y, "attention.output.dense", hidden, hidden)


def _vit_attention(b: ModelBuilder, x: str, n: Size, tokens: int, hidden: int, heads: int) -> str:
    depth = hidden // heads
    x = b.reshape(b.linear(x, "attn.qkv", hidden, 3 * hidden), [n, tokens, 3, heads, depth])
    x = b.op("Transpose", x, perm=[2, 0, 3, 1, 4])
    query, key, value = (b.op("Gather", x, b.constant(i, np.int64), axis=0) for i in range(3))
    query = b.op("Mul", query, b.constant(depth**-0.5))
    scores = b.op("MatMul", query, b.op("Transpose", key, perm=[0, 1, 3, 2]))
    y = b.op("MatMul", b.op("Softmax", scores, axis=-1), value)
    y = b.reshape(b.op("Transpose", y, perm=[0, 2, 1, 3]), [n, tokens, hidden])
    return b.linear(y, "attn.proj", hidden, hidden)
