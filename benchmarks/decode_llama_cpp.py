"""llama.cpp's side of `benchmarks.decode`: the same weights in its file format, and the tokens that it makes of them.

Needs the extra `bench-llama`: llama-cpp-python, which compiles llama.cpp for the CPU at hand (10 minutes of one core),
and gguf, which writes and rounds. Weights of Q4_0 are 4 bits with an f16 for each 32 of a row; llama.cpp rounds
activations to 8 bits for them, and keeps keys and values in f16, which are its defaults; in f32 it keeps f32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from examples.models.language import Sizes
from parax.errors import InternalError

NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
"""Of a layer's weights, here and there."""
ENDS = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}


def missing() -> str | None:
    """Why this side cannot run; None: it can."""
    lacking = [name for name in ("llama_cpp", "gguf") if find_spec(name) is None]
    return f"{' and '.join(lacking)} not installed: pip install 'parax[bench-llama]'" if lacking else None


def write_gguf(path: Path, model: onnx.ModelProto, sizes: Sizes, kind: str) -> None:
    """Write the weights of `examples.models.language.llama`.

    Args:
        kind: of the matrices, "F32" or "Q4_0"; vectors are f32.
    """
    import gguf

    writer, z = gguf.GGUFWriter(path, "llama"), sizes
    writer.add_context_length(z.positions)
    writer.add_embedding_length(z.hidden)
    writer.add_block_count(z.layers)
    writer.add_feed_forward_length(z.inner)
    writer.add_head_count(z.heads)
    writer.add_head_count_kv(z.key_heads)
    writer.add_rope_dimension_count(z.depth)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(z.vocabulary)
    writer.add_tokenizer_model("no_vocab")
    to = gguf.GGMLQuantizationType[kind]
    for name, array in tensors(model, sizes):
        rounds = array.ndim == 2 and to != gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(array, to) if rounds else array, raw_dtype=to if rounds else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(model: onnx.ModelProto, sizes: Sizes) -> Iterator[tuple[str, np.ndarray]]:
    """The weights by llama.cpp's names: matrices as [outputs, inputs], queries and keys as its rotation has them.

    It turns neighbouring numbers of a head together, the model number i and i + depth / 2.
    """
    for initializer in model.graph.initializer:
        name, is_weight, rest = initializer.name.rpartition(".weight")
        if not is_weight or rest:
            continue
        array = onnx.numpy_helper.to_array(initializer)
        if name in ENDS:
            yield f"{ENDS[name]}.weight", array.T.copy() if name == "lm_head" else array
            continue
        _, layer, own = name.split(".", 2)
        array = array.T.copy()
        if own in ("self_attn.q_proj", "self_attn.k_proj"):
            halves = array.reshape(-1, 2, sizes.depth // 2, sizes.hidden)
            array = halves.swapaxes(1, 2).reshape(array.shape)
        yield f"blk.{layer}.{NAMES[own]}.weight", array


class LlamaCpp:
    """A model of llama.cpp's, and its cache.

    Args:
        kind: of its matrices, as `write_gguf` takes it. longest: tokens of the cache.
    """

    def __init__(self, path: Path, sizes: Sizes, kind: str, n_threads: int, longest: int) -> None:
        import llama_cpp

        self._native: Any = llama_cpp
        self._vocabulary = sizes.vocabulary
        self._quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._quiet, None)
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        if not self._model:
            raise InternalError("llama.cpp does not read the model", where=str(path))
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_threads, params.n_threads_batch = longest, n_threads, n_threads
        if kind == "F32":
            params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise InternalError("llama.cpp makes no cache for the model", where=str(path))

    def tokens(self, prompt: Sequence[int]) -> Iterator[int]:
        """The likeliest tokens after the prompt, from the beginning."""
        native, given = self._native, list(prompt)
        native.llama_memory_clear(native.llama_get_memory(self._context), True)
        while True:
            batch = (native.llama_token * len(given))(*given)
            if failed := native.llama_decode(self._context, native.llama_batch_get_one(batch, len(given))):
                raise InternalError("llama.cpp made no token", where="llama_decode", found=failed)
            logits = native.llama_get_logits_ith(self._context, -1)
            token = int(np.ctypeslib.as_array(logits, (self._vocabulary,)).argmax())
            yield token
            given = [token]

    def close(self) -> None:
        """Free its memory; no tokens may be asked for any more."""
        self._native.llama_free(self._context)
        self._native.llama_model_free(self._model)


__all__ = ["LlamaCpp", "missing", "tensors", "write_gguf"]
