"""The generator of RandomMask and RandomBits written with NumPy's integers."""

from __future__ import annotations

import numpy as np


def plain_philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Philox4x32-10 of counters [4, n], in u64 arithmetic."""
    c = counter.astype(np.uint64)
    k = [np.uint64(word) for word in key]
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = np.stack([(b >> np.uint64(32)) ^ c[1] ^ k[0], b & low, (a >> np.uint64(32)) ^ c[3] ^ k[1], a & low])
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return c.astype(np.uint32)


def plain_words(n: int, seed: int, step: int = 0, first: int = 0) -> np.ndarray:
    """The words of n elements from `first` on, element by element as RandomMask's docstring says."""
    e = np.arange(first, first + n, dtype=np.uint64)
    block = e // np.uint64(64) * np.uint64(16) + e % np.uint64(16)
    low = np.uint64(0xFFFFFFFF)
    high = np.full(n, step, np.int64).astype(np.uint64)
    counter = np.stack([block & low, block >> np.uint64(32), high & low, high >> np.uint64(32)])
    seed %= 2**64
    found = plain_philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return found[(e // np.uint64(16) % np.uint64(4)).astype(int), np.arange(n)]
