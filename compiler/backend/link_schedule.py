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
from ...runtime.stamps import MAX_CALLS, whole_number
from ...runtime.sync import PROGRESS_OFFSET, branch_slot, stage_slot
from ..ir.types import I32, I64, U64
from ..kernel_ir.builder import BYTES, I64PTR, Builder, KValue
from ..kernel_ir.loops import INDEX, KFunc, KType, PtrType
from ..kernel_ir.synchronisation import barrier, error_function, post, reset, wait_for
from .link_calls import SHARED, entry_builder, load_pointers, segment_builder, share_of
from .link_waves import Group, run_waves, waves_of
from .lower import PlacedBranch, PlacedCall, PlacedStage, ScheduledSegment, Segment

PARTS_PER_FUNCTION = 64  # layers; LLVM takes quadratic time over functions of thousands of calls
CALLS_PER_BRANCH = 256


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


def scheduled_entry(segment: Segment, number: int, of: int, symbols: tuple[str, ...], trace: bool) -> KFunc:
    """The exported function that runs a scheduled segment's stages, each on its cores.

    Args:
        number: of the scheduled segment. of: of the segment whose program it is, by which its calls are traced.
    """
    scheduled = segment.scheduled
    assert scheduled is not None
    stamps = of * MAX_CALLS if trace else None
    made = _Functions(segment, scheduled, f"segment_{number}", symbols, stamps)
    stages = [made.stage(i, stage) for i, stage in enumerate(scheduled.stages)]
    k = entry_builder(number)
    if trace:
        k.stamp(whole_number(of, is_end=False))
    if scheduled.schedule.mode == "pipelined":
        for i, stage in enumerate(scheduled.stages):
            _enter_stage(k, stage, _flow(number, i, segment, scheduled.stages, stages[i]))
    else:
        k.call(stages[0], [*load_pointers(k, k["io"], range(_n_io(segment))), *(k[name] for name in SHARED)])
    barrier(k)
    if trace:
        k.stamp(whole_number(of, is_end=True))
    if scheduled.schedule.mode == "pipelined":
        _forget_progress(k, scheduled.stages)
    k.ret(_error_site(k, scheduled))
    return k.func


def _n_io(segment: Segment) -> int:
    return segment.n_inputs + segment.n_outputs


def _enter_stage(k: Builder, stage: PlacedStage, flow: KFunc) -> None:
    """The stage's cores enter its loop."""
    mine = k.cast(k["tid"] - stage.first_core, U64) < stage.n_cores  # cores before the first one are far beyond it
    arguments = [k[name] for name in ("io", *SHARED)]

    def enter() -> None:
        k.call(flow, arguments)

    k.if_(mine, enter)


def _forget_progress(k: Builder, stages: Sequence[PlacedStage]) -> None:
    """The first core sets the counts back: everybody is done, and nobody begins again before it has returned."""

    def forget() -> None:
        for stage in stages:
            reset(k, _progress(k, stage))

    k.if_(k["tid"] == 0, forget)


def _error_site(k: Builder, scheduled: ScheduledSegment) -> KValue:
    """The first error site that any group of cores has left."""
    n = scheduled.schedule.n_cores
    slots = {stage_slot(stage.first_core) for stage in scheduled.stages}
    slots |= {branch_slot(b.first_core, n) for stage in scheduled.stages for layer in stage.layers for b in layer}
    found = k.const(0, I32)
    for offset in sorted(slots):
        left = k.call(error_function(), [k.gep(k["sync"], offset)])
        found = k.select(found == 0, left, found)
    return found


def _progress(k: Builder, stage: PlacedStage) -> KValue:
    """Where a stage counts the micro-batches that it has done."""
    return k.gep(k["sync"], stage_slot(stage.first_core) + PROGRESS_OFFSET)


def _flow(number: int, i: int, segment: Segment, stages: Sequence[PlacedStage], body: KFunc) -> KFunc:
    """The loop of stage `i` over the micro-batches, whose address and number lie at `flow`."""
    stage = stages[i]
    parameters: list[tuple[str, KType | PtrType]] = [
        ("flow", I64PTR), ("weights", BYTES), ("arena", BYTES), ("room", I64PTR), ("sync", BYTES), ("tid", INDEX),
        ("nt", INDEX),
    ]  # fmt: skip
    k = Builder(f"segment_{number}_flow_{i}", parameters)
    k.func.noalias = False
    pieces = k.load_pointer(k["flow"], 1, I64)

    def one(piece: KValue, _: list[KValue]) -> None:
        if i > 0:
            wait_for(k, _progress(k, stages[i - 1]), piece + 1)
        if i + 1 < len(stages):
            wait_for(k, _progress(k, stages[i + 1]), piece - 1)
        at = piece * _words(ctypes.sizeof(Piece))
        io = k.load_pointer(pieces, at + _words(Piece.io.offset), I64)
        dims = k.load_pointer(pieces, at + _words(Piece.dims.offset), I64)
        shared = [dims if name == "dims" else k[name] for name in SHARED]
        k.call(body, [*load_pointers(k, io, range(_n_io(segment))), *shared, k["room"], piece])
        if stage.n_cores > 1:
            barrier(k, k.gep(k["sync"], stage_slot(stage.first_core)), stage.n_cores)
        k.if_(k["tid"] == stage.first_core, lambda: post(k, _progress(k, stage), piece + 1))

    k.for_(0, k.load(k["flow"]), 1, [], one)
    return k.func


def _words(nbytes: int) -> int:
    assert nbytes % INDEX.dtype.nbytes == 0
    return nbytes // INDEX.dtype.nbytes


__all__ = ["scheduled_entry"]
