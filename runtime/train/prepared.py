"""Requests of a step, whose weights and gradients lie where they did the step before: checked again if they do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..joint import Joint
from ..prepared import Prepared
from ..session import Session
from .program import LOSS

Arrays = Mapping[str, np.ndarray]
Results = dict[str, np.ndarray]
MOST = 64  # requests of one session: shards of an instance, their micro-batches, and lengths of sequences


class Requests:
    """Those of one session; used by one thread at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._made: dict[tuple[object, ...], tuple[list[np.ndarray], Prepared]] = {}

    def run(self, kept: Arrays, fed: Arrays, out: Arrays) -> Results:
        """As `Session.run` of both kinds of inputs.

        Args:
            kept: inputs that stay where they are. fed: the others. out: memory for outputs, which stays, too.
        """
        return self.of(kept, fed, out).run(fed)

    def of(self, kept: Arrays, fed: Arrays, out: Arrays) -> Prepared:
        """The request, of which `fed` is to be changed."""
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
        return request


class JointRequests:
    """Those of all pieces of a batch, which instances work off together, and an update behind them."""

    def __init__(self, sessions: Sequence[Session], lasting: Callable[[], tuple[Arrays, Sequence[Arrays]]]) -> None:
        """Args:
            sessions: of the instances, of which `can_join` holds.
            lasting: inputs that stay where they are, and memory for outputs of each piece, which stays, too.
        """
        self._sessions, self._lasting = sessions, lasting
        self._made: dict[tuple[object, ...], Joint] = {}

    def run(
        self, batch: Arrays, own: Sequence[Arrays], update: Session, last: Prepared
    ) -> tuple[list[Results], Results | None, list[float]]:  # fmt: skip
        """As `Requests.run` of each piece, and then an update, if all losses are finite.

        Args:
            batch: inputs whose rows the pieces share. own: other inputs of each piece. last: the update's request.

        Returns:
            all outputs of each piece; the update's, or None if it was not made; both are written over by the next run.
            And when each instance was done with pieces, in seconds of time.perf_counter.
        """
        key = tuple([(name, np.shape(value)) for name, value in batch.items()])
        joint = self._made.get(key)
        if joint is None or joint.last is not last:
            if len(self._made) >= MOST:
                self._made.clear()
            joint = self._made[key] = self._joint(batch, own, update, last)
        return *joint.run(batch, own), joint.seconds()

    def _joint(self, batch: Arrays, own: Sequence[Arrays], update: Session, last: Prepared) -> Joint:
        kept, outs = self._lasting()
        piece = {name: value[: len(value) // len(outs)] for name, value in batch.items()} | {**own[0]}
        blank = {name: np.empty_like(value) for name, value in piece.items()}  # no batch is held for it
        losses = np.zeros(len(outs), np.float32)
        requests = [self._sessions[0].prepare({**kept, **blank}, {**out, LOSS: losses[i : i + 1].reshape(())})
                    for i, out in enumerate(outs)]  # fmt: skip
        return Joint(self._sessions, requests, losses, update, last)


def _are(arrays: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
    """Whether these are the same arrays in the same order."""
    return len(arrays) == len(others) and all(a is b for a, b in zip(arrays, others, strict=True))
