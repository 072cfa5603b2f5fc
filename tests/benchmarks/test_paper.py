"""The reproduction's arithmetic: what needs no model, and that its pictures are pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks.paper import Row, idle_of_pipeline, partition_checks
from benchmarks.plot import lines


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
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    assert "a &lt; b" in text
