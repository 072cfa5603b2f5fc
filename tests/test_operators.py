"""`parax operators` and docs/operators.md against the catalogue, the importer and each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from parax.compiler import driver, supported
from parax.compiler.ir.ops import CATALOGUE
from parax.compiler.options import CompileOptions
from parax.errors import UnsupportedOp

Cli = Callable[..., "CompletedProcess[str]"]
PAGE = Path(__file__).parent.parent / "docs" / "operators.md"
LISTED = {entry.full_name: entry for entry in supported.supported()}


def one_node(entry: supported.Supported, n_inputs: int = 1) -> onnx.ModelProto:
    """A model of one node with f32[2, 3, 4, 5] operands, of the operator's newest version."""
    names = [f"x{i}" for i in range(n_inputs)]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3, 4, 5]) for name in names]
    node = helper.make_node(entry.name, names, ["y"], domain=entry.domain)
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 20), *([helper.make_opsetid(entry.domain, 1)] if entry.domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_the_page_is_what_the_command_writes() -> None:
    text = PAGE.read_text()
    if f"with onnx {onnx.__version__}." not in text:
        pytest.skip("the page lists the operators of another version of onnx")
    assert text == supported.page(), "write it anew: parax operators -o docs/operators.md"


def test_every_operator_of_the_catalogue_is_listed() -> None:
    names = {f"{domain}.{name}" if domain else name for domain, name in CATALOGUE if domain != supported.OWN}
    assert names < set(LISTED) and all(LISTED[name].runs != supported.NONE for name in names)


@pytest.mark.parametrize(("name", "runs"), [
    ("Conv", supported.NATIVE), ("Loop", supported.CONTROL), ("NonZero", supported.HOST),
    ("SwiGLU", supported.NATIVE), ("AffineGrid", supported.NATIVE), ("HannWindow", supported.DEFINITION),
    ("ImageDecoder", supported.NONE),
    ("Bernoulli", supported.NATIVE), ("Constant", supported.CONSTANT), ("Upsample", supported.NATIVE),
    ("com.microsoft.FusedConv", supported.NATIVE), ("ai.onnx.ml.TreeEnsembleClassifier", supported.NATIVE),
    ("ai.onnx.ml.SVMClassifier", supported.NATIVE),
])  # fmt: skip
def test_where_operators_run(name: str, runs: str) -> None:
    assert LISTED[name].runs == runs


def test_an_upgrade_of_an_old_version_is_no_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """RoiAlign was listed as native because its version 10 had a rule."""
    rule = supported.UPGRADES["", "RoiAlign"]
    monkeypatch.setitem(supported.UPGRADES, ("", "ImageDecoder"), rule)
    monkeypatch.setitem(supported.UPGRADES, ("old.domain", "Gone"), [(2**31, rule[0][1])])
    found = {entry.full_name: entry.runs for entry in supported.supported()}
    assert found["ImageDecoder"] == supported.NONE and found["old.domain.Gone"] == supported.NATIVE


def test_what_is_listed_as_missing_is_refused_by_name() -> None:
    missing = [entry for entry in LISTED.values() if entry.runs == supported.NONE and 0 < entry.versions[0] <= 20]
    unary = [entry for entry in missing if onnx.defs.get_schema(entry.name, entry.domain).min_input == 1
             and not onnx.defs.get_schema(entry.name, entry.domain).min_output > 1]  # fmt: skip
    refused = 0
    for entry in unary:
        required = onnx.defs.get_schema(entry.name, entry.domain).attributes.values()
        if any(attribute.required for attribute in required):
            continue
        with pytest.raises(UnsupportedOp) as caught:
            driver.preflight(one_node(entry), CompileOptions())
        assert caught.value.uses[0].operator == entry.full_name
        refused += 1
    assert refused


def test_unary_operators_that_are_listed_compile() -> None:
    compiled = 0
    for entry in LISTED.values():
        if entry.runs != supported.NATIVE or entry.domain or len(entry.types) != 1 or not entry.versions:
            continue
        if entry.name in ("Det", "EyeLike", "Multinomial"):  # of matrices only, Det of square ones
            continue
        schema = onnx.defs.get_schema(entry.name)
        needs = any(attribute.required for attribute in schema.attributes.values())
        if "f32" in entry.types_text and entry.versions[0] <= 20 and schema.max_input == 1 and not needs:
            driver.preflight(one_node(entry), CompileOptions())
            compiled += 1
    assert compiled > 30


def test_types_by_operand() -> None:
    assert LISTED["Gather"].types_text.endswith("indices: i32 | i64")
    assert LISTED["And"].types_text == "bool"


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    done = cli("operators", "Conv", "ai.onnx.Relu", "--format", "json")
    assert done.returncode == 0
    found = json.loads(done.stdout)["operators"]
    assert [entry["name"] for entry in found] == ["Conv", "Relu"] and found[0]["versions"][:2] == [1, 11]
    assert cli("operators", "Conv", "ImageDecoder").returncode == 3
    done = cli("operators", "Comv")
    assert done.returncode == 2 and "did you mean Conv" in done.stderr
    assert cli("operators", "--domain", "nowhere").returncode == 2
    shown = cli("operators", "--domain", "ai.onnx", "--unsupported").stdout
    assert "\nImageDecoder" in shown and "\nConv " not in shown
    assert cli("operators", "-o", "page.md").returncode == 0
    assert (tmp_path / "page.md").read_text() == supported.page()
    assert cli("operators", "Conv", "-o", "other.md").returncode == 2 and not (tmp_path / "other.md").exists()


def test_sizes_of_the_list() -> None:
    versions = np.array([len(entry.versions) for entry in LISTED.values() if not entry.domain])
    assert len(versions) > 200 and versions.max() >= 10
