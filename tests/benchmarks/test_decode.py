"""Tokens a second: the sides make equal tokens, and the table has a row for each."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from benchmarks import decode, decode_llama_cpp
from examples.models.language import llama
from parax.errors import InternalError


def test_the_command_measures_every_side(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is the other side of the comparison")
    monkeypatch.setattr("sys.argv", ["decode", "--small", "--rounds", "2", "--tokens", "5", "--prompt", "3"])
    assert decode.main() == 0
    printed = capsys.readouterr().out.splitlines()
    rows = printed[next(i for i, row in enumerate(printed) if "tokens/s" in row) + 1 :]
    peers = [f"ONNX Runtime {kind}" for kind in ("f32", "MatMulNBits", "MatMulNBits, level 4")]
    if reason := decode_llama_cpp.missing():
        assert f"without llama.cpp: {reason}" in printed
    else:
        peers += ["llama.cpp f32", "llama.cpp Q4_0"]
    assert [row[:34].strip() for row in rows] == ["parax f32", "parax f16", "parax int8", "parax int4", *peers]
    assert all(float(row[34:].split()[0]) > 0 for row in rows)


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_llama_cpp, "find_spec", lambda name: None)
    assert str(decode_llama_cpp.missing()).startswith("llama_cpp and gguf not installed: pip install")


def test_every_weight_has_its_name_in_llama_cpp() -> None:
    """A square matrix is turned round, and a head's halves are woven."""
    model, sizes = llama(decode.SMALL), decode.SMALL
    own = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name.endswith(".weight")}
    found = dict(decode_llama_cpp.tensors(model, sizes))
    assert len(found) == len(own) == 3 + 9 * sizes.layers
    q = own["layers.0.self_attn.q_proj.weight"].T
    depth, turned = sizes.depth, found["blk.0.attn_q.weight"]
    np.testing.assert_array_equal(turned[:4], q[[0, depth // 2, 1, depth // 2 + 1]])
    np.testing.assert_array_equal(found["blk.0.ffn_down.weight"], own["layers.0.mlp.down_proj.weight"].T)
    np.testing.assert_array_equal(found["token_embd.weight"], own["embed_tokens.weight"])


def test_other_tokens_are_no_measurement() -> None:
    sides = [decode.Side("a", "f32", lambda: iter(range(9))), decode.Side("b", "f32", lambda: iter([0] * 9))]
    with pytest.raises(InternalError, match="other tokens"):
        decode.check(sides)
    decode.check([sides[0], decode.Side("c", "int4", sides[1].tokens)])


def test_weights_are_counted() -> None:
    arrays = {t.name: np.prod(t.dims) for t in llama(decode.SMALL).graph.initializer}
    products = [n for name, n in arrays.items() if name.endswith("_proj.weight") or name == "lm_head.weight"]
    assert decode.n_weights(decode.SMALL) == sum(products)
