"""RotaryEmbedding: heads apart or in one axis, rows of the caches picked by positions or given for each token."""

from __future__ import annotations

from ..contents import F16, F32
from ..maker import Maker
from ..sizes import shape_of
from .registry import family


@family("RotaryEmbedding", frequency=0.5)
def rotary(m: Maker, op: str) -> None:
    dtype, batch, steps, heads = m.choose([F32, F32, F16]), m.size(), m.size(), m.choose([1, 2, 3])
    size = m.choose([2, 4, 6, 16])
    rotated = m.choose([0, *range(2, size + 1, 2)])
    pairs = (rotated or size) // 2
    apart = m.chance(0.5)
    shape = (batch, *shape_of(heads), steps, *shape_of(size)) if apart else (batch, steps, *shape_of(heads * size))
    x = m.input(dtype, shape)
    operands = [x, *(m.input(dtype, (batch, steps, *shape_of(pairs))) for _ in range(2))]
    if m.chance(0.5) and batch.is_static and steps.is_static:
        rows = m.choose([1, 3, 17])
        positions = m.numpy.integers(0, rows, (batch.least, steps.least))
        caches = [m.input(dtype, shape_of(rows, pairs)) for _ in range(2)]
        operands = [x, *caches, m.ints(positions, runtime=m.chance(0.5))]
    m.one(op, operands, dtype, shape, 2 * x.bound * 2, interleaved=m.choose([None, 1]),
          num_heads=heads if not apart or m.chance(0.3) else None,
          rotary_embedding_dim=rotated or None)  # fmt: skip
