"""One version of parax behind `python -m benchmarks.versions`, run as a file by the interpreter that has it installed.

Imports nothing of this checkout, only what is installed there. Says {} once all set-ups are warm; answers each line
{"seconds": S} with rows a second by set-up, each measured for so long. Owns the callers; knows nothing of other sides.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import parax

WARM = 6
"""Requests before any is measured: the first ones make bindings and find out whether calls are brief."""


def main(argv: Sequence[str]) -> None:
    """Entry point: measure until the input ends."""
    task = json.loads(argv[0])
    calls = {words: (call, callers) for words, call, callers in _setups(task)}
    for call, _ in calls.values():
        for _ in range(WARM):
            call()
    print("{}", flush=True)
    for line in sys.stdin:
        seconds = json.loads(line)["seconds"]
        rates = {words: task["rows"] * _rate(call, callers, seconds) for words, (call, callers) in calls.items()}
        print(json.dumps(rates), flush=True)


def _setups(task: Mapping[str, Any]) -> list[tuple[str, Callable[[], object], int]]:
    inputs = {name: np.load(file) for name, file in task["inputs"].items()}
    plan, found = parax.load(task["plan"]), []
    for instances, width, callers in task["setups"]:
        cores = task["cores"][: instances * width]
        session = plan.session(instances=instances, cores=cores, cores_per_instance=width)
        found.append((f"{instances} × {width}, {callers} at once", lambda s=session: s.run(inputs), callers))
    return found


def _rate(call: Callable[[], object], callers: int, seconds: float) -> float:
    """Requests a second of so many callers; what one of them meets is raised."""
    with ThreadPoolExecutor(callers) as pool:
        began = time.perf_counter()
        end = began + seconds

        def loop(_: int) -> int:
            done = 0
            while time.perf_counter() < end:
                call()
                done += 1
            return done

        return sum(pool.map(loop, range(callers))) / (time.perf_counter() - began)


if __name__ == "__main__":
    main(sys.argv[1:])
