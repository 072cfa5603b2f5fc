"""Ctrl-C while a step is under way is answered when it is done.

Weights are moved where they lie: a KeyboardInterrupt between that and the count of steps would leave weights of a step
that was not counted, and one while the calling thread waits for the other instances would leave them at work.
"""

from __future__ import annotations

# What the module signal wraps: its enumerations take some 100 µs of a step.
import _signal as signal  # type: ignore[import-not-found]
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_held() -> Iterator[None]:
    """What is run inside is run to its end; then whoever answers SIGINT is told of one that came meanwhile.

    Only the main thread is ever interrupted, and only where SIGINT has a handler of Python's: else this does nothing.
    """
    answering = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(answering):
        yield
        return
    came: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, answering)
        if came:
            answering(signal.SIGINT, came[-1])
