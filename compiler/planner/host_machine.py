"""The running machine as the planner sees it: as it was measured, else a guess from the CPU's features.

Owns which of the two is taken; how a machine is measured is the backend's.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...log import CALIBRATION, inform
from ..backend.calibration import running_machine
from ..backend.host import resolve_target
from ..options import CompileOptions
from ..targets.machine import Machine

WIDEST_LANES = 8  # of f32 that most CPUs multiply at once in each of two units, however wide their registers

GUESSED_HERTZ = 3.2e9
GUESSED_BANDWIDTH = 15e9  # bytes per second of a core


def machine_here(options: CompileOptions, cores: Sequence[int]) -> Machine:
    """The machine of these cores: measured before, or now where the options let it and it can be kept, else guessed."""
    if not options.cache:
        return guessed(len(cores))

    def tell() -> None:
        inform(f"measuring this machine, once, for a few seconds; kept in {options.cache_dir} (--no-calibrate or "
               "PARAX_CALIBRATE=0: plan by a guess)", CALIBRATION)  # fmt: skip

    return running_machine(options.cache_dir, cores, measure=options.calibrate, before=tell) or guessed(len(cores))


def guessed(n_cores: int) -> Machine:
    """What such a CPU can do, roughly: enough to tell instances of one core from one instance of all."""
    target = resolve_target("native")
    flops = min(target.f32_lanes, WIDEST_LANES) * 4 * GUESSED_HERTZ
    return Machine("this machine, not measured", n_cores, flops, GUESSED_BANDWIDTH, GUESSED_BANDWIDTH * n_cores**0.5,
                   l2_nbytes=target.l2_nbytes, l3_nbytes=target.l3_nbytes, simulated=False)  # fmt: skip
