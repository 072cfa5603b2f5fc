"""How each operator of the catalogue gets into a random graph: one module a family, registered by import."""

from . import (
    blocks,
    contraction,
    control,
    elementwise,
    indexing,
    movement,
    quantized,
    recurrent,
    reduction,
    rotary,
    windows,
)
from .registry import BUILDERS, FREQUENCY

__all__ = [
    "BUILDERS", "FREQUENCY", "blocks", "contraction", "control", "elementwise", "indexing", "movement", "quantized",
    "recurrent", "reduction", "rotary", "windows",
]  # fmt: skip
