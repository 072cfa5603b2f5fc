"""Models of a folder as cases: whatever another generator wrote, with random inputs of the shapes that they declare."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from .contents import BOOL, is_float, random_array
from .generate import Case
from .sizes import RUNS

SIZES = (3, 1, 2, 5)


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
