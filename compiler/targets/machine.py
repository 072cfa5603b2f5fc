"""A described machine: cores, peak, bandwidths, caches, fixed costs, and what share of the peak each kind of work gets.

Owns the description, its TOML form and the ones that are shipped. It must not know how the running machine is measured
(backend.machine does that and fills one in) nor what is computed on it (costs).

    name = "laptop"                    # every field below is a key; [efficiency] is a table of kind = share of the peak
    cores_per_socket = 4
    flops_per_core = 100e9
    …
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from ...errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).with_name("machines")
MOST_CORES = 4096
DEFAULT_KIND = "elementwise"
"""The kind whose efficiency serves kinds that a description does not name."""

DEFAULT_EFFICIENCY: dict[str, float] = {
    "conv": 0.80, "conv1x1": 0.80, "winograd": 0.90, "grouped": 0.45, "few-channels": 0.55, "depthwise": 0.30,
    "conv-transpose": 0.60, "matmul": 0.80, "strassen": 0.80, "batched-matmul": 0.55, "attention": 0.45,
    "recurrent": 0.60, "pool": 0.10, "bf16-matmul": 0.80, "bf16-conv": 0.80, "bf16-winograd": 0.90,
    "reduce": 0.10, "norm": 0.15, "softmax": 0.15, "elementwise": 0.08, "movement": 0.05, "lookup": 0.05, "host": 0.002,
}  # fmt: skip
"""Shares of the f32 peak that each kind of work gets out of the first cache; above 1 means fewer multiplications than
are counted (Winograd). What parax's kernels reach on an AVX-512 machine."""


