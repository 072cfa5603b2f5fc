"""`python -m benchmarks.exporters`: models as real exporters write them, on parax beside ONNX Runtime.

Builds each model with random weights of a fixed seed (small, but of the real architecture), exports it, compiles it,
compares the results with ONNX Runtime's by the rule of `parax verify`, shapes and order of what detectors find
included, and with --speed times both, turn by turn, each with its defaults. Every model by every exporter has a process
of its own. Prints a table; exit code 5 if something is refused, differs or fails, 0 else (what cannot be exported or is
not installed is told, and no failure).

    python -m benchmarks.exporters --models gpt2-past silero-vad --dynamo
    python -m benchmarks.exporters --speed -o docs/exporters.md

With --keep what is exported, compiled and found stays in a folder: a later run takes the models from there, and one
with --timed the plans, too, which it only times, when the machine is quiet. Its table has rows of all that is kept.
Models whose exporters cannot be installed together are so exported by several environments.

    python -m benchmarks.exporters --keep /tmp/kept
    python -m benchmarks.exporters --keep /tmp/kept --timed --models bert vit -o docs/exporters.md
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from parax.errors import AccuracyMismatch
from parax.files import write_whole
from parax.runtime.cpu import cpu_name

from ..children import Record, records_of
from ..command import command_line, finish, new_file
from .kept import folder_of, kept_record
from .listed import EXPORTERS, NAMES, TRACED

ROOT = Path(__file__).parents[2]
ITS_OWN = "its own"
"""What stands for the only exporter that writes a model."""
BAD = ("refused", "failed", "differs", "crash", "timeout")


@dataclass(frozen=True)
class Work:
    """What to do with each model.

    Attributes:
        models: which, in order. exporters: of torch's, by which.
        options: of the child: --speed, --timed. timeout: of each child, in seconds.
        kept: the folder of what is kept, where rows of other models come from, too.
    """

    models: Sequence[str]
    exporters: Sequence[str]
    options: Sequence[str]
    timeout: float
    kept: Path | None = None


def all_records(work: Work) -> Iterator[Record]:
    """What became of each model, by each exporter that writes it; of those not asked for, what is kept."""
    for name in NAMES if work.kept else work.models:
        for exporter in EXPORTERS if name in TRACED else (ITS_OWN,):
            asked = name in work.models and (exporter in work.exporters or exporter == ITS_OWN)
            record = _record(work, name, exporter) if asked else _kept(work, name, exporter)
            if record is not None:
                yield {"model": name, "exporter": exporter, **record}


def _record(work: Work, name: str, exporter: str) -> Record:
    command = [sys.executable, "-m", "benchmarks.exporters.side", name, exporter, *work.options]
    if work.kept:
        command += ["--keep", str(folder_of(work.kept, name, exporter))]
    record = records_of(command, work.timeout, ROOT)[-1]
    print(f"{name}, {exporter}: {_outcome(record)}", file=sys.stderr, flush=True)
    return record


def _kept(work: Work, name: str, exporter: str) -> Record | None:
    return kept_record(folder_of(work.kept, name, exporter)) if work.kept else None


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
agree in number and order. {agreeing}. "Not exported" is what the exporter itself refuses, "not valid" what it
writes and ONNX Runtime refuses as well, "unstable" where ONNX Runtime with its optimisations and without them
differs from itself as well: of random weights many scores are the same but for 1e-7, and rounding decides which box
comes first. The last column is ONNX Runtime's time by parax's, where it was measured (`--speed`), on both sides'
defaults: above 1 parax is faster. {cpu_name()}, {date.today()}.

{table(records)}
"""


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit code."""
    args = _arguments(argv)
    options = [f"--{option}" for option in ("speed", "timed") if getattr(args, option)]
    records = []
    for record in all_records(Work(args.models, args.exporters, options, args.timeout, args.keep)):
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
    which.add_argument("--both", dest="exporters", action="store_const", const=EXPORTERS,
                       help="torch models by either (default)")
    timing = parser.add_mutually_exclusive_group()
    timing.add_argument("--speed", action="store_true", help="time parax and ONNX Runtime, turn by turn")
    timing.add_argument("--timed", action="store_true", help="time the plans that --keep has kept, and nothing else")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep models, plans and findings there, and use them")
    parser.add_argument("--timeout", type=float, default=900.0, metavar="S", help="of each process (default 900)")
    parser.add_argument("--json", type=new_file, metavar="OUT", help="write every record there")
    parser.add_argument("-o", "--output", type=new_file, metavar="OUT.md", help="write the page of the documentation")
    parser.set_defaults(exporters=EXPORTERS)
    args = parser.parse_args(argv)
    if args.timed and not args.keep:
        parser.error("--timed takes plans from a folder: --keep DIR")
    return args


if __name__ == "__main__":
    finish(main)
