"""Trains and says each loss, for a test that kills it: killed.py FOLDER NAME SECONDS_PER_STEP [HIDDEN].

The model has all that a training must take up again: running statistics, Dropout, a moving average, a rate that
changes, an order of the data that is new in each epoch. HIDDEN makes a checkpoint take longer to write.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.compiler.trainer import Trainer
from parax.runtime.train.schedules import Schedule

ROWS, BATCH, EPOCHS, WIDTH, CLASSES = 90, 12, 6, 6, 3


def model(hidden: int) -> onnx.ModelProto:
    """Gemm → BatchNormalization → Relu → Dropout → Gemm."""
    rng = np.random.default_rng(7)
    weights = {
        "w1": rng.standard_normal((WIDTH, hidden)) / 2, "b1": np.zeros(hidden), "scale": np.ones(hidden),
        "shift": np.zeros(hidden), "mean": np.zeros(hidden), "variance": np.ones(hidden),
        "w2": rng.standard_normal((hidden, CLASSES)) / hidden**0.5, "b2": np.zeros(CLASSES), "ratio": np.array(0.25),
    }  # fmt: skip
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("BatchNormalization", ["h", "scale", "shift", "mean", "variance"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]), helper.make_node("Dropout", ["r", "ratio"], ["d"], seed=3),
        helper.make_node("Gemm", ["d", "w2", "b2"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "killed", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def main() -> None:
    folder, name, pause = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    hidden = int(sys.argv[4]) if len(sys.argv) > 4 else 8
    x = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
    steps = EPOCHS * (ROWS // BATCH)

    def log(record: dict) -> None:
        if "rate" in record:
            print(record["step"], float(record["loss"]).hex() + ".", flush=True)
            time.sleep(pause)

    rate = Schedule(0.02, steps, shape="cosine", warmup=3)
    with Trainer(model(hidden), optimizer=parax.Adam(), batch=BATCH, ema=0.9, rate=rate) as trainer:
        trainer.fit({"x": x, "labels": x[:, :CLASSES].argmax(1)}, EPOCHS, checkpoints=folder / name, every=1,
                    resume=True, log=log)  # fmt: skip
        trainer.export(folder / f"{name}.onnx", average=True)


main()
