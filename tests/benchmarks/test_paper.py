"""The reproduction's arithmetic: what needs no model, and that its pictures are pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import paper
from benchmarks.paper_block import Curve, drawn, first_block, run_block
from benchmarks.paper_partition import Row, idle_of_pipeline, partition_checks
from benchmarks.plot import TICKS, lines, round_ticks
from parax.compiler.costs.cost import Cost
from parax.compiler.planner.host_machine import guessed
from parax.compiler.planner.partition.simulate import Work
from parax.compiler.targets.machine import Machine
from parax.runtime.topology import choose_cores

SVG = "{http://www.w3.org/2000/svg}"


def test_errors_are_relative_to_the_source() -> None:
    assert Row("x", 2.0, 3.0).error == pytest.approx(0.5)


def test_the_partition_rows_are_the_sources() -> None:
    rows = {row.figure: row for row in partition_checks()}
    assert all(abs(row.error) < 0.01 for row in rows.values() if "more than" not in row.note)
    assert sum("more than" in row.note for row in rows.values()) == 1


@pytest.mark.parametrize(("stages", "micro"), [(2, 1), (3, 6), (4, 9)])
def test_a_pipelines_idle_share_is_its_bubble(stages: int, micro: int) -> None:
    assert idle_of_pipeline(stages, micro) == pytest.approx((stages - 1) / (micro + stages - 1))


def test_plots_are_well_formed() -> None:
    text = lines("a < b", "x", "y", {"one & two": [(1, 0), (2, 3)], "flat": [(1, 1)]})
    root = ElementTree.fromstring(text)
    assert len(root.findall(f"{SVG}polyline")) == 2
    assert "a &lt; b" in text


def labels(svg: str, anchor: str) -> list[str | None]:
    texts = ElementTree.fromstring(svg).findall(f"{SVG}text")
    return [text.text for text in texts if text.get("text-anchor") == anchor]


def test_axes_have_round_ticks() -> None:
    drawn = lines("t", "x", "y", {"s": [(0, 0), (1, 1), (24.3, 2.73)]})
    assert labels(drawn, "middle")[3:] == ["0", "5", "10", "15", "20"]
    assert labels(drawn, "end") == ["0", "0.5", "1", "1.5", "2", "2.5", "3"]


@given(st.floats(1e-9, 1e9))
def test_ticks_are_few_and_reach_the_greatest(greatest: float) -> None:
    found = round_ticks(greatest)
    assert found[0] == 0.0 and 2 <= len(found) - 1 <= TICKS
    assert found[-2] < greatest <= found[-1] * (1 + 1e-6)


def test_counts_lie_apart_by_their_ratio_and_are_all_labelled() -> None:
    drawn = lines("t", "x", "y", {"s": [(1, 0), (2, 1), (4, 2)]}, counts=True)
    assert labels(drawn, "middle")[3:] == ["1", "2", "4"]
    (line,) = ElementTree.fromstring(drawn).findall(f"{SVG}polyline")
    across = [float(point.split(",")[0]) for point in str(line.get("points")).split()]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1])


@pytest.mark.slow
@pytest.mark.skipif(len(choose_cores(None)) < 2, reason="needs two cores")
def test_what_this_machine_shows_is_measured_and_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "MEASURED", ("cifar-resnet20",))
    monkeypatch.setattr(paper, "SECONDS", 0.01)
    monkeypatch.setattr(paper, "running_machine", lambda folder, cores: guessed(len(cores)))
    rows = paper.measured_here(paper.Paper(None), tmp_path)
    assert len(rows) == 2
    assert all(0.1 < row.source < 10 and 0.1 < row.ours < 10 for row in rows)


def forked_works() -> list[Work]:
    """A stem, four equal branches that share eight cores badly, and what joins them."""
    stem, branch, join = (Cost(flops, 4e3, 4e3, 0.0, items, "conv") for flops, items in ((8e6, 8), (6e6, 2), (8e6, 8)))
    branches = [Work(f"branch{k}", branch, (0,)) for k in range(4)]
    return [Work("stem", stem), *branches, Work("join", join, (1, 2, 3, 4))]


def test_the_first_block_is_what_lies_between_stem_and_join() -> None:
    block = first_block(forked_works())
    assert [work.name for work in block] == [f"branch{k}" for k in range(4)]
    assert all(work.after == () for work in block)


def test_a_model_without_branches_has_no_block() -> None:
    stem = forked_works()[0]
    with pytest.raises(ValueError, match="branches"):
        first_block([stem, Work("next", stem.cost, (0,))])


def test_layers_raise_the_use_of_cores_and_keep_the_work() -> None:
    machine = Machine("box", 8, 1e10, 1e11, 1e11)
    block = first_block(forked_works())
    ways = run_block(block, machine)
    assert ways.layers == (4,)
    one, layered = ways.curves
    assert layered.times[-1] < 0.5 * one.times[-1]
    for curve in ways.curves:
        work = curve.mean(curve.cores) * curve.times[-1] * machine.flops * machine.share("conv")
        assert work == pytest.approx(sum(w.cost.arithmetic for w in block))
        assert curve.mean(curve.bandwidth) * curve.times[-1] * machine.bandwidth == pytest.approx(
            sum(w.cost.far_nbytes for w in block)
        )
    assert len(drawn(ways)) == 2
    for text in drawn(ways).values():
        assert len(ElementTree.fromstring(text).findall(f"{SVG}polyline")) == 2


def test_the_use_reached_for_a_share_of_the_time() -> None:
    curve = Curve((0.0, 1.0, 4.0, 5.0), (0.9, 0.5, 0.1), (0.0, 0.0, 0.0))
    assert [curve.reached(share) for share in (0.1, 0.5, 0.9)] == [0.9, 0.5, 0.1]
    assert curve.mean(curve.cores) == pytest.approx(0.5)
