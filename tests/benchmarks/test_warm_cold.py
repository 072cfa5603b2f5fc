"""How much memory is read to make a run a cold one."""

from __future__ import annotations

import pytest

from benchmarks.warm_cold import swept_nbytes
from parax.runtime.topology import Cache

MIB = 1 << 20


@pytest.mark.parametrize("caches, memory, wanted", [
    ([], 24 << 30, 64 * MIB),                                  # a machine that hides them
    ([48 << 10, 1 * MIB, 30 * MIB], 24 << 30, 64 * MIB),
    ([48 << 10, 2 * MIB, 480 * MIB], 24 << 30, 960 * MIB),     # a guest that sees its host's whole last cache
    ([48 << 10, 2 * MIB, 480 * MIB], 4 << 30, 512 * MIB),      # never more than an eighth of the memory
    ([48 << 10, 512 << 10, 384 * MIB], 256 << 20, 64 * MIB),
])  # fmt: skip
def test_twice_the_largest_cache_within_the_memory(caches: list[int], memory: int, wanted: int) -> None:
    found = [Cache(level, nbytes, (0,)) for level, nbytes in enumerate(caches, 1)]
    assert swept_nbytes(found, memory) == wanted
