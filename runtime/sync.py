"""The memory in which the cores of an instance meet and report: its layout, shared by the compiler and the runtime.

It is a row of slots of 192 zeroed bytes each, one per group of cores that may wait for each other: slot 0 for all cores
of the instance, then one per core for the pipeline stage that begins at that core, then one per core for the branch of
a layer that begins there. At one time a core is in one stage and one branch, so no two groups share a slot.

    slot + 0    i32: the cores that have arrived at the barrier
    slot + 32   i32: how often the barrier has opened
    slot + 64   i32: the error site that a kernel left, or 0
    slot + 96   i64: the micro-batches that a stage has done; in slot 0 the address of a trace's logs (stamps.py)
    slot + 128  i64: the word in which they meet inside of a kernel (compiler/kernel_ir/synchronisation.py)
    slot + 136  i32 × 14: of a branch's slot, the chunks taken of each call that the core of that slot divides with the
                next one while it runs (compiler/backend/link_waves.py)

A kernel gets the slot of the cores that share its work as `sync`, and the address of their meeting word where it asks
for it. It may leave an error site and touches nothing else there.
"""

from __future__ import annotations

SLOT_NBYTES = 192
GENERATION_OFFSET = 32
ERROR_OFFSET = 64
PROGRESS_OFFSET = 96
MEETING_OFFSET = 128
CLAIMS_OFFSET = 136
N_CLAIMS = 14


def sync_nbytes(n_cores: int) -> int:
    """The size of the memory for an instance of `n_cores` cores."""
    return SLOT_NBYTES * (1 + 2 * n_cores)


def stage_slot(first_core: int) -> int:
    """Bytes to the slot of the stage whose first core is the instance's core number `first_core`."""
    return SLOT_NBYTES * (1 + first_core)


def branch_slot(first_core: int, n_cores: int) -> int:
    """Bytes to the slot of the branch that begins at a core, in an instance of `n_cores` cores."""
    return SLOT_NBYTES * (1 + n_cores + first_core)
