"""A CPU architecture: what all targets of one family share, however many features and registers each has.

Owns the description; which targets there are of an architecture is `target`'s. What waiting threads execute and which
counter measures their time, the runtime knows by the architecture's name (runtime/waiting.py, runtime/stamps.py).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """What code generation follows from, besides the target's own features.

    Attributes:
        name: as LLVM spells it. triple: LLVM's name of the system that object code is for.
        always: abilities that every CPU of the architecture has, by the names that features have where not all do.
    """

    name: str
    triple: str
    always: frozenset[str] = frozenset()


ARCHITECTURES = {each.name: each for each in (
    Architecture("x86_64", "x86_64-unknown-linux-gnu"),
    Architecture("aarch64", "aarch64-unknown-linux-gnu", frozenset({"fma", "f16c"})),
)}  # fmt: skip
"""Architectures by name."""
