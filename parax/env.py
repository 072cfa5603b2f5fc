"""Every environment variable parax reads: name, type, default, one line of documentation.

Owns the table; knows nothing of what the values are used for. `docs/environment.md` is held against the table by
a test, and `parax doctor` prints it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .errors import UsageError

DEBUG_LADDER = {
    0: "quiet",
    1: "one line per phase and per pass that changed the graph, with its time",
    2: "also every pass, every kernel chosen and every weight packed",
    3: "also why a rewrite was refused (nearest misses)",
    4: "also the graph after every pass that changed it",
    5: "also the kernel IR and the LLVM IR of every kernel",
}


def _flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("", "0", "false", "no", "off"):
        return False
    raise ValueError("1 or 0")


def _level(text: str) -> int:
    if text.strip().isdigit() and int(text) in DEBUG_LADDER:
        return int(text)
    raise ValueError(f"a whole number from 0 to {max(DEBUG_LADDER)}")


def parse_cores(text: str) -> tuple[int, ...]:
    """Core numbers from a list in the form of cpuset files, `0-3,8`.

    Raises:
        ValueError: the text is not such a list; the message says what one looks like.
    """
    cores: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise ValueError("core numbers like 0-3,8")
        first, last = int(low), int(high) if dash else int(low)
        if last < first or last > 65535:
            raise ValueError("core numbers like 0-3,8, each range rising and below 65536")
        cores.extend(range(first, last + 1))
    return tuple(dict.fromkeys(cores))


def _nodes(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) < 1024 for part in parts):
        raise ValueError("a node's number for each CPU, like 0,0,1,1")
    return tuple(map(int, parts))


NATIVE = "native"
"""The target that PARAX_TARGET gives a meaning: where it is not set, the best one that this CPU runs."""


class Variable(NamedTuple):
    """One environment variable.

    Args:
        name: PARAX_…
        kind: the type in words, for the documentation.
        default: what `read` gives when the variable is unset or empty.
        doc: one line.
        parse: text → value; raises ValueError whose message says what is expected.
    """

    name: str
    kind: str
    default: Any
    doc: str
    parse: Callable[[str], Any]


VARIABLES: dict[str, Variable] = {
    v.name: v
    for v in (
        Variable("PARAX_VERIFY", "flag", False,
                 "Verify the graph after every pass, and every kernel before LLVM sees it.", _flag),
        Variable("PARAX_DUMP", "folder", None,
                 "Write the graph after every pass, the kernels, the LLVM IR and the assembly to it.", Path),
        Variable("PARAX_DEBUG", "0..5", 0, "How much the compiler tells on stderr; see the ladder below.", _level),
        Variable("PARAX_TARGET", "target name", NATIVE, "What the target `native` means, for which plans are "
                 "made where none is named; plans run code of this target alone.", str),
        Variable("PARAX_CACHE_DIR", "folder", None, "Where measured machine facts, times of kernels and compiled "
                 "code are kept; unset: `$XDG_CACHE_HOME/parax` or `~/.cache/parax`.", Path),
        Variable("PARAX_CALIBRATE", "flag", True, "Measure this machine at its first compilation (a few "
                 "seconds), and plan by what was found.", _flag),
        Variable("PARAX_CORES", "core list", None, "The cores a session may use, like `0-3,8`; unset: every core "
                 "that the affinity mask and the cgroup quota allow.", parse_cores),
        Variable("PARAX_NUMA", "node list", None, "The NUMA nodes of CPU 0, 1, …, like `0,0,1,1`, those beyond on the "
                 "last one; unset: what the kernel says.", _nodes),
        Variable("PARAX_PERF_MAP", "flag", False, "Name kernels for Linux' perf, in `/tmp/perf-PID.map`.", _flag),
        Variable("PARAX_MODELS", "folder", None, "Where the tests look for real models with reference data.", Path),
    )
}  # fmt: skip


def read(name: str) -> Any:
    """The value of a variable of the table, or its default when unset or empty.

    Raises:
        KeyError: the name is not in the table (a mistake in parax).
        UsageError: the text does not parse.
    """
    variable = VARIABLES[name]
    text = os.environ.get(name, "")
    if not text:
        return variable.default
    try:
        return variable.parse(text)
    except ValueError as error:
        raise UsageError("not understood", where=name, expected=error, found=repr(text)) from error


def check() -> None:
    """Read every variable of the table, so that a mistake is reported before any work.

    Raises:
        UsageError: one does not parse.
    """
    for name in VARIABLES:
        read(name)


def cache_dir() -> Path:
    """The folder of parax's caches (not created here): PARAX_CACHE_DIR, else the XDG place."""
    chosen: Path | None = read("PARAX_CACHE_DIR")
    if chosen is not None:
        return chosen
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "parax"


def unknown() -> list[str]:
    """PARAX_ variables that are set but not in the table: most likely a spelling mistake."""
    return sorted(name for name in os.environ if name.startswith("PARAX_") and name not in VARIABLES)
