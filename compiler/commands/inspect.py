"""`parax inspect MODEL.onnx|plan.bin`: what is in the file, without running it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import CorruptPlan, UsageError
from . import costs, partition, preflight
from .choices import choice_tables
from .console import Console, Table, size
from .models import is_plan

if TYPE_CHECKING:
    from ...runtime.manifest import TensorSpec
    from ...runtime.plan import Plan

NAME = "inspect"
HELP = "show what is in an ONNX model or a plan"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("file", type=Path, metavar="MODEL.onnx|plan.bin")
    parser.add_argument("--version-only", action="store_true", help="only the format's version")
    parser.add_argument("--graph", action="store_true", help="also the compiled graph's text (of a plan)")
    partition.add_arguments(parser)


def execute(args: argparse.Namespace, console: Console) -> int:
    """Show it; the exit code: of a model what compiling it would end with, 4 for a damaged file."""
    if args.svg and (is_plan(args.file) or not args.partition):
        raise UsageError("only a model's partition is drawn", where="--svg", hint="a model's file, and --partition")
    if args.costs and (is_plan(args.file) or args.partition):
        raise UsageError("the costs of a model's operators", where="--costs", hint="a model's file, no --partition")
    if is_plan(args.file):
        return show_plan(args, console)
    if args.costs:
        return costs.show(args, console)
    return partition.show(args, console) if args.partition else preflight.show(args, console)


def show_plan(args: argparse.Namespace, console: Console) -> int:
    """Manifest, steps, code, memory, weights, targets, once every digest is right."""
    from ...runtime import loading

    plan = loading.load(args.file, verify="none" if args.version_only else "full")
    if args.version_only:
        version = plan.json()["format"]
        console.result({"format": version}, Table("", ("plan format",), [[version]]))
        return 0
    document = plan.json()
    document["nbytes"] = args.file.stat().st_size
    document["digests"] = "right"
    tables = [_facts(args.file, plan), _signature(plan), _targets(plan), _steps(plan), *_planned(plan), *_choices(plan),
              *_rounded(plan)]  # fmt: skip
    if args.partition:
        tables.append(partition.stage_table(plan))
    if args.graph:
        document["graph_text"] = plan.graph
    console.result(document, *tables)
    if args.graph and console.form == "table":
        print(plan.graph)
    return 0


def _facts(path: Path, plan: Plan) -> Table:
    from ..precision.record import told

    manifest = plan.manifest
    symbols = [f"{s.name} ({s.min}..{'' if s.max is None else s.max})" for s in manifest.symbols]
    facts: list[list[Any]] = [
        ["model", plan.name], ["file", size(path.stat().st_size)], ["plan format", plan.json()["format"]],
        ["hint", manifest.hint], ["weights", size(manifest.weights.size)], ["symbols", ", ".join(symbols) or "none"],
        ["batch", _batch(plan)],
        ["mode", _mode(plan)], ["sessions", _sessions(plan)], ["digests", "all right"],
        *([key, value] for key, value in manifest.provenance.items() if isinstance(value, (str, int, float))),
        *(["", line] for line in told(manifest.provenance)),
    ]  # fmt: skip
    return Table(str(path), ("", ""), facts)


def _batch(plan: Plan) -> str:
    """Which symbol counts independent rows; if none does, the operator that is to blame."""
    if plan.manifest.batch is not None:
        return f"{plan.manifest.batch.symbol}: rows are independent"
    reasons = "; ".join(plan.manifest.not_split)
    return f"not split: {reasons}" if reasons else "not split"


def _mode(plan: Plan) -> str:
    """How instances use their cores, and how many they need for it."""
    program = plan.manifest.scheduled
    if program is None:
        return "sequential"
    parts = f"{program.micro_batches} micro-batches through stages on" if program.micro_batches else "layers on"
    cores = " + ".join(str(stage.n_cores) for stage in program.stages)
    return f"{program.mode}: {parts} {cores} cores; sequential on any other number than {program.n_cores}"


def _sessions(plan: Plan) -> str:
    """The instances of sessions where nobody says how many, and when they begin."""
    manifest, words = plan.manifest, []
    arrangement = manifest.arrangement if manifest.instances is None else None
    if manifest.instances is not None:
        words.append(f"{manifest.instances} instances, as asked for")
    elif arrangement is None:
        words.append("by the hint")
    else:
        words.append(f"on {arrangement.cores} cores: {arrangement.instances} × {arrangement.cores_each}")
        sizes: dict[tuple[int, int], list[str]] = {}
        for rule in arrangement.for_rows:
            end = "" if rule.most == rule.least else " or more" if rule.most is None else f" to {rule.most}"
            sizes.setdefault((rule.instances, rule.cores_each), []).append(f"{rule.least}{end}")
        words += [f"{', '.join(rows)} rows: {k} × {x}" for (k, x), rows in sizes.items()]
    delay = manifest.delay or (arrangement.delay if arrangement else None)
    if delay is not None and delay.groups > 1:
        words.append(f"starts in {delay.groups} groups, {delay.seconds * 1e3:.3g} ms apart")
    return "; ".join(words)


def _signature(plan: Plan) -> Table:
    def rows(side: str, specs: tuple[TensorSpec, ...]) -> list[list[Any]]:
        return [[side, spec.name, spec.dtype, preflight.shape_text(spec.shape)] for spec in specs]

    kept = {state.input for state in plan.manifest.states}
    states = rows("state", tuple(spec for spec in plan.manifest.inputs if spec.name in kept))
    sides = [*rows("input", plan.inputs), *rows("output", plan.outputs), *states]
    return Table("signature", preflight.SIGNATURE, sides)


def _targets(plan: Plan) -> Table:
    rows = [[t.name, size(len(plan.code(t))), " ".join(t.features)] for t in plan.manifest.targets]
    return Table("code", ("target", "size", "needs"), rows)


def _steps(plan: Plan) -> Table:
    from ...runtime.dims import dim_text
    from ...runtime.manifest import NativeStep

    rows = []
    for step in plan.manifest.steps:
        native = step if isinstance(step, NativeStep) else step.native
        what = f"segment {step.segment}" if isinstance(step, NativeStep) else step.op
        arena = dim_text(native.arena) if native is not None else ""
        if arena.isdigit():
            arena = size(int(arena))
        rows.append(["native" if native is not None else "host", what, len(step.inputs), len(step.outputs), arena])
    return Table("steps", ("kind", "what", "inputs", "outputs", "arena"), rows)


def _choices(plan: Plan) -> list[Table]:
    """Which kernel each node got where there were several, with the candidates' times where they were measured."""
    rows = []
    try:
        for choice in plan.manifest.provenance.get("choices", []):
            times = choice["seconds"].items()
            candidates = ", ".join(name if value is None else f"{name} {value * 1e6:.0f} µs" for name, value in times)
            rows.append([choice["node"], choice["target"], choice["kernel"], choice["by"], candidates])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CorruptPlan("a choice that is none", where="manifest.provenance.choices", found=repr(error)) from error
    return [Table("kernels chosen", ("node", "target", "kernel", "by", "candidates"), rows)] if rows else []


def _rounded(plan: Plan) -> list[Table]:
    """Nodes whose operands are rounded to a narrower type than the model's."""
    try:
        rows = [[found["node"], found["target"], found["to"]] for found in plan.manifest.provenance.get("rounded", [])]
    except (KeyError, TypeError) as error:
        raise CorruptPlan("a rounding that is none", where="manifest.provenance.rounded", found=repr(error)) from error
    return [Table("operands rounded", ("node", "target", "to"), rows)] if rows else []


def _planned(plan: Plan) -> list[Table]:
    """What the planner chose among, and why; nothing for plans without it."""
    choice = plan.manifest.choice
    try:
        return choice_tables(f"planned for {plan.name}", choice) if choice else []
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise CorruptPlan("a choice that is none", where="manifest.choice", found=repr(error)) from error
