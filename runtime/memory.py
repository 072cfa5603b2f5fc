"""Raw memory for native code: aligned scratch memory, addresses of arrays and views. Knows nothing of plans."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

ALIGNMENT = 64
_HUGE_PAGE_NBYTES = 2 << 20

# CPython's numpy keeps the data pointer right behind the object header (PyArrayObject, part of numpy's stable ABI).
# Reading it there takes 0.1 µs; `__array_interface__` takes 1.0 µs. `_header_works` checks it once on a real array.
# It is an element of all that a process can address, as one array of words: no object is made to read it.
_DATA_FIELD = object.__basicsize__
_words = (ctypes.c_uint64 * (1 << 44)).from_address(0) if ctypes.sizeof(ctypes.c_void_p) == 8 else None


def _header_works() -> bool:
    probe = np.zeros(3, np.uint8)
    expected = probe.__array_interface__["data"][0]
    try:
        return _words is not None and _DATA_FIELD % 8 == 0 and _address_by_header(probe) == expected
    except (IndexError, TypeError):  # an interpreter whose id() is no address
        return False


def _address_by_header(array: np.ndarray) -> int:
    """The address of an array's first element."""
    return _words[id(array) + _DATA_FIELD >> 3]  # type: ignore[index]


def _address_by_interface(array: np.ndarray) -> int:
    """The address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address


address_of = _address_by_header if _header_works() else _address_by_interface
ADDRESS_NAMES = {"words": _words, "address_of": address_of}
"""What the text of `address_text` uses."""


def address_text(name: str) -> str:
    """The same as Python text, for an array of that name: without a call, where that works."""
    return f"words[id({name}) + {_DATA_FIELD} >> 3]" if address_of is _address_by_header else f"address_of({name})"


def owner_of(array: np.ndarray) -> np.ndarray:
    """The array whose memory a view shows, after any number of views of views; an array of its own: itself."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def aligned_bytes(nbytes: int) -> np.ndarray:
    """Zeroed, private memory on a 64-byte boundary (huge pages where it is large), as bytes.

    Raises:
        MemoryError, OSError: the machine has not that much.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    region = mmap.mmap(-1, max(nbytes, 1), flags=flags)
    if nbytes >= _HUGE_PAGE_NBYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        region.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(region, np.uint8)


def aligned_view(data: bytes | bytearray | memoryview) -> memoryview:
    """A read-only byte view of the data on a 64-byte boundary; copies only where the data is not aligned."""
    array = np.frombuffer(data, np.uint8) if len(data) else np.zeros(0, np.uint8)
    if array.size and address_of(array) % ALIGNMENT:
        copy = aligned_bytes(array.size)
        copy[:] = array
        array = copy
    return array.data.toreadonly()
