"""`python -m benchmarks.exporters`: models as real exporters write them, on parax beside ONNX Runtime.

Builds each model with random weights of a fixed seed (small, but of the real architecture), exports it, compiles it,
compares the results with ONNX Runtime's by the rule of `parax verify`, shapes and order of what detectors find
included, and with --speed times both, turn by turn, each with its defaults. Every model by every exporter has a process
of its own. Prints a table; exit code 5 if something is refused, differs or fails, 0 else (what cannot be exported or is
not installed is told, and no failure).

    python -m benchmarks.exporters --models gpt2-past silero-vad --dynamo
    python -m benchmarks.exporters --speed -o docs/exporters.md
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from parax.errors import AccuracyMismatch
from parax.files import write_whole
from parax.runtime.cpu import cpu_name

from ..children import Record, records_of
from ..command import command_line, finish, new_file
from .listed import NAMES, TRACED

ROOT = Path(__file__).parents[2]
BAD = ("refused", "failed", "differs", "crash", "timeout")


def all_records(names: Sequence[str], exporters: Sequence[str], speed: bool, timeout: float) -> Iterator[Record]:
    """What became of each model, by each exporter that writes it."""
    for name in names:
        for exporter in exporters if name in TRACED else ("its own",):
            command = [sys.executable, "-m", "benchmarks.exporters.side", name, exporter]
            found = records_of([*command, *(["--speed"] if speed else [])], timeout, ROOT)
            yield {"model": name, "exporter": exporter, **found[-1]}


def table(records: Sequence[Record]) -> str:
    """A row per model and exporter, in Markdown."""
    lines = ["| model | exporter | nodes (operators) | parax | ÷ ONNX Runtime |", "|---|---|---|---|---|"]
    for record in records:
        size = f"{record['nodes']} ({record['operators']})" if "nodes" in record else ""
        ratio = f"{record['ratio']:.2f}" if "ratio" in record else ""
        lines.append(f"| {record['model']} | {record['exporter']} | {size} | {_outcome(record)} | {ratio} |")
    return "\n".join(lines)


def _outcome(record: Record) -> str:
    problem = str(record.get("problem", "")).replace("|", "/").replace("\n", " ")
    return record["status"] + (f": {problem[:120]}" if problem else "")


def page(records: Sequence[Record]) -> str:
    """docs/exporters.md."""
    outcomes = [record["status"] for record in records]
    agreeing = f'{outcomes.count("agrees")} of {len(outcomes)} agree'
    return f"""# Models of real exporters

Made by `python -m benchmarks.exporters`: models of real architectures, small and with random weights of a fixed seed,
as exporters write them. Each is compiled, and its results are held against ONNX Runtime's by the rule of
`parax verify`, on two random inputs and, where sizes are open, on another one of other sizes; what detectors find must
agree in number and order. {agreeing}. "Not exported" is what the exporter itself refuses, "unstable" where ONNX Runtime
with its optimisations and without them differs from itself as well: of random weights many scores are the same but for
1e-7, and rounding decides which box comes first. The last column is ONNX Runtime's time by parax's, where it was
measured (`--speed`), on both sides' defaults: above 1 parax is faster. {cpu_name()}, {date.today()}.

{table(records)}
"""


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit code."""
    args = _arguments(argv)
    records = []
    for record in all_records(args.models, args.exporters, args.speed, args.timeout):
        print(f"{record['model']}, {record['exporter']}: {_outcome(record)}", file=sys.stderr, flush=True)
        records.append(record)
        if args.json:
            write_whole(args.json, json.dumps(records, indent=1))
    print(table(records))
    if args.output:
        write_whole(args.output, page(records))
    return AccuracyMismatch.exit_code if any(record["status"] in BAD for record in records) else 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line("exporters", __doc__)
    parser.add_argument("--models", nargs="+", default=list(NAMES), choices=NAMES, metavar="NAME",
                        help=f"of {', '.join(NAMES)} (default: all)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--torchscript", dest="exporters", action="store_const", const=("torchscript",),
                       help="torch models by torch's exporter through TorchScript alone")
    which.add_argument("--dynamo", dest="exporters", action="store_const", const=("dynamo",),
                       help="torch models by torch's exporter through torch.export alone")
    which.add_argument("--both", dest="exporters", action="store_const", const=("torchscript", "dynamo"),
                       help="torch models by either (default)")
    parser.add_argument("--speed", action="store_true", help="time parax and ONNX Runtime, turn by turn")
    parser.add_argument("--timeout", type=float, default=900.0, metavar="S", help="of each process (default 900)")
    parser.add_argument("--json", type=new_file, metavar="OUT", help="write every record there")
    parser.add_argument("-o", "--output", type=new_file, metavar="OUT.md", help="write the page of the documentation")
    parser.set_defaults(exporters=("torchscript", "dynamo"))
    return parser.parse_args(argv)


if __name__ == "__main__":
    finish(main)
