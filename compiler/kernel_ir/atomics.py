"""What kernel IR says to other cores: atomic words, each with an order of memory, and what a waiting core does.

Owns nothing but how these operations are appended to a function. `relaxed` orders nothing else; what a core wrote
before a `release` is seen by the core whose `acquire` reads that word; `acq_rel` is both (C++20, section 6.9.2).
"""

from __future__ import annotations

from typing import Any, Literal

from .builder import Builder, KValue
from .loops import KType

LoadOrder = Literal["relaxed", "acquire"]
StoreOrder = Literal["relaxed", "release"]
AddOrder = Literal["relaxed", "acquire", "release", "acq_rel"]


def atomic_load(k: Builder, ptr: KValue, index: Any, order: LoadOrder) -> KValue:
    """The word ptr[index], of 32 or 64 bits."""
    return k.op("atomic_load", (ptr, k.index(index)), KType(ptr.dtype), order=order)


def atomic_store(k: Builder, ptr: KValue, index: Any, value: Any, order: StoreOrder) -> None:
    """Write the word ptr[index]; `value`: of its type, or a number."""
    k.op("atomic_store", (ptr, k.index(index), _word(k, ptr, value)), None, order=order)


def atomic_add(k: Builder, ptr: KValue, index: Any, value: Any, order: AddOrder) -> KValue:
    """Add to the word ptr[index] in one step, and return what was there before."""
    return k.op("atomic_add", (ptr, k.index(index), _word(k, ptr, value)), KType(ptr.dtype), order=order)


def _word(k: Builder, ptr: KValue, value: Any) -> KValue:
    return value if isinstance(value, KValue) else k.const(value, ptr.dtype)


def pause(k: Builder) -> None:
    """Leave the core's units to others for a moment, between two looks at memory."""
    k.op("pause", ())


def yield_core(k: Builder) -> None:
    """Let the operating system run another thread on this core, if one waits for it."""
    k.op("yield_core", ())
