"""The scheduled program of a segment: layers of concurrent branches, and stages through which micro-batches flow.

Owns who waits for whom. A branch is a function of its own, or several that share their cores are (`link_waves` says how
cores run kernels together); of the cores of a stage, those of a branch call it, and all of them meet at the end of each
layer. Each group of cores has a slot of the sync block (runtime/sync.py), which is also what its kernels get as `sync`;
slot 0 is for all cores, at the very end.

A pipeline's entry gets as `io` a flow: i64 the number of micro-batches, then the address of their pieces, each the
address of its pointers and of its dimensions (runtime/handoff.py); and as `dims` the largest one's dimensions, by which
the arena is laid out (`room`). Stage s begins micro-batch b (`piece`) once stage s − 1 is done with b and stage s + 1
with b − 2, so that two buffers between neighbours suffice. A stage counts what it has done in its slot; the others
look there, spin, then yield. No stage stops for another's error, so none waits for ever.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from ...runtime.handoff import Piece
from ...runtime.stamps import MAX_CALLS, whole_stamp
from ...runtime.sync import ERROR_OFFSET, PROGRESS_OFFSET, branch_slot, stage_slot
from ..kernel_ir.builder import Builder
from ..kernel_ir.loops import KFunc
from ..kernel_ir.synchronisation import barrier
from .link_calls import segment_builder, share_of
from .link_waves import Group, run_waves, waves_of
from .lower import PlacedBranch, PlacedCall, PlacedStage, ScheduledSegment, Segment

PARTS_PER_FUNCTION = 64  # layers; LLVM takes quadratic time over functions of thousands of calls
CALLS_PER_BRANCH = 256

_ARGUMENTS = "ptr %weights, ptr %arena, ptr %dims, ptr %sync, i64 %tid, i64 %nt"


@dataclass(frozen=True)
class _Functions:
    """Makes the functions of one scheduled segment.

    Attributes:
        prefix: of their names. stamps: number of the segment's first call in a trace, None where there is none.
    """

    segment: Segment
    scheduled: ScheduledSegment
    prefix: str
    symbols: tuple[str, ...]
    stamps: int | None

    def stage(self, number: int, stage: PlacedStage) -> KFunc:
        """Runs one stage's layers on its cores."""
        name = f"{self.prefix}_stage_{number}"
        parts = [self._layer(f"{name}_{i}", stage, layer) for i, layer in enumerate(_merged(stage))]
        while len(parts) > PARTS_PER_FUNCTION:
            groups = [parts[i : i + PARTS_PER_FUNCTION] for i in range(0, len(parts), PARTS_PER_FUNCTION)]
            parts = [self._sequence(f"{group[0].name}_on", stage, group) for group in groups]
        return self._sequence(name, stage, parts)

    def _sequence(self, name: str, stage: PlacedStage, parts: Sequence[KFunc]) -> KFunc:
        k = self._builder(name)
        slot = k.gep(k["sync"], stage_slot(stage.first_core))
        for i, part in enumerate(parts):
            if i and stage.n_cores > 1:
                barrier(k, slot, stage.n_cores)
            k.call(part, list(k.params.values()))
        return k.func

    def _layer(self, name: str, stage: PlacedStage, layer: list[PlacedBranch]) -> KFunc:
        if all(branch.n_cores == stage.n_cores for branch in layer):
            return self._together(name, layer, stage_slot(stage.first_core))
        k = self._builder(name)
        for i, branch in enumerate(layer):
            slot = branch_slot(branch.first_core, self.scheduled.schedule.n_cores)
            body = self._together(f"{name}_{i}", [branch], slot)
            _call_on(k, branch, body)
        return k.func

    def _together(self, name: str, branches: list[PlacedBranch], slot: int) -> KFunc:
        """Branches that the same cores run."""
        k, first, n = self._builder(name), branches[0].first_core, branches[0].n_cores
        core = k["tid"] - first if n > 1 else k.index(0)
        share = share_of(k, self.scheduled, core, k.index(n), first, slot)
        counts = k.gep(k["sync"], branch_slot(first, self.scheduled.schedule.n_cores))
        run_waves(k, waves_of(branches), Group(first, n, share, counts), self._stamp)
        return k.func

    def _stamp(self, placed: PlacedCall) -> int | None:
        return None if self.stamps is None else self.stamps + placed.number

    def _builder(self, name: str) -> Builder:
        return segment_builder(self.segment, name, self.symbols, self.scheduled.schedule.mode == "pipelined")


