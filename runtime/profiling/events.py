"""A profile's timeline as trace events: for Perfetto (ui.perfetto.dev) and chrome://tracing.

Format: Trace Event Format, Google, "JSON Object Format"; times are microseconds.
"""

from __future__ import annotations

from typing import Any

from .watch import NO_CORE

PROCESS = 1
CALLERS = 1 << 20  # the row of Python on behalf of plans without native code


def events(document: dict[str, Any]) -> dict[str, Any]:
    """The JSON object that such a file holds."""
    operators, shown = document["operators"], document["shown"]
    began = shown["start"] if shown else 0.0
    found: list[dict[str, Any]] = [_meta("process_name", f"parax {document['plan']}", 0)]
    cores = sorted({span[0] for span in document["timeline"]})
    found += [_meta("thread_name", "callers" if core == NO_CORE else f"core {core}", _row(core)) for core in cores]
    for core, start, end, place in document["timeline"]:
        own = operators[place]
        arguments = {key: own[key] for key in ("op", "names", "flops", "nbytes") if own.get(key)}
        found.append({"ph": "X", "name": own["title"], "cat": own["op"], "pid": PROCESS, "tid": _row(core),
                      "ts": (start - began) * 1e6, "dur": (end - start) * 1e6, "args": arguments})  # fmt: skip
    for seconds, nbytes in document["memory"]:
        found.append({"ph": "C", "name": "arena in use", "pid": PROCESS, "ts": (seconds - began) * 1e6,
                      "args": {"bytes": nbytes}})  # fmt: skip
    return {"traceEvents": found, "displayTimeUnit": "ms"}


def _meta(name: str, value: str, row: int) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": PROCESS, "tid": row, "args": {"name": value}}


def _row(core: int) -> int:
    return CALLERS if core == NO_CORE else core
