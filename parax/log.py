"""What parax tells while it works, under the logger `parax` of Python's logging. Owns the levels and who sees them.

A library is silent unless somebody configures logging: the handler here takes the place of a NullHandler. It prints
what PARAX_DEBUG or a command asks for, whatever the program does about logging, and changes nothing about that.
Knows nothing of what is told.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from . import env

NAME = "parax"
CALIBRATION = f"{NAME}.calibration"
"""Of messages that somebody who waits for a command wants to see."""
PHASES, EVERYTHING_DONE, REFUSALS, GRAPHS, CODE = 1, 2, 3, 4, 5  # the levels of env.DEBUG_LADDER
_NEVER = logging.CRITICAL + 1


def _level(rung: int) -> int:
    """Of logging: the first rung of the ladder is DEBUG, the others are below, down to 6."""
    return logging.DEBUG + PHASES - rung


class _OnStderr(logging.Handler):
    """Silent but for what is asked for.

    Attributes:
        shown: logger's name → the least level that a command shows.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is asked for."""
        rung = env.read("PARAX_DEBUG")
        told = _level(rung) if rung else _NEVER
        return record.levelno >= min(told, self.shown.get(record.name, _NEVER))

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line on what is stderr now."""
        print(f"parax: {record.getMessage()}", file=sys.stderr)


_handler = _OnStderr()
logging.getLogger(NAME).addHandler(_handler)


def tells(rung: int) -> bool:
    """Whether anybody sees what is told on this rung of the ladder: for what is costly to print."""
    return rung <= env.read("PARAX_DEBUG") or logging.getLogger(NAME).isEnabledFor(_level(rung))


def tell(rung: int, text: str) -> None:
    """A message for those who look for mistakes: on a rung of the ladder of PARAX_DEBUG."""
    _log(NAME, _level(rung), text)


def inform(text: str, name: str = NAME) -> None:
    """A decision that a user may want to know."""
    _log(name, logging.INFO, text)


@contextmanager
def shown(level: int | None, *names: str) -> Iterator[None]:
    """While the body runs, show on stderr what these loggers say from the level on, and no others; None: nothing.

    For commands, whose users configure no logging.
    """
    before = _handler.shown
    _handler.shown = dict.fromkeys(names, level) if level is not None else {}
    try:
        yield
    finally:
        _handler.shown = before


def _log(name: str, level: int, text: str) -> None:
    logger = logging.getLogger(name)
    if logger.isEnabledFor(level):
        logger.log(level, "%s", text)
    else:  # nobody wants it but perhaps those who need not configure logging
        _handler.handle(logger.makeRecord(name, level, "", 0, "%s", (text,), None))
