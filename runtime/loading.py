"""From a file to a Plan, quickly. Owns the order: other cores check the weights while this one loads modules.

A cold start is mostly imports and the check of the weights; side by side they cost the longer of the
two. So this module imports nothing that is not needed to begin the check.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError, reported
from .checksums import RowSums
from .container import WEIGHTS, Container
from .idle_blas import end_idle_blas_threads

if TYPE_CHECKING:
    from .plan import Plan


@reported
def load(path: str | os.PathLike[str], verify: str = "fast") -> Plan:
    """Read plan.bin. The weights are mapped, not copied; do not overwrite the file in place while the plan is in use.

    Args:
        path: the file.
        verify: "fast" checks the weights' checksum (checksums.py), "full" the SHA-256 of every member, "none" neither.

    Raises:
        UsageError: the file cannot be read.
        CorruptPlan: the bytes are not what the plan promises.
        IncompatiblePlan: a sound plan of another format.
    """
    if verify not in ("fast", "full", "none"):
        raise UsageError("unknown way to verify", where="verify", expected="fast, full or none", found=verify)
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError("not a path", where="load", expected="text or a Path", found=repr(path)[:200])
    container = Container(Path(path))
    weights = container.members.get(WEIGHTS)
    end_idle_blas_threads()
    sums = RowSums(weights) if verify == "fast" and weights is not None else None
    try:
        from .plan import read_plan  # here: modules load while the sums are worked out

        plan = read_plan(container)
        if sums is not None:
            import_module(".session", __package__)  # needed next, and there is time now
            plan.check_weights(sums)
    except BaseException:
        if sums is not None:
            sums.abandon()
        raise
    if verify == "full":
        plan.verify()
    return plan
