"""Object code into executable memory through LLVM's JIT linker. The one file of the runtime that imports llvmlite.

Owns the choice of a plan's target by the CPU's real features, and the code's lifetime: sessions of one plan share one
copy. LLVM maps code writable, links it, then makes it executable and read-only: never both at once.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable

import llvmlite.binding as llvm

from ..env import read
from ..errors import IncompatiblePlan
from .lanes import lanes_text
from .manifest import Manifest, Target
from .plan import Plan

LANE_FUNCTIONS = ("parax_team", "parax_crew", "parax_worker")
_ARCHES = {"amd64": "x86_64", "arm64": "aarch64"}


def host_arch() -> str:
    """This machine's architecture as LLVM spells it."""
    name = platform.machine().lower()
    return _ARCHES.get(name, name)


def host_features() -> frozenset[str]:
    """The CPU features that LLVM detects on this machine."""
    return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)


def missing_features(target: Target) -> list[str]:
    """What this machine lacks to run a target's code."""
    if target.arch != host_arch():
        return [f"{target.arch} CPU"]
    return sorted(set(target.features) - host_features())


def choose_target(manifest: Manifest) -> Target:
    """The target that needs most of the features this CPU has; PARAX_TARGET picks one by name.

    Raises:
        IncompatiblePlan: none suits this CPU, or not the one that PARAX_TARGET names.
    """
    wanted = read("PARAX_TARGET")
    candidates = [t for t in manifest.targets if wanted in ("native", t.name)]
    if not candidates:
        names = ", ".join(t.name for t in manifest.targets)
        raise IncompatiblePlan("the plan has not the target of PARAX_TARGET", expected=names, found=wanted)
    able = [t for t in candidates if not missing_features(t)]
    if not able:
        lacks = "; ".join(f"{t.name} needs {' '.join(missing_features(t))}" for t in candidates)
        hint = "compile the model again with --target for this CPU"
        raise IncompatiblePlan("this CPU lacks features of every target of the plan", found=lacks, hint=hint)
    return max(able, key=lambda t: len(t.features))


class MachineCode:
    """A plan's code in memory: native functions by name, for as long as this object lives.

    Attributes:
        target: the target it was compiled for.
        team, crew, worker: the functions of lanes.py as Python callables; they release the GIL.
    """

    def __init__(self, plan: Plan) -> None:
        """Link the best target's object.

        Raises:
            CorruptPlan: the object's digest is wrong.
            IncompatiblePlan: see choose_target; or the object needs symbols that this process has not.
        """
        self.target = choose_target(plan.manifest)
        code = bytes(plan.code(self.target))
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(opt=0, reloc="pic")
        self._jit = llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)
        self._libraries = [self._link("plan", code)]
        lanes = "plan" if self._has("plan", LANE_FUNCTIONS[0]) else "lanes"
        if lanes == "lanes":  # a plan linked without them
            module = llvm.parse_assembly(lanes_text(host_arch()))
            self._libraries.append(self._link("lanes", machine.emit_object(module)))
        int32, pointer, int64 = ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64
        addresses = [self.address(name, lanes) for name in LANE_FUNCTIONS]
        self.team: Callable[..., int] = ctypes.CFUNCTYPE(int32)(addresses[0])  # no argtypes: takes a c_void_p, faster
        self.crew: Callable[..., int] = ctypes.CFUNCTYPE(int32, pointer, int64, pointer)(addresses[1])
        self.worker: Callable[..., int] = ctypes.CFUNCTYPE(int32, pointer)(addresses[2])
        steps = plan.manifest.native_steps()
        self.segments = {step.segment: self.address(f"parax_run_{step.segment}") for step in steps}

    def _link(self, name: str, code: bytes) -> llvm.ResourceTracker:
        try:
            return llvm.JITLibraryBuilder().add_current_process().add_object_img(code).link(self._jit, name)
        except RuntimeError as error:
            raise IncompatiblePlan("the object code does not link", where=self.target.code, found=error) from error

    def _has(self, library: str, name: str) -> bool:
        try:
            self._libraries.append(self._jit.lookup(library, name))  # dropping a tracker would unload the library
        except RuntimeError:
            return False
        return True

    def address(self, name: str, library: str = "plan") -> int:
        """The address of a native function.

        Raises:
            IncompatiblePlan: the code lacks it, or needs a symbol that this process has not.
        """
        try:
            tracker = self._jit.lookup(library, name)
        except RuntimeError as error:
            raise IncompatiblePlan("the object code lacks a function", where=self.target.code, found=error) from error
        self._libraries.append(tracker)
        address: int = tracker[name]
        return address


def code_of(plan: Plan) -> MachineCode | None:
    """The plan's code, linked at the first call and shared from then on; None where no step is native.

    Raises:
        CorruptPlan, IncompatiblePlan: see MachineCode.
    """
    if not plan.manifest.native_steps():
        return None
    with plan.lock:
        if plan.loaded is None:
            plan.loaded = MachineCode(plan)
        code: MachineCode = plan.loaded
    return code
