"""The asynchronous server: an update per shard, by gradients that are stale within a bound."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest

import parax
from parax.compiler.trainer import Trainer
from train.exchanging import ROWS, assert_close, batch, trainer
from train.small_models import classifier


def test_an_instance_alone_is_not_stale() -> None:
    """An update per shard, as of a trainer with a batch of a shard's rows."""
    optimizer = parax.Adam(lr=0.02)
    with trainer("asynchronous", 1, optimizer=optimizer) as own, Trainer(
        classifier(), optimizer=optimizer, batch=ROWS // 4, shards=1, instances=1
    ) as small:  # fmt: skip
        for seed in range(3):
            own.step(batch(seed))
            for i in range(4):
                small.step({name: array[i * ROWS // 4 : (i + 1) * ROWS // 4] for name, array in batch(seed).items()})
        assert_close(own.parameters, small.parameters)
        assert own.counters().staleness == 0 and own.state.steps == 3


@pytest.mark.parametrize("staleness", [0, 1, 2, 5])
def test_staleness_stays_within_its_bound(staleness: int) -> None:
    with trainer("asynchronous", 4, settings={"staleness": staleness}, shards=24, optimizer=parax.SGD(lr=0.05)) as own:
        losses = [own.step(batch(0))["loss"] for _ in range(12)]
        assert own.counters().staleness <= staleness
        assert losses[-1] < 0.8 * losses[0]


def test_a_gradient_is_used_in_time_whoever_is_quick() -> None:
    """Instances that take as long as they like, in any order; the scheme's own rules alone."""
    with trainer("asynchronous", 4, settings={"staleness": 4}, optimizer=parax.SGD(lr=0.0)) as own:
        scheme: Any = own._stepper.scheme
        scheme.begin(0.0)

        def work(instance: int, times: int) -> None:
            for _ in range(times):
                scheme.parameters(instance)
                scheme.give(instance, 0)

        scheme.parameters(0)  # reads first, and sleeps while the others hurry
        threads = [Thread(target=work, args=(i, 50), daemon=True) for i in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(0.2)
        assert any(thread.is_alive() for thread in threads), "nobody waits for the first"
        scheme.give(0, 0)
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)
        assert len(scheme._norms) == 151 and 1 <= scheme.staleness <= 4
