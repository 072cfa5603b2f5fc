"""Requests that are made again and again with most tensors where they were, as in training: those are checked once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from ..errors import ParaxError
from .checked import Checked
from .tensors import Apart, plain


class Requested(Protocol):
    """The session that a request is made of."""

    @property
    def watch(self) -> object: ...

    def run(self, inputs: Any, *, out: Any) -> dict[str, np.ndarray]: ...

    def explained(self, error: Exception) -> ParaxError: ...


class Prepared:
    """See `Session.prepare`."""

    def __init__(
        self, session: Requested, checked: Checked, feeds: Mapping[str, Any], out: Mapping[str, np.ndarray] | None
    ) -> None:  # fmt: skip
        self._session, self._checked, self._feeds, self._out = session, checked, plain(feeds, "inputs"), out
        self._binding, self._arrays, self._own = checked.check(self._feeds, out)
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
            arrays = list(self._arrays)
            for name, value in given.items():
                place = self._checked.place(name)
                arrays[place] = self._checked.changed(place, value, arrays[place])
                self._apart.require(arrays[place])
            return self._checked.run_checked(self._binding, arrays, self._own, self._checked.allowance())
        except ParaxError:
            raise
        except Exception as error:
            raise self._session.explained(error) from error
