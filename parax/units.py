"""Numbers with units as people read them."""

from __future__ import annotations

_ABOVE = ("KiB", "MiB", "GiB")


def size(nbytes: float, unit: str = "B") -> str:
    """A number of bytes, in `unit` below 1,024: 512 B, 4.0 KiB, 97.5 MiB."""
    if nbytes < 1024:
        return f"{nbytes:.0f} {unit}"
    rank = -1
    while nbytes >= 1024 and rank < len(_ABOVE) - 1:
        nbytes, rank = nbytes / 1024, rank + 1
    return f"{nbytes:.1f} {_ABOVE[rank]}"
