"""`parax run` without a model: compiles the bundled digit recogniser and reads ten drawn digits with it.

How the model and the pictures were made: examples/train_digits.py.
"""

from __future__ import annotations

import time

import numpy as np

from .. import api
from .console import Console, Table
from .models import BUNDLED

SHADES = " ░▒▓█"


def execute(console: Console) -> int:
    """Compile, run, print what was read; the exit code."""
    began = time.perf_counter()
    with console.progress("digits.onnx") as progress:
        plan = api.compile(BUNDLED / "digits.onnx", progress=progress)
    compiled = time.perf_counter() - began
    with np.load(BUNDLED / "digits.npz", allow_pickle=False) as samples:
        pictures, digits = samples["picture"], samples["digit"]
    with plan.session() as session:
        began = time.perf_counter()
        probabilities = session.run({"picture": pictures})["probabilities"]
        seconds = time.perf_counter() - began
    read = probabilities.argmax(axis=1)
    document = {
        "model": "digits.onnx", "compile_seconds": compiled, "run_seconds": seconds,
        "drawn": digits, "read": read, "probabilities": probabilities,
    }  # fmt: skip
    rows = [[drawn, found, f"{row[found]:.1%}"] for drawn, found, row in zip(digits, read, probabilities, strict=True)]
    right = int(np.sum(read == digits))
    if console.form == "table":
        print(sketch(pictures[0, 0]))
    console.result(document, Table(f"{right} of {len(digits)} drawn digits read right (above: the first)",
                                   ("drawn", "read as", "probability"), rows))  # fmt: skip
    console.note(f"compiled in {compiled:.2f} s, ran in {seconds * 1e3:.2f} ms")
    return 0


def sketch(picture: np.ndarray) -> str:
    """A picture f32[H,W] in 0..1 as text, two rows of pixels to a line."""
    rows = picture[: len(picture) // 2 * 2].reshape(-1, 2, picture.shape[1]).mean(axis=1)
    levels = np.clip((rows * len(SHADES)).astype(int), 0, len(SHADES) - 1)
    return "\n".join("".join(SHADES[level] for level in row).rstrip() for row in levels).strip("\n")
