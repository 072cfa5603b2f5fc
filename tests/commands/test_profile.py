"""`parax profile` and `parax compare`: what they print, write and refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parax
from parax.compiler import cli
from parax.compiler.commands.models import BUNDLED
from parax.runtime.profiling.comparing import of_rounds, pairs

Capture = pytest.CaptureFixture[str]
QUICK = ("--seconds", "0.05")
MODEL = BUNDLED / "digits.onnx"


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The bundled model as a plan, built to record and not."""
    folder = tmp_path_factory.mktemp("profile")
    options = {
        "recorded": parax.CompileOptions(profile=True), "plain": parax.CompileOptions(),
        "strict": parax.CompileOptions(profile=True, strict_fp=True),
    }  # fmt: skip
    made = {name: folder / f"{name}.bin" for name in options}
    for name, path in made.items():
        parax.compile(MODEL, options=options[name]).save(path)
    return made


def done(capsys: Capture, *words: object, code: int = 0) -> tuple[str, str]:
    assert cli.main([str(word) for word in words]) == code
    shown = capsys.readouterr()
    return shown.out, shown.err


def document(capsys: Capture, *words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done(capsys, *words, "--format", "json")[0])
    return found


@pytest.mark.parametrize("source", ["recorded", "model"])
def test_the_parts_add_up_and_are_predicted(source: str, plans: dict[str, Path], capsys: Capture) -> None:
    found = document(capsys, "profile", MODEL if source == "model" else plans[source], "--batch", 64, *QUICK)
    parts = sum(own["seconds"] for own in found["operators"]) + found["entering"] + found["outside"]
    assert parts == pytest.approx(found["seconds_per_request"]) and found["requests"] > 0
    convolutions = [own for own in found["operators"] if own["op"].startswith("Conv")]
    assert len(convolutions) == 2 and all(own["predicted"] > 0 and own["flops"] > 0 for own in convolutions)
    assert found["recording_cost"] > -1


def test_the_tables_name_the_models_nodes_and_the_longest_only(plans: dict[str, Path], capsys: Capture) -> None:
    out, err = done(capsys, "profile", plans["recorded"], "--top", 2, "--batch", 64, *QUICK)
    assert "name in the model" in out and "more operators" in out and "outside: hand-off" in out
    assert "recording takes" in err


def test_every_form_is_written(plans: dict[str, Path], tmp_path: Path, capsys: Capture) -> None:
    words = ["-o", tmp_path / "trace.json", "-o", tmp_path / "data.json"]
    done(capsys, "profile", plans["recorded"], *words, *QUICK)
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert json.loads((tmp_path / "data.json").read_text())["operators"]
    pytest.importorskip("altair")
    done(capsys, "profile", plans["recorded"], "--html", tmp_path / "page.html", *QUICK)
    assert "<html" in (tmp_path / "page.html").read_text()[:200]


def test_several_callers(plans: dict[str, Path], capsys: Capture) -> None:
    found = document(capsys, "profile", plans["recorded"], "--callers", 3, "--batch", 256, *QUICK)
    assert found["requests"] >= 3


@pytest.mark.parametrize(("words", "message"), [
    (("-o", "p.txt"), "no such form of a profile"),
    (("--html", "nowhere/p.html"), "nowhere"),
    (("--callers", "0"), "--callers"),
])  # fmt: skip
def test_what_cannot_be_is_refused_at_once(
    words: tuple[str, ...], message: str, plans: dict[str, Path], capsys: Capture
) -> None:
    assert message in done(capsys, "profile", plans["recorded"], *words, code=2)[1]


def test_a_plan_that_records_nothing_says_what_to_do(plans: dict[str, Path], capsys: Capture) -> None:
    assert "compile with --profile" in done(capsys, "profile", plans["plain"], code=4)[1]


def test_two_plans_side_by_side(plans: dict[str, Path], capsys: Capture) -> None:
    found = document(capsys, "compare", plans["recorded"], plans["strict"], "--batch", 64, *QUICK)
    assert found["profiled"] and found["a"]["fp"] == "default" and found["b"]["fp"] == "strict"
    assert found["ratio"] == pytest.approx(found["b"]["latency"] / found["a"]["latency"])
    assert len(found["operators"]) >= 3 and all(own["a"] > 0 and own["b"] > 0 for own in found["operators"])
    out, _ = done(capsys, "compare", plans["recorded"], plans["strict"], "--top", 1, *QUICK)
    assert "operators that differ most" in out and "more" in out and "together" in out


