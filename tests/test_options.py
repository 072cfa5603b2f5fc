"""CompileOptions: checks, documentation, and that what is chosen reaches the plan."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from parax import CompileOptions
from parax.compiler.commands.models import BUNDLED
from parax.compiler.ir.fp import Fp
from parax.compiler.kernel_ir.parser import parse_function
from parax.compiler.options import FP_LEVELS, documentation


def relu() -> object:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "relu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


@pytest.mark.parametrize(
    "wrong",
    [
        {"opt_level": 4}, {"opt_level": -1}, {"hint": "fast"}, {"mode": "fast"},
        {"precision": "fp8"}, {"instances": 0}, {"jobs": 0},
        {"max_memory": 0}, {"tune_seconds": -1.0}, {"tune_seconds": float("nan")},
        {"check": -1}, {"targets": ()}, {"cores": ()}, {"shapes": {"x": (-1, 2)}},
        {"shapes": {"x": ("a b",)}}, {"shapes": {"x": (True,)}}, {"dims": {"N": -1}}, {"dims": {"N": (0, 0)}},
        {"dims": {"N": (4, 3)}},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_values_are_refused_when_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(parax.UsageError) as caught:
        CompileOptions(**wrong)
    assert next(iter(wrong)).rstrip("s") in str(caught.value)


def test_levels_of_floating_point_exclude_each_other() -> None:
    given: list[dict[str, Any]] = [{}, {"strict_fp": True}, {"fast_fp": True}]
    assert [CompileOptions(**options).fp for options in given] == ["default", "strict", "fast"]
    assert set(FP_LEVELS) == {level.value for level in Fp}
    with pytest.raises(parax.UsageError, match="strict_fp and fast_fp"):
        CompileOptions(strict_fp=True, fast_fp=True)


def large_product() -> bytes:
    weights = np.random.default_rng(0).standard_normal((512, 512), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="the.product")]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 512, 512]) for name in "xy")
    graph = helper.make_graph(nodes, "product", [x], [y], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_the_level_of_floating_point_reaches_the_kernels_and_the_plan() -> None:
    """Products by Strassen's algorithm take scratch memory, but no more of the weights', and not with strict sums."""
    found = {}
    for level in FP_LEVELS:
        options = CompileOptions(strict_fp=level == "strict", fast_fp=level == "fast", cache=False)
        plan = parax.compile(large_product(), options=options)
        assert plan.manifest.provenance["fp"] == level
        assert plan.manifest.weights.size < 1.1 * (4 * 512 * 512)
        x = np.random.default_rng(1).standard_normal((1, 512, 512), np.float32)
        found[level] = plan.session().run({"x": x})["y"]
    np.testing.assert_array_equal(found["default"], found["fast"])
    assert 0 < np.abs(found["strict"] - found["default"]).max() < 1e-3


def test_folders_may_be_given_as_text() -> None:
    made = CompileOptions(dump="dumped", cache_dir="kept")  # type: ignore[arg-type]
    assert (made.dump, made.cache_dir) == (Path("dumped"), Path("kept"))


def test_options_are_immutable_and_documented() -> None:
    with pytest.raises(FrozenInstanceError):
        CompileOptions().opt_level = 3  # type: ignore[misc]
    hidden = [field.name for field in fields(CompileOptions) if "hidden" in field.metadata]
    assert list(documentation()) == [field.name for field in fields(CompileOptions) if field.name not in hidden]
    assert hidden == ["matmul_input", "rounds_computed"]
    assert all(documentation().values())


def test_variables_give_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARAX_TARGET", "x86-64-v3")
    monkeypatch.setenv("PARAX_DUMP", "somewhere")
    assert parax.compile(relu()).manifest.targets[0].name == "x86-64-v3"
    assert CompileOptions().dump == Path("somewhere")
    assert CompileOptions(dump=None).dump is None


def test_dims_and_shapes_reach_the_plan() -> None:
    assert parax.compile(relu(), dims={"N": 3}).inputs[0].shape == (3, 4)
    assert parax.compile(relu(), shapes={"x": ("M", 4)}).inputs[0].shape == ("M", 4)
    bounded = parax.compile(relu(), dims={"N": (2, 5)})
    with bounded.session() as session:
        assert session.run({"x": np.ones((5, 4), np.float32)})["y"].sum() == 20
        with pytest.raises(parax.InvalidInput):
            session.run({"x": np.ones((6, 4), np.float32)})


def test_instances_and_hint_reach_the_session() -> None:
    with parax.compile(relu(), options=CompileOptions(instances=1)).session() as session:
        assert session.instances == 1
    latency = parax.compile(relu(), hint="latency")
    assert latency.manifest.hint == "latency"
    with latency.session() as session:
        chosen = latency.manifest.arrangement  # None where nothing was to be decided: one instance, all cores
        assert session.instances == (chosen.instances if chosen else 1)


def test_equal_compilations_give_equal_bytes(tmp_path: Path) -> None:
    for name in "ab":
        parax.compile(BUNDLED / "digits.onnx", options=CompileOptions(cache=False)).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_choices_of_kernels_reach_the_plan(tmp_path: Path) -> None:
    def choices(**options: Any) -> list[dict[str, Any]]:
        fixed = {"instances": 1, "mode": "sequential"}  # else the rows a call may bring depend on times measured
        plan = parax.compile(BUNDLED / "digits.onnx", options=CompileOptions(cache_dir=tmp_path, **fixed, **options))
        found: list[dict[str, Any]] = plan.manifest.provenance["choices"]
        return found

    model = choices(cache=False)
    assert model and {choice["by"] for choice in model} == {"model"}
    measured = choices(opt_level=3)
    assert "measured" in {choice["by"] for choice in measured} <= {"measured", "cache"}
    cached = choices()
    assert {choice["by"] for choice in cached} == {"cache"}
    assert [(c["kernel"], c["seconds"]) for c in cached] == [(c["kernel"], c["seconds"]) for c in measured]
    assert choices(opt_level=3, cache=False, tune_seconds=0.0) == model


def test_targets_reach_the_plan() -> None:
    plan = parax.compile(relu(), target=["x86-64-v2", "x86-64-v3"])
    assert [target.name for target in plan.manifest.targets] == ["x86-64-v2", "x86-64-v3"]
    with pytest.raises(parax.UsageError):
        parax.compile(relu(), target="z80")


def test_max_memory_is_a_limit() -> None:
    with pytest.raises(parax.ResourceLimit):
        parax.compile(BUNDLED / "digits.onnx", options=CompileOptions(max_memory=10_000))


def test_arguments_win_over_options() -> None:
    plan = parax.compile(relu(), hint="latency", options=CompileOptions(hint="throughput"))
    assert plan.manifest.hint == "latency"


def test_dump_tells_the_whole_story(tmp_path: Path) -> None:
    parax.compile(relu(), options=CompileOptions(dump=tmp_path / "d", targets=("x86-64-v3",)))
    names = {path.name for path in (tmp_path / "d").iterdir()}
    assert {"00-import.txt", "x86-64-v3.ll", "x86-64-v3.s"} <= names
    (kernel,) = (tmp_path / "d" / "kernels" / "x86-64-v3").iterdir()
    text = kernel.read_text()
    assert str(parse_function(text)) + "\n" == text
    assert f"kernel @{kernel.stem}(" in text


def test_debug_levels_tell_more_and_more(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    for level in range(6):
        monkeypatch.setenv("PARAX_DEBUG", str(level))
        parax.compile(relu())
        told.append(re.sub(r"[0-9.]+", "#", capfd.readouterr().err))  # times have more digits or fewer
    assert told[0] == ""
    assert "import:" in told[1]
    assert "refused" in told[3]
    assert "define" in told[5]
    assert "\nkernel @" in told[5] or "parax: kernel @" in told[5]
    assert [len(text) for text in told] == sorted(len(text) for text in told)
