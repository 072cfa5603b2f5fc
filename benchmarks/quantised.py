"""`python -m benchmarks.quantised`: trained models at `--precision auto`: what they lose on data they have not seen.

    python -m benchmarks.quantised [libonnx/mnist_8 yunet/yunet_n_320_320 …] [--samples 48] [--json quantised.json]

Every model of PARAX_MODELS with trained weights, products and reference inputs: its inputs and variations of them drawn
by a seed (`quantised_data`) are divided in two halves. `paraxc --precision auto --max-accuracy-drop 0.5%` calibrates
and decides on one; the other, which it has not seen, says what the plan loses of f32's results. Speeds are ratios in
interleaved rounds, by f32's plan, which is measured again behind the decision; predicted is what the cost model says of
both plans. Beside it, what bf16, int8 and int4-weights would give where they are asked for. Exit code 5: a plan loses
more than the budget, or is slower than f32's, or a model failed. Owns the list, the verdicts and the table.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parax.compiler.precision.record import percent
from parax.errors import AccuracyMismatch, UsageError
from parax.files import write_whole

from .cases import ROOT, models_folder
from .children import records_of
from .command import command_line, finish, new_file
from .peers_table import NOTHING, Table, markdown

Record = Mapping[str, Any]
BUDGET = 0.005
LEAST_FACTOR = 0.98  # of f32's speed: less is slower; above that, two measurements of one plan differ by as much
PRODUCTS = {"Conv", "Gemm", "MatMul"}
LARGEST = {"bf16": 0.55, "int8": 0.3, "int4-weights": 0.2}  # of f32's weights, that are aimed at


def trained_models(folder: Path) -> list[str]:
    """Those of the index with trained weights, products that may be quantised, and reference inputs; largest first."""
    index = json.loads((folder / "index.json").read_text())
    found = [name for name, each in index.items() if each["trained"] == "yes" and PRODUCTS & each["ops"].keys()
             and (folder / name / "test_data_set_0").is_dir()]  # fmt: skip
    return sorted(found, key=lambda name: -index[name]["parameters"])


def faults(record: Record) -> list[str]:
    """What is wrong with a model's record, in words."""
    if record["status"] == "refused":
        return []
    if record["status"] != "ok":
        return [str(record["problem"])]
    found = []
    if record["lost"] > record["budget"]:
        found.append(f"loses {percent(record['lost'])} of {percent(record['budget'])}")
    gain = record["measured"]
    if gain is not None and max(gain["middle"], gain["quickest"]) < LEAST_FACTOR:
        found.append(f"slower than f32: {gain['middle']:.2f} ×")
    if record["taken"] == "fp32" and not record["is_f32"]:
        found.append("another plan than f32's")
    return found


def row(name: str, record: Record) -> list[str]:
    """A line of the table."""
    if record["status"] != "ok":
        return [name, record["status"], *[NOTHING] * 8]
    gain, agreement, lower = record["measured"], record["agreement"], record["lower"]
    layers = f" ({record['n_quantized']} of {record['n_layers']})" if record["taken"] != "fp32" else ""
    asked = [lower[precision] for precision in LARGEST]
    return [
        name, f"{record['taken']}{layers}", percent(record["lost"]),
        NOTHING if agreement is None else f"{100 * agreement:.1f}",
        "the same plan" if gain is None else f"{gain['middle']:.2f} ({gain['least']:.2f}–{gain['greatest']:.2f})",
        f"{record['predicted']:.2f}", f"{record['nbytes'] / 1024:.0f}", *map(_asked, asked),
    ]  # fmt: skip


def _asked(record: Record) -> str:
    """Weights by f32's, loss and speed of a precision that was asked for."""
    if "problem" in record:
        return NOTHING
    told = [f"{record['weights']:.2f}"]
    told += [] if record["drop"] is None else [percent(record["drop"])]
    return ", ".join([*told, f"{record['gain']['middle']:.2f} ×"] if record["gain"] else told)


def table(document: Record) -> Table:
    """Of all models."""
    columns = ("model", "auto takes (layers)", "lost, unseen", "agreement %", "× f32's speed", "predicted",
               "f32's weights, KiB", "bf16: weights, lost, speed", "int8", "int4-weights")  # fmt: skip
    return Table("Trained models at --precision auto", columns,
                 [row(name, record) for name, record in document["models"].items()])  # fmt: skip


def summary(document: Record) -> list[str]:
    """Totals and every fault, a line each."""
    models = document["models"]
    taken = [record["taken"] for record in models.values() if record["status"] == "ok"]
    counts = ", ".join(f"{precision} {taken.count(precision)}" for precision in sorted(set(taken)))
    wrong = [f"{name}: {fault}" for name, record in models.items() for fault in faults(record)]
    return [f"{len(models)} models, taken: {counts or 'none'}; {len(wrong)} faults", *wrong]


def measure(name: str, args: argparse.Namespace) -> Record:
    """A model's record, of a process of its own."""
    task = {"name": name, "folder": str(args.folder), "samples": args.samples, "budget": args.budget}
    command = [sys.executable, "-m", "benchmarks.quantised_side", json.dumps(task)]
    *_, found = records_of(command, args.timeout, ROOT) or [{"status": "crash", "problem": "it said nothing"}]
    return found


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = command_line("quantised", __doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="SOURCE/NAME of PARAX_MODELS (default: all trained)")
    parser.add_argument("--samples", type=int, default=48, metavar="N", help="requests in both halves (default 48)")
    parser.add_argument("--budget", type=float, default=BUDGET, metavar="SHARE", help="(default 0.005)")
    parser.add_argument("--timeout", type=float, default=900.0, metavar="S", help="of each model (default 900)")
    parser.add_argument("--json", type=new_file, metavar="OUT", help="write every figure there, after each model")
    args = parser.parse_args(argv)
    args.folder = models_folder()
    if args.folder is None:
        raise UsageError("no trained models", where="PARAX_MODELS", expected="their folder", found="none")
    known = trained_models(args.folder)
    unknown = [name for name in args.models if name not in known]
    if unknown:
        raise UsageError("no such trained model", where=unknown[0], expected=", ".join(known))
    document: dict[str, Any] = {"models": {}, "samples": args.samples}
    for name in args.models or known:
        document["models"][name] = record = measure(name, args)
        verdict = "; ".join(faults(record)) or record.get("taken", record["status"])
        print(f"{name}: {verdict}", file=sys.stderr, flush=True)
        if args.json:
            write_whole(args.json, json.dumps(document, indent=1))
    print(markdown(table(document)))
    print("\n".join(["", *summary(document)]))
    return AccuracyMismatch.exit_code if len(summary(document)) > 1 else 0


if __name__ == "__main__":
    finish(main)
