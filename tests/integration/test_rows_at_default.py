"""Whole plans at the defaults: a row that is large or not finite costs no other row of its item its own bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from parax import CompileOptions

ROWS, DEPTH = 512, 512
UNIT = 2.0**-24
TYPICAL = 3  # times the sum of a row's magnitudes and the largest weight: the bound is far larger
WEIGHTS = np.random.default_rng(1).standard_normal((DEPTH, DEPTH), np.float32)


def model(pointwise: bool) -> bytes:
    """A product of one item's rows, large enough for any algorithm; or the same as a 1×1 convolution."""
    weights, node = WEIGHTS, helper.make_node("MatMul", ["x", "w"], ["y"])
    shape = [1, ROWS, DEPTH]
    if pointwise:
        weights, shape = np.ascontiguousarray(WEIGHTS.T)[:, :, None, None], [1, DEPTH, 16, 32]
        node = helper.make_node("Conv", ["x", "w"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph([node], "product", [x], [y], [numpy_helper.from_array(weights, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def bound(x: np.ndarray, pointwise: bool) -> np.ndarray:
    """Of each element's error: its row's own (docs/commands.md, `--fp`)."""
    if pointwise:
        return np.asarray((DEPTH + 8) * UNIT * (np.abs(x).astype(np.float64) @ np.abs(WEIGHTS)))
    return np.asarray(TYPICAL * UNIT * np.abs(x).astype(np.float64).sum(-1, keepdims=True) * np.abs(WEIGHTS).max())


@pytest.mark.usefixtures("any_target")
@pytest.mark.sample(4)
@pytest.mark.parametrize("options", [
    {"targets": ("x86-64-v2",)}, {"hint": "latency", "mode": "sequential"},
    {"opt_level": 3, "tune_seconds": 1.0, "instances": 1, "mode": "sequential"},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("pointwise", [False, True])
def test_other_rows_keep_their_bound(pointwise: bool, options: dict[str, Any], tmp_path: Path) -> None:
    plan = parax.compile(model(pointwise), options=CompileOptions(cache_dir=tmp_path, **options))
    x = np.random.default_rng(0).standard_normal((ROWS, DEPTH), np.float32)

    def run(rows: np.ndarray) -> np.ndarray:
        if not pointwise:
            return np.asarray(session.run({"x": rows[None]})["y"][0])
        y = session.run({"x": np.ascontiguousarray(rows.T).reshape(1, DEPTH, 16, 32)})["y"]
        return np.asarray(y).reshape(DEPTH, ROWS).T

    with plan.session() as session:
        for row, scale in ((0, 1), (0, 1e4), (256, 1e8), (511, np.inf), (0, np.nan), (300, 1e-41), (64, 0)):
            spoiled = x.copy()
            spoiled[row] *= np.float32(scale)
            fine = np.isfinite(spoiled).all(-1)
            given = spoiled[fine]
            wrong = np.abs(run(spoiled)[fine] - given.astype(np.float64) @ WEIGHTS)
            assert (wrong <= bound(given, pointwise) + 512 * 2.0**-149).all()


@pytest.mark.parametrize("strict", [False, True])
def test_strict_floating_point_mixes_no_rows(strict: bool) -> None:
    """By default some others' last bits are other ones, so that the test above has something to find."""
    options = CompileOptions(strict_fp=strict, cache=False)
    x = np.random.default_rng(0).standard_normal((ROWS, DEPTH), np.float32)
    with parax.compile(model(False), options=options).session() as session:
        clean = session.run({"x": x[None]})["y"][0]
        x[0] *= np.float32(1e6)
        changed = (session.run({"x": x[None]})["y"][0] != clean).any(axis=1)
    assert changed[0] and (changed.sum() == 1) == strict
