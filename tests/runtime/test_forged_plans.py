"""Plans whose manifest was edited and its digests worked out anew: refused, or exactly the right result."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_plans import add_manifest, fake_plan
from forging import Forgery, Original, forgeries, is_fine, originals, outcome
from parax.errors import CorruptPlan, InternalError
from parax.runtime import Plan, load
from parax.runtime.interface import MARK, NBYTES, PARTS, SYMBOL, interface_digests, interface_text, marked_code

Build = Callable[..., Plan]
N_FORGERIES = 160


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> list[Original]:
    return originals(tmp_path_factory.mktemp("plans"))


@pytest.fixture(scope="module")
def by_name(plans: list[Original]) -> dict[str, Original]:
    return {plan.name: plan for plan in plans}


def test_every_forged_plan_is_refused_or_right(plans: list[Original], tmp_path: Path) -> None:
    said = {str(forgery): outcome(forgery, tmp_path / "forged.bin") for forgery in forgeries(plans, N_FORGERIES, 11)}
    assert {forgery: how for forgery, how in said.items() if not is_fine(how)} == {}
    assert any(how == "right" for how in said.values()) and sum(how != "right" for how in said.values()) > 100


def test_an_unchanged_plan_is_right(plans: list[Original], tmp_path: Path) -> None:
    for plan in plans:
        manifest = load(plan.path).json()
        if plan.name in ("layered", "pipelined"):
            with load(plan.path).session() as session:
                assert session.mode == manifest["schedule"]["mode"] == plan.name
        assert outcome(Forgery(plan, (), manifest), tmp_path / "same.bin") == "right"


EDITS: list[tuple[str, str, tuple[Any, ...], Any]] = [
    ("static", "outputs", ("outputs", 0, "shape"), [2]),
    ("static", "outputs", ("outputs", 0, "dtype"), "f64"),
    ("static", "inputs", ("inputs", 0, "shape"), [4, 16]),
    ("static", "steps", ("steps", 0, "outputs"), ["z", "y"]),
    ("static", "steps", ("steps", 0, "inputs"), ["x", "x"]),
    ("rows", "steps", ("steps", 0, "arena"), 0),
    ("symbolic", "steps", ("steps", 0, "scratch"), 1 << 20),
    ("symbolic", "symbols", ("symbols", 0, "max"), 1 << 40),
    ("symbolic", "constraints", ("constraints",), [{"op": "==", "left": "N", "right": "N", "text": ""}]),
    ("rows", "batch", ("batch", "axis"), {"x": 0}),
    ("rows", "delay", ("delay", "seconds"), 3600),
    ("rows", "targets", ("targets", 0, "features"), []),
    ("segments", "values", ("values",), {}),
    ("branches", "constants", ("constants",), {"w": {"dtype": "f32", "shape": [4], "offset": 0}}),
    ("strings", "steps", ("steps", 0, "attrs"), {"axis": None, "sorted": 0}),
]


@pytest.mark.parametrize(("name", "part", "place", "value"), EDITS, ids=lambda v: str(v)[:40])
def test_code_knows_its_manifest(
    by_name: dict[str, Original], name: str, part: str, place: tuple[Any, ...], value: Any
) -> None:
    plan = load(by_name[name].path)
    raw = deepcopy(plan.json())
    holder = raw
    for key in place[:-1]:
        holder = holder[key]
    assert holder[place[-1]] != value
    holder[place[-1]] = value
    try:
        forged = Plan(raw, plan._members)
    except CorruptPlan:  # a contradiction within the manifest
        return
    for use in (forged.session, forged.verify):
        with pytest.raises(CorruptPlan, match=f"another value of {part};"):
            use()


def test_weights_of_another_size(add_plan: Build) -> None:
    plan = add_plan()
    code = {"base": bytes(plan.code(plan.manifest.targets[0]))}
    forged = Plan.build(plan.json(), code, np.ones(15, np.float32))
    with pytest.raises(CorruptPlan, match="another value of weights;"):
        forged.session()


def test_code_of_another_plan(add_plan: Build) -> None:
    other = add_plan(outputs=[{"name": "y", "dtype": "f32", "shape": ["N", 2]}], batch=None)
    code = {"base": bytes(other.code(other.manifest.targets[0]))}
    with pytest.raises(CorruptPlan, match="another value of outputs, batch;"):
        Plan.build(add_plan().json(), code, np.ones(16, np.float32)).session()


def test_what_code_does_not_depend_on_may_change(add_plan: Build) -> None:
    plan = add_plan()
    raw = plan.json() | {"hint": "latency", "name": "other", "micro_batch": 2, "provenance": {"by": "hand"}}
    raw["batch"]["min_rows"] = 2
    with Plan(raw, plan._members).session(instances=1) as session:
        assert session.run({"x": np.ones((3, 4), np.float32)})["y"].tolist() == [[2.0] * 4] * 3


def test_digests_are_those_of_the_values_not_of_their_spelling() -> None:
    manifest = add_manifest()
    digests = interface_digests(manifest, "base", 64)
    assert len(digests) == NBYTES == 32 * len(PARTS)
    assert interface_digests(json.loads(json.dumps(dict(reversed(manifest.items())))), "base", 64) == digests
    assert interface_digests(manifest | {"weights": {"size": 1}}, "base", 64) == digests
    assert interface_digests(manifest, "base", 65) != digests
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(CorruptPlan, match="nested too deeply"):
        interface_digests(manifest | {"steps": deep}, "base", 64)


def test_code_without_exactly_one_mark_is_no_code() -> None:
    assert SYMBOL in interface_text()
    digests = bytes(NBYTES)
    assert marked_code(b"a" + MARK + b"b", digests) == b"a" + digests + b"b"
    for code, found in ((b"", 0), (MARK * 2, 2)):
        with pytest.raises(InternalError, match=f"found {found}"):
            marked_code(code, digests)


def test_a_graph_that_is_no_text(add_plan: Build) -> None:
    plan = add_plan()
    raw = plan.json()
    raw["graph"], raw["graph_digest"] = "code/base.o", raw["targets"][0]["digest"]
    with pytest.raises(CorruptPlan, match="not text"):
        _ = Plan(raw, plan._members).graph


def test_fake_plans_are_as_the_compilers(add_code: bytes) -> None:
    fake_plan(add_manifest(), {"base": add_code}, bytes(64)).verify()
