"""One side of `benchmarks.training_memory`: a process that trains, a step for each line that it gets.

It says that it is there, then answers: to the first line what was predicted, or the error, to others the seconds, loss
and memory of a step. A limit of `everything` is none.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

import parax
from parax.errors import ParaxError

from .fresh import say
from .training_cases import MOMENTUM, RATE

EVERYTHING = "everything"
Step = Callable[[], float]
Memory = Callable[[], "int | None"]


def main(model: Path, rows: int, limit: str) -> int:
    """Compile at the first line, make a step for each other one."""
    say(ready=True)
    sys.stdin.readline()
    try:
        step, memory, predicted = of_parax(model, rows, limit)
    except ParaxError as error:
        say(error=str(error))
        return 0
    say(predicted=predicted)
    for _ in sys.stdin:
        began = time.perf_counter()
        loss = step()
        say(seconds=time.perf_counter() - began, loss=loss, measured=memory())
    return 0


def of_parax(model: Path, rows: int, limit: str) -> tuple[Step, Memory, int]:
    """A step, what tells how much memory is taken, and how much was predicted."""
    trainer = parax.Trainer(model, optimizer=parax.SGD(lr=RATE, momentum=MOMENTUM), batch=rows,
                            max_memory=None if limit == EVERYTHING else limit)  # fmt: skip
    name, x, labels = data(model, rows)
    given = {name: x, "labels": labels}
    return lambda: trainer.step(given)["loss"], lambda: trainer.memory().measured, trainer.memory().steps


def data(model: Path, rows: int) -> tuple[str, np.ndarray, np.ndarray]:
    """The name of the model's input, a batch for it, and labels: the same for all sides."""
    graph = onnx.load(model, load_external_data=False).graph
    dims, classes = ([d.dim_value for d in v.type.tensor_type.shape.dim[1:]] for v in (graph.input[0], graph.output[0]))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, *dims)).astype(np.float32)
    return graph.input[0].name, x, rng.integers(0, classes[0], rows)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    sys.exit(main(Path(asked["model"]), asked["rows"], asked["limit"]))
