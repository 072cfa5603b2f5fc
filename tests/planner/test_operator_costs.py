"""`parax inspect --costs`: arithmetic, bytes, intensity and bound of every operator, as a table and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from parax.compiler import cli
from parax.compiler.options import CompileOptions
from parax.compiler.planner.operator_costs import operator_costs
from parax.compiler.planning import planner_of
from parax.errors import UsageError

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,64,28,28] x) => (float[N,32,28,28] y)
{ a = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (x, w)  y = Softmax <axis = 1> (a) }"""
MACHINE = """name = "one core"
cores_per_socket = 1
flops_per_core = 1e9
bandwidth_per_core = 1e8
bandwidth_per_socket = 1e8
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    made = onnx.parser.parse_model(MODEL)
    weight = np.random.default_rng(0).standard_normal((32, 64, 3, 3), np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    for node in made.graph.node:
        node.name = f"the.{node.op_type.lower()}"
    onnx.save(made, tmp_path / "m.onnx")
    (tmp_path / "machine.toml").write_text(MACHINE)
    return tmp_path / "m.onnx"


def shown(model: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    machine = str(model.with_name("machine.toml"))
    assert cli.main(["inspect", str(model), "--costs", "--machine", machine, "--batch", "2", *more]) == 0
    return capsys.readouterr().out


def test_intensity_and_bound_of_every_operator(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(shown(model, capsys, "--format", "json"))
    assert (found["machine"], found["simulated"], found["rows"]) == ("one core", True, 2)
    listed = [o for o in found["operators"] if o["kind"] != "movement"]  # of the layouts that the convolution wants
    conv, softmax = (next(o for o in listed if o["name"] == f"the.{name}") for name in ("conv", "softmax"))
    assert conv["flops"] == 2 * 2 * 64 * 32 * 9 * 28 * 28
    assert conv["intensity"] == pytest.approx(1 / (32 * 9) + 1 / (64 * 9) + 1 / (2 * 28 * 28), rel=1e-3)
    assert (conv["bound"], softmax["bound"]) == ("compute", "memory")


def test_the_table_ends_with_the_sum(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = shown(model, capsys)
    lines = [line for line in table.splitlines() if line.strip()]
    assert "the.conv" in table and "elements per multiply-add" in table
    assert lines[-1].startswith("all")


def test_only_a_models_costs_are_counted(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", str(model), "--costs", "--partition"]) != 0
    assert "--costs" in capsys.readouterr().err
    planner = planner_of(model, CompileOptions(dims={"N": 4}, hint="latency"), str(model.with_name("machine.toml")))
    with pytest.raises(UsageError, match="fixed"):
        operator_costs(planner, 3)


def test_the_level_of_floating_point_decides_which_kernel_is_counted(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {}
    for fp in ("strict", "default", "fast"):
        found = json.loads(shown(model, capsys, "--format", "json", "--fp", fp))
        kinds[fp] = {o["name"]: o["kind"] for o in found["operators"]}["the.conv"]
    assert kinds == {"strict": "conv", "default": "winograd", "fast": "winograd"}
