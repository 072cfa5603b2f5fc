"""The search for the smallest case: takes every proposal that fails as the original does, until none does.

Owns the order of proposals and the deadline; whether a case fails is handed in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Generic

from . import candidates
from .candidates import C, Recorded

Propose = Callable[[C], Iterable[C]]
MOST_TAKEN = 60
"""Proposals of one kind that are taken before the next kind has its turn."""


class Search(Generic[C]):
    """Delta debugging over the nodes first, then everything else of the case, over and over.

    Attributes:
        case: the smallest one so far. tried: how many proposals were tried.
    """

    def __init__(
        self, case: C, fails: Callable[[C], bool], record: Callable[[C], Recorded], *, seconds: float,
        before: Sequence[Propose[C]] = (), after: Sequence[Propose[C]] = (),
        tell: Callable[[C, int], None] = lambda case, tried: None,
    ) -> None:  # fmt: skip
        """
        Args:
            fails: whether a case fails in the way that is looked for. record: the values of a case.
            seconds: it ends after so long with what it has.
            before, after: more kinds of proposals, before and after the graph's own.
            tell: called with the smallest case so far and the number of trials.
        """
        self.case, self._fails, self._record, self._tell = case, fails, record, tell
        self._before, self._after = before, after
        self._deadline = time.monotonic() + seconds
        self._recorded: tuple[C, Recorded] | None = None
        self.tried = 0

    def run(self) -> C:
        """The smallest case found; it fails, if the first one does."""
        size = None
        while size != self.case.size and not self._is_over():
            size = self.case.size
            for propose in (*self._before, *self._of_graphs(), *self._after):
                self._take(propose)
        return self.case

    def _of_graphs(self) -> list[Propose[C]]:
        """Kinds of proposals, those that leave most away first."""
        return [
            candidates.one_run,
            candidates.fewer_outputs,
            *(partial(self._with_values, propose) for propose in (
                candidates.fewer_nodes, candidates.values_as_inputs, candidates.earlier_outputs, candidates.bypassed,
            )),
            candidates.without_identities,
            candidates.static_shapes,
            candidates.smaller_sizes,
            candidates.fewer_attributes,
            candidates.plainer_numbers,
        ]  # fmt: skip

    def _with_values(self, propose: Callable[[C, Recorded], Iterable[C]], case: C) -> Iterable[C]:
        if self._recorded is None or self._recorded[0] is not case:
            self._recorded = case, self._record(case)
        return propose(case, self._recorded[1])

    def _take(self, propose: Propose[C]) -> None:
        """Accept proposals of one kind as long as one fails."""
        for _ in range(MOST_TAKEN):
            found = next((c for c in propose(self.case) if not self._is_over() and self._try(c)), None)
            if found is None:
                return
            self.case = found
            self._tell(self.case, self.tried)

    def _try(self, case: C) -> bool:
        self.tried += 1
        self._tell(self.case, self.tried)
        return self._fails(case)

    def _is_over(self) -> bool:
        return time.monotonic() > self._deadline
