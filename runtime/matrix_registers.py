"""Linux's leave to use matrix registers (Intel AMX): a process asks once, and all its threads have it."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Set
from functools import cache

_PREFIX = "amx-"  # of LLVM's names of the features
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18  # ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA


def usable(features: Set[str]) -> frozenset[str]:
    """Those of a CPU's features that this process may use, by LLVM's names; the kernel is asked if it has to be."""
    matrices = {name for name in features if name.startswith(_PREFIX)}
    return frozenset(features - matrices if matrices and not are_allowed() else features)


@cache
def are_allowed() -> bool:
    """Ask for the registers; False where this kernel or CPU has none.

    The first use of one without it ends the process (SIGILL). See Linux, Documentation/arch/x86/xstate.rst.
    """
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    return ctypes.CDLL(None, use_errno=True).syscall(_ARCH_PRCTL, _REQUEST, ctypes.c_ulong(_TILE_DATA)) == 0
