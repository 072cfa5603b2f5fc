"""In which mode a session runs its plan: the plan's scheduled program, or one kernel after the other.

A scheduled program is made for instances of so many cores; with any other number the sequential program runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:  # the command line names the modes, and must start without NumPy
    from .manifest import Manifest, Scheduled

MODES = ("sequential", "layered", "pipelined")


def wanted_program(manifest: Manifest, mode: str | None) -> Scheduled | None:
    """The scheduled program that a session should run: the plan's, unless `mode` says otherwise.

    Raises:
        UsageError: the plan has no program of that mode.
    """
    if mode is not None and (not isinstance(mode, str) or mode not in MODES):
        found = f"{mode!r:.200}" if isinstance(mode, str) else type(mode).__name__
        raise UsageError("no such mode", where="mode", expected=", ".join(MODES), found=found)
    if mode == "sequential":
        return None
    program = manifest.scheduled
    if mode is not None and (program is None or program.mode != mode):
        found = "sequential" if program is None else f"sequential, {program.mode}"
        hint = f"compile the model with --mode {mode}"
        raise UsageError("the plan has no such program", where="mode", expected=mode, found=found, hint=hint)
    return program


def fitting_program(
    program: Scheduled | None, core_groups: Sequence[Sequence[int]], mode: str | None
) -> Scheduled | None:
    """The program, if instances have as many cores as it is made for, else None.

    Raises:
        UsageError: they have not, and `mode` asks for it by name.
    """
    n_cores = len(core_groups[0])
    if program is None or program.n_cores == n_cores:
        return program
    if mode is not None:
        hint = "let the session choose, or compile for that many cores"
        raise UsageError(f"the plan's {mode} program needs instances of other size", where="cores per instance",
                         expected=program.n_cores, found=n_cores, hint=hint)  # fmt: skip
    return None
