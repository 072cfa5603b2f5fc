"""Manifests that nobody should trust: every field malformed in every way, references to nothing, contradictions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fake_plans import add_manifest
from parax.errors import CorruptPlan, IncompatiblePlan, InternalError
from parax.runtime import Plan
from parax.runtime.manifest_reader import ManifestReader

Build = Callable[..., Plan]


def mutations(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every field in a JSON value."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path for key, inner in items for path in [(*at, key), *mutations(inner, (*at, key))]]


WRONG: list[Any] = [
    None,
    -1,
    0,
    1,
    3.5,
    True,
    "",
    "zzz",
    "N",
    "9" * 30,
    10**30,
    [],
    [[]],
    {},
    {"a": 1},
    ["+", 1],
    ["//", 1, 0],
]


def test_every_malformed_field_is_refused_cleanly(add_plan: Build) -> None:
    manifest = add_plan(hint="latency", micro_batch=4, constraints=[{"op": "<=", "left": "N", "right": 9}]).json()
    manifest["steps"].append(
        {"kind": "host", "op": "Identity", "attrs": {"axis": 1}, "inputs": ["x"], "outputs": ["v"]}
    )
    manifest["symbols"].append({"name": "K"})
    manifest["steps"][1]["binds"] = [{"symbol": "K", "output": 0, "axis": 1}]
    manifest["values"] = {"v": {"dtype": "f32", "shape": ["N", "K"]}}
    manifest["constants"] = {"c": {"dtype": "f32", "shape": [2, 2], "offset": 16}}
    assert refused(manifest) > 800


def test_every_malformed_field_of_a_schedule_is_refused_cleanly(add_plan: Build) -> None:
    for manifest in (add_plan(schedule=layered()).json(), add_plan(schedule=pipelined()).json()):
        assert refused(manifest["schedule"], ("schedule",), manifest) > 150


def layered() -> dict[str, Any]:
    """Another program of the plan y = x + 1."""
    step = {**add_manifest()["steps"][0], "segment": 1, "arena": 64}
    stage = {"first_core": 0, "n_cores": 2, "n_layers": 3}
    return {"mode": "layered", "n_cores": 2, "micro_batches": None, "stages": [stage], "step": step}


def pipelined() -> dict[str, Any]:
    """A pipeline for it."""
    stages = [{"first_core": i, "n_cores": 1, "n_layers": 1} for i in range(2)]
    return {**layered(), "mode": "pipelined", "micro_batches": 4, "stages": stages}


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "sequential"}, {"n_cores": 1}, {"n_cores": 3}, {"micro_batches": 2}, {"stages": []},
        {"stages": [{"first_core": 0, "n_cores": 1, "n_layers": 1}]}, {"stages": layered()["stages"] * 2},
        {"stages": [{"first_core": 1, "n_cores": 2, "n_layers": 1}]},
        {"step": {**layered()["step"], "segment": 0}}, {"step": {**layered()["step"], "outputs": ["x"]}},
        {"step": {**layered()["step"], "arena": "K"}}, {"step": {**layered()["step"], "kind": "host"}},
    ],
    ids=str,
)  # fmt: skip
def test_a_schedule_that_contradicts_its_plan(add_plan: Build, change: dict[str, Any]) -> None:
    add_plan(schedule=layered())
    with pytest.raises(InternalError, match="breaks its own format"):
        add_plan(schedule={**layered(), **change})


def test_a_pipeline_needs_a_batch_and_stages_of_their_own(add_plan: Build) -> None:
    add_plan(schedule=pipelined())
    same = [{"first_core": 0, "n_cores": 1, "n_layers": 1}] * 2
    many = [{"first_core": 0, "n_cores": 1 << 16, "n_layers": 1}] * (1 << 16)  # refused without counting cores
    for change in ({"micro_batches": None}, {"stages": same}, {"n_cores": 1 << 16, "stages": many}):
        with pytest.raises(InternalError):
            add_plan(schedule={**pipelined(), **change})
    with pytest.raises(InternalError):
        add_plan(schedule=pipelined(), batch=None)


def refused(value: Any, at: tuple[Any, ...] = (), manifest: Any = None) -> int:
    """How many changes to a field within `value` are refused; none may end in another error.

    Args:
        value: what is changed, at the path `at` of the manifest (default: the manifest itself).
    """
    manifest = value if manifest is None else manifest
    assert ManifestReader(json.loads(json.dumps(manifest))).read()
    text = json.dumps(manifest)
    count = 0
    for path in mutations(value, at):
        for wrong in [*WRONG, "delete"]:
            copy = json.loads(text)
            place = copy
            for key in path[:-1]:
                place = place[key]
            if wrong == "delete":
                del place[path[-1]]
            else:
                place[path[-1]] = wrong
            try:
                ManifestReader(copy).read()
            except (CorruptPlan, IncompatiblePlan):
                count += 1
    return count


def test_a_dimension_nested_too_deeply(add_plan: Build) -> None:
    manifest = add_plan().json()
    deep: Any = "N"
    for _ in range(200):
        deep = ["+", deep, 1]
    manifest["steps"][0]["arena"] = deep
    with pytest.raises(CorruptPlan, match="too large"):
        ManifestReader(manifest).read()
