"""The model list: each small edition is valid ONNX, runs in ONNX Runtime, and computes every row on its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from examples.models import MODELS, build, feeds
from examples.models.count import count
from sampling import sampled

onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime computes the reference results")

FLOPS = {
    "resnet50": 8.18e9, "mobilenet-v1": 1.14e9, "mobilenet-v2": 0.60e9, "word-lm": 0.93e9, "resnext50": 8.46e9,
    "nasnet": 1.12e9,
}  # fmt: skip
"""Published or independently measured flops of one item (two a multiply-add)."""


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


@pytest.mark.parametrize("name", sampled([name for name in MODELS if name not in ("resnet50", "resnet101")], 3))
def test_small_edition_runs_and_keeps_rows_apart(name: str) -> None:
    model = build(name, small=True)
    onnx.checker.check_model(model, full_check=True)
    inputs = feeds(name, batch=2, seed=3, small=True)
    both = run(model, inputs)
    assert len(both) == len(model.graph.output)
    for row in range(2):
        alone = run(model, {key: value[row : row + 1] for key, value in inputs.items()})
        for whole, part in zip(both, alone, strict=True):
            assert np.isfinite(part).all()
            assert part.shape == (1, *whole.shape[1:])
            np.testing.assert_allclose(whole[row : row + 1], part, rtol=1e-4, atol=1e-5)
    assert all(np.abs(whole[0] - whole[1]).max() > 1e-3 for whole in both), "outputs do not depend on the inputs"


@pytest.mark.parametrize("name", ["ncf", "word-lm"])
def test_same_seed_gives_same_bytes(name: str) -> None:
    first, again, other = (
        build(name, small=True, seed=seed).SerializeToString(deterministic=True) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("name", sorted(FLOPS))
def test_flops_are_those_of_the_published_model(name: str) -> None:
    _, flops = count(build(name, batch=1))
    assert flops == pytest.approx(FLOPS[name], rel=0.01)


@pytest.mark.parametrize("norm", ["fused", "decomposed"])
def test_both_forms_of_layer_norm_agree_on_the_operators(norm: str) -> None:
    model = build("bert-base", small=True, options={"norm": norm})
    n_fused = sum(node.op_type == "LayerNormalization" for node in model.graph.node)
    n_sqrt = sum(node.op_type == "Sqrt" for node in model.graph.node)
    assert (n_fused, n_sqrt) == ((5, 0) if norm == "fused" else (0, 5))


def test_resnext_with_its_paths_spelled_out_has_the_flops_of_grouped_convolutions() -> None:
    sizes = {"cardinality": 8, "width": 16}
    flops = [count(build("resnext50", batch=1, options=sizes | {"grouped": grouped}))[1] for grouped in (True, False)]
    assert flops[0] == flops[1]


def test_static_batch_leaves_no_symbol() -> None:
    model = build("bert-base", batch=2, small=True, options={"length": 8})
    sizes = [dim for value in (*model.graph.input, *model.graph.output) for dim in value.type.tensor_type.shape.dim]
    assert all(dim.HasField("dim_value") for dim in sizes)
    assert "Shape" not in {node.op_type for node in model.graph.node}


def test_unknown_option_is_named() -> None:
    with pytest.raises(KeyError, match="'colour'"):
        build("mlp", options={"colour": 1})


def test_command_writes_the_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.models", "mlp", "--set", "hidden=8", "-o", str(tmp_path / "mlp.onnx")]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2], timeout=60)
    assert onnx.load(tmp_path / "mlp.onnx").graph.initializer[0].dims == [8, 784]
