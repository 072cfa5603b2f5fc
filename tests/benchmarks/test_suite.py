"""ONNX's own suite as a benchmark: what counts as passed, refused and wrong, and what a crash costs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks import suite, suite_sides


def case(op: str, expected: list[float], **attributes: Any) -> suite_sides.Case:
    specs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], **attributes)], "g", specs[:1], specs[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return suite_sides.Case("node", op, made, [([np.float32([-1, 2])], [np.float32(expected)])], 1e-3, 1e-7)


@pytest.mark.parametrize("side", sorted(suite_sides.SIDES))
def test_outcomes(side: str) -> None:
    run = suite_sides.SIDES[side]
    assert suite_sides.outcome(case("Relu", [0, 2]), run) == {"status": "pass"}
    wrong = suite_sides.outcome(case("Relu", [0, 3]), run)
    assert wrong["status"] == "wrong" and "Mismatch" in wrong["reason"]
    assert suite_sides.outcome(case("NoSuchThing", [0, 2]), run)["status"] in ("refused", "failed")


def test_what_parax_lacks_is_refused_by_operator() -> None:
    refused = suite_sides.outcome(case("ImageDecoder", [0, 2]), suite_sides.with_parax)
    assert refused["status"] in ("refused", "failed")


def test_data_of_folders_are_read(tmp_path: Path) -> None:
    made = case("Relu", [0, 2])
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    for name, array in (("input_0", made.data[0][0][0]), ("output_0", made.data[0][1][0])):
        (folder / f"{name}.pb").write_bytes(onnx.numpy_helper.from_array(array).SerializeToString())
    ((inputs, outputs),) = suite_sides._read_data(made.model, tmp_path)
    np.testing.assert_array_equal(inputs[0], [-1, 2])
    np.testing.assert_array_equal(outputs[0], [0, 2])


CHILD = """
import json, os, sys
pairs = [("a", "parax"), ("a", "onnxruntime"), ("b", "parax"), ("b", "onnxruntime")]
for number, (name, side) in enumerate(pairs):
    if number < int(sys.argv[-1]):
        continue
    key = {"kind": "node", "name": name, "side": side}
    print(json.dumps(key), flush=True)
    if (name, side) == ("a", "onnxruntime"):
        os.abort()
    print(json.dumps({**key, "status": "pass"}), flush=True)
"""


def test_a_crash_costs_one_case_on_one_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "child"
    script.write_text(f"#!{sys.executable}\n{CHILD}")
    script.chmod(0o755)
    monkeypatch.setattr(suite.sys, "executable", str(script))
    records = suite.all_records(1, 60)
    found = {(r["name"], r["side"]): r["status"] for r in records}
    assert found == {("a", "parax"): "pass", ("a", "onnxruntime"): "crash", ("b", "parax"): "pass",
                     ("b", "onnxruntime"): "pass"}  # fmt: skip
    assert "| onnxruntime | 2 | 1 | 0 | 0 | 0 | 1 |" in suite.table(records)
    assert not suite.bad(records) and len(suite.bad(records, "onnxruntime")) == 1
    assert json.loads(json.dumps(records)) == records


def test_refusals_are_counted_by_operator() -> None:
    records = [{"kind": "node", "name": str(i), "side": "parax", "status": "refused", "reason": "why", "operators": ops}
               for i, ops in enumerate((["Det"], ["Det"], []))]  # fmt: skip
    assert suite.refusals(records) == [(2, "Det"), (1, "why")]
