"""Choices between kernels: what is measured is followed, kept, and forgotten when what it depends on changes."""

from __future__ import annotations

import json
import math
import multiprocessing
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backend.harness import host_targets
from backend.kernels.naive import normal
from parax.compiler.backend import tuning
from parax.compiler.backend.kernels.conv.conv import lower_conv
from parax.compiler.backend.lowering import Candidates, LowerContext, WeightStore
from parax.compiler.backend.measuring import can_measure, measure
from parax.compiler.backend.tuning import Tuner, key_of, read_entry, write_entry
from parax.compiler.ir.graph import Graph, Node
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import BF16

TIMES = {"direct": 3e-6, "direct-short": 2e-6, "direct-long": 1e-6}


def conv(size: int = 9, batch: str = "N", width: str = "9", channels: int = 16) -> Node:
    graph = parse_graph(f"""
graph @g(%x: f32[{batch},{channels},{size},{width}]{{0,2,3,1}}) {{
  %w = const f32[{channels},{channels},1,1] "w"
  %y = Conv(%x, %w) : f32[{batch},{channels},{size},{width}]{{0,2,3,1}}
  return %y
}}
""", {"w": normal(channels, channels, 1, 1)})  # fmt: skip
    assert isinstance(graph, Graph)
    return next(iter(graph))


def context(tuner: Tuner | None = None, rows: int = 2, **changes: object) -> LowerContext:
    target = replace(host_targets()[0], **changes)  # type: ignore[arg-type]
    return LowerContext(target, ("N",), WeightStore(), rows=rows, chooser=tuner)


def stopwatch(times: dict[str, float] | None = None) -> tuple[list[str], tuning.Measure]:
    """A measurement with a known result, and the nodes that it was asked for."""
    asked: list[str] = []

    def fake(ctx: LowerContext, node: Node, candidates: Candidates) -> dict[str, float]:
        asked.append(node.name)
        return {name: (times or TIMES)[name] for name in candidates}

    return asked, fake


def test_the_fastest_candidate_is_taken_and_remembered(tmp_path: Path) -> None:
    asked, fake = stopwatch()
    first = Tuner(tmp_path, 10.0, fake)
    for _ in range(2):
        lower_conv(context(first), conv())
    assert len(asked) == 1, "equal nodes are measured once"
    assert {(c.kernel, c.by) for c in first.choices} == {("direct-long", "measured")}
    assert first.choices[0].seconds == TIMES
    later = Tuner(tmp_path, 0.0, lambda *_: pytest.fail("measured without a budget"))
    lower_conv(context(later), conv())
    assert [(c.kernel, c.by, c.seconds) for c in later.choices] == [("direct-long", "cache", TIMES)]


def test_the_kernel_is_the_chosen_ones(tmp_path: Path) -> None:
    blocks = set()
    for best in TIMES:
        _, fake = stopwatch({name: 1e-6 if name == best else 1.0 for name in TIMES})
        tuner = Tuner(None, 10.0, fake)
        call = lower_conv(context(tuner), conv(64, width="64"))
        assert tuner.choices[0].kernel == best
        blocks.add(str(call.work))
    assert len(blocks) == len(TIMES), "each candidate cuts the work differently"


def test_without_times_the_cost_model_decides() -> None:
    tuner = Tuner(None)
    calls = [str(lower_conv(context(t), conv()).work) for t in (tuner, None)]
    assert calls[0] == calls[1]
    assert [(c.kernel, c.by) for c in tuner.choices] == [("direct", "model")]
    assert set(tuner.choices[0].seconds.values()) == {None}


def test_noise_does_not_decide() -> None:
    _, fake = stopwatch(TIMES | {"direct": 1e-6, "direct-long": 0.99e-6})
    tuner = Tuner(None, 10.0, fake)
    lower_conv(context(tuner), conv())
    assert tuner.choices[0].kernel == "direct"


def test_the_budget_ends_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(tuning.time, "perf_counter", lambda: next(clock))
    asked, fake = stopwatch()
    tuner = Tuner(None, 1.5, fake)
    for size in (7, 8, 9, 10):
        lower_conv(context(tuner), conv(size))
    assert len(asked) == 2
    assert [c.by for c in tuner.choices] == ["measured", "measured", "model", "model"]


@pytest.mark.parametrize("content", [
    "", "{", "[]", "null", '{"seconds": 1}', '{"seconds": {"direct": 1.0}}', "\x00\xff",
    json.dumps({"seconds": TIMES | {"direct": -1.0}}), json.dumps({"seconds": TIMES | {"direct": math.nan}}),
    json.dumps({"seconds": TIMES | {"direct": "fast"}}), json.dumps({"seconds": TIMES | {"direct": None}}),
])  # fmt: skip
def test_a_damaged_entry_is_told_of_and_ignored(content: str, tmp_path: Path) -> None:
    write_entry(tmp_path, key_of(context(), conv(), list(TIMES)), "conv", TIMES)
    (file,) = (tmp_path / "tuning").iterdir()
    file.write_text(content, "latin-1")
    tuner = Tuner(tmp_path)
    with pytest.warns(UserWarning, match="ignored"):
        lower_conv(context(tuner), conv())
    assert [(c.kernel, c.by) for c in tuner.choices] == [("direct", "model")]


