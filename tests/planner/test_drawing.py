"""The timeline: bars at their places, one axis, a page that holds everything it needs."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from parax.compiler.costs.cost import Cost
from parax.compiler.planner.draw import LEFT, WIDTH, Bar, Panel, html, svg
from parax.compiler.planner.partition.simulate import Instances, Work, simulate
from parax.compiler.planner.timeline import first_calls, measured_panel, predicted_panel
from parax.compiler.targets.machine import Machine
from parax.runtime.profiling.recorder import KernelSpan

SVG = "{http://www.w3.org/2000/svg}"


def titled(drawing: str) -> list[ElementTree.Element]:
    return [r for r in ElementTree.fromstring(drawing).iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]


def test_bars_lie_at_their_times_on_their_cores() -> None:
    bars = [Bar(0, 0.0, 0.5, "a <conv>", "conv"), Bar(1, 0.5, 1.0, "b", "new kind")]
    found = titled(svg([Panel("p & q", 2, bars)]))
    assert [float(r.attrib["x"]) for r in found] == [LEFT, pytest.approx((WIDTH - 10 + LEFT) / 2, abs=1)]
    assert float(found[1].attrib["y"]) > float(found[0].attrib["y"])
    assert found[0].find(f"{SVG}title").text.startswith("a <conv> (conv): 500000.0 µs")  # type: ignore[union-attr]


def test_what_is_too_narrow_to_see_is_left_out() -> None:
    bars = [Bar(0, i * 1e-6, i * 1e-6 + 1e-7, "x", "conv") for i in range(1000)] + [Bar(0, 0.5, 1.0, "y", "conv")]
    assert len(titled(svg([Panel("p", 1, bars)]))) == 1


def test_panels_share_one_axis() -> None:
    panels = [Panel(name, 1, [Bar(0, 0.0, end, "a", "conv")]) for name, end in (("long", 2.0), ("short", 1.0))]
    widths = [float(r.attrib["width"]) for r in titled(svg(panels))]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.1)


def test_nothing_to_draw_is_still_a_drawing() -> None:
    assert titled(svg([Panel("empty", 1, [])])) == []


def test_a_simulated_run_has_a_bar_a_core() -> None:
    works = [Work("w", Cost(1e9, 0, 0, 0, 100, "conv")), Work("view", Cost(0, 0, 0, 0, 1, "view"), (0,))]
    machine = Machine("m", 4, 1e9, 1e9, 1e9)
    panel = predicted_panel("t", works, simulate(works, machine, Instances(2, 2)), 4)
    assert sorted(bar.core for bar in panel.bars) == [0, 1, 2, 3]
    assert {bar.label for bar in panel.bars} == {"w"}


def test_of_a_trace_the_first_call_of_each_core_is_drawn() -> None:
    spans = [KernelSpan(0, 5, 0, 1.0, 1.1), KernelSpan(1, 3, 0, 1.05, 1.2), KernelSpan(0, 5, 1, 1.1, 1.3),
             KernelSpan(0, 5, 0, 1.4, 1.5), KernelSpan(0, 5, 1, 1.5, 1.6)]  # fmt: skip
    assert first_calls(spans) == spans[:3]
    panel = measured_panel("t", spans, ["a", "b"], {"a": "conv"}, (3, 5))
    assert [(bar.core, bar.label, bar.kind) for bar in panel.bars] == [(1, "a", "conv"), (0, "a", "conv"), (1, "b", "")]
    assert panel.bars[0].start == 0.0
    assert panel.seconds == pytest.approx(0.3)


def test_the_page_escapes_what_it_shows() -> None:
    page = html("m <1>", ["a & b"], (("x",), [["<td>"]]), svg([]))
    assert "m &lt;1&gt;" in page
    assert "<td>&lt;td&gt;</td>" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
