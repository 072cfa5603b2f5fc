"""One side of `python -m benchmarks.defaults` in a process of its own: a session with nothing set, loads on demand.

`python -m benchmarks.defaults_side JSON` answers each line of its input with a line of JSON: a load for so many
seconds, outputs to compare, memory. Between two lines it idles, so that sides that take turns disturb nobody, unless
their threads do. Owns the sides' default set-ups; knows nothing of turns and tables.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from examples.models import feeds

Feed = dict[str, np.ndarray]
Call = Callable[[Feed], Any]
MIXED = tuple(int(n) for n in np.random.default_rng(1).integers(1, 17, 64))


class Load(NamedTuple):
    """Callers that each ask again as soon as they are answered, with the next of some batch sizes."""

    callers: int
    sizes: tuple[int, ...]


LOADS = {
    "1 × B=1": Load(1, (1,)), "1 × B=8": Load(1, (8,)), "4 × B=1": Load(4, (1,)), "8 × B=1": Load(8, (1,)),
    "4 × B=1…16": Load(4, MIXED),
}  # fmt: skip
COMPARED = 3
"""Rows of the request whose results are compared."""


def main(argv: list[str]) -> None:
    """Entry point: answer lines until there are none."""
    task = json.loads(argv[0])
    sizes = sorted({COMPARED, *(n for name in task["loads"] for n in LOADS[name].sizes)})
    given = {n: feeds(task["name"], n, small=task["small"], options=task["feed_options"]) for n in sizes}
    new_caller = SIDES[task["side"]](task["model"])
    calls = [new_caller() for _ in range(max(LOADS[name].callers for name in task["loads"]))]
    outputs = [np.asarray(y) for y in calls[0](given[COMPARED])]
    np.savez(task["outputs"], *outputs)
    say({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "memory":
            say({"resident": resident()})
        else:
            say(_under(LOADS[asked["do"]], calls, given, asked["seconds"]))


def say(record: Mapping[str, Any]) -> None:
    """One line to whoever asked, at once."""
    print(json.dumps(record), flush=True)


def _under(load: Load, calls: list[Call], given: Mapping[int, Feed], duration: float) -> dict[str, Any]:
    """Items a second and each call's seconds."""
    times: list[list[float]] = [[] for _ in range(load.callers)]
    items = [0] * load.callers
    gate = threading.Barrier(load.callers + 1)

    def client(number: int) -> None:
        call, at = calls[number], number * 17
        gate.wait()
        now = time.perf_counter()
        end = now + duration
        while now < end or not times[number]:
            rows = load.sizes[at % len(load.sizes)]
            call(given[rows])
            after = time.perf_counter()
            times[number].append(after - now)
            items[number] += rows
            now, at = after, at + 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(load.callers)]
    for thread in threads:
        thread.start()
    gate.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    return {"rate": sum(items) / elapsed, "seconds": [round(s, 7) for each in times for s in each]}


def resident() -> int:
    """Bytes of this process that are in memory now."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def _parax(model: str) -> Callable[[], Call]:
    import parax  # here, as below: a side's process holds nothing of the others

    session = parax.load(model).session()
    return lambda: lambda feed: list(session.run(feed).values())


def _onnxruntime(model: str) -> Callable[[], Call]:
    import onnxruntime as ort

    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    return lambda: lambda feed: session.run(None, feed)


def _openvino(model: str) -> Callable[[], Call]:
    import openvino as ov

    core = ov.Core()
    compiled = core.compile_model(core.read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def caller() -> Call:
        request = compiled.create_infer_request()

        def call(feed: Feed) -> list[np.ndarray]:
            found = request.infer(feed)
            return [found[output] for output in compiled.outputs]

        return call

    return caller


SIDES: dict[str, Callable[[str], Callable[[], Call]]] = {
    "parax": _parax, "onnxruntime": _onnxruntime, "openvino": _openvino,
}  # fmt: skip

if __name__ == "__main__":
    main(sys.argv[1:])
