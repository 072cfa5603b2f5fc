"""Whose requests a thread is answering right now, so that what a future's callbacks do can tell where they run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class _Thread(threading.local):
    """The owners of the requests that the thread is answering."""

    owners: tuple[object, ...] = ()


_THREAD = _Thread()


def answer(owner: object, give: Callable[[Any], None], result: Any) -> None:
    """Call `give(result)`, which runs a future's callbacks, for a request of this owner."""
    before = _THREAD.owners
    _THREAD.owners = (*before, owner)
    try:
        give(result)
    finally:
        _THREAD.owners = before


def is_answering(owner: object) -> bool:
    """Whether this thread runs a callback of one of the owner's requests."""
    return any(other is owner for other in _THREAD.owners)
