"""Memory between pages that may not be touched, and processes of their own in which kernels may fault.

    memory = Guarded(nbytes=40, side=REAR)      # ends where a forbidden page begins: reading byte 40 faults
    memory.view[:] = …; memory.freeze()         # from here on writing faults, too
    memory.check("conv_3")                      # bytes on the side that is open are as they were

    results = in_child(lambda note: work(note), seconds=60)     # a fault becomes an AssertionError that says `note`

A buffer lies flush against the forbidden page behind it or before it; the other side has bytes of garbage up to its
page's end, which `check` compares.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import mmap
import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
OPEN = 192  # bytes at least on the open side
FRONT, REAR = "front", "rear"
SECONDS = 120.0
_C = ctypes.CDLL(None, use_errno=True)
_C.mmap.restype = ctypes.c_void_p
_C.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_C.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_C.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Guarded:
    """`nbytes` bytes of garbage (or `content`) beside a page that may not be touched.

    Args:
        side: where the forbidden page is flush. align: of the first byte, a power of two; 1: as the size leaves it.
            An aligned buffer ends so many bytes before the page behind it as its size lacks to a multiple.
    """

    def __init__(self, nbytes: int, side: str, garbage: int, content: bytes | None = None, align: int = 1) -> None:
        nbytes = nbytes if content is None else len(content)
        room = -(-nbytes // align) * align
        pages = -(-(room + OPEN) // PAGE) * PAGE
        self.whole = pages + 2 * PAGE
        base = _C.mmap(None, self.whole, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if base in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"no memory for {self.whole} bytes")
        self.base, self.pages, self.garbage = base, pages, garbage
        for at in (base, base + PAGE + pages):
            if _C.mprotect(at, PAGE, mmap.PROT_NONE if hasattr(mmap, "PROT_NONE") else 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.bytes = np.frombuffer((ctypes.c_ubyte * pages).from_address(base + PAGE), np.uint8)
        self.bytes[:] = garbage
        self.start = pages - room if side == REAR else 0
        self.end = self.start + nbytes
        self.view = self.bytes[self.start : self.end]
        self.address = base + PAGE + self.start
        if content:
            self.view[:] = np.frombuffer(content, np.uint8)

    def freeze(self) -> None:
        """Let nobody write any more."""
        _C.mprotect(self.base + PAGE, self.pages, mmap.PROT_READ)

    def check(self, where: str) -> None:
        """Fail if a byte beside the buffer was changed."""
        for side, rest in (("before", self.bytes[: self.start]), ("behind", self.bytes[self.end :])):
            assert (rest == self.garbage).all(), f"{where} wrote {side} its buffer"

    def close(self) -> None:
        """Give the pages back; the views die with them."""
        del self.view, self.bytes
        _C.munmap(self.base, self.whole)


def in_child(work: Callable[[Callable[[str], None]], Any], seconds: float = SECONDS) -> Any:
    """What `work(note)` returns in a process of its own; whatever it notes last is named where that dies or hangs."""
    board = mmap.mmap(-1, PAGE)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _answer(work, board, writer)
    os.close(writer)
    answer, ended = _read(reader, time.monotonic() + seconds)
    os.close(reader)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    note = bytes(board[:]).split(b"\0")[0].decode(errors="replace")
    assert ended, f"no end after {seconds:g} s: {note}"
    assert not os.WIFSIGNALED(status), f"{signal.Signals(os.WTERMSIG(status)).name}: {note}"
    outcome, value = pickle.loads(answer)
    assert outcome == "done", f"{note}\n{value}"
    return value


def _answer(work: Callable[[Callable[[str], None]], Any], board: mmap.mmap, writer: int) -> None:
    """The child: never returns."""

    def note(text: str) -> None:
        line = text.encode()[: PAGE - 1]
        board[: len(line) + 1] = line + b"\0"

    faulthandler.disable()
    gc.disable()  # what has threads in the parent (sessions of ONNX Runtime) must not be taken down here
    try:
        answer = pickle.dumps(("done", work(note)))
    except BaseException:  # whatever it is, the parent tells
        answer = pickle.dumps(("failed", traceback.format_exc(limit=-6)))
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(answer)
    os._exit(0)


def _read(reader: int, until: float) -> tuple[bytes, bool]:
    """All that comes, and whether the end came in time."""
    parts = []
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return b"".join(parts), False
        part = os.read(reader, 1 << 20)
        if not part:
            return b"".join(parts), True
        parts.append(part)
