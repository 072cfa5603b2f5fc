"""Import circles: files that can only be understood together. Those that there are are counted; there may be no others.

Imports for type checking and inside functions count, too: they are knowledge. The package's public faces, which know
every room lazily, do not.
"""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx
import pytest

from sources import FACES, Source, imported_modules, sources

CIRCLES = {  # a file of the circle → how many files there are in it, and why
    "compiler/frontend/importer": (4, "nodes call functions and control flow, whose bodies are nodes again"),
    "compiler/ir/graph": (4, "values, nodes and graphs keep each other's links; a builder and inference serve them"),
    "compiler/kernel_ir/builder": (2, "sizes are values that the builder makes"),
    "compiler/backend/emit_llvm": (7, "tables of instructions by concern, which write into the emitter"),
}


def circles(files: Iterable[Source]) -> list[set[str]]:
    """Sets of files each of which imports all others, directly or by way of others of the set."""
    files = [file for file in files if file.in_a_room and file.stem not in FACES]
    by_name = {file.stem.removesuffix("/__init__"): file for file in files}
    known = set(by_name)
    graph = nx.DiGraph((name, other) for name, file in by_name.items() for other in imported_modules(file, known))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return [found for found in nx.strongly_connected_components(graph) if len(found) > 1]


def test_there_are_no_other_circles_and_none_grows() -> None:
    found = circles(sources())
    for name, (most, _) in CIRCLES.items():
        own = next((circle for circle in found if name in circle), set())
        assert len(own) <= most, f"{name}: {len(own)} files import one another: {', '.join(sorted(own))}"
        assert len(own) == most, f"{name}: only {len(own) or 'no'} files now: write that into CIRCLES"
    others = [sorted(circle) for circle in found if not circle & set(CIRCLES)]
    assert not others, f"files that import one another: {others}"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"a": "from .b import B", "b": "from .c import C", "c": ""}, []),
        ({"a": "from .b import B", "b": "from .c import C", "c": "from . import a"}, [{"a", "b", "c"}]),
        ({"a": "from .b import B", "b": "def f():\n    from .a import A"}, [{"a", "b"}]),
        ({"a": "from .a import A", "b": "import parax.compiler.a"}, []),
    ],
)
def test_circles_are_found(texts: dict[str, str], expected: list[set[str]]) -> None:
    found = circles(Source(f"compiler/{name}.py", text) for name, text in texts.items())
    assert found == [{f"compiler/{name}" for name in names} for names in expected]
