"""One side of `python -m benchmarks.trees`, in a process of its own.

Says {} once it is ready; answers each line {"rows": B, "seconds": S} with {"times": [seconds of a request, …]}, every
request other rows. Knows nothing of other sides, and needs but NumPy and what its side is.
"""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

Predict = Callable[[np.ndarray], np.ndarray]
"""Rows of features to what the model says of each, [rows, …]; of classes, their probabilities."""
WARM, FEWEST = 3, 5  # requests before any is timed; timed ones, whatever they take
COMPARED = 500  # rows that are compared with what the model's library says
NEAR_TIES = 0.01  # of them may differ: features are doubles there, and one on a threshold takes the other branch


def main(argv: Sequence[str]) -> None:
    """Entry point: side and folder, where model.onnx, model.pickle or .txt, features.npy and expected.npy are."""
    side, folder = argv[0], Path(argv[1])
    predict = SIDES[side](folder)
    features = np.load(folder / "features.npy")
    _check(side, predict(features[:COMPARED]), np.load(folder / "expected.npy")[:COMPARED])
    print("{}", flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        print(json.dumps({"times": _times(predict, features, task["rows"], task["seconds"])}), flush=True)


def _check(side: str, found: np.ndarray, expected: np.ndarray) -> None:
    odd = ~np.isclose(found.reshape(expected.shape), expected, 1e-4, 1e-4).reshape(len(expected), -1).all(axis=1)
    if odd.mean() > NEAR_TIES:
        raise SystemExit(f"{side}: other results than the library's: {odd.sum()} of {odd.size} rows")


def _times(predict: Predict, features: np.ndarray, n_rows: int, seconds: float) -> list[float]:
    """Seconds of each request of so many rows, for so long."""
    blocks = [features[at : at + n_rows] for at in range(0, len(features) - n_rows + 1, n_rows)]
    for i in range(WARM):
        predict(blocks[i % len(blocks)])
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < FEWEST or time.perf_counter() < end:
        block = blocks[len(found) % len(blocks)]
        began = time.perf_counter()
        predict(block)
        found.append(time.perf_counter() - began)
    return found


def _parax(folder: Path) -> Predict:
    import parax

    session = parax.compile(folder / "model.onnx").session()
    return lambda rows: list(session.run({"X": rows}).values())[-1]


def _onnxruntime(folder: Path) -> Predict:
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    return lambda rows: np.asarray(session.run(None, {"X": rows})[-1])


def _tl2cgen(folder: Path) -> Predict:
    """C code of the trees, by the C compiler that is installed; many large trees take it an hour."""
    import tl2cgen
    import treelite

    text = folder / "model.txt"
    if text.exists():
        model = treelite.frontend.load_lightgbm_model(text)
    else:
        model = treelite.sklearn.import_model(pickle.loads((folder / "model.pickle").read_bytes()))
    library = Path(tempfile.mkdtemp(dir=folder)) / "trees.so"
    tl2cgen.export_lib(model, toolchain="gcc", libpath=str(library), params={"parallel_comp": 64})
    predictor = tl2cgen.Predictor(str(library))
    element = "float64" if text.exists() else "float32"  # of the thresholds
    return lambda rows: np.asarray(predictor.predict(tl2cgen.DMatrix(rows.astype(element, copy=False), dtype=element)))


def _lleaves(folder: Path) -> Predict:
    import lleaves

    model = lleaves.Model(model_file=folder / "model.txt")
    model.compile()
    return lambda rows: np.asarray(model.predict(rows))


SIDES: dict[str, Callable[[Path], Predict]] = {"parax": _parax, "onnxruntime": _onnxruntime, "lleaves": _lleaves,
                                               "tl2cgen": _tl2cgen}  # fmt: skip

if __name__ == "__main__":
    main(sys.argv[1:])
