"""Transforms: what they compute, and that randomness depends on seed, epoch and sample alone."""

from __future__ import annotations

import numpy as np
import pytest

from parax.errors import InvalidData, UsageError
from parax.runtime.train.data.transforms import (
    Draw,
    MixUp,
    Normalise,
    OneHot,
    RandomCrop,
    RandomFlip,
    Resize,
    Transform,
    transformed,
    transformed_specs,
)

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (6, 3, 8, 10), dtype=np.uint8)
LABELS = np.arange(6) % 4
DRAW = Draw(5, 2, np.arange(6))
SPECS = {"input": ((3, 8, 10), np.dtype(np.uint8)), "label": ((), np.dtype(np.int64))}


def test_normalise() -> None:
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    found = Normalise(mean, std)({"input": IMAGES}, DRAW)["input"]
    expected = (IMAGES / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    assert found.dtype == np.float32 and np.abs(found - expected).max() < 1e-6


def test_a_crop_is_a_window_of_the_padded_image() -> None:
    found = RandomCrop((8, 10), padding=2)({"input": IMAGES}, DRAW)["input"]
    wide = np.pad(IMAGES, ((0, 0), (0, 0), (2, 2), (2, 2)))
    places = [
        (top, left)
        for row in range(6)
        for top in range(5)
        for left in range(5)
        if np.array_equal(wide[row, :, top : top + 8, left : left + 10], found[row])
    ]
    assert len(places) == 6 and len(set(places)) > 1


def test_some_are_flipped() -> None:
    batch = {"input": np.repeat(IMAGES[:1], 400, 0)}
    found = RandomFlip(0.25)(batch, Draw(0, 0, np.arange(400)))["input"]
    flipped = (found == IMAGES[0, :, :, ::-1]).all((1, 2, 3))
    kept = (found == IMAGES[0]).all((1, 2, 3))
    assert (flipped ^ kept).all() and 60 < flipped.sum() < 140


def test_resize_is_bilinear() -> None:
    line = np.array([0.0, 4.0], np.float32).reshape(1, 1, 1, 2)
    found = Resize((1, 4))({"input": line}, Draw(0, 0, np.arange(1)))["input"]
    assert found.ravel().tolist() == [0, 1, 3, 4]
    same = Resize((8, 10))({"input": IMAGES}, DRAW)["input"]
    assert np.array_equal(same, IMAGES) and same.dtype == np.uint8


def test_one_hot_and_labels_out_of_range() -> None:
    found = OneHot(4)({"label": LABELS}, DRAW)["label"]
    assert np.array_equal(found, np.eye(4, dtype=np.float32)[LABELS])
    with pytest.raises(InvalidData, match=r"sample 3: .*expected 0 to 2; found 3"):
        OneHot(3)({"label": LABELS}, DRAW)


def test_mix_up_mixes_neighbours_by_one_share() -> None:
    x = RNG.standard_normal((6, 5)).astype(np.float32)
    y = np.eye(6, dtype=np.float32)
    found = MixUp(1.0)({"input": x, "label": y}, DRAW)
    shares = np.diag(found["label"])
    assert ((shares >= 0) & (shares <= 1)).all() and shares.std() > 0.05
    assert np.abs(found["input"] - (shares[:, None] * x + (1 - shares[:, None]) * np.roll(x, -1, 0))).max() < 1e-6


CROPS = (RandomCrop((6, 6), 1), RandomFlip(), Resize((5, 7)))
CHAIN: tuple[Transform, ...] = (*CROPS, Normalise((0.5,), (0.25,)), OneHot(4))


def test_a_sample_is_treated_alike_in_any_batch() -> None:
    def run(rows: list[int], epoch: int = 1, seed: int = 9) -> dict[str, np.ndarray]:
        batch = {"input": IMAGES[rows], "label": LABELS[rows]}
        return transformed(batch, CHAIN, seed, epoch, np.array(rows))

    whole, part = run([0, 1, 2, 3, 4, 5]), run([4, 1])
    assert all(np.array_equal(part[name], whole[name][[4, 1]]) for name in part)
    assert not np.array_equal(run([0, 1], epoch=2)["input"], whole["input"][:2])
    assert not np.array_equal(run([0, 1], seed=8)["input"], whole["input"][:2])


def test_specs_say_what_comes_out() -> None:
    found = transformed({"input": IMAGES, "label": LABELS}, CHAIN, 0, 0, np.arange(6))
    assert transformed_specs(dict(SPECS), CHAIN) == {n: (v.shape[1:], v.dtype) for n, v in found.items()}


@pytest.mark.parametrize("transform", [
    Normalise((1.0, 2.0)), Normalise(std=(0.0,)), Normalise(name="x"), RandomCrop((9, 9)), RandomCrop((8, 8), -1),
    RandomFlip(2.0), RandomFlip(name="label"), Resize((0, 1)), OneHot(3, "input"), MixUp(), MixUp(0.0),
])  # fmt: skip
def test_what_does_not_fit_is_refused_before_any_batch(transform: Transform) -> None:
    with pytest.raises(UsageError):
        transform.specs(dict(SPECS))
