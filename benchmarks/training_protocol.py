"""How a side of `python -m benchmarks.training` answers: a line of its input asks, a line of JSON is the answer.

`step` → the loss and the seconds of one step, `turn` → the same of steps one after the other, as many as take TURN
seconds together: the loss of the last one, the seconds of one on average; `peak` → bytes of the largest resident size
since the last `peak` (the first time, since the start) and of what was resident before anything of the model was made.
Owns the loop and the measuring; it must import nothing of parax nor what parax needs, as other interpreters run it too.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TURN = 0.25
"""Seconds, at least: a step of a few milliseconds alone is of caches that the other side has filled."""
Step = Callable[[], float]
"""Makes one step of training and returns its loss."""


def serve(make: Callable[[], Step], cores: int) -> None:
    """Make the step, say so, and answer until the input ends.

    Args:
        make: builds the model; libraries are loaded before. cores: what the side uses.
    """
    before = _status("VmRSS")
    step = make()
    _say({"cores": cores})
    for line in sys.stdin:
        if line.strip() == "peak":
            _say({"peak": _status("VmHWM"), "before": before})
            Path("/proc/self/clear_refs").write_text("5")  # the largest resident size counts from here
            continue
        _say(_steps(step, TURN if line.strip() == "turn" else 0))


def _steps(step: Step, seconds: float) -> dict[str, float]:
    """Steps until so many seconds have passed, at least one."""
    began, loss, n = time.perf_counter(), step(), 1
    while time.perf_counter() - began < seconds:
        loss, n = step(), n + 1
    return {"loss": loss, "seconds": (time.perf_counter() - began) / n}


def _status(key: str) -> int:
    """Bytes of a line of /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}")


def _say(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)
