"""The names of kernels for Linux' perf: lines of /tmp/perf-PID.map, in which it looks for code that no file holds.

Source of the form: tools/perf/Documentation/jit-interface.txt in Linux. Code that is unloaded keeps its lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..errors import UsageError

FOLDER = "/tmp"  # where perf looks


def add_to_perf_map(ranges: Iterable[tuple[int, int, str]], plan: str) -> None:
    """Name functions of a plan.

    Args:
        ranges: of each function its address, its bytes and its name. plan: its name, which theirs begin with.

    Raises:
        UsageError: the file cannot be written.
    """
    owner = "".join(c if c.isprintable() and not c.isspace() else "_" for c in plan)
    lines = "".join(f"{address:x} {nbytes:x} {owner}:{name}\n" for address, nbytes, name in ranges)
    path = f"{FOLDER}/perf-{os.getpid()}.map"
    try:
        number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with open(number, "w") as file:
            file.write(lines)
    except OSError as error:
        raise UsageError("cannot be written", where=path, found=error.strerror or error,
                         hint="PARAX_PERF_MAP=0 does without it") from error  # fmt: skip
