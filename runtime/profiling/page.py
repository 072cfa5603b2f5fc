"""A profile as one page of HTML that needs no network: timeline of the cores, roofline, operators, memory over time.

Owns what is drawn.
"""

from __future__ import annotations

from typing import Any

from ..charts import altair, page_of_charts
from .text import html, tables
from .watch import NO_CORE

WIDTH = 1000  # pixels
MOST_BARS, MOST_OPERATORS = 4000, 30
LEAST_INTENSITY = 0.1  # flops a byte, where the roofline's axis begins at the latest


def page(document: dict[str, Any]) -> str:
    """The page.

    Raises:
        UsageError: altair or vl-convert is missing.
    """
    alt = altair()
    drawn = [(title, text, chart) for title, text, make in CHARTS if (chart := make(alt, document)) is not None]
    facts = f"{document['cpu']}; code {document['target']}; {tables(document)[0].title}"
    return page_of_charts(f"parax profile of {document['plan']}", facts, drawn, html(document))


def _timeline(alt: Any, document: dict[str, Any]) -> Any:
    """Bars of the shown request, a row for each core."""
    shown, operators = document["shown"], document["operators"]
    if shown is None:
        return None
    began, end = shown["start"], shown["start"] + shown["seconds"]
    bars: list[dict[str, Any]] = []
    for core, start, stop, place in document["timeline"]:
        if start < end and len(bars) < MOST_BARS:
            own = operators[place]
            bars.append({"core": _core(core), "start": (start - began) * 1e3, "end": (stop - began) * 1e3,
                         "operator": own["title"], "kind": own["op"], "names": ", ".join(own["names"][:6]),
                         "microseconds": (stop - start) * 1e6})  # fmt: skip
    if not bars:
        return None
    rows = len({bar["core"] for bar in bars})
    return (
        alt.Chart(alt.Data(values=bars), width=WIDTH, height=max(60, 40 * rows))
        .mark_bar(stroke="white", strokeWidth=0.3)
        .encode(
            x=alt.X("start:Q", title="milliseconds since the request began"), x2="end:Q",
            y=alt.Y("core:N", title=None), color=alt.Color("kind:N", title="operator"),
            tooltip=[alt.Tooltip(f"{key}:N") for key in ("operator", "kind", "names", "core")]
            + [alt.Tooltip("start:Q", format=".3f"), alt.Tooltip("microseconds:Q", format=".1f")],
        )
        .interactive(bind_y=False)
    )  # fmt: skip


def _roofline(alt: Any, document: dict[str, Any]) -> Any:
    """Arithmetic a second over arithmetic a byte, beneath what the machine's arithmetic and memory allow."""
    machine, n = document["machine"], max(1, len(document["cores"]))
    points = [
        {"intensity": own["flops"] / own["nbytes"], "rate": own["flops"] / own["seconds"] / 1e9,
         "operator": own["title"], "kind": own["op"], "milliseconds": own["seconds"] * 1e3}
        for own in document["operators"] if own["flops"] and own["nbytes"] and own["seconds"] > 0
    ]  # fmt: skip
    if machine is None or not points:
        return None
    peak = machine["flops_per_core"] * n
    memory = min(machine["bandwidth_per_core"] * n, machine["bandwidth_per_socket"])
    least = min(LEAST_INTENSITY, *(p["intensity"] for p in points))
    most = max(10 * peak / memory, *(p["intensity"] for p in points))
    roofs = [
        {"roof": name, "intensity": at, "rate": min(peak, at * bandwidth) / 1e9}
        for name, bandwidth in (("memory", memory), ("second-level cache", machine["l2_bandwidth_per_core"] * n))
        for at in (least, peak / bandwidth, most)
    ]
    x = alt.X("intensity:Q", scale=alt.Scale(type="log"), title="flops a byte of operands and results")
    y = alt.Y("rate:Q", scale=alt.Scale(type="log"), title="GFLOP/s of all cores")
    lines = alt.Chart(alt.Data(values=roofs)).mark_line(color="#888").encode(x=x, y=y, strokeDash="roof:N")
    dots = alt.Chart(alt.Data(values=points)).mark_circle(opacity=0.7).encode(
        x=x, y=y, color=alt.Color("kind:N", title="operator"),
        size=alt.Size("milliseconds:Q", title="ms of a request"),
        tooltip=["operator:N", "kind:N", *(alt.Tooltip(f"{key}:Q", format=".3~f")
                                           for key in ("rate", "intensity", "milliseconds"))],
    )  # fmt: skip
    return (lines + dots).properties(width=WIDTH, height=360)


def _operators(alt: Any, document: dict[str, Any]) -> Any:
    """What the longest operators take, in kernels and waiting, with a tick at what was predicted."""
    listed = document["operators"][:MOST_OPERATORS]
    names = [f"{i + 1}. {own['title']}" for i, own in enumerate(listed)]
    parts = [
        {"operator": name, "part": part, "milliseconds": seconds * 1e3, "kind": own["op"]}
        for name, own in zip(names, listed)
        for part, seconds in (("kernels", own["seconds"] - own["waiting"]), ("waiting", own["waiting"]))
    ]
    if not parts:
        return None
    y = alt.Y("operator:N", sort=names, title=None, axis=alt.Axis(labelLimit=300))
    bars = alt.Chart(alt.Data(values=parts)).mark_bar().encode(
        x=alt.X("milliseconds:Q", title="milliseconds of a request (tick: predicted)"), y=y,
        color=alt.Color("part:N", title=None), tooltip=["operator:N", "kind:N", "part:N", "milliseconds:Q"],
    )  # fmt: skip
    told = [{"operator": name, "predicted": own["predicted"] * 1e3} for name, own in zip(names, listed)
            if own["predicted"] is not None]  # fmt: skip
    if told:
        bars += alt.Chart(alt.Data(values=told)).mark_tick(color="black", thickness=2).encode(x="predicted:Q", y=y)
    return bars.properties(width=WIDTH - 250, height=18 * len(listed))


def _memory(alt: Any, document: dict[str, Any]) -> Any:
    """Bytes of an instance's arena that hold a value."""
    began = document["shown"]["start"] if document["shown"] else 0.0
    points = [{"milliseconds": (at - began) * 1e3, "MiB": nbytes / 2**20} for at, nbytes in document["memory"]]
    if not points:
        return None
    return (
        alt.Chart(alt.Data(values=points), width=WIDTH, height=160)
        .mark_area(interpolate="step-after", line=True, opacity=0.4)
        .encode(x=alt.X("milliseconds:Q", title="milliseconds since the request began"), y="MiB:Q",
                tooltip=[alt.Tooltip("milliseconds:Q", format=".3f"), alt.Tooltip("MiB:Q", format=".2f")])
    )  # fmt: skip


def _core(core: int) -> str:
    return "callers" if core == NO_CORE else f"core {core}"


CHARTS = (
    ("Timeline", "What every core did during the request of median latency. Gaps are waiting; drag and scroll to zoom.",
     _timeline),
    ("Roofline", "Arithmetic as the model states it (Winograd and Strassen need less of it, so they may lie above the "
     "roof), over bytes of operands and results once each; what lies in the caches may pass the memory's roof.",
     _roofline),
    ("Operators", "The longest ones: their part of a request's time.", _operators),
    ("Memory", "Bytes of an instance's arena that hold a value of the graph; weights, inputs and outputs are not "
     "there.", _memory),
)  # fmt: skip
"""Title, explanation, and what draws it or has nothing to draw."""
