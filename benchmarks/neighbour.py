"""A busy process beside a measurement: a small model in a loop on the same cores, with nothing set but what it must.

`python -m benchmarks.neighbour JSON` answers each line of its input with how often it has run the model so far, which
tells what a measured runtime leaves to it, and ends with its input. Owns the loop; knows nothing of what is measured.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.models import build, feeds

from .answering import Answering
from .defaults_side import say
from .peers_fresh import compiled

NEIGHBOURS = {"nothing": "", "runtime": "beside a busy ONNX Runtime", "session": "beside a busy parax session"}
"""What may run beside, and how a table's caption says so."""
MODEL = "resnet18"
"""Its small edition: some milliseconds of kernels, which all cores share."""


@contextmanager
def neighbour(kind: str, folder: Path, timeout: float) -> Iterator[Answering | None]:
    """A neighbour that is busy as long as the body runs; None for "nothing".

    Args:
        kind: one of NEIGHBOURS. folder: where its model may lie. timeout: seconds of its compilation.

    Raises:
        InternalError: it cannot start; its messages are in the error.
    """
    if kind == "nothing":
        yield None
        return
    model = folder / "neighbour.onnx"
    model.write_bytes(build(MODEL, small=True).SerializeToString())
    if kind == "session":
        compiled(model, folder / "neighbour.bin", [], timeout)
        model = folder / "neighbour.bin"
    running = Answering(f"the neighbour ({kind})", "benchmarks.neighbour", {"kind": kind, "model": str(model)})
    try:
        yield running
    finally:
        running.close()


def main(argv: Sequence[str]) -> None:
    """Entry point: run the model until the input ends."""
    task = json.loads(argv[0])
    run, feed = RUNS[task["kind"]](task["model"]), feeds(MODEL, small=True)
    run(feed)
    done = [0]

    def loop() -> None:
        try:
            while True:
                run(feed)
                done[0] += 1
        finally:
            os._exit(1)  # without it there is no neighbour: the next question must fail

    threading.Thread(target=loop, daemon=True).start()
    say({"runs": 0})
    for _ in sys.stdin:
        say({"runs": done[0]})


Run = Callable[[Mapping[str, Any]], object]


def _runtime(model: str) -> Run:
    import onnxruntime as ort  # here, as below: a neighbour holds nothing of the other

    options = ort.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")  # the default, which matters here
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def _session(model: str) -> Run:
    import parax

    return parax.load(model).session().run


RUNS: dict[str, Callable[[str], Run]] = {"runtime": _runtime, "session": _session}

if __name__ == "__main__":
    main(sys.argv[1:])
