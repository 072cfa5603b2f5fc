"""LSTM models: a word-level language model and GNMT (Wu et al. 2016, in NVIDIA's arrangement of the attention).

Token ids come batch first; the LSTM operators work time first between Transposes, as in exports of batch_first layers.
"""

from __future__ import annotations

import numpy as np

from .builder import ModelBuilder, Size


def word_lm(
    b: ModelBuilder, ids: str, *, vocabulary: int, hidden: int, layers: int, length: int, tied: bool, **_: object
) -> None:
    """ids int64[N,T] → logits f32[N,T,vocabulary]; tied: the output layer's weights are the embedding table."""
    table = b.weight("encoder.weight", b.normal(vocabulary, hidden, std=0.3))
    x = b.op("Transpose", b.op("Gather", table, ids, layer="encoder", axis=0), perm=[1, 0, 2])
    n = b.size(ids, 0, b.batch)
    for layer in range(layers):
        with b.scope(f"rnn.{layer}"):
            state = b.op("ConstantOfShape", b.shape_vector([1, n, hidden]))
            x = lstm(b, x, hidden, hidden, h0=state, c0=state)
    x = b.reshape(b.op("Transpose", x, perm=[1, 0, 2]), [-1, hidden])
    if not tied:
        table = b.weight("decoder.weight", b.normal(vocabulary, hidden, std=0.3))
    bias = b.weight("decoder.bias", b.normal(vocabulary, std=0.1))
    x = b.op("Gemm", x, table, bias, layer="decoder", alpha=1.0, beta=1.0, transB=1)
    b.output(b.reshape(x, [n, length, vocabulary]), "logits", [b.batch, length, vocabulary])


def gnmt(
    b: ModelBuilder, source: str, source_length: str, target: str, *, source_vocabulary: int, target_vocabulary: int,
    hidden: int, layers: int, source_size: int, target_size: int, **_: object,
) -> None:  # fmt: skip
    """Teacher-forced forward pass: source int64[N,S], source_length int32[N], target int64[N,T] → logits f32[N,T,V].

    Encoder: one bidirectional LSTM, then `layers` - 1 forward ones, residual from the third on. Decoder: the first
    layer's output queries the encoder (normalised Bahdanau attention); every further layer sees its input and the
    context, residual from the third on.
    """
    with b.scope("encoder"):
        memory = _encoder(b, source, source_length, source_vocabulary, hidden, layers)
    with b.scope("decoder"):
        table = b.weight("embedder.weight", b.normal(target_vocabulary, hidden, std=0.5))
        x = b.op("Transpose", b.op("Gather", table, target, layer="embedder", axis=0), perm=[1, 0, 2])
        with b.scope("att_rnn"):
            x = lstm(b, x, hidden, hidden)
            query = b.op("Transpose", x, perm=[1, 0, 2])
            context = _attention(b, query, memory, source_length, hidden, source_size)
            context = b.op("Transpose", context, perm=[1, 0, 2])
        for layer in range(layers - 1):
            with b.scope(f"rnn_layers.{layer}"):
                y = lstm(b, b.op("Concat", x, context, axis=2), 2 * hidden, hidden)
                x = b.op("Add", y, x) if layer else y
        x = b.op("Transpose", x, perm=[1, 0, 2])
        x = b.linear(x, "classifier", hidden, target_vocabulary, gain=2.0)
    b.output(x, "logits", [b.batch, target_size, target_vocabulary])


def lstm(
    b: ModelBuilder, x: str, features: int, hidden: int, *, bidirectional: bool = False, h0: str | None = None,
    c0: str | None = None, lengths: str | None = None,
) -> str:  # fmt: skip
    """One LSTM layer: x f32[T,N,features] → f32[T,N,directions * hidden]. h0, c0 f32[directions,N,hidden] or zero."""
    directions = 2 if bidirectional else 1
    w = b.weight("weight_ih", b.normal(directions, 4 * hidden, features, std=2 * features**-0.5))
    r = b.weight("weight_hh", b.normal(directions, 4 * hidden, hidden, std=1.5 * hidden**-0.5))
    bias = b.weight("bias", b.normal(directions, 8 * hidden, std=0.1))
    direction = "bidirectional" if bidirectional else "forward"
    optional = [lengths, h0, c0] if h0 or c0 else [lengths] if lengths else []
    y = b.op("LSTM", x, w, r, bias, *optional, n_outputs=3, hidden_size=hidden, direction=direction)
    if not bidirectional:
        return b.op("Squeeze", y, b.constant([1], np.int64))
    return b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), b.constant([0, 0, -1], np.int64))


def _encoder(b: ModelBuilder, source: str, source_length: str, vocabulary: int, hidden: int, layers: int) -> str:
    """→ f32[N,S,hidden]"""
    table = b.weight("embedder.weight", b.normal(vocabulary, hidden, std=0.5))
    x = b.op("Transpose", b.op("Gather", table, source, layer="embedder", axis=0), perm=[1, 0, 2])
    for layer in range(layers):
        with b.scope(f"rnn_layers.{layer}"):
            if layer == 0:
                x = lstm(b, x, hidden, hidden, bidirectional=True, lengths=source_length)
            else:
                y = lstm(b, x, 2 * hidden if layer == 1 else hidden, hidden)
                x = b.op("Add", y, x) if layer > 1 else y
    return b.op("Transpose", x, perm=[1, 0, 2])


def _attention(
    b: ModelBuilder, query: str, memory: str, source_length: str, hidden: int, source_size: Size
) -> str:  # fmt: skip
    """Normalised Bahdanau attention: softmax_s(v · tanh(Wq q + Wk k + b)) · memory, masked past each length."""
    axis1, axis2 = b.constant([1], np.int64), b.constant([2], np.int64)
    q = b.op("Unsqueeze", b.linear(query, "linear_q", hidden, hidden, bias=False), axis2)
    k = b.op("Unsqueeze", b.linear(memory, "linear_k", hidden, hidden, bias=False), axis1)
    x = b.op("Add", b.op("Add", q, k), b.weight("normalize_bias", b.normal(hidden, std=0.1)))
    v = b.weight("linear_att", b.normal(hidden, 1, std=(4.0 / hidden) ** 0.5))
    scores = b.op("Squeeze", b.op("MatMul", b.op("Tanh", x), v), b.constant([3], np.int64))
    if not isinstance(source_size, int):
        source_size = b.op("Gather", b.op("Shape", memory), b.constant(1, np.int64), axis=0)
    end = b.constant(source_size, np.int64) if isinstance(source_size, int) else source_size
    positions = b.op("Range", b.constant(0, np.int64), end, b.constant(1, np.int64))
    length = b.op("Unsqueeze", b.op("Cast", source_length, to=7), axis1)
    outside = b.op("Unsqueeze", b.op("GreaterOrEqual", positions, length), axis1)
    scores = b.op("Where", outside, b.constant(-65504.0), scores)
    return b.op("MatMul", b.op("Softmax", scores, axis=2), memory)
