"""The sums of rows are those of the plain formula, however threads share them."""

from __future__ import annotations

import numpy as np
import pytest

from parax.runtime.checksums import RowSums

ROW = 4096


@pytest.mark.parametrize("nbytes", [0, 1, ROW - 1, ROW, 3 * ROW + 8, 8 << 20, (40 << 20) + 5 * ROW + 3])
def test_sums_of_every_row_and_the_rest_as_it_is(nbytes: int) -> None:
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8).tobytes()
    whole = nbytes - nbytes % ROW
    with np.errstate(over="ignore"):
        rows = np.frombuffer(data[:whole], "<u8").reshape(-1, ROW // 8)
        expected = np.cumsum(rows, axis=1, dtype=np.uint64)[:, -1].tobytes() + data[whole:]
    assert RowSums(data).result() == expected
