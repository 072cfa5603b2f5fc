"""Data sets of arrays and sequences, and their parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parax.errors import InvalidData, ParaxError, UsageError
from parax.runtime.train.data.dataset import ArrayDataset, SequenceDataset, collected, split


def test_rows_are_taken_in_the_order_asked_for() -> None:
    data = ArrayDataset({"x": np.arange(12.0).reshape(6, 2), "y": np.arange(6)})
    found = data.take(np.array([4, 0, 4]))
    assert found["y"].tolist() == [4, 0, 4] and found["x"].tolist() == [[8, 9], [0, 1], [8, 9]]
    assert len(data) == 6 and data.specs == {"x": ((2,), np.dtype("f8")), "y": ((), np.dtype("i8"))}


@pytest.mark.parametrize("arrays", [
    {}, {"x": np.zeros(0)}, {"x": np.array(1.0)}, {"x": np.zeros(3), "y": np.zeros(2)},
    {"x": np.array([None, 1], object)},
])  # fmt: skip
def test_arrays_that_are_no_data_set(arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises(InvalidData):
        ArrayDataset(arrays)


def test_sequences_of_mappings_and_of_tuples() -> None:
    rows = [(np.full(3, i, np.float32), i) for i in range(5)]
    by_tuple = SequenceDataset(rows, ("x", "y"))
    by_mapping = SequenceDataset([{"x": x, "y": y} for x, y in rows])
    indices = np.array([3, 1])
    for name, expected in by_tuple.take(indices).items():
        assert np.array_equal(by_mapping.take(indices)[name], expected)
    assert by_tuple.take(indices)["y"].tolist() == [3, 1]


def test_a_sample_unlike_the_first_is_named() -> None:
    data = SequenceDataset([(np.zeros(2), 0), (np.zeros(3), 1)], ("x", "y"))
    with pytest.raises(InvalidData, match=r"sample 1: .*expected x float64\[2\].*found x float64\[3\]"):
        data.take(np.array([1]))


@pytest.mark.parametrize("samples", [iter([1]), [], [(1, 2, 3)]])
def test_sequences_that_are_no_data_set(samples: Any) -> None:
    with pytest.raises(ParaxError):
        SequenceDataset(samples)


def test_iterables_are_collected() -> None:
    data = collected(((np.ones(2) * i, i) for i in range(4)), ("x", "y"))
    assert data.take(np.array([3]))["x"].tolist() == [[3, 3]]
    with pytest.raises(ParaxError, match="without end"):
        collected((i for i in range(100)), ("x",), most=10)


def test_torch_data_sets() -> None:
    torch = pytest.importorskip("torch")
    tensors = torch.utils.data.TensorDataset(torch.arange(6.0).reshape(3, 2), torch.arange(3))
    assert SequenceDataset(tensors).take(np.array([2]))["input"].tolist() == [[4.0, 5.0]]


def test_splits_are_disjoint_whole_and_repeatable() -> None:
    data = ArrayDataset({"y": np.arange(100)})
    train, test = split(data, 0.2, seed=3)
    own = [part.take(np.arange(len(part)))["y"].tolist() for part in (train, test)]
    assert len(own[1]) == 20 and sorted(own[0] + own[1]) == list(range(100))
    again = split(data, 0.2, seed=3)[1]
    assert again.take(np.arange(20))["y"].tolist() == own[1]
    assert split(data, 0.2, seed=4)[1].take(np.arange(20))["y"].tolist() != own[1]
    for fraction in (0.0, 1.0, 0.001, float("nan")):
        with pytest.raises(UsageError, match="split"):
            split(data, fraction)
