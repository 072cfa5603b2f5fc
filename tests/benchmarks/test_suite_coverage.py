"""docs/coverage.md and the list of cases that do not pass, against the suite: the list may only shrink."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import helper

from benchmarks import suite_coverage, suite_sides
from benchmarks.suite_coverage import Skips

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"


def test_the_list_and_the_page() -> None:
    """Every listed case is one, and does not pass; the page is what the list makes of it."""
    skips = suite_coverage.read_skips()
    if not skips.is_of_this_version:
        pytest.skip("the list is of the suite of another version of onnx")
    operators, passed = {}, {}
    for case in suite_sides.cases():
        key = case.kind, case.name
        operators[key] = suite_coverage.operators_of(case.model)
        listed = key in skips.reasons
        passed[key] = not listed or suite_sides.outcome(case, suite_sides.with_parax)["status"] == "pass"
    assert suite_coverage.disagreements(skips, passed) == [], "take out of the list what passes now"
    assert PAGE.read_text() == suite_coverage.page(operators, skips.reasons), "write it anew, as its first line says"


def test_disagreements() -> None:
    passed = {("node", "good"): True, ("node", "bad"): False, ("node", "worse"): False}
    skips = Skips(onnx.__version__, {("node", "bad"): "why", ("node", "good"): "why", ("node", "gone"): "why"})
    good, gone, worse = suite_coverage.disagreements(skips, passed)
    assert "node good" in good and good.endswith("but passes")
    assert "node gone" in gone and gone.endswith("is no case")
    assert worse.startswith("node worse: does not pass")
    assert suite_coverage.disagreements(Skips("0", {}), passed) == []


def test_a_case_has_one_reason(tmp_path: Path) -> None:
    path = tmp_path / "skips.json"
    path.write_text(json.dumps({"onnx": "1", "cases": {"a": ["node/x"], "b": ["node/x"]}}))
    with pytest.raises(ValueError, match="twice"):
        suite_coverage.read_skips(path)


def test_operators_of_bodies_and_functions_count() -> None:
    y = helper.make_empty_tensor_value_info("y")
    body = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "b", [], [y])
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    opset = [helper.make_opsetid("", 20)]
    function = helper.make_function("own", "F", ["x"], ["y"], [helper.make_node("Det", ["x"], ["y"])], opset)
    model = helper.make_model(helper.make_graph([node], "g", [], []), functions=[function])
    assert suite_coverage.operators_of(model) == {"If", "Relu", "Det"}
