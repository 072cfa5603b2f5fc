"""Loss and metrics of parameters on data that it is not trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from ...errors import InvalidInput
from ..session import Session
from .labels import require_classes
from .program import LOSS, SHARE, TrainingProgram


def evaluate(
    session: Session, program: TrainingProgram, values: Mapping[str, np.ndarray],
    batches: Iterable[Mapping[str, np.ndarray]],
) -> dict[str, float]:  # fmt: skip
    """Means over all rows of all batches, or over all labels that count.

    Args:
        session: of `program.evaluation`. values: parameters and statistics.

    Raises:
        InvalidInput: no row at all, or a batch that does not fit.
    """
    names = (LOSS, *program.metrics)
    parts: list[tuple[int, dict[str, np.ndarray]]] = []
    for batch in batches:
        require_classes(program, batch)
        feeds, counted = {**values, **batch}, program.n_counted(batch)
        if program.ignored is not None:
            feeds[SHARE] = np.array(1 / max(1, counted), np.float32)
        found = session.run(list(names), feeds)
        parts.append((counted, {name: found[name] for name in names}))
    total = sum(n for n, _ in parts)
    if not total:
        raise InvalidInput("no data to evaluate", expected="a batch or more, with a label that counts", found="none")
    return {name: math.fsum(n * float(found[name]) for n, found in parts) / total for name in names}
