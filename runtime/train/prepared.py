"""Requests of a step, whose weights and gradients lie where they did the step before: checked again if they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..prepared import Prepared
from ..session import Session

Arrays = Mapping[str, np.ndarray]
MOST = 64  # requests of one session: shards of an instance, their micro-batches, and lengths of sequences


class Requests:
    """Those of one session; used by one thread at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._made: dict[tuple[object, ...], tuple[list[np.ndarray], Prepared]] = {}

    def run(self, kept: Arrays, fed: Arrays, out: Arrays) -> dict[str, np.ndarray]:
        """As `Session.run` of both kinds of inputs.

        Args:
            kept: inputs that stay where they are. fed: the others. out: memory for outputs, which stays, too.
        """
        arrays = [*kept.values(), *out.values()]
        # each place for a gradient has a request of its own, and each shape of what is given anew
        key = id(next(iter(out.values()), None)), *(np.shape(value) for value in fed.values())
        before, request = self._made.get(key, ([], None))
        if request is None or not _are(arrays, before):
            blank = {name: np.empty_like(value) for name, value in fed.items()}  # a batch is not to be held for it
            request = self._session.prepare({**kept, **blank}, out)
            if len(self._made) >= MOST:
                self._made.clear()
            self._made[key] = arrays, request
        return request.run(fed)


def _are(arrays: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
    """Whether these are the same arrays in the same order."""
    return len(arrays) == len(others) and all(a is b for a, b in zip(arrays, others, strict=True))
