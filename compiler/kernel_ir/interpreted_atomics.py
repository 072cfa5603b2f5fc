"""Atomic words and waiting, as the interpreter runs them. What orders memory, `interpreted_cores` knows."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ..ir.types import DType
from .interpreted_cores import Access, Cores, Pointer
from .loops import KOp, KType


class Running(Protocol):
    """What atomics need of a running function."""

    core: int

    @property
    def cores(self) -> Cores: ...
    @property
    def where(self) -> str: ...
    def turn(self) -> None: ...
    def get(self, v: Any) -> Any: ...
    def number(self, v: Any) -> int: ...
    def read(self, o: KOp, ptr: Pointer, t: KType, index: np.ndarray, on: np.ndarray, kind: Access) -> np.ndarray: ...
    def write(self, o: KOp, ptr: Pointer, dtype: DType, index: np.ndarray, x: np.ndarray, on: np.ndarray,
              kind: Access) -> None: ...  # fmt: skip


def pause(f: Running, o: KOp) -> None:
    """Wait for others."""
    f.cores.pause(f.core, f.where)


def load(f: Running, o: KOp) -> np.ndarray:
    """A word, and with an acquire what was before the release that wrote it."""
    f.turn()
    word = _read(f, o)
    if o.attrs["order"] == "acquire":
        f.cores.acquire(f.core, _address(f, o))
    return word


def store(f: Running, o: KOp) -> None:
    """A word, and with a release what was before it."""
    f.turn()
    _write(f, o, f.get(o.operands[2]))
    if o.attrs["order"] == "release":
        f.cores.release(f.core, _address(f, o))
    else:
        f.cores.forget(_address(f, o))


def add(f: Running, o: KOp) -> np.ndarray:
    """Both, in one step."""
    f.turn()
    before, order = _read(f, o), o.attrs["order"]
    _write(f, o, before + f.get(o.operands[2]))
    if order in ("acquire", "acq_rel"):
        f.cores.acquire(f.core, _address(f, o))
    if order in ("release", "acq_rel"):
        f.cores.release(f.core, _address(f, o), adds=True)
    return before


def _read(f: Running, o: KOp) -> np.ndarray:
    ptr, index, on = f.get(o.operands[0]), f.get(o.operands[1]), np.ones(1, bool)
    return f.read(o, ptr, KType(o.operands[0].dtype), index, on, Access.ATOMIC_READ)


def _write(f: Running, o: KOp, x: np.ndarray) -> None:
    ptr, index, on = f.get(o.operands[0]), f.get(o.operands[1]), np.ones(1, bool)
    f.write(o, ptr, o.operands[0].dtype, index, x, on, Access.ATOMIC_WRITE)


def _address(f: Running, o: KOp) -> int:
    ptr, index = f.get(o.operands[0]), f.number(o.operands[1])
    return int(ptr.address + ptr.offset + index * o.operands[0].dtype.nbytes)
