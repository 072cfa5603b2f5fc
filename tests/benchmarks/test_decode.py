"""Tokens a second: the sides make equal tokens, and the table has a row for each."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import decode
from parax.errors import InternalError


def test_the_command_measures_every_side(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is the other side of the comparison")
    monkeypatch.setattr("sys.argv", ["decode", "--small", "--rounds", "2", "--tokens", "5", "--prompt", "3"])
    assert decode.main() == 0
    rows = capsys.readouterr().out.splitlines()
    sides = [row[:34].strip() for row in rows[3:]]
    peers = [f"ONNX Runtime {kind}" for kind in ("f32", "MatMulNBits", "MatMulNBits, level 4")]
    assert sides == ["parax f32", "parax f16", "parax int8", "parax int4", *peers]
    assert all(float(row[34:].split()[0]) > 0 for row in rows[3:])


def test_other_tokens_are_no_measurement() -> None:
    sides = [decode.Side("a", "f32", lambda: iter(range(9))), decode.Side("b", "f32", lambda: iter([0] * 9))]
    with pytest.raises(InternalError, match="other tokens"):
        decode.check(sides)
    decode.check([sides[0], decode.Side("c", "int4", sides[1].tokens)])


def test_weights_are_counted() -> None:
    from examples.models.language import llama

    arrays = {t.name: np.prod(t.dims) for t in llama(decode.SMALL).graph.initializer}
    products = [n for name, n in arrays.items() if name.endswith("_proj.weight") or name == "lm_head.weight"]
    assert decode.n_weights(decode.SMALL) == sum(products)
