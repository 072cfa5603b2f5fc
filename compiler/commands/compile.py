"""`paraxc MODEL.onnx -o plan.bin`, also `parax compile`."""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError
from ...files import check_writable, write_whole
from ..options import FULL, HALF
from . import arguments
from .console import Console, Progress, size

if TYPE_CHECKING:
    from ...runtime.manifest import TensorSpec
    from ...runtime.plan import Plan
    from ..options import CompileOptions

NAME = "compile"
HELP = "compile an ONNX model into a plan of native code"
SUFFIX = {"plan": ".plan.bin", "onnx": ".onnx", "ir": ".txt", "llvm-ir": ".ll", "asm": ".s", "obj": ".o"}
BINARY = ("plan", "obj", "onnx")
MMAP_THRESHOLD, LARGE_NBYTES = -3, 1 << 20  # malloc's option, and what it is set to
STDOUT = ("-", "/dev/stdout", "/dev/fd/1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write, - is stdout (default MODEL.plan.bin)")
    parser.add_argument("--emit", choices=tuple(SUFFIX), default="plan",
                        help="what to write: the plan; onnx: the model at the precision decided on, as ONNX, for other "
                             "runtimes; or what the plan is made of, for reading (default plan)")  # fmt: skip
    arguments.add_compile_options(parser)
    parser.add_argument("--check", type=arguments.positive, default=0, metavar="N",
                        help="compare with the reference on N random inputs; write nothing if it differs")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="do everything but write the file")


def execute(args: argparse.Namespace, console: Console) -> int:
    """Compile and write; the exit code."""
    options = replace(arguments.compile_options(args), check=args.check)
    if args.output is None and str(args.model) in console.names and not args.dry_run:
        raise UsageError("a model from a pipe has no name", where="-o", hint="give -o FILE, or -o - for stdout")
    output = output_path(args.model, args.output, args.emit)
    if not args.dry_run:
        check_place(output, args.emit)

    give_back_large_arrays()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="parax-") as scratch:
        if args.emit in ("llvm-ir", "asm") and options.dump is None:
            options = replace(options, dump=Path(scratch))
        with console.progress(args.model.name) as progress:
            plan, content = made(args, options, progress)
    seconds = time.perf_counter() - began
    if not args.dry_run:
        write(plan, content, output)
    report(args, plan, output, seconds, console)
    return 0


def give_back_large_arrays() -> None:
    """Have malloc take large arrays from the system, and give them back at once, for the rest of this process.

    By itself it takes from the heap what is as large as anything that was freed before, up to 32 MiB, and constants
    that a compilation lets go leave holes there: ViT's 346 MB took 825 MB where the machine was measured before, and
    582 without; now 628 and 558 (2026-11-29).
    """
    with suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, LARGE_NBYTES)


def made(args: argparse.Namespace, options: CompileOptions, progress: Progress) -> tuple[Plan, bytes | None]:
    """The plan, and what is written instead of it."""
    from .. import api

    if args.emit != "onnx":
        plan = api.compile(args.model, options=options, progress=progress)
        return plan, None if args.emit == "plan" else emitted(plan, args.emit, options)
    if options.state:
        raise UsageError("ONNX has no state", where="--emit onnx and --state", expected="at most one of them")
    if options.precision in (FULL, HALF):
        why = "the model as it is" if options.precision == FULL else "ONNX has no products of bf16 summed in f32"
        raise UsageError(why, where="--emit onnx", expected="another --precision", found=options.precision)
    from ..frontend.exporter import to_onnx
    from ..frontend.parse import settled
    from ..precision.gates import decided

    found = decided(settled(args.model, None), options, progress, writes_onnx=True)
    return found.plan, to_onnx(found.graph).SerializeToString()


def output_path(model: Path, given: str | None, emit: str) -> Path | None:
    """Where the result goes: `given`, else the model's name with the kind's suffix, here; None is stdout."""
    if given in STDOUT:
        return None
    return Path(given) if given else Path(model.stem + SUFFIX[emit])


def check_place(output: Path | None, emit: str) -> None:
    """Refuse before the work rather than after it.

    Raises:
        UsageError: nothing can be written there, or it is a terminal, and no text.
    """
    if output is not None:
        check_writable(output)
    if emit in BINARY and _is_terminal(output):
        hint = "redirect it: -o - > plan.bin" if emit == "plan" else "redirect it, or --emit asm"
        raise UsageError("is a terminal, which shows text", where=str(output or "stdout"), found=emit, hint=hint)


def _is_terminal(output: Path | None) -> bool:
    if output is None:
        return sys.stdout.isatty()
    if not output.is_char_device():
        return False
    with output.open("wb", buffering=0) as device:
        return device.isatty()


def emitted(plan: Plan, emit: str, options: CompileOptions) -> bytes:
    """What --emit asks for, as bytes: the last graph, the object code of the first target, or the dumped text."""
    if emit == "ir":
        return plan.graph.encode()
    if emit == "obj":
        return bytes(plan.code(plan.manifest.targets[0]))
    assert options.dump is not None
    files = sorted(options.dump.rglob(f"*{SUFFIX[emit]}"))
    return b"\n".join(file.read_bytes() for file in files)


def write(plan: Plan, content: bytes | None, output: Path | None) -> None:
    """Write the plan (or the content), whole or not at all."""
    if output is None:
        if content is None:
            with tempfile.TemporaryDirectory(prefix="parax-") as scratch:
                plan.save(Path(scratch) / "plan.bin")
                content = (Path(scratch) / "plan.bin").read_bytes()
        sys.stdout.buffer.write(content)
        return
    if content is None:
        plan.save(output)
    else:
        write_whole(output, content)


def report(args: argparse.Namespace, plan: Plan, output: Path | None, seconds: float, console: Console) -> None:
    """Say what was made: a line on stderr, or a document on stdout with --format json."""
    from ..host_work import OUTSIDE
    from ..precision.record import KEY, told

    nbytes = output.stat().st_size if output is not None and not args.dry_run else None
    targets = [target.name for target in plan.manifest.targets]
    document: dict[str, object] = {
        "model": args.model, "output": output, "written": not args.dry_run, "nbytes": nbytes,
        "seconds": round(seconds, 3), "targets": targets,
        "inputs": [described(spec) for spec in plan.inputs], "outputs": [described(spec) for spec in plan.outputs],
    }  # fmt: skip
    if KEY in plan.manifest.provenance:
        document[KEY] = plan.manifest.provenance[KEY]
    if console.form == "json" and output is not None:
        console.result(document)
        return
    made = f"{args.model} → {output or 'stdout'}" if not args.dry_run else f"{args.model} compiles (nothing written)"
    console.note(f"{made}{f', {size(nbytes)}' if nbytes else ''}, {seconds:.1f} s, for {', '.join(targets)}")
    for line in told(plan.manifest.provenance):
        console.note(line)
    outside = plan.manifest.provenance.get(OUTSIDE)
    if outside:
        console.note(f"runs partly {OUTSIDE}, in Python: {outside}")


def described(spec: TensorSpec) -> dict[str, object]:
    """A tensor of a signature as a document."""
    return {"name": spec.name, "dtype": spec.dtype, "shape": spec.shape}
