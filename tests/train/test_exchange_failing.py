"""What fails in one instance: the state stays, no lock is held, and the next step is as if nothing had been."""

from __future__ import annotations

import numpy as np
import pytest

import parax
from parax.runtime.train.exchange.settings import SCHEMES
from train.exchanging import ROWS, assert_close, assert_same_bits, batch, restarted, start_of, trained, trainer
from train.small_models import CLASSES


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("name", [*SCHEMES])
def test_a_shard_that_fails_changes_nothing(name: str, instances: int) -> None:
    with trainer(name, instances, optimizer=parax.SGD(lr=0.1)) as own:
        start = start_of(own)
        for row in (0, ROWS - 1):
            wrong = batch(0)
            wrong["labels"][row] = CLASSES
            with pytest.raises(parax.InvalidInput, match=r"label|range|exist"):
                own.step(wrong)
            if name != "asynchronous":  # which says that it leaves what it did before
                assert_same_bits(own.state.tensors(), start)
        restarted(own, start)
        found = trained(own, 3)
        assert own.counters().steps == 3
    if name != "asynchronous" or instances == 1:  # two of them race
        with trainer(name, instances, optimizer=parax.SGD(lr=0.1)) as fresh:
            assert_close(found, trained(fresh, 3))


@pytest.mark.parametrize("name", [*SCHEMES])
def test_what_is_not_finite_changes_nothing(name: str) -> None:
    with trainer(name, 2) as own:
        trained(own, 1)
        before, steps = start_of(own), own.state.steps
        wrong = batch(0)
        wrong["x"][:] = np.nan
        with pytest.raises(parax.Diverged):
            own.step(wrong)
        assert_same_bits(own.state.tensors(), before)
        assert own.state.steps == steps
        own.step(batch(1))
