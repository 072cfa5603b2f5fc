"""Random inputs for a model or plan: right names, shapes and types, and indices that stay inside their tables.

Knows tensor specs; knows nothing of how a model is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import UsageError
from ..runtime.dims import evaluate
from ..runtime.manifest import Manifest, TensorSpec

DEFAULT_SIZE = 64
_WORDS = np.array(["alpha", "beta", "gamma", "", "δ", "two words"], dtype=object)


def batch_symbol(manifest: Manifest) -> str | None:
    """The symbol that counts rows: the plan's own, else that on the first axis of the earliest input with one."""
    if manifest.batch:
        return manifest.batch.symbol
    return next((symbol.name for symbol in manifest.symbols if symbol.axis == 0), None)


def symbol_sizes(manifest: Manifest, given: Mapping[str, int], batch: int) -> dict[str, int]:
    """A size for every symbol of the inputs: the given one, else `batch` for the batch symbol, else DEFAULT_SIZE.

    What was not given is kept within the symbol's bounds.

    Raises:
        UsageError: a given symbol is not in the inputs.
    """
    symbols = {symbol.name: symbol for symbol in manifest.symbols if symbol.input is not None}
    unknown = sorted(set(given) - set(symbols))
    if unknown:
        known = ", ".join(symbols) or "none: every size is fixed"
        raise UsageError("no such symbolic dimension", where=f"--dim {unknown[0]}", expected=known)
    rows = batch_symbol(manifest)
    sizes = {}
    for name, symbol in symbols.items():
        size = max(symbol.min, batch if name == rows else DEFAULT_SIZE)
        sizes[name] = given.get(name, size if symbol.max is None else min(symbol.max, size))
    return sizes


def random_inputs(
    specs: Sequence[TensorSpec],
    sizes: Mapping[str, int],
    rng: np.random.Generator,
    bounds: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """One random array per input.

    Floats are normal with deviation 1, u8 is 0..255, other integers are below the input's bound (a table's length,
    see `frontend.index_bounds`; 2 when unknown, which suits masks and types), strings are a few words.

    Raises:
        UsageError: an input's shape is not known before the run.
    """
    return {spec.name: _random(spec, sizes, rng, (bounds or {}).get(spec.name, 2)) for spec in specs}


def _random(spec: TensorSpec, sizes: Mapping[str, int], rng: np.random.Generator, bound: int) -> np.ndarray:
    if spec.dims is None:
        raise UsageError("an input of unknown rank cannot be made at random", where=spec.name)
    shape = tuple(evaluate(dim, sizes) for dim in spec.dims)
    dtype = spec.numpy
    if spec.dtype == "str":
        return rng.choice(_WORDS, size=shape)
    if spec.dtype == "bool":
        return rng.random(shape) < 0.5
    if spec.dtype == "u8":
        return rng.integers(0, 256, shape, dtype=np.uint8)
    if dtype.kind in "iu":
        return rng.integers(0, bound, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype)
