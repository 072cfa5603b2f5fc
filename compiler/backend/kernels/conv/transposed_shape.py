"""A transposed convolution's operands and sizes, and what kernels ask of them. It must not know any algorithm."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir import bands
from ....ir.graph import Value
from ....ir.ops.contraction import ConvTranspose
from ....ir.ops.geometry import WindowGeometry
from ....ir.types import BF16, F16, SymDim
from ....kernel_ir.builder import F32
from ...fusion import Fusion
from . import depthwise_transposed
from .weights import ConvShape


@dataclass(frozen=True)
class Transposed:
    """Operands and sizes of a ConvTranspose root; group_inputs, group_outputs: channels of one group."""

    x: Value
    w: Value
    b: Value | None
    y: Value
    geometry: WindowGeometry
    groups: int
    group_inputs: int
    group_outputs: int

    @staticmethod
    def of(fusion: Fusion) -> Transposed:
        """Read a fusion's root."""
        op = fusion.root.op
        assert isinstance(op, ConvTranspose)
        x, w, *rest = fusion.root_inputs
        assert x is not None and w is not None
        shape = w.tensor.static_shape
        return Transposed(
            x,
            w,
            rest[0] if rest else None,
            fusion.result,
            op.geometry(x.tensor, w.tensor),
            op.group,
            shape[0] // op.group,
            shape[1],
        )

    @property
    def as_conv(self) -> ConvShape:
        """The same operands and sizes as kernels of convolutions look at them; for one channel in a group."""
        return ConvShape(self.x, self.w, self.b, self.y.tensor, self.geometry, self.groups, 1, self.group_outputs)

    @property
    def is_depthwise(self) -> bool:
        """Whether the loops for one filter a channel apply."""
        return self.group_inputs == 1 and depthwise_transposed.serves(self.as_conv)

    @property
    def has_pairs(self) -> bool:
        """Whether it is for tiles that take two channels of bf16 in a step."""
        return self.x.tensor.dtype == self.w.tensor.dtype == BF16 and self.group_inputs % 2 == 0

    @property
    def tiled(self) -> bool:
        """Whether a register tile applies. It multiplies zeros where no pixel is: weights must be finite for that."""
        last = (0, *range(2, self.geometry.rank + 2), 1)
        constant = all(v is None or (v.data is not None and v.producer is None) for v in (self.w, self.b))
        static = not any(isinstance(p, SymDim) for p in self.geometry.pads_begin)
        finite = self.w.data is not None and bands.is_finite(self.w.data)
        return (
            constant
            and static
            and finite
            and (self.x.tensor.dtype == F32 or self.has_pairs)
            and self.y.tensor.dtype in (F32, F16, BF16)
            and self.x.tensor.axis_order == last
            and self.y.tensor.axis_order == last
        )
