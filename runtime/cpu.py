"""The CPU by name: its architecture, what it calls itself, and all that tells it from another one of that name.

Reads /proc/cpuinfo, for x86 and ARM alike. Knows nothing of cores and caches (topology does).
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

_TELLING = ("vendor_id", "cpu family", "model", "model name", "stepping", "CPU implementer", "CPU architecture",
            "CPU variant", "CPU part", "CPU revision")  # fmt: skip
_ARCHES = {"amd64": "x86_64", "arm64": "aarch64"}


def host_arch() -> str:
    """This machine's architecture as LLVM spells it."""
    name = platform.machine().lower()
    return _ARCHES.get(name, name)


def cpu_name() -> str:
    """What the CPU calls itself; clouds give one name to several generations."""
    return _first_processor().get("model name", platform.processor() or platform.machine())


def cpu_flags() -> frozenset[str]:
    """The instruction sets it has, in Linux' spelling."""
    found = _first_processor()
    return frozenset((found.get("flags") or found.get("Features") or "").split())


def cpu_identity() -> tuple[str, ...]:
    """Differs between CPUs that may run the same code at different speeds: maker, family, model, stepping, flags."""
    found = _first_processor()
    return (platform.machine(), *(found.get(key, "") for key in _TELLING), *sorted(cpu_flags()))


@cache
def _first_processor() -> dict[str, str]:
    """The first processor's block of /proc/cpuinfo; empty where there is none."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
