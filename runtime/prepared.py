"""Requests that are made again and again with most tensors where they were, as in training: those are checked once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from ..errors import ParaxError
from .checked import Checked
from .host_values import arrays_in
from .tensors import Apart, plain


class Requested(Protocol):
    """The session that a request is made of."""

    @property
    def watch(self) -> object: ...

    def run(self, inputs: Any, *, out: Any) -> dict[str, np.ndarray]: ...

    def explained(self, error: Exception) -> ParaxError: ...


class Prepared:
    """See `Session.prepare`.

    Attributes:
        binding: of its shapes. arrays: its inputs, in the plan's order, fit for native code.
    """

    def __init__(
        self, session: Requested, checked: Checked, feeds: Mapping[str, Any], out: Mapping[str, np.ndarray] | None
    ) -> None:  # fmt: skip
        self._session, self._checked, self._feeds, self._out = session, checked, plain(feeds, "inputs"), out
        self.binding, self.arrays, self._own = checked.check(self._feeds, out)
        self._apart = Apart(self._own)

    def run(self, changes: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """Run the request.

        Args:
            changes: other tensors for some inputs, of the shapes that these had.

        Returns:
            As `Session.run`.

        Raises:
            InvalidInput: no such input, or another shape or element type. Others as of `Session.run`.
        """
        given = {} if changes is None else changes
        if self._session.watch is not None:  # somebody makes a profile, of requests as a session runs them
            return self._session.run({**self._feeds, **given}, out=self._out)
        try:
            arrays = list(self.arrays)
            for place, array in self.changed(given).items():
                arrays[place] = array
            return self._checked.run_checked(self.binding, arrays, self._own, self._checked.allowance())
        except ParaxError:
            raise
        except Exception as error:
            raise self._session.explained(error) from error

    def changed(self, changes: Mapping[str, Any]) -> dict[int, np.ndarray]:
        """Other tensors for some inputs, by the inputs' numbers, fit for native code.

        Raises:
            InvalidInput: as `run`.
        """
        found = {}
        for name, value in changes.items():
            place = self._checked.place(name)
            found[place] = self._checked.changed(place, value, self.arrays[place])
            for array in arrays_in(found[place]):
                self._apart.require(array)
        return found

    def in_shares(self, name: str, value: Any, n: int) -> tuple[int, np.ndarray]:
        """A tensor whose rows n requests like this one share, likewise: of n times the rows."""
        place = self._checked.place(name)
        return place, self._checked.changed(place, value, self.arrays[place], n)

    def allocated(self) -> dict[str, np.ndarray]:
        """Memory for all outputs by name, in the plan's order: the caller's, and new where that gave none."""
        return self._checked.allocated(self.binding, self._own)
