"""`parax inspect --partition`: layers and stages of a model for a described machine, as tables and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest
from onnx import TensorProto, helper

from parax.compiler import cli
from parax.compiler.options import CompileOptions
from parax.compiler.planner.partitioned import partition
from parax.compiler.planning import planner_of
from parax.errors import UsageError

SVG = "{http://www.w3.org/2000/svg}"
MACHINE = """name = "slow"
cores_per_socket = 2
flops_per_core = 1e6
bandwidth_per_core = 1e6
bandwidth_per_socket = 2e6
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two chains of two operators, and their sum."""
    nodes = [("Exp", ["x"], "a"), ("Exp", ["a"], "b"), ("Softmax", ["x"], "c"), ("Softmax", ["b"], "d"),
             ("Softmax", ["c"], "e"), ("Add", ["d", "e"], "y")]  # fmt: skip
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 64]) for name in "xy"]
    made = [helper.make_node(op, xs, [y], f"the.{y}") for op, xs, y in nodes]
    graph = helper.make_graph(made, "g", *[[side] for side in sides])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    (tmp_path / "slow.toml").write_text(MACHINE)
    return path


def inspected(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    assert cli.main(["inspect", *map(str, args)]) == 0
    return capsys.readouterr().out


def test_layers_and_what_they_hand_on(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = model.with_name("slow.toml")
    found = json.loads(inspected(capsys, model, "--partition", "--machine", machine, "--format", "json"))
    assert (found["mode"], found["n_cores"], found["rows"], found["simulated"]) == ("layered", 2, 1, True)
    assert found["seconds"] < found["sequential_seconds"]
    wide = next(layer for layer in found["layers"] if len(layer["branches"]) == 2)
    assert [branch["cores"] for branch in wide["branches"]] == [[0], [1]]
    assert len(wide["result"]) == 2
    names = [name for layer in found["layers"] for branch in layer["branches"] for name in branch["nodes"]]
    assert len(names) == len(set(names)) and {"the.d", "the.e"} <= set(names)
    table = inspected(capsys, model, "--partition", "--machine", machine)
    assert "layered" in table and "the.d" in table and "results" in table


def test_a_picture_of_layers_and_results(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = model.with_name("layers.svg")
    inspected(capsys, model, "--partition", "--machine", model.with_name("slow.toml"), "--svg", picture)
    drawn = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    boxes = {g.findtext(f"{SVG}title"): g.find(f"{SVG}rect").attrib for g in drawn.iter(f"{SVG}g")}  # type: ignore[union-attr]
    one, other = boxes["the.a (elementwise)"], boxes["the.e (softmax)"]
    assert float(one["x"]) + float(one["width"]) < float(other["x"]), "cores are columns"
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert "Result: 2 values" in texts and "softmax" in texts and "layer 0" in texts
    assert float(boxes["the.d (softmax)"]["y"]) > float(other["y"]) > float(one["y"])
    assert float(boxes["the.d (softmax)"]["width"]) > 2 * float(one["width"])


def test_a_picture_belongs_to_a_partition(model: Path) -> None:
    assert cli.main(["inspect", str(model), "--svg", str(model.with_name("layers.svg"))]) != 0


def test_stages_and_micro_batches(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = model.with_name("slow.toml")
    args = (model, "--partition", "--machine", machine, "--stages", 2, "--batch", 32, "--format", "json")
    found = json.loads(inspected(capsys, *args))
    assert (found["mode"], found["rows"]) == ("pipelined", 32)
    assert {layer["stage"] for layer in found["layers"]} == {0, 1}
    assert found["micro_batches"] >= 2


def test_this_machine_is_partitioned_for_by_default(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(inspected(capsys, model, "--partition", "--cores", "0", "--format", "json"))
    assert (found["mode"], found["n_cores"], found["simulated"]) == ("sequential", 1, False)


def test_a_fixed_batch_does_not_flow(model: Path) -> None:
    machine = str(model.with_name("slow.toml"))
    planner = planner_of(model, CompileOptions(dims={"N": 4}, hint="latency"), machine)
    with pytest.raises(UsageError, match="leave the batch dimension open"):
        partition(planner, None, 2)
    with pytest.raises(UsageError, match="fixed"):
        partition(planner, 3, None)


def test_a_plan_says_that_it_runs_in_sequence(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = model.with_name("plan.bin")
    assert cli.main(["compile", str(model), "-o", str(plan), "-q"]) == 0
    capsys.readouterr()
    assert "one kernel after the other" in inspected(capsys, plan, "--partition")
