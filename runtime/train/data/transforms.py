"""What is done to samples on their way into a batch: scaling, cropping, flipping, resizing, mixing, one-hot labels.

Random ones draw from a counter-based generator (Philox) keyed by seed, epoch and sample, so that a sample is treated
the same whichever worker loads it and wherever a run was resumed. Images are [rows, channels, height, width].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ....errors import InvalidData, UsageError
from .dataset import Batch, Dataset, Specs, worded


@dataclass(frozen=True)
class Draw:
    """Where randomness comes from: seed, epoch, the samples of the batch (i64[rows]), which transform of the chain."""

    seed: int
    epoch: int
    indices: np.ndarray
    stage: int = 0

    def generator(self, row: int) -> np.random.Generator:
        """The one of a row's sample in this epoch and transform."""
        mask = 2**64 - 1
        key = np.array([self.seed & mask, self.epoch & mask], np.uint64)
        counter = np.array([0, 0, self.stage, self.indices[row]], np.uint64)  # the first two words count the draws
        return np.random.Generator(np.random.Philox(key=key, counter=counter))


class Transform(Protocol):
    """A step of the chain: what it does to specs, and to a batch."""

    def specs(self, specs: Specs) -> Specs:
        """Of the result. Raises UsageError where the batch has nothing that it fits."""
        ...

    def __call__(self, batch: Batch, draw: Draw) -> Batch: ...


def _image(specs: Specs, name: str) -> tuple[int, int, int]:
    """Channels, height and width."""
    if name not in specs or len(specs[name][0]) != 3:
        raise UsageError("a transform of images", where=name, expected=f"{name} [channels, height, width]",
                         found=worded(specs))  # fmt: skip
    channels, height, width = specs[name][0]
    return channels, height, width


@dataclass(frozen=True)
class Normalise:
    """(x · scale − mean) / std in f32; mean and std a number for all, or one a channel. scale is 1/255 for bytes."""

    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)
    scale: float | None = None
    name: str = "input"

    def specs(self, specs: Specs) -> Specs:
        if self.name not in specs:
            raise UsageError("nothing to normalise", where=self.name, expected=self.name, found=worded(specs))
        shape = specs[self.name][0]
        many = {len(self.mean), len(self.std)} - {1}
        if many - {shape[0] if shape else 1} or not all(np.isfinite([*self.mean, *self.std])) or 0 in self.std:
            raise UsageError("mean and std do not fit", where=self.name, found=f"{self.mean} and {self.std}",
                             expected=f"one number, or one a channel of {list(shape)}, std not 0")  # fmt: skip
        return {**specs, self.name: (shape, np.dtype(np.float32))}

    def __call__(self, batch: Batch, draw: Draw) -> Batch:
        values = batch[self.name]
        scale = self.scale if self.scale is not None else 1 / 255 if values.dtype == np.uint8 else 1.0
        around = (-1, *[1] * (values.ndim - 2)) if values.ndim > 1 else (-1,)
        mean, std = (np.asarray(numbers, np.float32).reshape(around) for numbers in (self.mean, self.std))
        scaled = np.multiply(values, np.float32(scale), dtype=np.float32)
        return {**batch, self.name: (scaled - mean) / std}


