"""Times of a request of tree ensembles, beside ONNX Runtime, lleaves and tl2cgen: `python -m benchmarks.trees`.

The models are trained on made-up data of 28 features: by scikit-learn a random forest of 500 trees of any depth and
boosting of 1,000 trees of depth 4, by LightGBM boosting of 1,000 trees of 31 leaves. skl2onnx and onnxmltools write
them, by their defaults. Each side has a process of its own and its own defaults; sides take turns, every request has
other rows. Prints the median and the least time of a request, and how many times as long as parax's the others' are: of
the medians, and of the least, which tell more on a busy machine.

Needs scikit-learn and skl2onnx, of LightGBM's model lightgbm and onnxmltools; if asked for, lleaves, which reads no
other, and tl2cgen, with a C compiler. A side may have an interpreter of its own, as lleaves needs an llvmlite below
0.44: `--beside lleaves --python lleaves=venv/bin/python`.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from parax.errors import InternalError, UsageError
from parax.files import write_whole

from .children import MOST_STDERR, Record
from .command import command_line, finish, new_file

MODELS = {"forest": 500, "boosting": 1000, "lightgbm": 1000}
"""And how many trees they have."""
SIDES = ("parax", "onnxruntime", "lleaves", "tl2cgen")
READS = {"lleaves": ("lightgbm",)}
"""The models of a side that does not read all."""
ROWS = (1, 1024, 100_000)
N_FEATURES, N_TRAINED, MIN_TESTED = 28, 20_000, 4096
NEEDED = {"sklearn": "scikit-learn", "skl2onnx": "skl2onnx"}
NEEDED_OF = {"lightgbm": {"lightgbm": "lightgbm", "onnxmltools": "onnxmltools"}}
"""What one of the models needs besides."""


def prepare(kind: str, n_trees: int, n_trained: int, n_tested: int, folder: Path) -> None:
    """Train a model; write it, its features and what its library says of them into the folder."""
    from sklearn.datasets import make_classification

    x, y = make_classification(n_trained + n_tested, N_FEATURES, n_informative=14, random_state=0)
    x = x.astype(np.float32)
    tested = x[n_trained:]
    write = _lightgbm if kind == "lightgbm" else _scikit_learn
    np.save(folder / "expected.npy", write(kind, n_trees, (x[:n_trained], y[:n_trained]), tested, folder))
    np.save(folder / "features.npy", tested)


def _scikit_learn(
    kind: str, n_trees: int, trained: tuple[np.ndarray, np.ndarray], tested: np.ndarray, folder: Path
) -> np.ndarray:
    from skl2onnx import to_onnx
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier

    options: dict[Any, Any] = {}
    if kind == "forest":
        model = RandomForestClassifier(n_trees, n_jobs=-1, random_state=0).fit(*trained)
        options = {id(model): {"zipmap": False}}
        expected = model.predict_proba(tested)
    else:
        model = GradientBoostingRegressor(n_estimators=n_trees, max_depth=4, subsample=0.2, max_features=8,
                                          random_state=0).fit(*trained)  # fmt: skip
        expected = model.predict(tested)
    write_whole(folder / "model.onnx", to_onnx(model, tested[:1], options=options).SerializeToString())
    write_whole(folder / "model.pickle", pickle.dumps(model))
    return np.asarray(expected)


def _lightgbm(
    kind: str, n_trees: int, trained: tuple[np.ndarray, np.ndarray], tested: np.ndarray, folder: Path
) -> np.ndarray:
    from lightgbm import LGBMRegressor
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    model = LGBMRegressor(n_estimators=n_trees, random_state=0, n_jobs=1, verbose=-1).fit(*trained)
    written = convert_lightgbm(model, initial_types=[("X", FloatTensorType([None, N_FEATURES]))])
    write_whole(folder / "model.onnx", written.SerializeToString())
    model.booster_.save_model(folder / "model.txt")
    return np.asarray(model.predict(tested))


class Side:
    """A process that measures one side."""

    def __init__(self, name: str, folder: Path, python: str) -> None:
        self.name, self._errors = name, folder / f"{name}.errors"
        command = [python, str(Path(__file__).with_name("trees_side.py")), name, str(folder)]
        with open(self._errors, "w") as errors:
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                           text=True)  # fmt: skip
        self._answer()

    def times(self, n_rows: int, seconds: float) -> list[float]:
        """Seconds of each request."""
        assert self._child.stdin is not None
        print(json.dumps({"rows": n_rows, "seconds": seconds}), file=self._child.stdin, flush=True)
        return list(self._answer()["times"])

    def close(self) -> None:
        """Let the process end."""
        self._child.terminate()
        self._child.communicate()

    def _answer(self) -> Record:
        """Its next line of JSON; others are what a library prints."""
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        self.close()
        raise InternalError("a side ended", where=self.name, found=self._errors.read_text()[-MOST_STDERR:])


def measure(sides: Sequence[Side], rows: Sequence[int], rounds: int, seconds: float) -> list[Record]:
    """Of each number of rows, {"rows": B, "times": {side: [seconds of each request]}}, sides in turns."""
    found: list[Record] = []
    for n_rows in rows:
        times: dict[str, list[float]] = {side.name: [] for side in sides}
        for _ in range(rounds):
            for side in sides:
                times[side.name] += side.times(n_rows, seconds)
        found.append({"rows": n_rows, "times": times})
    return found


def table(name: str, results: Sequence[Record]) -> str:
    """A row of each number of rows: each side's median and least, and its share of parax's."""
    lines = [f"{name}: median (least) of a request in ms; × parax's"]
    for result in results:
        cells = [f"{result['rows']:7d} rows"]
        own = result["times"]["parax"]
        for side, times in result["times"].items():
            cell = f"{side} {statistics.median(times) * 1e3:.3f} ({min(times) * 1e3:.3f})"
            if side != "parax":
                cell += f" × {statistics.median(times) / statistics.median(own):.2f} ({min(times) / min(own):.2f})"
            cells.append(cell)
        lines.append("  ".join(cells))
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    args = _arguments(argv)
    needed = {**NEEDED, **{k: v for name in args.models for k, v in NEEDED_OF.get(name, {}).items()}}
    for module, package in needed.items():
        if find_spec(module) is None:
            raise UsageError(f"{package} is needed", where="benchmarks.trees", hint=f"pip install {package}")
    pythons = dict(args.python)
    document: Record = {}
    for name in args.models:
        with tempfile.TemporaryDirectory(prefix=f"parax-{name}-") as text:
            folder = Path(text)
            n_trees = args.trees or MODELS[name]
            prepare(name, n_trees, args.trained, max(MIN_TESTED, *args.rows), folder)
            with ExitStack() as stack:
                sides = [stack.enter_context(closing(Side(side, folder, pythons.get(side, sys.executable))))
                         for side in ("parax", *args.beside) if name in READS.get(side, MODELS)]  # fmt: skip
                document[name] = measure(sides, args.rows, args.rounds, args.seconds)
        print(table(f"{name} of {n_trees} trees", document[name]), flush=True)
    if args.json:
        write_whole(args.json, json.dumps(document, indent=1))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line("trees", __doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="(default: all)")
    parser.add_argument("--beside", nargs="*", choices=SIDES[1:], default=["onnxruntime"],
                        help="other sides (default: onnxruntime)")  # fmt: skip
    parser.add_argument("--python", nargs="+", type=_python, default=[], metavar="SIDE=FILE",
                        help="the interpreters of sides that need one of their own")  # fmt: skip
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS), metavar="B",
                        help=f"of a request (default: {' '.join(map(str, ROWS))})")  # fmt: skip
    parser.add_argument("--trees", type=int, metavar="N", help="of each model (default: 500, 1000 and 1000)")
    parser.add_argument("--trained", type=int, default=N_TRAINED, metavar="N",
                        help=f"rows to train on (default: {N_TRAINED})")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5, help="in which sides take turns (default: 5)")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="of a side in a round (default: 1)")
    parser.add_argument("--json", type=new_file, metavar="OUT", help="write every time there")
    return parser.parse_args(argv)


def _python(text: str) -> tuple[str, str]:
    side, _, file = text.partition("=")
    if side not in SIDES or not file:
        raise argparse.ArgumentTypeError(f"expected SIDE=FILE of one of {', '.join(SIDES)}; found {text!r}")
    return side, file


if __name__ == "__main__":
    finish(main)
