"""The loader: the same batches whatever loads them, resuming, workers that fail, are killed or lose their parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parax.errors import InvalidData, ResourceLimit, UsageError
from parax.runtime.train.data.dataset import ArrayDataset, Batch, SequenceDataset
from parax.runtime.train.data.loader import Loader
from parax.runtime.train.data.processes import ProcessPool
from parax.runtime.train.data.transforms import Normalise, RandomCrop, RandomFlip

RNG = np.random.default_rng(1)
DATA = ArrayDataset({"input": RNG.integers(0, 256, (53, 1, 6, 6), dtype=np.uint8), "label": np.arange(53)})
CHAIN = (RandomCrop((6, 6), 1), RandomFlip(), Normalise((0.5,)))
WORKERS = [("threads", 0), ("threads", 2), ("processes", 1), ("processes", 3)]


def loader(kind: str = "threads", workers: int = 0, **options: Any) -> Loader:
    return Loader(DATA, 8, seed=4, transforms=CHAIN, kind=kind, workers=workers, **options)


def same(found: list[Batch], expected: list[Batch]) -> bool:
    return len(found) == len(expected) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a) for a, b in zip(found, expected)
    )


@pytest.mark.parametrize(("kind", "workers"), WORKERS[1:])
@pytest.mark.parametrize("drop_last", [True, False])
def test_batches_do_not_depend_on_workers(kind: str, workers: int, drop_last: bool) -> None:
    plain, other = loader(drop_last=drop_last), loader(kind, workers, drop_last=drop_last)
    for _ in range(2):
        expected = list(plain)
        assert len(expected) == len(plain) == (6 if drop_last else 7)
        assert same(list(other), expected)


def test_an_epoch_has_every_sample_once_in_an_order_of_its_own() -> None:
    data = loader(drop_last=False)
    first, second = (np.concatenate([batch["label"] for batch in data]).tolist() for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(53)) and first != second
    plain = Loader(DATA, 8, shuffle=False)
    assert np.concatenate([batch["label"] for batch in plain]).tolist() == list(range(48))


@pytest.mark.parametrize(("kind", "workers"), WORKERS)
@pytest.mark.parametrize("taken", [0, 1, 5, 6, 9])
def test_resuming_gives_the_same_batches(kind: str, workers: int, taken: int) -> None:
    whole = loader()
    expected = [batch for _ in range(3) for batch in whole]
    with loader(kind, workers) as before:
        batches = (batch for _ in range(3) for batch in before)
        for _ in range(taken):
            next(batches)
        state = json.loads(json.dumps(before.state()))
        batches.close()
    resumed = loader()
    resumed.resume(state)
    found = [batch for _ in range(3 - taken // 6) for batch in resumed]
    assert same(found, expected[taken:])


def test_a_loop_left_early_goes_on() -> None:
    expected, data = list(loader()), loader("threads", 2)
    first = next(iter(data))
    assert same([first, *data], expected)


@pytest.mark.parametrize("wrong", [{"seed": 5}, {"batch": 9}, {"samples": 1}, {"place": 6}, {"place": -1},
                                   {"epoch": -1}, {"epoch": None}, {"shuffle": 0}])  # fmt: skip
def test_states_of_other_loaders_are_refused(wrong: dict[str, Any]) -> None:
    data = loader()
    with pytest.raises(UsageError):
        data.resume({**data.state(), **wrong})


@pytest.mark.parametrize("options", [
    {"batch": 0}, {"batch": 54}, {"workers": -1}, {"workers": 10**6}, {"kind": "fibres"}, {"prefetch": -1},
    {"transforms": [RandomCrop((9, 9))]},
])  # fmt: skip
def test_wrong_arguments(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Loader(DATA, **{"batch": 8, **options})


class Sour:
    """Samples of which one cannot be loaded, or takes the process with it."""

    def __init__(self, fatal: bool = False) -> None:
        self.fatal = fatal

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        if index == 41 and self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 41:
            raise KeyError("sour")
        return {"x": np.full(4, index, np.float32)}


@pytest.mark.parametrize(("kind", "workers"), WORKERS)
def test_what_a_data_set_raises_comes_out(kind: str, workers: int) -> None:
    with (
        Loader(SequenceDataset(Sour()), 8, shuffle=False, kind=kind, workers=workers) as data,
        pytest.raises(InvalidData, match="a batch with sample 40: loading raised KeyError: 'sour'"),
    ):
        for count, _ in enumerate(data):
            assert count < 5


def test_a_worker_that_is_killed_is_an_error() -> None:
    before = children()
    with Loader(SequenceDataset(Sour(fatal=True)), 8, shuffle=False, kind="processes", workers=2) as data:
        with pytest.raises(ResourceLimit, match=r"loader process \d+ ended by signal SIGKILL") as caught:
            list(data)
        assert caught.value.exit_code == 6
        assert 1 <= data.state()["place"] <= 5  # its end may be seen before batches that others loaded ahead
    assert children() <= before  # nobody is left, and nobody is unburied


def test_no_moment_to_be_killed_in_hangs() -> None:
    long = ArrayDataset({"x": np.zeros((400_000, 64), np.float32)})
    before = children()
    for _ in range(12):
        with Loader(long, 4, kind="processes", workers=3, prefetch=1) as data:
            batches = iter(data)
            next(batches)
            assert isinstance(data._pool, ProcessPool)
            victim = data._pool.pids[int(RNG.integers(3))]
            killer = threading.Timer(RNG.uniform(0, 0.05), os.kill, (victim, signal.SIGKILL))
            killer.start()
            with pytest.raises(ResourceLimit, match=f"loader process {victim} ended by signal SIGKILL"):
                list(batches)
            killer.join()
    assert children() <= before


def test_closing_leaves_no_process() -> None:
    data = Loader(SequenceDataset(Slow()), 4, kind="processes", workers=2)
    next(iter(data))
    pool = data._pool
    assert pool is None  # the iterator that nobody holds has closed it
    batches = iter(data)
    next(batches)
    assert isinstance(data._pool, ProcessPool)
    pids = data._pool.pids
    data.close()
    assert len(pids) == 2 and not any(alive(pid) for pid in pids)


def children() -> set[int]:
    """The processes that this thread has begun and not waited for: other tests' may be among them."""
    return {int(pid) for pid in Path("/proc/thread-self/children").read_text().split()}


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be read does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


