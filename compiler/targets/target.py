"""What code is made for: features, vector registers, and the CPU whose speeds it is arranged for.

Owns the named targets. The host's own facts are filled in by the caller (backend.host asks LLVM, so that this file
need not); measured peaks live in `targets/machine`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...errors import UsageError
from .architecture import ARCHITECTURES, Architecture
from .core import Core, core_of

_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_ARMV8_1 = ("crc", "fp-armv8", "lse", "neon", "rdm")  # servers since 2018, with atomic operations of one instruction


@dataclass(frozen=True)
class Target:
    """What code is generated for.

    Attributes:
        name: "x86-64-v4", "x86-64-v4+avx512bf16" or such; also the stem of the object file in a plan.
        cpu: LLVM's CPU name. features: the features the code may use, which a machine must have to run it.
        vector_bits: width of the vector registers. n_registers: how many of them.
        l1_nbytes, l2_nbytes, l3_nbytes: cache sizes of one core (l3 shared).
        tune: LLVM's name of the CPU whose instruction costs to schedule for ("" = generic).
        arch: name of the architecture.
    """

    name: str
    cpu: str
    features: tuple[str, ...]
    vector_bits: int
    n_registers: int
    l1_nbytes: int = 32 << 10
    l2_nbytes: int = 1 << 20
    l3_nbytes: int = 32 << 20
    tune: str = ""
    arch: str = "x86_64"

    @property
    def f32_lanes(self) -> int:
        """Elements of f32 in one vector register."""
        return self.vector_bits // 32

    @property
    def splits_wide(self) -> bool:
        """Whether two operations on halves of a vector register are as fast as one on all of it."""
        each = self.core.multiply_adds["f32"]
        return self.vector_bits == 512 and each[256] == 2 * each[512]

    @property
    def core(self) -> Core:
        """The description of `tune`, or of any CPU with these features."""
        return core_of(self.tune, self.name.partition("+")[0])

    @property
    def architecture(self) -> Architecture:
        """The description of the architecture."""
        return ARCHITECTURES[self.arch]

    @property
    def abilities(self) -> frozenset[str]:
        """Its features, and what all CPUs of its architecture have."""
        return self.architecture.always | frozenset(self.features)

    @property
    def has_fma(self) -> bool:
        return "fma" in self.abilities

    def multiply_adds(self, lanes: int) -> float:
        """Multiply-adds on vectors of so many f32 that a core starts in a cycle."""
        return self.core.multiply_adds["f32"][32 * lanes]

    def supported_by(self, features: set[str] | frozenset[str]) -> bool:
        """Whether a machine with these features can run the code."""
        return set(self.features) <= features


TARGETS = {
    "x86-64-v4": Target("x86-64-v4", "x86-64-v4", _V4, 512, 32),
    "x86-64-v3": Target("x86-64-v3", "x86-64-v3", _V3, 256, 16),
    "x86-64-v2": Target("x86-64-v2", "x86-64-v2", _V2, 128, 16),
    "aarch64": Target("aarch64", "generic", _ARMV8_1, 128, 32, arch="aarch64"),
}
"""Portable targets; those of an architecture best first."""

_WIDE = frozenset({"avx512bw", "avx512vl"})
EXTENSIONS = {
    "avx512bf16": _WIDE, "avx512vbmi": _WIDE, "avx512vnni": _WIDE, "avxvnni": frozenset({"avx2"}),
    "amx-tile": _WIDE, "amx-bf16": _WIDE, "amx-int8": _WIDE,
}  # fmt: skip
"""Features that no portable target has, but kernels have instructions of: name → what a target must have for it."""


def named_target(name: str) -> Target:
    """The portable target of that name, or one and features that it has besides: "x86-64-v4+avx512bf16".

    Raises:
        UsageError: for an unknown name or feature, or one that the target cannot have.
    """
    base, *extensions = name.split("+")
    if base not in TARGETS:
        raise UsageError("unknown target", expected=f"native or one of {', '.join(TARGETS)}", found=name)
    able = [name for name, needs in EXTENSIONS.items() if needs <= set(TARGETS[base].features)]
    if unable := [extension for extension in extensions if extension not in able]:
        raise UsageError("the target cannot have such a feature", where=f"target {name}", found=unable[0],
                         expected=" or ".join(able) or "none")  # fmt: skip
    return extended(TARGETS[base], extensions)


def extended(target: Target, features: Iterable[str]) -> Target:
    """The target with features that it may lack; the name says so."""
    more = sorted(set(features) - set(target.features))
    return replace(target, name="+".join((target.name, *more)), features=(*target.features, *more)) if more else target


def best_target(features: set[str] | frozenset[str]) -> Target | None:
    """The best portable target that a machine with these features runs."""
    return next((t for t in TARGETS.values() if t.supported_by(features)), None)


def least_target(arch: str) -> Target:
    """The target of an architecture that most of its CPUs run."""
    return [t for t in TARGETS.values() if t.arch == arch][-1]
