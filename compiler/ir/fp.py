"""How far results may differ from the model's own sums: the levels of `--fp`, and what each allows.

Owns the levels. What an algorithm's error is bounded by, its kernel's docstring says; what a product costs at a level,
`costs`.
"""

from __future__ import annotations

from enum import Enum


class Fp(Enum):
    """What kernels may do to sums of products.

    STRICT: sum the model's own products, in any order.
    DEFAULT: also algorithms whose error is bounded for every row of a product, and every tile of neighbouring pixels of
        a convolution, by what that row or tile holds: an outlier, an infinity or a NaN costs no other row its bound.
    FAST: also zeros between a convolution's small groups: an infinity of one reaches the others.
    """

    STRICT = "strict"
    DEFAULT = "default"
    FAST = "fast"

    @property
    def winograd(self) -> bool:
        """Whether tiles of pixels may be transformed."""
        return self is not Fp.STRICT

    @property
    def strassen(self) -> bool:
        """Whether rows of one item may be added to each other, each scaled to the other's magnitude."""
        return self is not Fp.STRICT

    @property
    def merged_groups(self) -> bool:
        """Whether a convolution's small groups may be one, with zeros between them: zero times an infinity is NaN."""
        return self is Fp.FAST


__all__ = ["Fp"]
