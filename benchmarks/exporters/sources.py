"""What a model of the list is before it is exported, and its ONNX file with what it is run on.

Owns the two kinds of entries: a torch module that torch's exporters write, and a file that another tool has written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Feeds = Sequence[Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Traced:
    """A torch module with random weights of a fixed seed.

    Attributes:
        module: in evaluation mode; takes the inputs in order, gives a tensor or a tuple of them.
        inputs: an example of each input, by name.
        outputs: names of the results, in order.
        open: input → axis → the symbol of a size that stays open.
        scripted: whether the module has loops that depend on data, which only `torch.jit.script` keeps.
        resized: another example of the inputs with other sizes of what is open, or nothing.
    """

    module: Any
    inputs: Mapping[str, Any]
    outputs: Sequence[str]
    open: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    scripted: bool = False
    resized: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Written:
    """An ONNX file.

    Attributes:
        exporter: which tool wrote it, and its version.
        feeds: inputs to compare on.
    """

    path: Path
    exporter: str
    feeds: Feeds


Source = Traced | Written
Build = Callable[[], Source]
"""Makes a model; imports what it needs, and raises ImportError where that is not installed."""


def float_feed(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Standard normal numbers in f32."""
    return rng.standard_normal(shape).astype(np.float32)
