"""How a session ends, whichever threads close it: each waits for that, but for one that it would have to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import UsageError
from .answering import is_answering


class Closing:
    """The end of one session.

    Attributes:
        reason: why what is submitted is refused, or "".
    """

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self._lock, self._ending = threading.Lock(), threading.Lock()

    @contextmanager
    def not_begun(self) -> Iterator[None]:
        """Hold off whoever closes. Raises UsageError: it is too late."""
        with self._lock:
            if self.reason:
                raise UsageError(self.reason)
            yield

    def close(self, end: Callable[[], None], owner: object) -> None:
        """Call `end`, which several threads may call at once.

        A thread that is answering one of the owner's requests leaves that to another one: it may have others to finish.
        """
        with self._lock:
            had_begun, self.reason = self.reason, self.reason or "the session is closed"
        if owner is None or not is_answering(owner):
            end()
        elif not had_begun:
            threading.Thread(target=end, name="parax-close").start()

    def finish(self, end: Callable[[], object]) -> None:
        """Call `end`, which does nothing the second time, so that whoever calls it finds it done."""
        with self._ending:
            end()
