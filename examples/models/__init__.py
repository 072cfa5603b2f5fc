"""The project's model list as ONNX files with seeded random weights.

`python -m examples.models resnet50 -o resnet50.onnx` writes one. `build` gives a model, `feeds` random inputs that suit
it, `MODELS` the list. Needs numpy and onnx only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import numpy as np
import onnx

from .builder import ModelBuilder
from .catalogue import MODELS, Input, Model, Options

__all__ = ["MODELS", "Input", "Model", "build", "feeds", "options_of"]

DEFAULT_LENGTH = 24
"""The size that `feeds` gives to a symbolic axis other than the batch."""


def options_of(name: str, changes: Options | None = None, *, small: bool = False) -> dict[str, Any]:
    """The options of a model: defaults, then those of the small edition if asked for, then `changes`.

    Raises:
        KeyError: no model or option has that name.
    """
    row = MODELS[name]
    options = dict(row.options) | (dict(row.small) if small else {})
    for option, value in (changes or {}).items():
        if option not in options:
            raise KeyError(f"{name} has no option {option!r}: it has {', '.join(options)}")
        options[option] = value
    return options


def build(
    name: str, *, batch: int | str = "N", seed: int = 0, small: bool = False, options: Options | None = None
) -> onnx.ModelProto:  # fmt: skip
    """Build a model of the list.

    Args:
        batch: the first dimension of every input, a number or a symbol.
        seed: of the weights; the same seed gives the same bytes.
        small: the small edition, for tests.
        options: changes to the model's options, see `MODELS[name].options`.
    """
    row, values = MODELS[name], options_of(name, options, small=small)
    b = ModelBuilder(name, batch, seed=crc32(name.encode()) ^ seed)
    inputs = [b.input(i.name, [batch, *_shape(i, values)], i.dtype) for i in row.inputs]
    row.body(b, *inputs, **values)
    return b.model()


def feeds(
    name: str, batch: int = 1, seed: int = 0, *, small: bool = False, options: Options | None = None
) -> dict[str, np.ndarray]:  # fmt: skip
    """Random inputs for a model of the list: ids within their tables, lengths of at least 1, images with structure.

    Rows depend on `seed` and their index only: the first rows of a larger batch are those of a smaller one.
    """
    values = options_of(name, options, small=small)
    rows = []
    for row in range(batch):
        rng = np.random.default_rng([seed, row])
        rows.append({i.name: _random(i, values, rng) for i in MODELS[name].inputs})
    return {i.name: np.stack([row[i.name] for row in rows]) for i in MODELS[name].inputs}


def _shape(spec: Input, values: Mapping[str, Any]) -> list[int | str]:
    return [values[size] if isinstance(size, str) else size for size in spec.shape]


def _random(spec: Input, values: Mapping[str, Any], rng: np.random.Generator) -> np.ndarray:
    shape = [DEFAULT_LENGTH if isinstance(size, str) else size for size in _shape(spec, values)]
    high = values[spec.high] if isinstance(spec.high, str) else spec.high
    high = high if isinstance(high, int) else DEFAULT_LENGTH
    if spec.kind == "ids":
        return rng.integers(0, high, shape, dtype=spec.dtype)
    if spec.kind == "length":
        return rng.integers(1, high + 1, shape, dtype=spec.dtype)
    if spec.kind == "mask":
        return (np.arange(shape[0]) < rng.integers(1, shape[0] + 1)).astype(spec.dtype)
    if spec.kind == "image":
        return _image(shape, rng)
    return rng.standard_normal(shape, dtype=np.float32)


def _image(shape: list[int], rng: np.random.Generator) -> np.ndarray:
    """f32[C,H,W]: noise at several scales, so that images differ in more than what averaging over the map removes."""
    channels, height, width = shape
    image = 0.5 * rng.standard_normal(shape, dtype=np.float32)
    for cells in (1, 4, 16):
        coarse = rng.standard_normal((channels, cells, cells), dtype=np.float32)
        rows, columns = np.arange(height) * cells // height, np.arange(width) * cells // width
        image += 0.5 * coarse[:, rows[:, None], columns[None]]
    return image
