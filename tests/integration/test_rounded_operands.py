"""The hidden option that rounds operands of products: who asks gets it, the plan says so, nobody else is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from parax import CompileOptions
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.cli import main
from parax.compiler.options import documentation

TARGET = "x86-64-v4+avx512bf16"
RUNS = resolve_target(TARGET).supported_by(host_features())
WEIGHTS = np.random.default_rng(0).standard_normal((512, 256), np.float32)
U = 2.0**-8


def model() -> bytes:
    """x·W by a constant matrix, and the result by a matrix that requests give."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="the.constant"),
             helper.make_node("MatMul", ["h", "z"], ["y"], name="the.given")]  # fmt: skip
    shapes = {"x": ["N", 512], "z": [256, 3], "h": ["N", 256], "y": ["N", 3]}
    x, z, h, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    graph = helper.make_graph(nodes, "products", [x, z], [h, y], [numpy_helper.from_array(WEIGHTS, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def compiled(*targets: str, matmul_input: str = "bf16", **options: Any) -> parax.Plan:
    usual = {"cache": False, "calibrate": False}
    return parax.compile(model(), options=CompileOptions(targets=targets, matmul_input=matmul_input, **usual | options))


def test_the_plan_says_what_is_rounded_and_for_which_target() -> None:
    plan = compiled(TARGET, "x86-64-v3")
    assert plan.manifest.provenance["products"] == "bf16"
    assert plan.manifest.provenance["rounded"] == [{"node": "the.constant", "target": TARGET, "to": "bf16"}]
    assert [t.name for t in plan.manifest.targets] == [TARGET, "x86-64-v3"]
    assert "avx512bf16" in plan.manifest.targets[0].features


def test_weights_take_half_the_memory() -> None:
    half, whole = (compiled(TARGET, matmul_input=to).manifest.weights.size for to in ("bf16", "f32"))
    assert WEIGHTS.nbytes / 2 <= half < 0.6 * WEIGHTS.nbytes and whole >= WEIGHTS.nbytes


def test_nothing_is_rounded_unasked() -> None:
    for plan in (compiled(TARGET, matmul_input="f32"), compiled("x86-64-v4", matmul_input="bf16")):
        assert plan.manifest.provenance["rounded"] == []
    plan = parax.compile(model(), options=CompileOptions(calibrate=False, targets=("native",)))
    assert plan.manifest.provenance["products"] == "f32" and plan.manifest.provenance["rounded"] == []
    assert "avx512bf16" not in plan.manifest.targets[0].features


def test_native_code_rounds_where_this_cpu_has_the_instructions() -> None:
    plan = compiled("native")
    assert bool(plan.manifest.provenance["rounded"]) == RUNS
    assert ("avx512bf16" in plan.manifest.targets[0].features) == RUNS


@pytest.mark.slow
@pytest.mark.skipif(not RUNS, reason="this CPU lacks AVX512-BF16")
def test_no_cache_takes_one_for_the_other(tmp_path: Path) -> None:
    """Three plans out of one folder, by turns: only the rounded one's results are those of rounded operands."""
    rng = np.random.default_rng(1)
    feeds = {"x": rng.standard_normal((7, 512), np.float32), "z": rng.standard_normal((256, 3), np.float32)}
    exact = feeds["x"].astype(np.float64) @ WEIGHTS
    sizes = np.abs(feeds["x"]).astype(np.float64) @ np.abs(WEIGHTS)
    for to in ("f32", "bf16", "f32", "bf16"):
        plan = compiled(TARGET, matmul_input=to, cache=True, cache_dir=tmp_path, opt_level=3, tune_seconds=1.0)
        with plan.session() as session:
            h = session.run(feeds)["h"]
        error = np.abs(h - exact) / sizes
        assert error.max() <= (2 * U + U * U + 2e-4 if to == "bf16" else 1e-5)
        assert (error.max() > 1e-5) == (to == "bf16"), "they were rounded, or not"
        with compiled(TARGET, matmul_input=to).session() as session:
            np.testing.assert_array_equal(session.run(feeds)["h"], h)


def test_inspect_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for to in ("bf16", "f32"):
        compiled(TARGET, matmul_input=to).save(tmp_path / f"{to}.bin")
        assert main(["inspect", str(tmp_path / f"{to}.bin")]) == 0
        shown = capsys.readouterr().out
        assert ("operands rounded" in shown) == (to == "bf16") == ("the.constant" in shown)
        assert any(line.split() == ["products", to] for line in shown.splitlines())


def test_the_option_is_hidden() -> None:
    assert "matmul_input" not in documentation()
    with pytest.raises(parax.UsageError, match="matmul_input"):
        CompileOptions(matmul_input="fp8")
    with pytest.raises(parax.UsageError, match="strict_fp"):
        CompileOptions(matmul_input="bf16", strict_fp=True)