def test_measuring_replaces_a_damaged_entry(tmp_path: Path) -> None:
    key = key_of(context(), conv(), list(TIMES))
    write_entry(tmp_path, key, "conv", TIMES | {"direct": -1.0})
    _, fake = stopwatch()
    with pytest.warns(UserWarning, match="damaged"):
        lower_conv(context(Tuner(tmp_path, 10.0, fake)), conv())
    assert read_entry(tmp_path, key, list(TIMES)) == TIMES


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "tuning").write_text("a file where the folder should be")
    _, fake = stopwatch()
    tuner = Tuner(tmp_path, 10.0, fake)
    lower_conv(context(tuner), conv())
    assert tuner.choices[0].by == "measured"


def test_the_key_holds_what_times_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    names = list(TIMES)
    own = key_of(context(), conv(), names)
    assert key_of(context(), conv(), names) == own
    others = [
        key_of(context(rows=4), conv(), names), key_of(context(), conv(10), names),
        key_of(context(), conv(), names[1:]), key_of(context(l2_nbytes=1 << 19), conv(), names),
        key_of(context(tune="other"), conv(), names), key_of(replace(context(), matmul_input=BF16), conv(), names),
    ]  # fmt: skip
    facts = [("kernels_digest", "another text"), ("cpu_identity", ("another CPU",)), ("host_features", {"mmx"})]
    for name, value in facts:
        with monkeypatch.context() as patch:
            patch.setattr(tuning, name, lambda value=value: value)
            others.append(key_of(context(), conv(), names))
    assert len({own, *others}) == 1 + len(others)


def test_the_oldest_entries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MOST_CACHED", 3)
    for number in range(6):
        write_entry(tmp_path, str(number), "conv", TIMES)
    assert len(list((tmp_path / "tuning").glob("*.json"))) == 3


def _hammer(folder: Path, number: int) -> int:
    """Write and read one entry many times; the number of whole entries seen."""
    warnings.simplefilter("error")
    names = [f"kernel{i}" for i in range(200)]  # longer than a page, so that a torn write would show
    seen = 0
    for turn in range(200):
        write_entry(folder, "shared", "conv", dict.fromkeys(names, 1.0 + number))
        found = read_entry(folder, "shared", names)
        assert found is not None and len(set(found.values())) == 1, f"turn {turn}: a mixture"
        seen += 1
    return seen


def test_compilers_at_once_see_whole_entries(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert pool.starmap(_hammer, [(tmp_path, number) for number in range(4)]) == [200] * 4
    assert [file.name for file in (tmp_path / "tuning").iterdir()] == ["shared.json"]


def test_every_candidate_is_timed() -> None:
    names: list[str] = []

    def real(ctx: LowerContext, node: Node, candidates: Candidates) -> dict[str, float]:
        names.extend(candidates)
        return measure(ctx, node, candidates)

    tuner = Tuner(None, 60.0, real)
    graph = parse_graph("""
graph @g(%x: f32[N,32,12,12]{0,2,3,1}) {
  %w = const f32[32,32,3,3] "w"
  %y = Conv(%x, %w) {pads=[1,1,1,1]} : f32[N,32,12,12]{0,2,3,1}
  return %y
}
""", {"w": np.ones((32, 32, 3, 3), np.float32)})
    assert isinstance(graph, Graph)
    call = lower_conv(context(tuner), next(iter(graph)))
    (choice,) = tuner.choices
    assert set(names) == set(choice.seconds)
    assert "direct" in names and any(name.startswith("winograd") for name in names), "which is worth it, costs decide"
    assert all(value is not None and 0 < value < 1 for value in choice.seconds.values())
    assert call.func.name.startswith("winograd" if choice.kernel.startswith("winograd") else "conv")


@pytest.mark.parametrize(("size", "n", "lengths"), [(7, "N", {"short"}), (28, "N", {"short", "long"}),
                                                    (28, "1", {"short", "long"})])  # fmt: skip
def test_blocks_of_another_length_are_candidates_where_they_cut_otherwise(size: int, n: str, lengths: set[str]) -> None:
    names: list[str] = []

    def none(ctx: LowerContext, node: Node, candidates: Candidates) -> dict[str, float]:
        names.extend(candidates)
        return dict.fromkeys(candidates, 1.0)

    lower_conv(context(Tuner(None, 60.0, none)), conv(size, n, str(size), channels=1024))
    assert {name.removeprefix("direct-") for name in names if name.startswith("direct-")} == lengths, names


def test_what_cannot_be_measured() -> None:
    assert can_measure(context(), conv())
    assert not can_measure(context(), conv(width="W")), "a size that no row count tells"
    assert not can_measure(context(features=("a feature of the future",)), conv())
