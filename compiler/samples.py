"""Random inputs for a model or plan: right names, shapes and types, and indices that stay inside their tables.

Knows tensor specs; knows nothing of how a model is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..errors import UsageError
from ..runtime.dims import Dim, evaluate
from ..runtime.host_values import HostType, Map, Optional, Sequence, host_type
from ..runtime.manifest import TensorSpec

MOST_INDEX = (1 << 62) - 1
_WORDS = np.array(["alpha", "beta", "gamma", "", "δ", "two words"], dtype=object)


def random_inputs(
    specs: Iterable[TensorSpec],
    sizes: Mapping[str, int],
    rng: np.random.Generator,
    ranges: Mapping[str, tuple[Dim, Dim]] | None = None,
) -> dict[str, Any]:
    """One random array per input; of one that is no tensor, a value of its type.

    Floats are normal with deviation 1, u8 is 0..255, other integers are within the input's range where it has one (a
    plan's `samples.ranges`), else 0 or 1, which suits masks and types; strings are a few words.

    Raises:
        UsageError: an input's shape is not known before the run, or these sizes leave an index no place.
    """
    made = {}
    for spec in specs:
        ends = (ranges or {}).get(spec.name)
        numbers = None if ends is None else (evaluate(ends[0], sizes), evaluate(ends[1], sizes))
        value = _random(spec, sizes, rng, numbers)
        made[spec.name] = np.asarray(value) if spec.is_tensor else value  # scalars are arrays, too
    return made


def _random(
    spec: TensorSpec, sizes: Mapping[str, int], rng: np.random.Generator, ends: tuple[int, int] | None
) -> Any:
    if not spec.is_tensor:
        return made_up(host_type(spec.dtype), spec.name, rng)
    if spec.dims is None:
        raise _rank_unknown(spec.name)
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


def made_up(type_: HostType, name: str, rng: np.random.Generator) -> Any:
    """A random value that is no tensor: three elements of a sequence, entries of a map; an optional is not empty.

    Raises:
        UsageError: a tensor's shape in it is not known before the run.
    """
    if isinstance(type_, Sequence):
        return [made_up(type_.elem, name, rng) for _ in range(3)]
    if isinstance(type_, Optional):
        return made_up(type_.elem, name, rng)
    if isinstance(type_, Map):
        keys, values = (_random(TensorSpec(name, each, (3,)), {}, rng, (0, 9)) for each in type_)
        return dict(zip(keys.tolist(), values.tolist(), strict=True))
    if type_.dims is None:
        raise _rank_unknown(name)
    dims = tuple(int(dim) if dim.isdigit() else 3 for dim in type_.dims)
    return _random(TensorSpec(name, type_.dtype, dims), {}, rng, None)


def _rank_unknown(name: str) -> UsageError:
    return UsageError("an input of unknown rank cannot be made at random", where=name)


def _within(spec: TensorSpec, ends: tuple[int, int]) -> tuple[int, int]:
    """The part of a range that the element type has."""
    info = np.iinfo(spec.numpy)
    low, high = max(ends[0], int(info.min), -MOST_INDEX), min(ends[1], int(info.max), MOST_INDEX)
    if low > high:
        raise UsageError("these sizes leave an index no place to point to", where=spec.name,
                         expected=f"{ends[0]} to {ends[1]}", hint="choose others with --dim")  # fmt: skip
    return low, high
