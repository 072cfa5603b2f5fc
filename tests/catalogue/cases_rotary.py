"""Cases of RotaryEmbedding."""

from __future__ import annotations

from itertools import product

import numpy as np

from catalogue.cases import Case, case

POSITIONS = np.array([[0, 3, 1, 2, 6], [4, 4, 5, 0, 1]])


def _rotary(x: str, dtype: str = "f32", size: int = 8, **attrs: int) -> list[Case]:
    """With rows of the caches that positions pick, and with a row for each token."""
    pairs, tokens = (attrs.get("rotary_embedding_dim") or size) // 2, "N=2,5" if "N" in x else "2,5"
    picked = [f"{dtype}[{x}]", f"{dtype}[7,{pairs}]", f"{dtype}[7,{pairs}]", POSITIONS]
    given = [f"{dtype}[{x}]", f"{dtype}[{tokens},{pairs}]", f"{dtype}[{tokens},{pairs}]"]
    return [case("RotaryEmbedding", operands, attrs) for operands in (picked, given)]


CASES = [
    *(found for interleaved, rotated in product((0, 1), (0, 4, 8))
      for x, heads in (("2,3,5,8", 0), ("2,5,24", 3), ("N=2,3,5,8", 0), ("N=2,5,24", 3))
      for found in _rotary(x, interleaved=interleaved, num_heads=heads, rotary_embedding_dim=rotated)),
    *_rotary("2,1,5,66", size=66),
    *_rotary("2,3,5,8", "f16", interleaved=1),
    *_rotary("2,5,24", "f16", num_heads=3, rotary_embedding_dim=4),
    case("RotaryEmbedding", ["f32[0,3,5,8]", "f32[0,5,4]", "f32[0,5,4]"]),
]
