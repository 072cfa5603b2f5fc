"""The picture of the rooms is that of the imports."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("altair", reason="pictures need the extra: pip install 'parax[bench]'")
pytest.importorskip("vl_convert", reason="pictures need the extra: pip install 'parax[bench]'")

from benchmarks import rooms
from sources import ROOT, Source, sources


def drawn(svg: str) -> list[str]:
    """The lines that a picture's description lists."""
    found = re.search(r"<desc>(.*?)</desc>", svg)
    assert found is not None
    return found[1].split("; ")


def test_the_page_shows_the_imports_of_today() -> None:
    page = (ROOT / "docs" / "rooms.svg").read_text()
    assert drawn(page) == rooms.listed(rooms.imports(sources())), "python -m benchmarks.rooms -o docs/rooms.svg"


def test_every_room_has_words() -> None:
    assert {room for edge in rooms.imports(sources()) for room in edge} == set(rooms.OWNS)


def test_files_are_in_the_innermost_room() -> None:
    files = {
        "compiler/driver": "compiler", "compiler/ir/types": "compiler/ir", "compiler/ir/ops/base": "compiler/ir",
        "compiler/backend/kernels/conv/conv": "compiler/backend/kernels", "compiler/backend/lower": "compiler/backend",
        "runtime/plan": "runtime", "runtime/host_ops/base": "runtime/host_ops", "parax/errors": "parax",
    }  # fmt: skip
    assert {stem: rooms.room_of(stem) for stem in files} == files


def test_an_import_counts_for_the_module_it_reaches() -> None:
    files = [Source("compiler/driver.py", "from .ir.types import Dim, F32"), Source("compiler/ir/types.py", "")]
    assert rooms.imports(files) == Counter({("compiler", "compiler/ir"): 2})


def test_a_line_over_a_third_room_is_left_out_and_the_lesser_way_of_a_circle_goes_up() -> None:
    edges = Counter({("a", "b"): 5, ("b", "c"): 5, ("a", "c"): 5, ("c", "b"): 1})
    assert rooms.shown(edges) == ([("a", "b"), ("b", "c")], [("c", "b")])
    places = rooms.places(edges)
    assert [places[room][1] for room in "abc"] == [2, 1, 0]


def test_the_command_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rooms.main(["--edges", "--all", "-o", str(tmp_path / "rooms.svg")]) == 0
    svg = (tmp_path / "rooms.svg").read_text()
    assert svg.startswith("<svg") and ">targets<" in svg
    assert set(drawn(svg)) <= set(capsys.readouterr().out.splitlines())