def _call_on(k: Builder, branch: PlacedBranch, body: KFunc) -> None:
    """Call a function on the branch's cores only."""
    mine = (k["tid"] >= branch.first_core) & (k["tid"] < branch.first_core + branch.n_cores)

    def call() -> None:
        k.call(body, list(k.params.values()))

    k.if_(mine, call)


def _merged(stage: PlacedStage) -> list[list[PlacedBranch]]:
    """The layers, those that follow one another with one branch over all cores as one."""
    found: list[list[PlacedBranch]] = []
    for layer in stage.layers:
        whole = len(layer) == 1 and layer[0].n_cores == stage.n_cores
        last = found[-1] if found else []
        if whole and len(last) == 1 and last[0].n_cores == stage.n_cores and len(last[0].calls) < CALLS_PER_BRANCH:
            last[0] = PlacedBranch(stage.first_core, stage.n_cores, last[0].calls + layer[0].calls)
        else:
            found.append(list(layer))
    return found


def schedule_functions(segment: Segment, number: int, of: int, symbols: tuple[str, ...], trace: bool) -> list[KFunc]:
    """One function per stage, in kernel IR.

    Args:
        number: of the scheduled segment. of: of the segment whose program it is, by which its calls are traced.
    """
    scheduled = segment.scheduled
    assert scheduled is not None
    made = _Functions(segment, scheduled, f"segment_{number}", symbols, of * MAX_CALLS if trace else None)
    return [made.stage(i, stage) for i, stage in enumerate(scheduled.stages)]


def schedule_text(segment: Segment, number: int, traced: int | None = None) -> str:
    """The exported entry, `parax_run_<number>`, and for a pipeline the loop of each stage over the micro-batches.

    Args:
        traced: by which segment's number its calls are traced; None where they are not.
    """
    scheduled = segment.scheduled
    assert scheduled is not None
    stages, n_io = scheduled.stages, segment.n_inputs + segment.n_outputs
    parts: list[str] = []
    if scheduled.schedule.mode == "pipelined":
        parts = [_flow_text(number, i, stages, n_io) for i in range(len(stages))]
        body = [line for i, stage in enumerate(stages) for line in _enter_stage(number, i, stage)]
    else:
        body = [*_load_pointers("%io", n_io), f"  call void @segment_{number}_stage_0({_arguments(n_io)})"]
    body.append("  call void @parax_barrier(ptr %sync, i64 %nt)")
    if traced is not None:
        body = [whole_stamp(traced, is_end=False), *body, whole_stamp(traced, is_end=True)]
    if scheduled.schedule.mode == "pipelined":
        body += _forget_progress(stages)
    head = f"define i32 @parax_run_{number}(ptr %io, ptr %weights, ptr %arena, ptr %dims, i64 %tid, i64 %nt, ptr %sync)"
    return "\n".join([*parts, f"{head} #0 {{", "entry:", *body, *_error_site(scheduled), "}"])


def _arguments(n_io: int) -> str:
    return ", ".join([*(f"ptr %a{i}" for i in range(n_io)), _ARGUMENTS])


def _load_pointers(io: str, n_io: int) -> list[str]:
    return [line for i in range(n_io)
            for line in (f"  %at{i} = getelementptr ptr, ptr {io}, i64 {i}", f"  %a{i} = load ptr, ptr %at{i}")]


def _enter_stage(number: int, i: int, stage: PlacedStage) -> list[str]:
    """The stage's cores enter its loop."""
    return [
        f"  %from{i} = sub i64 %tid, {stage.first_core}", f"  %mine{i} = icmp ult i64 %from{i}, {stage.n_cores}",
        f"  br i1 %mine{i}, label %stage{i}, label %next{i}", f"stage{i}:",
        f"  call void @segment_{number}_flow_{i}(ptr %io, {_ARGUMENTS})", f"  br label %next{i}", f"next{i}:",
    ]  # fmt: skip


