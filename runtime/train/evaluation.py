"""Loss and metrics of parameters on data that it is not trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from ...errors import InvalidInput
from ..session import Session
from .program import LOSS, TrainingProgram


def evaluate(
    session: Session, program: TrainingProgram, values: Mapping[str, np.ndarray],
    batches: Iterable[Mapping[str, np.ndarray]],
) -> dict[str, float]:  # fmt: skip
    """Means over all rows of all batches.

    Args:
        session: of `program.evaluation`. values: parameters and statistics.

    Raises:
        InvalidInput: no row at all, or a batch that does not fit.
    """
    names = (LOSS, *program.metrics)
    parts: list[tuple[int, dict[str, np.ndarray]]] = []
    for batch in batches:
        feeds = {**values, **batch}
        found = session.run(list(names), feeds)
        parts.append((len(batch[program.data[0]]), {name: found[name] for name in names}))
    rows = sum(n for n, _ in parts)
    if not rows:
        raise InvalidInput("no data to evaluate", expected="a batch or more", found="none")
    return {name: math.fsum(n * float(found[name]) for n, found in parts) / rows for name in names}
