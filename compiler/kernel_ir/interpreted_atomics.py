"""Atomic words and waiting, as the interpreter runs them. What orders memory, `interpreted_cores` knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .interpreted_cores import Access
from .loops import KOp, KType

if TYPE_CHECKING:
    from .interpreter import Frame


def pause(f: Frame, o: KOp) -> None:
    """Wait for others."""
    f.cores.pause(f.core, f.where)


def load(f: Frame, o: KOp) -> np.ndarray:
    """A word, and with an acquire what was before the release that wrote it."""
    f.turn()
    word = _read(f, o)
    if o.attrs["order"] == "acquire":
        f.cores.acquire(f.core, _address(f, o))
    return word


def store(f: Frame, o: KOp) -> None:
    """A word, and with a release what was before it."""
    f.turn()
    _write(f, o, f.get(o.operands[2]))
    if o.attrs["order"] == "release":
        f.cores.release(f.core, _address(f, o))
    else:
        f.cores.forget(_address(f, o))


def add(f: Frame, o: KOp) -> np.ndarray:
    """Both, in one step."""
    f.turn()
    before, order = _read(f, o), o.attrs["order"]
    _write(f, o, before + f.get(o.operands[2]))
    if order in ("acquire", "acq_rel"):
        f.cores.acquire(f.core, _address(f, o))
    if order in ("release", "acq_rel"):
        f.cores.release(f.core, _address(f, o), adds=True)
    return before


def _read(f: Frame, o: KOp) -> np.ndarray:
    ptr, index, on = f.get(o.operands[0]), f.get(o.operands[1]), np.ones(1, bool)
    return f.read(o, ptr, KType(o.operands[0].dtype), index, on, Access.ATOMIC_READ)


def _write(f: Frame, o: KOp, x: np.ndarray) -> None:
    ptr, index, on = f.get(o.operands[0]), f.get(o.operands[1]), np.ones(1, bool)
    f.write(o, ptr, o.operands[0].dtype, index, x, on, Access.ATOMIC_WRITE)


def _address(f: Frame, o: KOp) -> int:
    ptr, index = f.get(o.operands[0]), f.number(o.operands[1])
    return int(ptr.address + ptr.offset + index * o.operands[0].dtype.nbytes)
