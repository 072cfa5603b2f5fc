"""How tiles ask for memory ahead, seen by what interpreted products ask for: every row of the result, and where rows
are few the next panels of B.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backend.harness import Program
from backend.interpreted import interpreted
from parax.compiler.backend.kernels.matmul.tile import LINES_AHEAD
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.kernel_ir.interpreter import OPERATIONS
from parax.compiler.targets.target import TARGETS

LINE = 64
PANEL = 64  # columns of the widest tile of registers of 16 lanes
TILE = 6  # its rows
Asked = list[tuple[str, int, int]]
"""(memory, level of the cache, line of it), in the order in which they are asked for."""


def requests(
    monkeypatch: pytest.MonkeyPatch, rows: int, depth: int, panels: int, target: str = "x86-64-v4", dim: str = ""
) -> Asked:
    """What the product of x [rows, depth], whose rows are written `dim`, and w of so many panels asks for."""
    columns, dim = panels * PANEL, dim or str(rows)
    w = np.random.default_rng(1).standard_normal((depth, columns), np.float32)
    graph = parse_graph(f'graph @g(%x: f32[{dim},{depth}]) {{\n  %w = const f32[{depth},{columns}] "w"\n'
                        f"  %y = MatMul(%x, %w) : f32[{dim},{columns}]\n  return %y\n}}", {"w": w})  # fmt: skip
    assert isinstance(graph, Graph)
    asked: Asked = []

    def note(frame: Any, o: Any) -> None:
        pointer, index = frame.get(o.operands[0]), frame.number(o.operands[1])
        at = pointer.offset + index * o.operands[0].type.dtype.nbytes
        asked.append((pointer.name, o.attrs["level"], at // LINE))

    monkeypatch.setitem(OPERATIONS, "prefetch", note)
    x = np.random.default_rng(0).standard_normal((rows, depth), np.float32)
    symbols = {dim: rows} if dim.isalpha() else {}
    (y,) = interpreted(Program(graph, TARGETS[target], tuple(symbols)), {"x": x}, symbols)
    np.testing.assert_allclose(y, x.astype(np.float64) @ w, rtol=1e-4, atol=1e-3)
    return asked


def lines_of(asked: Asked, memory: str, level: int) -> set[int]:
    """Lines of a memory whose name begins so."""
    return {line for name, at_level, line in asked if name.startswith(memory) and at_level == level}


def before_the_first_step(asked: Asked) -> int:
    """Lines of the result that are asked for before the steps of k ask for the next tile's rows of x."""
    return next(i for i, (name, _, _) in enumerate(asked) if name == "%x")


@pytest.mark.parametrize(("rows", "depth", "target"), [
    (1, 64, "x86-64-v4"), (6, 40, "x86-64-v4"), (7, 64, "x86-64-v4"), (13, 96, "x86-64-v4"), (6, 300, "x86-64-v4"),
    (6, 64, "x86-64-v3"), (9, 64, "x86-64-v2"),
])  # fmt: skip
def test_every_line_of_the_result_is_asked_for(
    rows: int, depth: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = requests(monkeypatch, rows, depth, 1, target)
    assert lines_of(asked, "%y", 1) >= set(range(rows * PANEL * 4 // LINE))


def test_short_tiles_spread_their_requests_and_long_ones_and_few_registers_ask_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A core waits for few lines at a time; addresses in the loop cost registers."""
    row = PANEL * 4 // LINE
    assert before_the_first_step(requests(monkeypatch, TILE, 64, 1)) < TILE * row
    assert before_the_first_step(requests(monkeypatch, TILE, 512, 1)) == TILE * row
    narrow = requests(monkeypatch, TILE, 64, 1, "x86-64-v3")
    first = {line for name, _, line in narrow[: before_the_first_step(narrow)] if name == "%y"}
    assert first and len(first) == before_the_first_step(narrow)


@pytest.mark.parametrize(("rows", "dim"), [(12, ""), (24, ""), (25, ""), (30, ""), (12, "N")])
def test_the_tiles_of_few_rows_ask_for_all_of_the_next_panel(
    rows: int, dim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    depth, panels = 32, 3
    panel = depth * PANEL * 4 // LINE
    asked = requests(monkeypatch, rows, depth, panels, dim=dim)
    assert lines_of(asked, "Weight", 2) >= set(range(panel, panels * panel))


def test_a_tile_alone_asks_for_what_it_will_read_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of B but what lies before the first that it asks for."""
    panel, panels = 512 * PANEL * 4 // LINE, 2
    asked = requests(monkeypatch, TILE, 512, panels)
    assert lines_of(asked, "Weight", 1) >= set(range(LINES_AHEAD, panels * panel))
    assert not lines_of(asked, "Weight", 2)


@pytest.mark.parametrize("rows", [1, 2])
def test_one_row_or_two_read_b_as_one_stream(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which hardware follows by itself."""
    asked = requests(monkeypatch, rows, 64, 2)
    assert not any(name.startswith("Weight") for name, _, _ in asked)
