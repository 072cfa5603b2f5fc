"""Labels must be classes that the model has: said of the label, before a kernel meets it as an index."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import InvalidInput
from .program import LABELS, TrainingProgram


def require_classes(program: TrainingProgram, batch: Mapping[str, np.ndarray]) -> None:
    """Refuse labels that no class has, nor is ignored; labels of another type are the plan's to refuse.

    Raises:
        InvalidInput: says which label of which row, and how many classes there are.
    """
    n, labels = program.n_classes, np.asarray(batch.get(LABELS, ()))
    if n is None or labels.dtype.kind not in "iu" or not labels.size or (labels.min() >= 0 and labels.max() < n):
        return
    wrong = (labels < 0) | (labels >= n)
    if program.ignored is not None:
        wrong &= labels != program.ignored
    if not wrong.any():
        return
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    found = int(labels[place])
    others = "" if program.ignored is None else f", or {program.ignored}, which is ignored"
    hint = "a label that does not count is the loss's ignore_index" if found < 0 else "classes are counted from 0"
    raise InvalidInput(f"a label is none of the model's {n} classes", where=f"input {LABELS!r}, {_said(place)}",
                       expected=f"0 to {n - 1}{others}", found=found, hint=hint)  # fmt: skip


def _said(place: tuple[int, ...]) -> str:
    """Where a label lies in a batch, in words."""
    row, *rest = place
    return f"row {row} of the batch" + (f", at [{', '.join(map(str, rest))}]" if rest else "")
