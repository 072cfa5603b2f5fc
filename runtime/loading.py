"""From a file to a Plan, quickly. Owns the order: other cores check the weights while this one loads modules.

A cold start is mostly imports and the check of the weights; side by side they cost the longer of the
two. So this module imports nothing that is not needed to begin the check.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import CorruptPlan, UsageError, reported
from ..sources import File, path_or_bytes
from .checksums import RowSums
from .container import WEIGHTS, Container

if TYPE_CHECKING:
    from pathlib import Path

    from .plan import Plan


_WHAT_TO_DO = {
    ("onnx", "ModelProto"): "parax.compile makes a plan of it",
    ("parax", "Plan"): "it is loaded already: its session() runs it",
    ("parax", "Session"): "it is loaded already: its run() runs it",
}


@reported
def load(path: File, verify: str = "fast") -> Plan:
    """Read plan.bin.

    Args:
        path: the file, whose weights are mapped, not copied: do not overwrite it in place while the plan is in use. Or
            its bytes, or a binary file that is open (read from where it stands): these are copied.
        verify: "fast" checks the weights' checksum (checksums.py), "full" the SHA-256 of every member, "none" neither.

    Raises:
        UsageError: the file cannot be read; a TypeError, too, where `path` is none of these.
        CorruptPlan: the bytes are not what the plan promises.
        IncompatiblePlan: a sound plan of another format.
    """
    if verify not in ("fast", "full", "none"):
        raise UsageError("unknown way to verify", where="verify", expected="fast, full or none", found=verify)
    expected = "the path of a plan.bin, its bytes or a binary file object"
    source = path_or_bytes(path, "plan", expected=expected, hints=_WHAT_TO_DO)
    try:
        return _load(source, verify)
    except (CorruptPlan, UsageError) as error:
        if isinstance(source, bytes):
            raise
        from ..file_kinds import PLAN, named  # here: what is a plan needs it not

        raise named(error, source, PLAN) from error.__cause__


def _load(source: Path | bytes, verify: str) -> Plan:
    container = Container(source)
    weights = container.members.get(WEIGHTS)
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
