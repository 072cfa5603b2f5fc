"""Random inputs for a model or plan: right names, shapes and types, and indices that stay inside their tables.

Knows tensor specs; knows nothing of how a model is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import UsageError
from ..runtime.dims import Dim, evaluate
from ..runtime.manifest import TensorSpec

MOST_INDEX = (1 << 62) - 1
_WORDS = np.array(["alpha", "beta", "gamma", "", "δ", "two words"], dtype=object)


def random_inputs(
    specs: Sequence[TensorSpec],
    sizes: Mapping[str, int],
    rng: np.random.Generator,
    ranges: Mapping[str, tuple[Dim, Dim]] | None = None,
) -> dict[str, np.ndarray]:
    """One random array per input.

    Floats are normal with deviation 1, u8 is 0..255, other integers are within the input's range where it has one (a
    plan's `samples.ranges`), else 0 or 1, which suits masks and types; strings are a few words.

    Raises:
        UsageError: an input's shape is not known before the run, or these sizes leave an index no place.
    """
    made = {}
    for spec in specs:
        ends = (ranges or {}).get(spec.name)
        numbers = None if ends is None else (evaluate(ends[0], sizes), evaluate(ends[1], sizes))
        made[spec.name] = np.asarray(_random(spec, sizes, rng, numbers))  # scalars are arrays, too
    return made


def _random(
    spec: TensorSpec, sizes: Mapping[str, int], rng: np.random.Generator, ends: tuple[int, int] | None
) -> np.ndarray:
    if spec.dims is None:
        raise UsageError("an input of unknown rank cannot be made at random", where=spec.name)
    shape = tuple(evaluate(dim, sizes) for dim in spec.dims)
    dtype = spec.numpy
    if spec.dtype == "str":
        return rng.choice(_WORDS, size=shape)
    if spec.dtype == "bool":
        return rng.random(shape) < 0.5
    if spec.dtype == "u8" and ends is None:
        return rng.integers(0, 256, shape, dtype=np.uint8)
    if dtype.kind in "iu":
        return rng.integers(*_within(spec, ends or (0, 1)), shape, dtype=np.int64, endpoint=True).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype)


def _within(spec: TensorSpec, ends: tuple[int, int]) -> tuple[int, int]:
    """The part of a range that the element type has."""
    info = np.iinfo(spec.numpy)
    low, high = max(ends[0], int(info.min), -MOST_INDEX), min(ends[1], int(info.max), MOST_INDEX)
    if low > high:
        raise UsageError("these sizes leave an index no place to point to", where=spec.name,
                         expected=f"{ends[0]} to {ends[1]}", hint="choose others with --dim")  # fmt: skip
    return low, high
