"""A described CPU: what one of its cores starts and moves in a cycle, and the caches it has to itself.

Owns the description, its TOML form, and the ones that are shipped in `cpus`. A file there describes a CPU; nothing else
has to change for a new one:

    name = "Zen 4"                       # what people call it
    tunes = ["znver4"]                   # what LLVM calls it, and CPUs like it
    arch = "x86_64"                      # the architecture that it belongs to
    multiply_adds.f32 = {256 = 2, 512 = 1}   # vector multiply-adds a cycle, by the width of the registers in bits
    multiply_adds.bf16 = {512 = 1}           # the same of instructions that multiply bf16, where they were measured
    multiply_adds.amx-bf16 = {512 = 1}       # of matrix registers: rows of sums a cycle
    …

What LLVM has no name of is described as the instruction set that the code is made for ("x86-64-v4").
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import InternalError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).with_name("cpus")


@dataclass(frozen=True)
class Core:
    """What a kernel's choices follow from.

    Attributes:
        name: for reports. tunes: LLVM's names of the CPUs that it describes. arch: of their architecture.
        multiply_adds: type that is multiplied → width of vector registers in bits → instructions that multiply and add
            on them, started in a cycle; each adds as many products a lane as the type's tiles take at once. Of types
            other than f32, and of widths, what is not known is left out.
        vector_operations: width → multiply-adds and shuffles together.
        loads, stores: likewise, of whole registers that lie in the first cache.
        latency: cycles from a multiply-add to one that needs its result.
        l1_nbytes, l2_nbytes: data caches of a core. l2_nbytes_per_cycle: that a core gets out of its second one.
    """

    name: str
    tunes: tuple[str, ...]
    arch: str
    multiply_adds: Mapping[str, Mapping[int, float]]
    vector_operations: Mapping[int, float]
    loads: Mapping[int, int]
    stores: Mapping[int, int]
    latency: int
    l1_nbytes: int
    l2_nbytes: int
    l2_nbytes_per_cycle: int


def core_of(tune: str, instructions: str) -> Core:
    """The description of the CPU that LLVM calls `tune`; where there is none, of any that has the `instructions`."""
    return _by_name().get(tune) or _by_name()[instructions]


def shipped_cores() -> list[Core]:
    """All descriptions, by name."""
    return sorted({core.name: core for core in _by_name().values()}.values(), key=lambda core: core.name)


@cache
def _by_name() -> dict[str, Core]:
    found = {}
    for path in sorted(FOLDER.glob("*.toml")):
        core = _read(path)
        found.update(dict.fromkeys(core.tunes, core))
    return found


def _read(path: Path) -> Core:
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    wanted = {f.name for f in fields(Core)}
    if document.keys() != wanted:
        raise InternalError("a CPU's description is not complete", where=path.name, expected=", ".join(sorted(wanted)),
                            found=", ".join(sorted(document)))  # fmt: skip
    values = {name: _by_width(value) if isinstance(value, dict) else value for name, value in document.items()}
    return Core(**values | {"tunes": tuple(document["tunes"])})


def _by_width(table: Mapping[str, Any]) -> dict[Any, Any]:
    """With widths as numbers, under the types that there may be."""
    return {name if isinstance(own, dict) else int(name): _by_width(own) if isinstance(own, dict) else own
            for name, own in table.items()}  # fmt: skip
