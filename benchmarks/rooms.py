"""`python -m benchmarks.rooms -o docs/rooms.svg`: the rooms of the project on one picture, as their imports are.

A line goes down from a room to one that it imports. Where a third room lies between the two, the line is left out: who
imports the third may be expected to know what that knows. Where rooms import each other, the lesser direction is dashed
and goes up. `--edges` prints the lines, and `--all` those left out, too.
A test holds that the picture in docs is that of the imports.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import altair as alt
import networkx as nx
import vl_convert

from parax.files import write_whole

from .command import command_line, finish, new_file

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))  # what reads imports is shared with the tests

from sources import FACES, Source, imported_modules, sources  # noqa: E402

APART = ("compiler/backend/kernels", "compiler/backend/microkernels")
"""Folders that are rooms of their own inside another one."""
OWNS = {
    "parax": "errors, files, log",
    "compiler": "driver: model → plan",
    "compiler/targets": "CPUs, machines",
    "compiler/ir": "graph, operators",
    "compiler/costs": "the cost model",
    "compiler/kernel_ir": "loops, vectors",
    "compiler/frontend": "ONNX → graph",
    "compiler/passes": "graph → graph",
    "compiler/backend": "graph → code",
    "compiler/backend/kernels": "operator → loops",
    "compiler/backend/microkernels": "register tiles",
    "compiler/training": "the training step",
    "compiler/planner": "cores, pipelines",
    "compiler/precision": "8 bits, gated",
    "compiler/shrinking": "smallest failure",
    "compiler/commands": "the command line",
    "runtime": "plans, sessions",
    "runtime/host_ops": "steps in NumPy",
    "runtime/profiling": "where time goes",
    "runtime/train": "training at run time",
}
"""What each room is for, in a few words; a room that is not here has none in the picture."""
WIDTH, HEIGHT, BOX_WIDTH, BOX_HEIGHT = 900, 84, 168, 40
COLOURS = {"parax": "#bab0ac", "compiler": "#4c78a8", "runtime": "#f58518"}

Edge = tuple[str, str]


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 0: drawn, or printed."""
    parser = command_line("rooms", __doc__)
    parser.add_argument("-o", "--output", type=new_file, metavar="FILE", help="write the picture as SVG")
    parser.add_argument("--edges", action="store_true", help="print the lines of the picture")
    parser.add_argument("--all", action="store_true", help="print all imports between rooms, with how many there are")
    args = parser.parse_args(argv)
    found = imports(sources())
    if args.all:
        print("\n".join(f"{above} → {below}: {count}" for (above, below), count in sorted(found.items())))
    if args.edges:
        print("\n".join(listed(found)))
    if args.output is not None:
        write_whole(args.output, picture(found))
    if not (args.all or args.edges or args.output):
        parser.error("nothing to do: give --output, --edges or --all")
    return 0


def room_of(stem: str) -> str:
    """The room of a file, given as its path without ending, or of a folder."""
    parts = stem.split("/")
    apart = next((room for room in APART if stem == room or stem.startswith(f"{room}/")), None)
    if apart is not None or parts[0] == "parax":
        return apart or "parax"
    inside = len(parts) > 2 or (ROOT / stem).is_dir()
    return "/".join(parts[:2]) if inside and len(parts) > 1 else parts[0]


def imports(files: Iterable[Source]) -> Counter[Edge]:
    """How many imports lead from one room to another one."""
    files = [source for source in files if source.in_a_room and source.stem not in FACES]
    modules = {source.stem.removesuffix("/__init__") for source in files}
    return Counter(
        (room_of(source.stem), room_of(module))
        for source in files
        for module in imported_modules(source, modules)
        if room_of(source.stem) != room_of(module)
    )


def shown(found: Counter[Edge]) -> tuple[list[Edge], list[Edge]]:
    """The imports that the picture has a line for: downwards those that no chain of others stands for, and upwards.

    Of the imports of a circle the fewest go up.
    """
    graph, up = nx.DiGraph(list(found)), []
    while not nx.is_directed_acyclic_graph(graph):
        circles = [edge for circle in nx.simple_cycles(graph) for edge in zip(circle, [*circle[1:], circle[0]])]
        least = min(circles, key=lambda edge: (found[edge], edge))
        graph.remove_edge(*least)
        up.append(least)
    return sorted(nx.transitive_reduction(graph).edges), sorted(up)


