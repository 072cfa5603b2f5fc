"""`python -m benchmarks.readme results.json`: writes the measured tables into the README, between two marker comments.

Owns the text around the tables; the tables come from `peers_table`, the figures from `python -m benchmarks.peers`.
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
from .peers_table import all_tables, markdown, problems

BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"


def section(document: Mapping[str, Any]) -> str:
    """What stands between the markers: machine, command, how it was measured, the tables, what failed."""
    machine, settings = document["machine"], document["settings"]
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    cores = f"{machine['cores']} core{'' if machine['cores'] == 1 else 's'}"
    parts = [
        f"Measured on {document['date']}: {machine['cpu']}, {cores}, f32 peak {machine['flops_all'] / 1e9:.0f} GFLOP/s,"
        f" copy {machine['copy_all'] / 1e9:.0f} GB/s, {machine['kernel']}; {versions}. Random weights, f32, results"
        f" compared first, every side in its best set-up, medians of {settings['rounds']} interleaved rounds (in"
        " brackets the rounds' extremes). Ratios above 1: parax is faster. Share of the peak: flops of the direct"
        " algorithm, so Winograd can pass 100 %. A cold start is a process from its start to its first result at"
        " batch 1.",
        f"```\n{document['command']}\n```",
        *map(markdown, all_tables(document)),
    ]
    failed = problems(document)
    if failed:
        parts.append("Left out:\n\n" + "\n".join(f"- {line}" for line in failed))
    return "\n\n".join(parts)


def filled(text: str, content: str) -> str:
    """A document with `content` between its markers, instead of what was there.

    Raises:
        UsageError: it does not have each marker once, in this order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in after or END in after + before:
        raise UsageError("the markers must stand there once each", expected=f"{BEGIN} … {END}")
    return f"{before}{BEGIN}\n{content}\n{END}{after}"


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit code."""
    parser = command_line("readme", __doc__)
    parser.add_argument("results", type=Path, help="what `python -m benchmarks.peers --json` wrote")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", help="the document with the markers")
    args = parser.parse_args(argv)
    document = json.loads(args.results.read_text())
    write_whole(args.readme, filled(args.readme.read_text(), section(document)))
    return 0


if __name__ == "__main__":
    finish(main)
