"""The sums of rows are those of the plain formula, however threads share them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parax.errors import CorruptPlan
from parax.runtime import Plan, loading
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


def test_nobody_reads_what_was_abandoned() -> None:
    sums = RowSums(bytes(64 << 20))
    sums.abandon()
    assert not any(thread.is_alive() for thread in sums._others)


def test_a_plan_that_is_refused_is_not_read_any_more(
    add_plan: Callable[..., Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.bin"
    add_plan(weight=3).save(path)
    made: list[RowSums] = []

    def noted(data: memoryview) -> RowSums:
        made.append(RowSums(bytes(64 << 20)))
        return made[0]

    def refuse(container: object) -> Plan:
        raise CorruptPlan("refused")

    monkeypatch.setattr(loading, "RowSums", noted)
    monkeypatch.setattr("parax.runtime.plan.read_plan", refuse)
    with pytest.raises(CorruptPlan, match="refused"):
        loading.load(path)
    assert made and not any(thread.is_alive() for thread in made[0]._others)