def places(found: Counter[Edge]) -> dict[str, tuple[float, int]]:
    """Where each room stands: across from 0 to 1, and its storey, all it imports being below."""
    graph = nx.DiGraph(shown(found)[0])
    storey: dict[str, int] = {}
    for room in reversed(list(nx.lexicographical_topological_sort(graph))):
        storey[room] = max((storey[below] + 1 for below in graph[room]), default=0)
    across: dict[str, float] = {}
    for level in range(max(storey.values()) + 1):
        rooms = [room for room in storey if storey[room] == level]
        ordered = sorted(rooms, key=lambda room: (_middle(graph[room], across), room))
        across.update({room: (i + 0.5) / len(rooms) for i, room in enumerate(ordered)})
    return {room: (across[room], storey[room]) for room in sorted(storey)}


def _middle(below: Iterable[str], across: dict[str, float]) -> float:
    """Mean place of the rooms below, so that lines cross little."""
    own = [across[room] for room in below]
    return sum(own) / len(own) if own else 0.5


def picture(found: Counter[Edge]) -> str:
    """The SVG, whose description lists its lines."""
    at = {room: (x * WIDTH, y * HEIGHT) for room, (x, y) in places(found).items()}
    lines = [{"x": at[a][0], "y": at[a][1], "x2": at[b][0], "y2": at[b][1], "way": way}
             for way, edges in zip(("down", "up"), shown(found)) for a, b in edges]  # fmt: skip
    boxes = [
        {"x": x - BOX_WIDTH / 2, "x2": x + BOX_WIDTH / 2, "y": y - BOX_HEIGHT / 2, "y2": y + BOX_HEIGHT / 2,
         "at": x, "name_at": y + 8, "words_at": y - 9, "top": room.split("/")[0],
         "room": room.removeprefix("compiler/"), "words": OWNS.get(room, "")}
        for room, (x, y) in at.items()
    ]  # fmt: skip
    tallest = max(y for _, y in at.values())
    x = {"scale": alt.Scale(domain=[0, WIDTH]), "axis": None}
    y = {"scale": alt.Scale(domain=[-BOX_HEIGHT, tallest + BOX_HEIGHT]), "axis": None}

    def marks(chart: Any, across: str, up: str) -> Any:
        return chart.encode(x=alt.X(f"{across}:Q", **x), y=alt.Y(f"{up}:Q", **y), x2="x2:Q", y2="y2:Q")

    def words(size: int, up: str, what: str, weight: str) -> Any:
        chart = alt.Chart(alt.Data(values=boxes)).mark_text(size=size, fontWeight=weight, color="white")  # type: ignore[arg-type]
        return chart.encode(x=alt.X("at:Q", **x), y=alt.Y(f"{up}:Q", **y), text=f"{what}:N")

    colour = alt.Color("top:N", legend=None, scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())))
    dashes = alt.StrokeDash("way:N", legend=None, scale=alt.Scale(domain=["down", "up"], range=[[1, 0], [4, 4]]))
    chart = alt.layer(
        marks(alt.Chart(alt.Data(values=lines)).mark_rule(color="#999", strokeWidth=1.5), "x", "y").encode(dashes),
        marks(alt.Chart(alt.Data(values=boxes)).mark_rect(cornerRadius=6), "x", "y").encode(color=colour),
        words(12, "name_at", "room", "bold"), words(11, "words_at", "words", "normal"),
    )  # fmt: skip
    chart = chart.properties(width=WIDTH, height=tallest + 2 * BOX_HEIGHT, background="white")
    drawn = vl_convert.vegalite_to_svg(chart.configure_view(stroke=None).to_dict())
    return re.sub(r"(<svg[^>]*>)", rf"\1<desc>{'; '.join(listed(found))}</desc>", drawn, count=1) + "\n"


def listed(found: Counter[Edge]) -> list[str]:
    """The picture's lines in words."""
    down, up = shown(found)
    return [*(f"{a} imports {b}" for a, b in down), *(f"{a} imports {b}, upwards" for a, b in up)]


if __name__ == "__main__":
    finish(main)
