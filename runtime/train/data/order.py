"""The order of samples: a permutation for each (seed, epoch), of which any stretch is computed by itself.

The permutation is a Feistel network of eight rounds over the smallest square of a power of two that holds the samples;
places outside of the data set walk on along their cycle (J. Black and P. Rogaway, Ciphers with Arbitrary Finite
Domains, CT-RSA 2002). Nothing is kept: the state is the seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

N_ROUNDS = 8
LEAST_HALF_BITS = 3
"""On fewer bits a Feistel network reaches too few permutations."""
_U64 = np.uint64


@dataclass(frozen=True)
class Shuffle:
    """Orders of samples. seed: an integer of 64 bits."""

    seed: int

    def order(self, epoch: int, n_samples: int, begin: int = 0, end: int | None = None) -> np.ndarray:
        """Which samples are at the places [begin, end) of an epoch, i64[end − begin]. In O(end − begin) memory."""
        places = np.arange(begin, n_samples if end is None else min(end, n_samples), dtype=_U64)
        half = max(LEAST_HALF_BITS, -(-max(n_samples - 1, 1).bit_length() // 2))
        keys = _keys(self.seed, epoch)
        found = _feistel(places, half, keys)
        outside = np.flatnonzero(found >= n_samples)
        while len(outside):
            found[outside] = _feistel(found[outside], half, keys)
            outside = outside[found[outside] >= n_samples]
        return found.astype(np.int64)


def _keys(seed: int, epoch: int) -> np.ndarray:
    """A key a round, u64[N_ROUNDS]."""
    low, high = seed & (2**64 - 1), epoch & (2**64 - 1)
    mixed = _mix(_mix(np.array([low], _U64)) ^ np.array([high], _U64))
    return _mix(mixed + np.arange(1, N_ROUNDS + 1, dtype=_U64) * _U64(0x9E3779B97F4A7C15))


def _feistel(places: np.ndarray, half: int, keys: np.ndarray) -> np.ndarray:
    """A permutation of [0, 4^half)."""
    mask = _U64((1 << half) - 1)
    left, right = places >> _U64(half), places & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << _U64(half)) | right


def _mix(values: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser: every bit of the result depends on every bit of the value."""
    values = (values ^ (values >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> _U64(27))) * _U64(0x94D049BB133111EB)
    return values ^ (values >> _U64(31))
