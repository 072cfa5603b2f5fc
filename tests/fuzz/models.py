"""Models of a folder as cases: whatever another generator wrote, with random inputs of the shapes that they declare, or
with those that lie beside them, and what a framework computes of these."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from .contents import BOOL, is_float, random_array
from .generate import Case, generate
from .sizes import RUNS

SIZES = (3, 1, 2, 5)
INPUT, RESULT = "in/", "out/"
"""What names in the file beside a recorded model begin with."""


@dataclass(frozen=True)
class Source:
    """Where the cases of a seed come from: our own generator, unless a folder is given.

    Attributes:
        models: a folder of models, numbered in the order of their names.
        recorded: one of numbered models with inputs and a framework's results, which may lack numbers.
    """

    seed: str
    models: Path | None = None
    recorded: Path | None = None

    def has(self, number: int) -> bool:
        """Whether there is a case of that number."""
        return self.recorded is None or recorded_path(self.recorded, number).with_suffix(".npz").exists()

    def case(self, number: int) -> Case:
        """The case of that number."""
        if self.recorded is not None:
            return recorded_case(self.recorded, number)
        if self.models is not None:
            return model_case(self._paths[number], self.seed, number)
        return generate(self.seed, number)

    @cached_property
    def _paths(self) -> list[Path]:
        assert self.models is not None
        return sorted(self.models.rglob("*.onnx"))

    def words(self) -> list[str]:
        """The worker's arguments that say so."""
        folders = {"--models": self.models, "--recorded": self.recorded}
        return ["--seed", self.seed, *(word for k, v in folders.items() if v is not None for word in (k, str(v)))]


def model_case(path: Path, seed: str, number: int) -> Case:
    """The model of that file with random inputs; open sizes are drawn."""
    model = onnx.load(path)
    rng = random.Random(f"{seed}/{number}/inputs")
    numpy = np.random.default_rng(rng.getrandbits(64))
    constants = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in constants]
    feeds = []
    for _ in range(RUNS):
        sizes: dict[str, int] = {}
        feeds.append({i.name: _random(i, sizes, rng, numpy) for i in inputs})
        if not sizes:
            break
    return Case(path.stem, model, feeds)


def recorded_path(folder: Path, number: int) -> Path:
    """Where the model of a number lies; its arrays lie beside it, with the suffix ".npz"."""
    return folder / f"{number}.onnx"


def recorded_case(folder: Path, number: int) -> Case:
    """The model of that number with the inputs and the framework's results that lie beside it."""
    path = recorded_path(folder, number)
    with np.load(path.with_suffix(".npz")) as arrays:
        feeds, recorded = ({k.removeprefix(kind): arrays[k] for k in arrays.files if k.startswith(kind)}
                           for kind in (INPUT, RESULT))  # fmt: skip
    model = onnx.load(path)
    used = {i.name for i in model.graph.input}
    return Case(str(number), model, [{k: v for k, v in feeds.items() if k in used}], recorded=recorded)


def _random(
    info: onnx.ValueInfoProto, sizes: dict[str, int], rng: random.Random, numpy: np.random.Generator
) -> np.ndarray:
    tensor = info.type.tensor_type
    shape = []
    for i, dim in enumerate(tensor.shape.dim):
        name = dim.dim_param or f"{info.name}.{i}"
        shape.append(dim.dim_value if dim.HasField("dim_value") else sizes.setdefault(name, rng.choice(SIZES)))
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    if dtype == BOOL or is_float(dtype):
        return random_array(numpy, dtype, shape, -2.0, 2.0)
    return random_array(numpy, dtype, shape, 0, 9)
