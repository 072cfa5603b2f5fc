"""What `parax inspect --partition` shows: a model's layers and stages, with predictions; the stages of a plan."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError
from ...files import check_writable, write_whole
from ..options import CompileOptions
from . import arguments
from .console import Console, Table

if TYPE_CHECKING:
    from ...runtime.plan import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--partition, --costs and what they are for."""
    group = parser.add_argument_group("a model's operators on a machine")
    group.add_argument("--partition", action="store_true", help="show its layers, their branches and what they hand on")
    group.add_argument("--costs", action="store_true",
                       help="show what each operator computes and moves, and whether arithmetic or memory bounds it")
    group.add_argument("--stages", type=arguments.positive, metavar="K", help="a pipeline of so many stages instead")
    group.add_argument("--batch", type=arguments.positive, metavar="B",
                       help="rows of a request (default 1; with --stages 64)")  # fmt: skip
    group.add_argument("--machine", metavar="FILE.toml", help="for a described machine, by file or shipped name")
    group.add_argument("--cores", type=arguments.cores, metavar="0-31", help="for these cores of this machine")
    group.add_argument("--svg", type=Path, metavar="FILE", help="draw the layers and their Result nodes")
    arguments.add_sizes(group)
    arguments.add_fp(group)


def compile_options(args: argparse.Namespace) -> CompileOptions:
    """Sizes and cores of the model in question, for one request at a time."""
    if args.machine and args.cores:
        raise UsageError("a described machine has its own cores", where="--cores", hint="leave out one of the two")
    given = {"cores": args.cores} if args.cores else {}
    return CompileOptions(shapes=dict(args.shape), dims=dict(args.dim), strict_fp=args.fp == "strict",
                          fast_fp=args.fp == "fast", hint="latency", **given)  # fmt: skip


def show(args: argparse.Namespace, console: Console) -> int:
    """Layers and stages of a model, and the predicted seconds of each; the exit code."""
    from ..planner.partitioned import partition
    from ..planning import planner_of

    if args.svg:
        check_writable(args.svg)
    found = partition(planner_of(args.file, compile_options(args), args.machine), args.batch, args.stages)
    rows = [
        [line.number if i == 0 else "", line.stage if i == 0 else "", _cores(cores),
         f"{line.seconds * 1e6:.1f} µs" if i == 0 else "", len(operators), " ".join(name for name, _ in operators)]
        for line in found.layers for i, (cores, operators) in enumerate(line.branches())
    ]  # fmt: skip
    if args.svg:
        from ..planner.draw_layers import layers_svg

        write_whole(args.svg, layers_svg(f"{args.file.name}: {found.schedule.mode}", found))
    cuts = [[line.number, line.stage, " ".join(line.handed_on)] for line in found.layers if line.handed_on]
    machine = f"{found.machine.name}{' (simulated)' if found.machine.simulated else ''}"
    facts: list[list[object]] = [
        ["machine", machine], ["mode", found.schedule.mode], ["cores", found.schedule.n_cores], ["rows", found.rows],
        *([["micro-batches", found.schedule.micro_batches]] if found.schedule.micro_batches else []),
        ["predicted", f"{found.seconds * 1e3:.3f} ms"],
        ["one after the other", f"{found.sequential_seconds * 1e3:.3f} ms"],
    ]  # fmt: skip
    console.result(found.to_json(), Table(str(args.file), ("", ""), facts),
                   Table("layers", ("layer", "stage", "cores", "predicted", "nodes", "names"), rows),
                   Table("results", ("layer", "stage", "values"), cuts))  # fmt: skip
    return 0


def stage_table(plan: Plan) -> Table:
    """The stages of a plan's scheduled program."""
    scheduled = plan.manifest.scheduled
    if scheduled is None:
        return Table("partition", ("",), [["one kernel after the other"]])
    cores = [_cores(range(s.first_core, s.first_core + s.n_cores)) for s in scheduled.stages]
    rows = [[i, cores[i], s.n_layers] for i, s in enumerate(scheduled.stages)]
    batches = f", {scheduled.micro_batches} micro-batches" if scheduled.micro_batches else ""
    return Table(f"partition: {scheduled.mode}{batches}", ("stage", "cores", "layers"), rows)


def _cores(cores: range) -> str:
    return str(cores.start) if len(cores) == 1 else f"{cores.start}-{cores.stop - 1}"
