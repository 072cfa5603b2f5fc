"""The inputs that a verb makes up: sizes that fit together, said on stderr, and random content of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .console import Console

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.plan import Plan

Arrays = dict[str, "np.ndarray"]


def still_open(plan: Plan, dims: Sequence[tuple[str, int | tuple[int, int]]]) -> dict[str, int]:
    """The sizes of --dim that were not fixed when the plan was compiled with the same flags."""
    known = {symbol.name for symbol in plan.manifest.symbols if symbol.input is not None}
    return {symbol: size for symbol, size in dims if isinstance(size, int) and symbol in known}


def sizes_of(
    plan: Plan, sizes: Mapping[str, int], batch: int, console: Console,
    arrays: Mapping[str, np.ndarray] | None = None,
) -> dict[str, int]:  # fmt: skip
    """A size for every open dimension: as given, as in arrays that are given, else made up and told.

    Raises:
        UsageError: none fit what is given.
    """
    from ..sizes import batch_symbol, symbol_sizes

    empty = {state.input for state in plan.manifest.states if state.axis is not None}
    given = {str((spec.dims or ("",))[0]): 0 for spec in plan.manifest.inputs if spec.name in empty} | dict(sizes)
    for spec in plan.inputs:
        shape = getattr((arrays or {}).get(spec.name), "shape", ())
        for dim, size in zip(spec.dims or (), shape, strict=False):
            if isinstance(dim, str):
                given.setdefault(dim, size)
    found = symbol_sizes(plan.manifest, given, batch)
    rows = batch_symbol(plan.manifest)
    guessed = [f"{symbol}={n}" for symbol, n in found.items() if symbol not in given and symbol != rows]
    if guessed:
        console.note(f"sizes taken for open dimensions: {' '.join(guessed)} (choose with --dim)")
    return found


def random_arrays(plan: Plan, sizes: Mapping[str, int], seed: int, names: Sequence[str] | None = None) -> Arrays:
    """Random content of the plan's inputs, or of those named; see `samples.random_inputs`."""
    import numpy as np

    from .. import samples

    specs = [spec for spec in plan.inputs if names is None or spec.name in names]
    return samples.random_inputs(specs, sizes, np.random.default_rng(seed), plan.manifest.samples.ranges)