@dataclass(frozen=True)
class RandomCrop:
    """A part of (height, width), at a random place of the image with `padding` zeros around it."""

    size: tuple[int, int]
    padding: int = 0
    name: str = "input"

    def specs(self, specs: Specs) -> Specs:
        channels, *extents = _image(specs, self.name)
        if any(not 0 < own <= whole + 2 * self.padding for own, whole in zip(self.size, extents)) or self.padding < 0:
            raise UsageError("a crop larger than the image", where=self.name, found=list(self.size),
                             expected=f"at most {[whole + 2 * self.padding for whole in extents]}")  # fmt: skip
        return {**specs, self.name: ((channels, *self.size), specs[self.name][1])}

    def __call__(self, batch: Batch, draw: Draw) -> Batch:
        images, pad, (height, width) = batch[self.name], self.padding, self.size
        wide = np.pad(images, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        cropped = np.empty((*images.shape[:2], height, width), images.dtype)
        for row in range(len(images)):
            top, left = draw.generator(row).integers((wide.shape[2] - height + 1, wide.shape[3] - width + 1))
            cropped[row] = wide[row, :, top : top + height, left : left + width]
        return {**batch, self.name: cropped}


@dataclass(frozen=True)
class RandomFlip:
    """Left and right swapped with a probability."""

    probability: float = 0.5
    name: str = "input"

    def specs(self, specs: Specs) -> Specs:
        _image(specs, self.name)
        if not 0 <= self.probability <= 1:
            raise UsageError("no probability", where=self.name, expected="0 to 1", found=self.probability)
        return specs

    def __call__(self, batch: Batch, draw: Draw) -> Batch:
        images = batch[self.name].copy()
        for row in range(len(images)):
            if draw.generator(row).random() < self.probability:
                images[row] = images[row, :, :, ::-1]
        return {**batch, self.name: images}


@dataclass(frozen=True)
class Resize:
    """Bilinear to (height, width), centres of pixels aligned (ONNX's half_pixel); bytes are rounded."""

    size: tuple[int, int]
    name: str = "input"

    def specs(self, specs: Specs) -> Specs:
        channels, _, _ = _image(specs, self.name)
        if min(self.size) < 1:
            raise UsageError("no size", where=self.name, expected="1×1 or more", found=list(self.size))
        return {**specs, self.name: ((channels, *self.size), specs[self.name][1])}

    def __call__(self, batch: Batch, draw: Draw) -> Batch:
        images = batch[self.name]
        found = images.astype(np.float32)
        for axis, size in zip((2, 3), self.size):
            found = _stretched(found, axis, size)
        if images.dtype.kind in "iu":
            found = np.rint(found)
        return {**batch, self.name: found.astype(images.dtype)}


def _stretched(values: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Linear interpolation along an axis to a new size."""
    old = values.shape[axis]
    at = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
    low = at.astype(np.int64)
    shape = [1] * values.ndim
    shape[axis] = size
    weight = (at - low).astype(np.float32).reshape(shape)
    above = values.take(np.minimum(low + 1, old - 1), axis)
    return values.take(low, axis) * (1 - weight) + above * weight


@dataclass(frozen=True)
class OneHot:
    """Labels as f32[rows, classes]."""

    classes: int
    name: str = "label"

    def specs(self, specs: Specs) -> Specs:
        if self.name not in specs or specs[self.name][1].kind not in "iu" or specs[self.name][0]:
            raise UsageError("no labels", where=self.name, expected=f"{self.name}: an integer", found=worded(specs))
        return {**specs, self.name: ((self.classes,), np.dtype(np.float32))}

    def __call__(self, batch: Batch, draw: Draw) -> Batch:
        labels = batch[self.name].astype(np.int64)
        wrong = np.flatnonzero((labels < 0) | (labels >= self.classes))
        if len(wrong):
            raise InvalidData("a label that no class has", where=f"sample {draw.indices[wrong[0]]}",
                              expected=f"0 to {self.classes - 1}", found=int(labels[wrong[0]]))  # fmt: skip
        made = np.zeros((len(labels), self.classes), np.float32)
        made[np.arange(len(labels)), labels] = 1
        return {**batch, self.name: made}


@dataclass(frozen=True)
class MixUp:
    """λ·x + (1 − λ)·x' of each sample and the next of its batch, inputs and one-hot labels; λ from Beta(alpha, alpha).

    H. Zhang and others, mixup: Beyond Empirical Risk Minimization, ICLR 2018.
    """

    alpha: float = 0.2
    names: tuple[str, ...] = ("input", "label")

    def specs(self, specs: Specs) -> Specs:
        if self.alpha <= 0:
            raise UsageError("no shape of a Beta distribution", where="mix-up", expected="above 0", found=self.alpha)
        for name in self.names:
            if name not in specs or specs[name][1].kind != "f":
                raise UsageError("only floats are mixed", where=name, expected=f"{name} of floats", found=worded(specs),
                                 hint="normalise inputs and make labels one-hot before")  # fmt: skip
        return specs

    def __call__(self, batch: Batch, draw: Draw) -> Batch:
        rows = range(len(draw.indices))
        shares = np.array([draw.generator(row).beta(self.alpha, self.alpha) for row in rows], np.float32)
        mixed = dict(batch)
        for name in self.names:
            values = batch[name]
            share = shares.reshape(-1, *[1] * (values.ndim - 1)).astype(values.dtype)
            mixed[name] = share * values + (1 - share) * np.roll(values, -1, 0)
        return mixed


def transformed_specs(specs: Specs, transforms: Sequence[Transform]) -> Specs:
    """Behind all transforms. Raises UsageError where one does not fit."""
    for transform in transforms:
        specs = transform.specs(specs)
    return specs


def transformed(batch: Batch, transforms: Sequence[Transform], seed: int, epoch: int, indices: np.ndarray) -> Batch:
    """A batch behind all transforms, contiguous."""
    for stage, transform in enumerate(transforms):
        batch = transform(batch, Draw(seed, epoch, indices, stage))
    return {name: np.ascontiguousarray(values) for name, values in batch.items()}


class Transformed:
    """A data set whose samples are treated alike in every epoch, such as those of a test.

    Raises:
        UsageError: a transform does not fit the data.
    """

    def __init__(self, whole: Dataset, transforms: Sequence[Transform], seed: int = 0) -> None:
        self._whole, self._transforms, self._seed = whole, tuple(transforms), seed
        self._specs = transformed_specs(whole.specs, self._transforms)

    @property
    def specs(self) -> Specs:
        """See Dataset."""
        return dict(self._specs)

    def __len__(self) -> int:
        return len(self._whole)

    def take(self, indices: np.ndarray) -> Batch:
        """See Dataset."""
        return transformed(self._whole.take(indices), self._transforms, self._seed, 0, indices)
