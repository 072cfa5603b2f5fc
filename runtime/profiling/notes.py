"""What a plan that was compiled for profiling says of its kernel calls, read from its provenance and checked.

Owns the form in which the runtime knows operators: their names in the model, and what they compute and move.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ...errors import CorruptPlan, IncompatiblePlan
from ..dims import Dim, checked_dim
from ..manifest import Manifest

PROFILE = "profile"  # of a manifest's provenance


class Operator(NamedTuple):
    """One node of the optimised graph, which may be several of the model's.

    Attributes:
        value: its first output. op: its operator's name; those of a fused one joined by +. names: the model's nodes'.
        flops, nbytes: arithmetic of its contractions, bytes of its operands and results, in one run; 0: not counted.
        live: bytes of the arena in use while it runs; None where the runtime decides.
    """

    value: str
    op: str
    names: tuple[str, ...]
    flops: Dim
    nbytes: Dim
    live: Dim | None

    @property
    def title(self) -> str:
        """The model's first name for it, and how many there are more; its output's where the model names no node."""
        if not self.names:
            return f"%{self.value}"
        return self.names[0] if len(self.names) == 1 else f"{self.names[0]} +{len(self.names) - 1}"


class Notes(NamedTuple):
    """All of them.

    Attributes:
        calls: segment by segment, of each kernel call its operator's number and its function's name.
        hosts: first output of a step that Python runs → its operator's number. machine: what the plan was made for.
    """

    operators: tuple[Operator, ...]
    calls: tuple[tuple[tuple[int, str], ...], ...]
    hosts: Mapping[str, int]
    machine: Mapping[str, Any] | None

    @property
    def values(self) -> list[str]:
        """Of each kernel call of all segments, its operator's first output."""
        return [self.operators[number].value for calls in self.calls for number, _ in calls]


def notes_of(manifest: Manifest) -> Notes:
    """The notes of a plan.

    Raises:
        IncompatiblePlan: it was not compiled for profiling. CorruptPlan: they are none.
    """
    raw = manifest.provenance.get(PROFILE)
    if raw is None:
        raise IncompatiblePlan("the plan was not compiled for profiling", where=f"plan {manifest.name!r}",
                               hint="compile with --profile, or give the model itself")  # fmt: skip
    symbols = {symbol.name for symbol in manifest.symbols}
    try:
        operators = tuple(_operator(item, symbols) for item in raw["operators"])
        calls = tuple(tuple((_number(n, operators), str(name)) for n, name in own) for own in raw["calls"])
        hosts = {str(key): _number(n, operators) for key, n in raw["hosts"].items()}
        machine = None if raw["machine"] is None else {str(k): _fact(v) for k, v in raw["machine"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        where = f"manifest.provenance.{PROFILE}"
        raise CorruptPlan("notes for profiling that are none", where=where, found=repr(error)) from error
    return Notes(operators, calls, hosts, machine)


def _operator(raw: Mapping[str, Any], symbols: Collection[str]) -> Operator:
    flops, nbytes = (checked_dim(raw[key], symbols, key) for key in ("flops", "nbytes"))
    live = None if raw["live"] is None else checked_dim(raw["live"], symbols, "live")
    return Operator(str(raw["value"]), str(raw["op"]), tuple(map(str, raw["names"])), flops, nbytes, live)


def _number(raw: Any, operators: Collection[Operator]) -> int:
    if not isinstance(raw, int) or not 0 <= raw < len(operators):
        raise ValueError(f"no operator has number {raw!r}")
    return raw


def _fact(raw: Any) -> Any:
    if not isinstance(raw, (str, int, float)):
        raise ValueError(f"not a fact: {raw!r}")
    return raw