ORPHANS = """
import time, numpy as np
from parax.runtime.train.data.dataset import ArrayDataset
from parax.runtime.train.data.loader import Loader
data = Loader(ArrayDataset({"x": np.zeros((64, 4), np.float32)}), 4, kind="processes", workers=3)
for batch in data:
    print(*data._pool.pids, flush=True)
    time.sleep(60)
"""


def test_workers_end_with_a_parent_that_is_killed() -> None:
    memory = set(os.listdir("/dev/shm"))
    with subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 3 and all(map(alive, pids))
        parent.kill()
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))
    assert not {name for name in os.listdir("/dev/shm") if name.startswith("psm_")} - memory


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_workers_adapt_while_training(kind: str) -> None:
    def slow() -> Loader:
        return Loader(SequenceDataset(Slow()), 4, kind=kind, workers=1)

    expected, data, found = list(slow()), slow(), []
    for count, batch in enumerate(data):
        found.append(batch)
        if count == 1:
            balance = data.adapt(step_seconds=0.040, most=4)  # a batch takes 80 ms: two or three workers
            assert balance.before == 1 and 2 <= balance.workers <= 4 and "needed" in str(balance)
            assert data.workers == balance.workers
        if count == 3:
            assert data.adapt(step_seconds=1.0, most=4).workers == 1
    assert same(found, expected)


def test_times_of_several_workers_are_those_of_one() -> None:
    data = Loader(SequenceDataset(Locked()), 4, workers=2)
    data.adapt(step_seconds=1.0, most=2)
    alone = data._sample_seconds
    data._workers = 2  # two at a lock: each sample takes twice as long, which S(2) = 1 says already
    for _ in range(3):
        list(data)
    assert alone is not None and data._sample_seconds is not None
    assert data._speedups[1] < 1.4 and data._sample_seconds < 1.5 * alone


class Slow(Sour):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        time.sleep(0.02)
        return {"x": np.full(4, index, np.float32)}


class Locked(Slow):
    """Samples of which one is loaded at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        with self.lock:
            return super().__getitem__(index)
