"""Samples for a trained model of PARAX_MODELS: its reference inputs, and variations of them drawn by a seed.

Owns what a variation is; knows nothing of precisions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .cases import Run

Inputs = dict[str, np.ndarray]
LOUDER, NOISE, SMOOTH, CHANGED = 0.2, 0.3, 0.3, 0.1
UNSEEN_STATE = 0.1  # the deviation of what is zero everywhere in the reference, such as a recurrent state


def variations(runs: Sequence[Run], n: int, seed: int = 0) -> Inputs:
    """`n` requests, stacked along a new first axis: the reference inputs, then variations of each in turn.

    Reference inputs of other shapes than the first are left out, as they do not stack.
    """
    shapes = {name: array.shape for name, array in runs[0].inputs.items()}
    same = [run.inputs for run in runs if {name: a.shape for name, a in run.inputs.items()} == shapes]
    rng = np.random.default_rng(seed)
    made = [*same[:n], *({name: varied(array, rng) for name, array in same[i % len(same)].items()}
                         for i in range(len(same), n))]  # fmt: skip
    return {name: np.stack([each[name] for each in made]) for name in shapes}


def varied(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Another array like this one, of its shape and type.

    Floats are louder or softer as a whole, by up to a factor of 1.5 or so, with white noise and smooth noise along the
    last axis of a third of their deviation each. Of several whole numbers a tenth is exchanged for others that occur;
    a single one, as a sampling rate, stays.
    """
    if array.dtype.kind == "f":
        deviation = float(array.std()) or UNSEEN_STATE
        white = rng.standard_normal(array.shape)
        smooth = np.cumsum(rng.standard_normal(array.shape), -1) / np.sqrt(max(1, array.shape[-1] if array.ndim else 1))
        louder = 1 + LOUDER * rng.standard_normal()
        return (array * louder + deviation * (NOISE * white + SMOOTH * smooth)).astype(array.dtype)
    if array.size < 2:
        return array
    return np.where(rng.random(array.shape) < CHANGED, rng.choice(array.reshape(-1), array.shape), array)
