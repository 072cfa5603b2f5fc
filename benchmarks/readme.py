"""`python -m benchmarks.readme results.json …`: writes the measured tables into the README, between marker comments.

Owns the text around the tables; the figures are those of `python -m benchmarks.defaults` and `benchmarks.peers`, each
with markers of its own, and the tables come from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parax.errors import UsageError
from parax.files import write_whole

from .cases import ROOT
from .command import command_line, finish
from .defaults import tables as defaults_tables
from .peers_table import all_tables, markdown, problems

PEERS, DEFAULTS = "benchmarks", "defaults"
"""The names of the markers."""
LONG = "<!-- not run: measures for hours -->"  # before the command that made a table


def measured_on(document: Mapping[str, Any]) -> str:
    """Date, machine, versions."""
    machine = document["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    cores = f"{machine['cores']} core{'' if machine['cores'] == 1 else 's'}"
    return (
        f"Measured on {document['date']}: {machine['cpu']}, {cores}, f32 peak {machine['flops_all'] / 1e9:.0f} GFLOP/s,"
        f" copy {machine['copy_all'] / 1e9:.0f} GB/s, {machine['kernel']}; {versions}. Random weights, f32, results"
        " compared first"
    )


def defaults_section(document: Mapping[str, Any]) -> str:
    """Between the markers of the defaults: machine, command, how it was measured, the tables."""
    text = (
        f"{measured_on(document)}, nothing set on any side, dimensions open as exported; medians of"
        f" {document['rounds']} interleaved rounds of {document['seconds']:g} s a side. N × B=R: N callers, each with"
        " requests of R rows one after the other (1…16: of sizes drawn between). Above 1, parax does more; a p99 below"
        " 1 is shorter than the better peer's."
    )
    failed = [f"- {name}: {record['problem']}" for name, record in document["models"].items() if record["problem"]]
    parts = [text, f"{LONG}\n```\n{document['command']}\n```", *map(markdown, defaults_tables(document))]
    return "\n\n".join([*parts, "Results that differ:\n\n" + "\n".join(failed)] if failed else parts)


def peers_section(document: Mapping[str, Any]) -> str:
    """Between the markers of the peers: machine, command, how it was measured, the tables, what failed."""
    parts = [
        f"{measured_on(document)}, every side in its best set-up, medians of {document['settings']['rounds']}"
        " interleaved rounds (in brackets the rounds' extremes). Ratios above 1: parax is faster. Share of the peak:"
        " flops of the direct algorithm, so Winograd can pass 100 %. A cold start is a process from its start to its"
        " first result at batch 1.",
        f"{LONG}\n```\n{document['command']}\n```",
        *map(markdown, all_tables(document)),
    ]
    failed = problems(document)
    if failed:
        parts.append("Left out:\n\n" + "\n".join(f"- {line}" for line in failed))
    return "\n\n".join(parts)


def filled(text: str, name: str, content: str) -> str:
    """A document with `content` between the markers of a name, instead of what was there.

    Raises:
        UsageError: it does not have each marker once, in this order.
    """
    first, last = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end or first in after or last in after + before:
        raise UsageError("the markers must stand there once each", expected=f"{first} … {last}")
    return f"{before}{first}\n{content}\n{last}{after}"


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit code."""
    parser = command_line("readme", __doc__)
    parser.add_argument("results", type=Path, nargs="+",
                        help="what `benchmarks.defaults` and `benchmarks.peers` wrote with --json")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", help="the document with the markers")
    args = parser.parse_args(argv)
    text = args.readme.read_text()
    for results in args.results:
        document = json.loads(results.read_text())
        is_of_defaults = "beside" in document
        section = defaults_section(document) if is_of_defaults else peers_section(document)
        text = filled(text, DEFAULTS if is_of_defaults else PEERS, section)
    write_whole(args.readme, text)
    return 0


if __name__ == "__main__":
    finish(main)