def _forget_progress(stages: Sequence[PlacedStage]) -> list[str]:
    """The first core sets the counts back: everybody is done, and nobody begins again before it has returned."""
    lines = ["  %first = icmp eq i64 %tid, 0", "  br i1 %first, label %forget, label %answer", "forget:"]
    for i, stage in enumerate(stages):
        lines += [_progress(f"%zero{i}", stage), f"  store atomic i64 0, ptr %zero{i} monotonic, align 8"]
    return [*lines, "  br label %answer", "answer:"]


def _error_site(scheduled: ScheduledSegment) -> list[str]:
    """Return the first error site that any group of cores has left."""
    n = scheduled.schedule.n_cores
    slots = {stage_slot(stage.first_core) for stage in scheduled.stages}
    slots |= {branch_slot(b.first_core, n) for stage in scheduled.stages for layer in stage.layers for b in layer}
    lines, found = [], "0"
    for i, offset in enumerate(sorted(slots)):
        lines += [f"  %slot{i} = getelementptr i8, ptr %sync, i64 {offset + ERROR_OFFSET}",
                  f"  %left{i} = load atomic i32, ptr %slot{i} monotonic, align 4",
                  f"  %none{i} = icmp eq i32 {found}, 0",
                  f"  %site{i} = select i1 %none{i}, i32 %left{i}, i32 {found}"]
        found = f"%site{i}"
    return [*lines, f"  ret i32 {found}"]


def _progress(name: str, stage: PlacedStage) -> str:
    return f"  {name} = getelementptr i8, ptr %sync, i64 {stage_slot(stage.first_core) + PROGRESS_OFFSET}"


def _flow_text(number: int, i: int, stages: Sequence[PlacedStage], n_io: int) -> str:
    """The loop of stage `i` over the micro-batches."""
    stage = stages[i]
    waits = []
    if i > 0:
        waits += [_progress("%before", stages[i - 1]), "  %given = add i64 %piece, 1",
                  "  call void @parax_wait(ptr %before, i64 %given)"]
    if i + 1 < len(stages):
        waits += [_progress("%behind", stages[i + 1]), "  %taken = sub i64 %piece, 1",
                  "  call void @parax_wait(ptr %behind, i64 %taken)"]
    meet = [f"  %slot = getelementptr i8, ptr %sync, i64 {stage_slot(stage.first_core)}",
            f"  call void @parax_barrier(ptr %slot, i64 {stage.n_cores})"] if stage.n_cores > 1 else []
    return "\n".join([
        f"define internal void @segment_{number}_flow_{i}(ptr %flow, ptr %weights, ptr %arena, ptr %room, ptr %sync, "
        "i64 %tid, i64 %nt) #0 {",
        "entry:", "  %count = load i64, ptr %flow", "  %pieces.p = getelementptr i8, ptr %flow, i64 8",
        "  %pieces = load ptr, ptr %pieces.p", "  br label %loop",
        "loop:", "  %piece = phi i64 [ 0, %entry ], [ %piece1, %done ]", "  %more = icmp slt i64 %piece, %count",
        "  br i1 %more, label %run, label %out",
        "run:", *waits, f"  %offset = mul i64 %piece, {ctypes.sizeof(Piece)}",
        "  %at = getelementptr i8, ptr %pieces, i64 %offset",
        f"  %io.p = getelementptr i8, ptr %at, i64 {Piece.io.offset}", "  %io = load ptr, ptr %io.p",
        f"  %dims.p = getelementptr i8, ptr %at, i64 {Piece.dims.offset}", "  %dims = load ptr, ptr %dims.p",
        *_load_pointers("%io", n_io),
        f"  call void @segment_{number}_stage_{i}({_arguments(n_io)}, ptr %room, i64 %piece)", *meet,
        "  %piece1 = add i64 %piece, 1", f"  %leads = icmp eq i64 %tid, {stage.first_core}",
        "  br i1 %leads, label %tell, label %done",
        "tell:", _progress("%own", stage), "  store atomic i64 %piece1, ptr %own release, align 8",
        "  br label %done", "done:", "  br label %loop", "out:", "  ret void", "}",
    ])  # fmt: skip


__all__ = ["schedule_functions", "schedule_text"]
