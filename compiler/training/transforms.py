"""The transforms of a job file: a table each, by `kind`, whose other keys are its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from ...errors import UsageError
from ...runtime.train.data.transforms import (
    MixUp,
    Normalise,
    OneHot,
    RandomCrop,
    RandomFlip,
    Resize,
    Transform,
)
from .tables import read_table

KINDS: Mapping[str, type[Any]] = {
    "normalise": Normalise, "crop": RandomCrop, "flip": RandomFlip, "resize": Resize, "one-hot": OneHot,
    "mix-up": MixUp,
}  # fmt: skip
RANDOM = (RandomCrop, RandomFlip, MixUp)  # what a test is not treated with, unless a job says so
_SIZES = ("size", "mean", "std")  # keys that one number will do for: of both sides, of all channels


def transforms_of(
    tables: Sequence[Mapping[str, Any]], where: str, image: str = "input", labels: str = "label"
) -> tuple[Transform, ...]:
    """The transforms of [data].

    Args:
        where: the key that has them. image, labels: names of the tensors that one without a `name` is for.

    Raises:
        UsageError: an unknown kind or key, a value of another type.
    """
    return tuple(_transform(table, f"{where}[{i}]", image, labels) for i, table in enumerate(tables))


def without_random(transforms: Sequence[Transform]) -> tuple[Transform, ...]:
    """Those that treat a sample always alike."""
    return tuple(transform for transform in transforms if not isinstance(transform, RANDOM))


def _transform(table: Mapping[str, Any], where: str, image: str, labels: str) -> Transform:
    own = dict(table)
    kind = own.pop("kind", None)
    cls = KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise UsageError("no such transform", where=f"{where}.kind", expected=", ".join(KINDS), found=repr(kind)[:60])
    names = {field.name for field in fields(cls)}
    if "name" in names:
        own.setdefault("name", labels if cls is OneHot else image)
    if "names" in names:
        own.setdefault("names", [image, labels])
    for key in _SIZES:
        if isinstance(own.get(key), (int, float)):
            own[key] = [own[key]] * (2 if key == "size" else 1)
    made: Transform = read_table(cls, own, where)
    return made
