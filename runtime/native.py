"""A plan's machine code: the choice of its target by the CPU's real features, and its native functions.

Owns the code's lifetime: sessions of one plan share one copy. How object code becomes callable is `object_loader`'s.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from ..env import NATIVE, read
from ..errors import IncompatiblePlan
from . import matrix_registers
from .cpu import cpu_flags, host_arch
from .elf import objects_in
from .interface import NBYTES, SYMBOL, check_interface, check_unlinked
from .manifest import Manifest, Target
from .object_loader import LoadedObject
from .perf_map import add_to_perf_map
from .plan_contents import PlanContents

LANE_FUNCTIONS = ("parax_team", "parax_crew", "parax_worker", "parax_join", "parax_crew_wait", "parax_team_settled")
LATE_START, CREW_THEN = "parax_start_late", "parax_crew_then"  # code of older plans lacks them
# Linux's name of a CPU feature → LLVM's, where they differ
_LLVM_NAMES = {
    "abm": "lzcnt", "amx_bf16": "amx-bf16", "amx_int8": "amx-int8", "amx_tile": "amx-tile", "avx_vnni": "avxvnni",
    "avx512_bf16": "avx512bf16", "avx512_bitalg": "avx512bitalg", "avx512_fp16": "avx512fp16",
    "avx512_vbmi2": "avx512vbmi2", "avx512_vnni": "avx512vnni", "avx512_vpopcntdq": "avx512vpopcntdq",
    "asimd": "neon", "asimddp": "dotprod", "asimdhp": "fullfp16", "asimdrdm": "rdm", "atomics": "lse", "bmi1": "bmi",
    "crc32": "crc", "fp": "fp-armv8", "lahf_lm": "sahf", "pclmulqdq": "pclmul", "pni": "sse3",
    "sse4_1": "sse4.1", "sse4_2": "sse4.2",
}  # fmt: skip


@cache
def host_features() -> frozenset[str]:
    """The CPU features that Linux lets programs use, by LLVM's names; the first core's, as all are taken to be alike.

    Read from /proc/cpuinfo rather than asked of LLVM, so that running a plan does not load a compiler.
    """
    return frozenset(_LLVM_NAMES.get(name, name) for name in cpu_flags())


def missing_features(target: Target) -> list[str]:
    """What this machine lacks to run a target's code."""
    if target.arch != host_arch():
        return [f"{target.arch} CPU"]
    needed = set(target.features)
    return sorted(needed - matrix_registers.usable(needed & host_features()))


def choose_target(manifest: Manifest) -> Target:
    """The target that needs most of the features this CPU has; PARAX_TARGET picks one by name.

    Raises:
        IncompatiblePlan: none suits this CPU, or not the one that PARAX_TARGET names.
    """
    wanted = read("PARAX_TARGET")
    candidates = [t for t in manifest.targets if wanted == NATIVE or _parts(wanted) == _parts(t.name)]
    if not candidates:
        names = ", ".join(t.name for t in manifest.targets)
        raise IncompatiblePlan("the plan has not the target of PARAX_TARGET", expected=names, found=wanted,
                               hint="unset it, or compile the model again for that target")  # fmt: skip
    able = [t for t in candidates if not missing_features(t)]
    if not able:
        lacks = "; ".join(f"{t.name} needs {' '.join(missing_features(t))}" for t in candidates)
        hint = "compile the model again with --target for this CPU"
        raise IncompatiblePlan("this CPU lacks features of every target of the plan", found=lacks, hint=hint)
    return max(able, key=lambda t: len(t.features))


def _parts(name: str) -> frozenset[str]:
    """A target's base and its further features, which may be named in any order."""
    return frozenset(name.split("+"))


class MachineCode:
    """A plan's code in memory: native functions by name, for as long as this object lives.

    Attributes:
        target: the target it was compiled for.
        team, team_settled, crew, wait, worker: the functions of handoff.py as Python callables; they release the GIL.
        team_held: `team`, but it keeps the GIL: for calls that take less than handing it to another thread and back.
        crew_then: likewise; None: the code is of an older plan, which lacks it.
        join: the other function of handoff.py, which keeps it, too.
        functions: address of every function by name.
    """

    def __init__(self, plan: PlanContents) -> None:
        """Link the best target's object.

        Raises:
            CorruptPlan: the object's digest is wrong, or it was compiled with another manifest.
            IncompatiblePlan: see choose_target and LoadedObject; or the object lacks a function.
        """
        self.target = choose_target(plan.manifest)
        code = objects_in(bytes(plan.code(self.target)))
        self._objects = [LoadedObject(data, self.target.code) for data in code]
        self.functions = {name: address for made in self._objects for name, address in made.functions.items()}
        if read("PARAX_PERF_MAP"):
            add_to_perf_map((found for made in self._objects for found in made.ranges()), plan.name)
        found = ctypes.string_at(self.address(SYMBOL), NBYTES)
        check_interface(found, plan.interface(self.target), self.target.code)
        int32, pointer, int64 = ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64
        addresses = [self.address(name) for name in LANE_FUNCTIONS]
        self.team: Callable[..., int] = ctypes.CFUNCTYPE(int32)(addresses[0])  # no argtypes: takes a c_void_p, faster
        self.team_held: Callable[..., int] = ctypes.PYFUNCTYPE(int32)(addresses[0])
        self.team_settled: Callable[..., int] = ctypes.CFUNCTYPE(int32)(addresses[5])
        self.crew: Callable[..., int] = ctypes.CFUNCTYPE(int32, pointer, pointer)(addresses[1])
        self.worker: Callable[..., int] = ctypes.CFUNCTYPE(int32, pointer)(addresses[2])
        self.wait: Callable[..., int] = ctypes.CFUNCTYPE(int32, pointer)(addresses[4])
        self.join: Callable[..., int] = ctypes.PYFUNCTYPE(int64, pointer, int64, pointer)(addresses[3])
        self.crew_then: Callable[..., int] | None = None
        if CREW_THEN in self.functions:
            self.crew_then = ctypes.CFUNCTYPE(int32, *[pointer] * 4, int64)(self.address(CREW_THEN))
        self.segments = {number: self.address(f"parax_run_{number}") for number in plan.manifest.segments()}

    def address(self, name: str) -> int:
        """The address of a native function.

        Raises:
            IncompatiblePlan: the code lacks it.
        """
        address = self.functions.get(name)
        if address is None:
            raise IncompatiblePlan("the object code lacks a function", where=self.target.code, found=name)
        return address


def code_of(plan: PlanContents) -> MachineCode | None:
    """The plan's code, linked at the first call and shared from then on; None where no step is native.

    Raises:
        CorruptPlan, IncompatiblePlan: see MachineCode.
    """
    if not plan.manifest.native_steps():
        for target in plan.manifest.targets[:1]:  # what no step calls is not linked, but it knows the manifest
            check_unlinked(bytes(plan.code(target)), plan.interface(target), target.code)
        return None
    with plan.lock:
        if plan.loaded is None:
            plan.loaded = MachineCode(plan)
        code: MachineCode = plan.loaded
    return code
