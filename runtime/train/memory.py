"""What a training takes: predicted part by part from its plans before anything runs, and measured beside it."""

from __future__ import annotations

import ctypes
import gc
import math
import mmap
import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...units import size
from ..dims import evaluate
from ..manifest import TensorSpec
from ..plan import Plan
from .exchange.division import Division
from .layout import Layout
from .program import TrainingProgram

EVALUATION = "evaluation"


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes that a training takes beside the interpreter and the compiler.

    Attributes:
        parts: what for → bytes: `weights` and each slot of the optimiser; `gradients`, once per shard (the parts of
            compact ones); `arenas`, which hold the tensors of a step, one per instance; `evaluation`, which is taken
            once something is evaluated.
        measured: how much more the process holds now than before it had any of them; None: the system does not say.
    """

    parts: Mapping[str, int]
    measured: int | None = None

    @property
    def steps(self) -> int:
        """Bytes of all parts but the evaluation: the most that training steps take."""
        return self.total - self.parts.get(EVALUATION, 0)

    @property
    def total(self) -> int:
        """Bytes of all parts: the peak once something is evaluated."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {size(nbytes)}" for name, nbytes in self.parts.items() if nbytes)
        found = "" if self.measured is None else f"; {size(self.measured)} measured"
        return f"{size(self.total)} of memory predicted ({shown}){found}"


def predicted(program: TrainingProgram, division: Division) -> dict[str, int]:
    """The parts of `TrainingMemory`. Copies of weights that other exchanges than the fixed one keep are not in it."""
    place, exchange = division.placement, division.exchange
    instances = len(place.instances)
    vectors, dense = (sum(4 * Layout.of(shapes).length for group, shapes in program.groups.items()
                          if group not in left_out) for left_out in ((), program.compact))  # fmt: skip
    n_rows = division.n_pieces * (1 if exchange.is_synchronous else instances)
    n_gradients = division.n_gradients if exchange.sums_all else instances + 1
    n_gradients += instances if division.accumulate > 1 else 0
    fixed = [spec for spec in program.step.inputs if spec.name in program.statistics]
    return {
        **{name: vectors for name in ("weights", *program.slots)},
        "gradients": n_gradients * dense + n_rows * sum(of.nbytes for of in program.compact.values()),
        "statistics": sum(map(_nbytes, fixed)) * (1 + program.n_shards),
        "constants": sum(len(p.weights) for p in (program.step, program.update, program.evaluation)),
        "data": sum(_nbytes(spec, 1) for spec in program.inputs()) * program.batch,
        "arenas": instances * arena_nbytes(program.step, len(place.instances[0])),
        "update": arena_nbytes(program.update, len(exchange.updating(place))),
        EVALUATION: arena_nbytes(program.evaluation, len(place.everyone), program.batch),
    }  # fmt: skip


def arena_nbytes(plan: Plan, cores: int, rows: int = 1) -> int:
    """Of one instance on so many cores, with what each of these needs beside; `rows` of every open dimension."""
    sizes = {symbol.name: rows for symbol in plan.manifest.symbols}
    steps, scheduled = plan.manifest.native_steps(), plan.manifest.scheduled
    if scheduled is not None and scheduled.n_cores == cores:
        steps.append(scheduled.step)
    return max((evaluate(step.arena, sizes) + cores * evaluate(step.scratch, sizes) for step in steps), default=0)


def resident_nbytes() -> int | None:
    """What of this process lies in memory; None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return None


def release_free_memory() -> None:
    """Give the system back what compiling has left: a training runs long beside it. Memory that malloc keeps, and pages
    of LLVM's instructions, which the system reads again should they run once more.
    """
    gc.collect()
    with suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError, AttributeError):
        _forget_instructions("libllvmlite")


def _forget_instructions(library: str) -> None:
    """Take a library's code, which nobody has written to, out of this process's resident memory."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        extent, rights, *rest = line.split(maxsplit=5)
        if rights == "r-xp" and rest and Path(rest[-1]).name.startswith(library):
            first, end = (int(address, 16) for address in extent.split("-"))
            ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), mmap.MADV_DONTNEED)


def _nbytes(spec: TensorSpec, first: int = 0) -> int:
    """Of a tensor, or of a row of it: without the axes before `first`."""
    return math.prod(d for d in (spec.dims or ())[first:] if isinstance(d, int)) * spec.numpy.itemsize


__all__ = ["EVALUATION", "TrainingMemory", "arena_nbytes", "predicted", "release_free_memory", "resident_nbytes"]
