"""Decoders of language models with a cache of keys and values, in the operators of PyTorch's exports.

Inputs: `input_ids` i64[N,S], and for each layer `past.L.key` and `past.L.value` f32[N,heads,P,depth]. Outputs:
`logits` f32[N,S,vocabulary], and `present.L.key` and `present.L.value`, which are longer by S. Token i of a call has
position P + i, and sees those before it.

GPT-2 (Radford et al. 2019) has learnt positions, LayerNormalization before each branch and one product for queries,
keys and values. LLaMA (Touvron et al. 2023) turns queries and keys by their positions (Su et al. 2021), has RMS
normalisation, SiLU gates, and may share keys and values among heads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx

from .builder import ModelBuilder, Size
from .transformer import layer_norm

LOWEST = float(np.finfo(np.float32).min)
PAST, PRESENT = "past.*", "present.*"
"""Names of the cache, as `parax.compile(state={PAST: PRESENT})` takes them."""


@dataclass(frozen=True)
class Sizes:
    """Of a decoder.

    Attributes:
        key_heads: heads of keys and values; `heads` is a multiple. inner: width between the two products of a block.
        positions: the greatest length.
    """

    layers: int = 4
    hidden: int = 128
    heads: int = 4
    key_heads: int = 2
    inner: int = 352
    vocabulary: int = 512
    positions: int = 1024

    @property
    def depth(self) -> int:
        """Numbers of a head."""
        return self.hidden // self.heads


@dataclass(frozen=True)
class _Call:
    """What all layers of one call share: its sizes N and S, positions [S], and what is added to scores [S,P+S]."""

    n: Size
    s: Size
    positions: str
    mask: str


def gpt(sizes: Sizes, seed: int = 0) -> onnx.ModelProto:
    """A model like GPT-2; every head has keys and values of its own."""
    z = replace(sizes, key_heads=sizes.heads)
    b = ModelBuilder("gpt", "N", seed)
    words = b.weight("wte.weight", b.normal(z.vocabulary, z.hidden, std=0.5))
    table = b.weight("wpe.weight", b.normal(z.positions, z.hidden, std=0.3))
    ids, caches, call = _inputs(b, z)
    x = b.op("Add", b.op("Gather", words, ids, axis=0), b.op("Gather", table, call.positions, axis=0))
    for layer, (key, value) in enumerate(caches):
        with b.scope(f"h.{layer}"):
            y = b.linear(layer_norm(b, x, "ln_1", z.hidden, 1e-5, "fused"), "attn.c_attn", z.hidden, 3 * z.hidden)
            parts = b.ops("Split", y, b.constant([z.hidden] * 3, np.int64), n_outputs=3, axis=-1)
            q, k, v = (_heads(b, part, call, z.heads, z.depth) for part in parts)
            k, v = (b.op("Concat", past, new, axis=2) for past, new in ((key, k), (value, v)))
            y = b.linear(_attention(b, q, k, v, call, z), "attn.c_proj", z.hidden, z.hidden)
            x = b.op("Add", x, y)
            y = b.linear(layer_norm(b, x, "ln_2", z.hidden, 1e-5, "fused"), "mlp.c_fc", z.hidden, z.inner)
            x = b.op("Add", x, b.linear(_tanh_gelu(b, y), "mlp.c_proj", z.inner, z.hidden))
        _keep(b, layer, k, v, z)
    x = layer_norm(b, x, "ln_f", z.hidden, 1e-5, "fused")
    return _logits(b, x, z)


def llama(sizes: Sizes, seed: int = 0) -> onnx.ModelProto:
    """A model like LLaMA."""
    z, b = sizes, ModelBuilder("llama", "N", seed)
    words = b.weight("embed_tokens.weight", b.normal(z.vocabulary, z.hidden, std=0.5))
    ids, caches, call = _inputs(b, z)
    turns = [b.op("Gather", table, call.positions, axis=0) for table in _turns(b, z)]
    x = b.op("Gather", words, ids, axis=0)
    for layer, (key, value) in enumerate(caches):
        with b.scope(f"layers.{layer}"):
            y = _rms_norm(b, x, "input_layernorm", z.hidden)
            q, k, v = (_heads(b, b.linear(y, f"self_attn.{name}_proj", z.hidden, heads * z.depth, bias=False), call,
                              heads, z.depth) for name, heads in zip("qkv", (z.heads, z.key_heads, z.key_heads)))
            q, k = (_turned(b, part, turns, z.depth) for part in (q, k))
            k, v = (b.op("Concat", past, new, axis=2) for past, new in ((key, k), (value, v)))
            y = _attention(b, q, *(_repeated(b, part, call, z) for part in (k, v)), call, z)
            x = b.op("Add", x, b.linear(y, "self_attn.o_proj", z.hidden, z.hidden, bias=False))
            y = _rms_norm(b, x, "post_attention_layernorm", z.hidden)
            gate, up = (b.linear(y, f"mlp.{name}_proj", z.hidden, z.inner, bias=False) for name in ("gate", "up"))
            y = b.op("Mul", b.op("Mul", gate, b.op("Sigmoid", gate)), up)
            x = b.op("Add", x, b.linear(y, "mlp.down_proj", z.inner, z.hidden, bias=False))
        _keep(b, layer, k, v, z)
    return _logits(b, _rms_norm(b, x, "norm", z.hidden), z)


DECODERS = {"gpt": gpt, "llama": llama}


def _inputs(b: ModelBuilder, z: Sizes) -> tuple[str, list[tuple[str, str]], _Call]:
    """Tokens, the caches of keys and values, and what all layers share."""
    ids, shape = b.input("input_ids", ["N", "S"], np.int64), ["N", z.key_heads, "P", z.depth]
    caches = [(b.input(f"past.{i}.key", shape, np.float32), b.input(f"past.{i}.value", shape, np.float32))
              for i in range(z.layers)]  # fmt: skip
    n, s, p = b.size(ids, 0, "N"), b.size(ids, 1, "S"), b.size(caches[0][0], 2, "P")
    total, zero, one = b.op("Add", p, s), b.constant(0, np.int64), b.constant(1, np.int64)
    positions, keys = b.op("Range", p, total, one), b.op("Range", zero, total, one)
    seen = b.op("LessOrEqual", keys, b.op("Unsqueeze", positions, b.constant([1], np.int64)))
    return ids, caches, _Call(n, s, positions, b.op("Where", seen, b.constant(0.0), b.constant(LOWEST)))


def _heads(b: ModelBuilder, x: str, call: _Call, heads: int, depth: int) -> str:
    """[N,S,heads·depth] → [N,heads,S,depth]."""
    return b.op("Transpose", b.reshape(x, [call.n, call.s, heads, depth]), perm=[0, 2, 1, 3])


def _attention(b: ModelBuilder, q: str, k: str, v: str, call: _Call, z: Sizes) -> str:
    """Of each token to those before it; [N,S,hidden]."""
    scores = b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = b.op("Add", b.op("Mul", scores, b.constant(z.depth**-0.5)), call.mask)
    y = b.op("MatMul", b.op("Softmax", scores, axis=-1), v)
    return b.reshape(b.op("Transpose", y, perm=[0, 2, 1, 3]), [call.n, call.s, z.hidden])


def _repeated(b: ModelBuilder, x: str, call: _Call, z: Sizes) -> str:
    """Keys or values [N,key heads,T,depth] once for each head that reads them."""
    group = z.heads // z.key_heads
    if group == 1:
        return x
    t = b.size(x, 2, "T")
    wide = b.op("Unsqueeze", x, b.constant([2], np.int64))
    wide = b.op("Expand", wide, b.shape_vector([call.n, z.key_heads, group, t, z.depth]))
    return b.reshape(wide, [call.n, z.heads, t, z.depth])


def _turns(b: ModelBuilder, z: Sizes) -> tuple[str, str]:
    """Cosines and sines [positions, depth], of both halves of a head."""
    speeds = 10000.0 ** (-np.arange(0, z.depth, 2) / z.depth)
    angles = np.tile(np.outer(np.arange(z.positions), speeds), 2)
    cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    return b.weight("rotary.cos", cosines), b.weight("rotary.sin", sines)


def _turned(b: ModelBuilder, x: str, turns: list[str], depth: int) -> str:
    first, second = b.ops("Split", x, b.constant([depth // 2] * 2, np.int64), n_outputs=2, axis=-1)
    across = b.op("Concat", b.op("Neg", second), first, axis=-1)
    return b.op("Add", b.op("Mul", x, turns[0]), b.op("Mul", across, turns[1]))


def _rms_norm(b: ModelBuilder, x: str, layer: str, width: int) -> str:
    scale = b.weight(f"{layer}.weight", b.uniform(width, 0.8, 1.2))
    with b.scope(layer):
        square = b.op("ReduceMean", b.op("Pow", x, b.constant(2.0)), axes=[-1])
        root = b.op("Sqrt", b.op("Add", square, b.constant(1e-5)))
        return b.op("Mul", scale, b.op("Mul", x, b.op("Reciprocal", root)))


def _tanh_gelu(b: ModelBuilder, x: str) -> str:
    cube = b.op("Mul", b.op("Pow", x, b.constant(3.0)), b.constant(0.044715))
    inner = b.op("Tanh", b.op("Mul", b.op("Add", x, cube), b.constant((2 / np.pi) ** 0.5)))
    return b.op("Mul", b.op("Mul", x, b.constant(0.5)), b.op("Add", inner, b.constant(1.0)))


def _keep(b: ModelBuilder, layer: int, k: str, v: str, z: Sizes) -> None:
    shape = ["N", z.key_heads, "P + S", z.depth]
    b.output(k, f"present.{layer}.key", shape)
    b.output(v, f"present.{layer}.value", shape)


def _logits(b: ModelBuilder, x: str, z: Sizes) -> onnx.ModelProto:
    y = b.linear(x, "lm_head", z.hidden, z.vocabulary, bias=False, gain=4.0)
    b.output(y, "logits", ["N", "S", z.vocabulary])
    return b.model()


__all__ = ["DECODERS", "PAST", "PRESENT", "Sizes", "gpt", "llama"]
