"""Runs one piece of work in a process of its own, so that a crash or a hang costs that piece only.

Owns the process and what it prints: one JSON object a line. Knows nothing of the work.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]
MOST_STDERR = 400
"""Characters of a failed child's messages that are kept: its last ones."""


def records_of(command: Sequence[str], timeout: float, folder: Path) -> list[Record]:
    """What a child printed; a crash or a timeout adds a record with that `status` and a `problem`.

    Args:
        command: program and arguments. timeout: seconds; then its whole process group is killed.
        folder: where it runs.
    """
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        timed_out = False
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            timed_out = True
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    records: list[Record] = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    if timed_out:
        records.append({"status": "timeout", "problem": f"more than {timeout} s"})
    elif child.returncode:
        reason = signal.Signals(-child.returncode).name if child.returncode < 0 else f"exit {child.returncode}"
        records.append({"status": "crash", "problem": f"{reason}: {err.strip()[-MOST_STDERR:]}"})
    return records
