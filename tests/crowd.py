"""Which tests may run at the same time, in the processes that pytest-xdist runs them in.

A test that is marked `alone` waits until no other one runs, and the others wait for it. Everybody goes through a door,
which a test that waits for the room to be empty keeps closed: so it waits for those only that run already.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def in_the_room(folder: Path, alone: bool) -> Iterator[None]:
    """Be there while the body runs; `folder`: the same for all processes."""
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        try:
            yield
        finally:  # closing the file does not where a process that was forked meanwhile has it open still
            fcntl.flock(room, fcntl.LOCK_UN)
