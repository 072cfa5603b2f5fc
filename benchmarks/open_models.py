"""Models of the list as somebody has them who sets nothing: a file as it is exported, and what `paraxc` makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.models import MODELS, build

from .peers_fresh import compiled

OPEN = {"bert-base": {"length": "S"}}
"""Options that leave open what exporters leave open."""


@dataclass(frozen=True)
class OpenModel:
    """A model with open dimensions: its ONNX file, its plan, and what compiling took (see `peers_fresh.compiled`)."""

    model: Path
    plan: Path
    compile: dict[str, Any]

    def file(self, side: str) -> str:
        """What a side loads."""
        return str(self.plan if side == "parax" else self.model)


def open_model(name: str, folder: Path, small: bool, flags: Sequence[str], timeout: float) -> OpenModel:
    """Build and compile a model.

    Args:
        flags: for `paraxc`. timeout: seconds of the compilation.

    Raises:
        ResourceLimit: it took longer. InternalError: it failed.
    """
    model, plan = folder / "model.onnx", folder / "plan.bin"
    model.write_bytes(build(name, small=small, options=OPEN.get(name, {})).SerializeToString())
    made = compiled(model, plan, flags, timeout)
    return OpenModel(model, plan, {**made, "model": model.stat().st_size})


def feed_options(name: str) -> dict[str, Any]:
    """Options for `examples.models.feeds`: inputs of the model's own sizes where `open_model` leaves them open."""
    return {key: MODELS[name].options[key] for key in OPEN.get(name, {})}