@dataclass(frozen=True)
class Machine:
    """What a plan is predicted for.

    Attributes:
        name: for reports. n_sockets, cores_per_socket: sockets are NUMA nodes, each with memory of its own.
        flops_per_core: f32 operations per second at most, a multiply-add is two.
        bandwidth_per_core, bandwidth_per_socket: bytes per second from memory, one core alone and all of a socket.
        remote_bandwidth: bytes per second that a socket gets out of another socket's memory.
        l2_bandwidth_per_core, l3_bandwidth_per_core: bytes per second out of the second-level and the last cache.
        peer_bandwidth_per_core: bytes per second of data that another core has just written.
        l2_nbytes: of a core. l3_nbytes: of a socket.
        barrier_seconds: two cores meet; n cores take log2(n) times that (`barrier`).
        kernel_seconds: fixed cost of a kernel. call_seconds: of a native call, the hand-off to an instance.
        exposed: of a kernel's arithmetic or its transfers from memory, whichever is less: the share that the other does
            not hide. 0 where kernels ask for everything in time.
        efficiency: kind of work → share of the peak. simulated: whether nobody measured it here.
    """

    name: str
    cores_per_socket: int
    flops_per_core: float
    bandwidth_per_core: float
    bandwidth_per_socket: float
    n_sockets: int = 1
    remote_bandwidth: float = math.inf
    l2_bandwidth_per_core: float = 100e9
    l3_bandwidth_per_core: float = 30e9
    peer_bandwidth_per_core: float = 20e9
    l2_nbytes: int = 1 << 20
    l3_nbytes: int = 32 << 20
    barrier_seconds: float = 0.5e-6
    kernel_seconds: float = 0.2e-6
    call_seconds: float = 5e-6
    exposed: float = 0.0
    efficiency: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_EFFICIENCY))
    simulated: bool = True

    @property
    def n_cores(self) -> int:
        """Of all sockets."""
        return self.n_sockets * self.cores_per_socket

    @property
    def flops(self) -> float:
        """f32 operations per second of all cores."""
        return self.n_cores * self.flops_per_core

    @property
    def bandwidth(self) -> float:
        """Bytes per second from all sockets' memory."""
        return self.n_sockets * self.bandwidth_per_socket

    @cached_property
    def _default_share(self) -> float:
        return self.efficiency.get(DEFAULT_KIND, DEFAULT_EFFICIENCY[DEFAULT_KIND])

    def share(self, kind: str) -> float:
        """The share of the peak that work of this kind gets."""
        found = self.efficiency.get(kind)
        return self._default_share if found is None else found

    def barrier(self, n_cores: int) -> float:
        """Seconds until `n_cores` cores have met."""
        return self.barrier_seconds * math.log2(n_cores) if n_cores > 1 else 0.0

    def caches(self, n_instances: int = 1, cores_each: int = 1) -> tuple[float, float]:
        """Bytes of an instance's second-level caches, and of its part of the last ones, for graph_works."""
        sockets = -(-cores_each // self.cores_per_socket)
        beside = max(1, min(-(-n_instances // self.n_sockets), self.cores_per_socket // cores_each))
        return cores_each * self.l2_nbytes, sockets * self.l3_nbytes / beside

    def sockets_of(self, first_core: int, n_cores: int) -> list[tuple[int, int]]:
        """(socket, cores there) of the cores [first_core, first_core + n_cores)."""
        found, core, end = [], first_core, first_core + n_cores
        while core < end:
            socket = core // self.cores_per_socket
            upto = min(end, (socket + 1) * self.cores_per_socket)
            found.append((socket, upto - core))
            core = upto
        return found


def shipped_machines() -> list[str]:
    """Names of the descriptions that come with parax."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_machine(source: str | Path) -> Machine:
    """A machine from a TOML file, or the shipped description of that name.

    Raises:
        UsageError: no such file or description, malformed TOML, or a key that is unknown, missing or senseless.
    """
    path = Path(source)
    if path.suffix != ".toml" and str(source) in shipped_machines():
        path = FOLDER / f"{source}.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        expected = f"a TOML file, or one of {', '.join(shipped_machines())}"
        raise UsageError("cannot read the machine", where=str(source), expected=expected, found=error) from error
    return parse_machine(text, str(source))


def parse_machine(text: str, where: str = "machine") -> Machine:
    """A machine from TOML text; errors name `where`.

    Raises:
        UsageError: see load_machine.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError("malformed TOML", where=where, expected="key = value lines", found=error) from error
    known = {f.name: f for f in fields(Machine)}
    for key in document:
        if key not in known:
            raise UsageError("unknown key", where=f"{where}: {key}", expected=", ".join(known), found=key)
    for name, f in known.items():
        if name not in document and f.default is MISSING and f.default_factory is MISSING:
            raise UsageError("a key is missing", where=f"{where}: {name}", expected=_EXPECTED[str(f.type)],
                             found=", ".join(document) or "nothing")
    values = {name: _checked(f"{where}: {name}", str(known[name].type), v) for name, v in document.items()}
    values["efficiency"] = DEFAULT_EFFICIENCY | values.get("efficiency", {})
    found = Machine(**values)
    _check_sense(found, where)
    return found


def print_machine(machine: Machine) -> str:
    """The TOML text that `parse_machine` reads back."""
    lines = []
    for f in fields(Machine):
        value = getattr(machine, f.name)
        if f.name == "efficiency" or value == math.inf:
            continue
        lines.append(f"{f.name} = {_toml(value)}")
    lines += ["", "[efficiency]", *(f"{kind} = {_toml(share)}" for kind, share in machine.efficiency.items())]
    return "\n".join(lines) + "\n"


_EXPECTED = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false",
             "Mapping[str, float]": "a table of numbers"}  # fmt: skip


def _checked(where: str, type_: str, value: Any) -> Any:
    """A value of a description in its field's type."""
    def fail() -> UsageError:
        return UsageError("not what belongs here", where=where, expected=_EXPECTED[type_], found=repr(value))

    if type_ == "Mapping[str, float]":
        if not isinstance(value, dict):
            raise fail()
        return {kind: _checked(f"{where}.{kind}", "float", share) for kind, share in value.items()}
    wanted: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}
    fits = isinstance(value, wanted[type_]) and (not isinstance(value, bool) or type_ == "bool")
    if not fits:
        raise fail()
    return float(value) if type_ == "float" else value


def _check_sense(machine: Machine, where: str) -> None:
    """Refuse sizes that no machine has; a simulation with them would divide by zero or never end."""
    for name in ("n_sockets", "cores_per_socket", "l2_nbytes", "l3_nbytes"):
        _at_least(where, name, getattr(machine, name), 1)
    if machine.n_cores > MOST_CORES:
        raise UsageError("too many cores", where=where, expected=f"at most {MOST_CORES}", found=machine.n_cores)
    for name in ("flops_per_core", "bandwidth_per_core", "bandwidth_per_socket", "remote_bandwidth",
                 "l2_bandwidth_per_core", "l3_bandwidth_per_core", "peer_bandwidth_per_core"):  # fmt: skip
        _positive(where, name, getattr(machine, name), endless=name == "remote_bandwidth")
    for name in ("barrier_seconds", "kernel_seconds", "call_seconds"):
        value = getattr(machine, name)
        if not 0 <= value < math.inf:
            raise UsageError("no such time", where=f"{where}: {name}", expected="0 or more seconds", found=value)
    if not 0 <= machine.exposed <= 1:
        raise UsageError("no such share", where=f"{where}: exposed", expected="0 to 1", found=machine.exposed)
    for kind, share in machine.efficiency.items():
        _positive(where, f"efficiency.{kind}", share)


def _at_least(where: str, name: str, value: int, least: int) -> None:
    if value < least:
        raise UsageError("too small", where=f"{where}: {name}", expected=f"at least {least}", found=value)


def _positive(where: str, name: str, value: float, endless: bool = False) -> None:
    if not value > 0 or math.isnan(value) or (value == math.inf and not endless):
        raise UsageError("not positive", where=f"{where}: {name}", expected="a finite number above 0", found=value)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return f"{value:.6g}" if isinstance(value, float) else str(value)
