"""The machine the compiler runs on, as LLVM sees it. Owns the choice of the native target."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from functools import lru_cache

import llvmlite.binding as llvm

from ...errors import UnsupportedOp
from ...runtime import matrix_registers
from ..targets.target import Target, best_target, extended, named_target

_WITH_TILES = frozenset({"sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids"})


@lru_cache(maxsize=1)
def host_features() -> frozenset[str]:
    """LLVM's names of the features this CPU has and the kernel lets this process use."""
    return matrix_registers.usable({name for name, on in llvm.get_host_cpu_features().items() if on})


@lru_cache(maxsize=8)
def resolve_target(name: str, extensions: frozenset[str] = frozenset()) -> Target:
    """The target called `name`; "native" is the best portable one that this CPU runs, tuned for this CPU.

    Args:
        extensions: features that native code may use besides, where this CPU has them.

    Raises:
        UsageError: for an unknown name. UnsupportedOp: the CPU runs none of the portable targets.
    """
    if name != "native":
        return named_target(name)
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
