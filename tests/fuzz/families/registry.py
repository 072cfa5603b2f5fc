"""Which function adds which operator to a graph, and how often. Families register themselves by `@family`."""

from __future__ import annotations

from collections.abc import Callable

from ..maker import Maker

Builder = Callable[[Maker, str], None]
BUILDERS: dict[str, Builder] = {}
"""By ONNX name; names of blocks, which are several operators, begin with a small letter."""
FREQUENCY: dict[str, float] = {}


def family(*ops: str, frequency: float = 1.0) -> Callable[[Builder], Builder]:
    """Registers a builder of these operators; `frequency`: how often against the others."""

    def register(builder: Builder) -> Builder:
        for op in ops:
            if op in BUILDERS:
                raise ValueError(f"{op} has a builder already")
            BUILDERS[op], FREQUENCY[op] = builder, frequency
        return builder

    return register
