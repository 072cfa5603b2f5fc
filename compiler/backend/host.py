"""The machine the compiler runs on, as LLVM sees it. Owns what the target `native` means.

PARAX_TARGET says it, for all that compiles: the runtime takes code of no other target then (runtime.native).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from functools import lru_cache

import llvmlite.binding as llvm

from ...env import NATIVE, read
from ...errors import UnsupportedOp, UsageError
from ...runtime import matrix_registers
from ..targets.target import Target, best_target, extended, named_target

_WITH_TILES = frozenset({"sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids"})


@lru_cache(maxsize=1)
def host_features() -> frozenset[str]:
    """LLVM's names of the features this CPU has and the kernel lets this process use."""
    return matrix_registers.usable({name for name, on in llvm.get_host_cpu_features().items() if on})


def resolve_target(name: str, extensions: frozenset[str] = frozenset()) -> Target:
    """The target called `name`; "native" is the one of PARAX_TARGET, else the best that this CPU runs, tuned for it.

    Args:
        extensions: features that native code may use besides, where this CPU has them and PARAX_TARGET names no target.

    Raises:
        UsageError: for an unknown name. UnsupportedOp: the CPU runs none of the portable targets.
    """
    if name != NATIVE:
        return named_target(name)
    chosen: str = read("PARAX_TARGET")
    if chosen == NATIVE:
        return _best_here(extensions)
    try:
        return named_target(chosen)
    except UsageError as error:
        raise UsageError("names no target", where="PARAX_TARGET", found=error) from error


def running_target(extensions: frozenset[str] = frozenset()) -> Target:
    """The native target if this CPU runs it, else the best that it runs: of code that is measured here and now.

    Raises:
        UsageError, UnsupportedOp: see resolve_target.
    """
    native = resolve_target(NATIVE, extensions)
    return native if native.supported_by(host_features()) else _best_here(extensions)


@lru_cache(maxsize=8)
def _best_here(extensions: frozenset[str]) -> Target:
    """Whatever PARAX_TARGET says."""
    best = best_target(host_features())
    if best is None:
        raise UnsupportedOp("this CPU is older than all that parax makes code for: x86-64-v2 (2008), ARMv8.1 (2014)")
    tuned = replace(best, tune=tune_of(llvm.get_host_cpu_name(), host_features()))
    return extended(tuned, extensions & host_features())


def tune_of(name: str, features: Set[str]) -> str:
    """LLVM's name of the CPU to arrange code for: `name`, unless the features say that the model number lies.

    Clouds show guests the number of an older or smaller CPU; LLVM takes some Sapphire Rapids for a Rocket Lake.
    """
    return "sapphirerapids" if "amx-tile" in features and name not in _WITH_TILES else name