def test_a_plan_without_records_is_compared_as_a_whole(plans: dict[str, Path], capsys: Capture) -> None:
    out, err = done(capsys, "compare", plans["plain"], MODEL, *QUICK)
    assert "a request, p50" in out and "operators" not in out and "was not compiled with --profile" in err


def test_a_model_beside_a_profile_gets_requests_of_its_sizes(
    plans: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "p.json"
    done(capsys, "profile", plans["recorded"], "-o", path, "--batch", 32, *QUICK)
    out, err = done(capsys, "compare", path, plans["strict"], "--format", "json", *QUICK)
    assert [own["N"] for own in json.loads(out)["b"]["sizes"]] == [32] and "differ" not in err
    _, err = done(capsys, "compare", path, plans["strict"], "--batch", 2, *QUICK)
    assert "the requests differ: {'N': 32} and {'N': 2}" in err


def test_a_profile_against_itself_differs_in_nothing(plans: dict[str, Path], tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "p.json"
    done(capsys, "profile", plans["recorded"], "-o", path, *QUICK)
    found = document(capsys, "compare", path, path)
    assert found["ratio"] == 1.0 and all(own["a"] == own["b"] for own in found["operators"])
    assert document(capsys, "compare", path, plans["strict"], *QUICK)["profiled"]


@pytest.mark.parametrize(("text", "code"), [("{}", 2), ("{", 2)])
def test_a_file_that_is_no_profile_is_refused(
    text: str, code: int, plans: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "p.json").write_text(text)
    assert "not a profile" in done(capsys, "compare", tmp_path / "p.json", plans["plain"], code=code)[1]
    assert "cannot be read" in done(capsys, "compare", tmp_path / "none.bin", plans["plain"], code=2)[1]


def operator(names: list[str], seconds: float, op: str = "Conv", value: str = "v") -> dict[str, Any]:
    return {"names": names, "seconds": seconds, "waiting": 0.0, "share": 0.1, "op": op, "value": value,
            "title": names[0] if names else f"%{value}"}  # fmt: skip


def test_operators_are_the_same_that_share_a_node_of_the_model() -> None:
    a = {"operators": [operator(["c", "r"], 3.0, "Conv+Relu"), operator(["s"], 1.0), operator([], 0.5, value="w")]}
    b = {"operators": [operator(["c"], 2.0), operator(["r", "t"], 0.25, "Relu+T"), operator([], 0.75, value="w"),
                       operator(["new"], 0.1)]}  # fmt: skip
    found = {pair.title: (pair.first, pair.second, pair.ops) for pair in pairs(a, b)}
    assert found == {
        "c": (3.0, 2.25, ("Conv+Relu", "Conv, Relu+T")), "s": (1.0, 0.0, ("Conv", "")),
        "%w": (0.5, 0.75, ("Conv", "Conv")), "new": (0.0, 0.1, ("", "Conv")),
    }  # fmt: skip
    assert [pair.title for pair in pairs(a, b)][:2] == ["s", "c"]


def test_rounds_are_their_median() -> None:
    def made(seconds: float) -> dict[str, Any]:
        return {"operators": [operator(["c"], seconds)], "seconds_per_request": seconds, "outside": 0.0,
                "entering": 0.0, "latency": {"p50": seconds}, "requests": 2}  # fmt: skip

    found = of_rounds([made(3.0), made(1.0), made(2.0)])
    assert found["seconds_per_request"] == 2.0 and found["operators"][0]["seconds"] == 2.0 and found["requests"] == 6


def test_memory_over_time_is_at_most_the_arena(plans: dict[str, Path]) -> None:
    from parax.runtime.dims import evaluate

    plan = parax.load(plans["recorded"])
    step = plan.manifest.native_steps()[0]
    with plan.session(instances=1, cores_per_instance=1, micro_batch=64) as session:
        x = np.zeros((16, *plan.inputs[0].dims[1:]), np.float32)  # type: ignore[index]
        with session.profile() as profile:
            session.run({plan.inputs[0].name: x})
    used = [nbytes for _, nbytes in profile.document["memory"]]
    assert 0 < max(used) <= evaluate(step.arena, {plan.manifest.symbols[0].name: 16})
