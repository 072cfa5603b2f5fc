"""Trains and says each loss, for a test that kills it: killed.py FOLDER NAME SECONDS_PER_STEP."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import parax
from parax.compiler.trainer import Trainer
from train.small_models import CLASSES, WIDTH, classifier


def main() -> None:
    folder, name, pause = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, WIDTH)).astype(np.float32)

    def log(record: dict) -> None:
        if "rate" in record:
            print(record["step"], float(record["loss"]).hex() + ".", flush=True)
            time.sleep(pause)

    with Trainer(classifier(), optimizer=parax.Adam(lr=0.05), batch=12) as trainer:
        trainer.fit({"x": x, "labels": x[:, :CLASSES].argmax(1)}, 6, checkpoints=folder / name, every=1, resume=True,
                    log=log)  # fmt: skip


main()
