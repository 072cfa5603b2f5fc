"""Sessions and forks: threads do not survive a fork, so the child's copies of sessions refuse to run.

Owns the list of the process's sessions.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

REASON = "this session was made before a fork; make one in the child"


class Abandoned(Protocol):
    """What is told after a fork."""

    def abandon(self, reason: str) -> None:
        """Refuse everything from now on and touch no thread."""


_KNOWN: weakref.WeakSet[Abandoned] = weakref.WeakSet()


def abandon_after_fork(session: Abandoned) -> None:
    """Have a session told, should this process fork, in the child."""
    _KNOWN.add(session)


def _after_fork() -> None:
    for session in _KNOWN:
        session.abandon(REASON)


os.register_at_fork(after_in_child=_after_fork)
