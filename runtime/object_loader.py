"""Object code in this process's memory, ready to be called.

Owns the memory's rights and lifetime: it is writable while it is filled, then executable or read-only, never both. How
an object is read and linked is `elf`'s.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from typing import Any

from .cpu import host_arch
from .elf import ObjectFile

_FLUSHED = frozenset({"x86_64"})
"""Architectures whose caches of instructions see what is written to memory."""


class LoadedObject:
    """An object file's code, ready to be called for as long as this lives.

    Attributes:
        functions: address of every global symbol the object defines.
    """

    def __init__(self, data: bytes, where: str) -> None:
        """Lay out, link and seal.

        Args:
            data: the object file. where: its name, for errors.

        Raises:
            IncompatiblePlan: not an object of this machine's architecture, a damaged one, or one that needs what this
                process has not.
        """
        self._object = ObjectFile(data, where, host_arch())
        self._region = mmap.mmap(-1, self._object.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._anchor = ctypes.c_char.from_buffer(self._region)  # keeps the region mapped
        self._base = ctypes.addressof(self._anchor)
        self.functions = self._object.link(self._region, self._base, _process_address)
        self._seal()

    def ranges(self) -> Iterator[tuple[int, int, str]]:
        """Address, bytes and name of every function, those that only the object itself calls included."""
        return self._object.ranges(self._base)

    def _seal(self) -> None:
        code_end, constants_end = self._object.code_end, self._object.constants_end
        if host_arch() not in _FLUSHED:
            self._flush(code_end)
        self._protect(0, code_end, mmap.PROT_READ | mmap.PROT_EXEC)
        self._protect(code_end, constants_end, mmap.PROT_READ)

    def _flush(self, code_end: int) -> None:
        """Let this and other cores fetch the instructions that were written, not what was there before."""
        clear = _cache_clearing()
        if clear is None:
            raise self._object.bad("no __clear_cache in libgcc_s.so.1, by which instructions become visible")
        clear(ctypes.c_void_p(self._base), ctypes.c_void_p(self._base + code_end))

    def _protect(self, start: int, end: int, rights: int) -> None:
        if end == start:
            return
        pointer, size = ctypes.c_void_p(self._base + start), ctypes.c_size_t(end - start)
        if _PROCESS.mprotect(pointer, size, rights):
            raise self._object.bad("the system refuses executable memory")


_PROCESS = ctypes.CDLL(None)


def _process_address(name: str) -> int | None:
    """Where a function of this process's own libraries lies."""
    try:
        function = getattr(_PROCESS, name)
    except AttributeError:
        return None
    return ctypes.cast(function, ctypes.c_void_p).value


def _cache_clearing() -> Callable[..., Any] | None:
    """The compiler library's function that flushes a range of instructions: void __clear_cache(void *, void *)."""
    try:
        found: Callable[..., Any] = ctypes.CDLL("libgcc_s.so.1").__clear_cache
    except (OSError, AttributeError):
        return None
    return found
