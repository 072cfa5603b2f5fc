"""Products by constants of 4 or 8 bits with a scale for each block of weights: ONNX Runtime's MatMulNBits.

    w[k, n] = (q[n, k] - zero[n, k // block_size]) · scale[n, k // block_size],   y = a w

q has the first k in the lowest bits of the first byte, block after block; the last block's are as many as any other's.
"""

from __future__ import annotations

import math
from typing import Any as PyAny

import numpy as np

from ..types import F32, I32, U8, TensorType, ceil_div
from . import layout_policies, row_rules
from .base import (
    Attr,
    Composite,
    Contraction,
    Float,
    Float32,
    In,
    InferContext,
    Int,
    Opt,
    Rows,
    Shapes,
    TypeGroup,
    Work,
    op,
)  # fmt: skip
from .casting import as_float, cast_to

BITS = (4, 8)
LEAST_BLOCK = 16
FEW_ROWS = 8  # of a product, up to which weights are unpacked as they are multiplied: their sums round otherwise
IN_8_BITS = 4  # the accuracy_level that lets activations be rounded to them


class Packed(TypeGroup):
    """Bytes that hold one whole number or two."""

    dtypes = frozenset({U8})


class Zeros(TypeGroup):
    """Zero points: bytes of one or two of them, or one float each."""

    dtypes = Float.dtypes | Packed.dtypes


class Bias(Float):
    """Of the activations' type."""


def unpacked(data: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Bytes [..., n] as the first `count` whole numbers of so many bits that they hold, u8 [..., count]."""
    if bits == 8:
        return data[..., :count]
    return np.stack([data & 15, data >> 4], -1).reshape(*data.shape[:-1], -1)[..., :count]


def unpack(g: PyAny, data: PyAny, bits: int, *, high_first: bool = False) -> PyAny:
    """Bytes [..., n], n known, as i32 [..., n · 8 / bits]; of each byte the lowest bits, or the highest, come first."""
    wide = g.Cast(data, to=I32)
    if bits == 8:
        return wide
    axis, mask = data.tensor.rank, np.int32((1 << bits) - 1)
    parts = [g.BitwiseAnd(g.BitShift(wide, np.int32(low), direction="RIGHT") if low else wide, mask)
             for low in range(0, 8, bits)]  # fmt: skip
    joined = g.Concat(*(g.Unsqueeze(part, [axis]) for part in (parts[::-1] if high_first else parts)), axis=axis)
    return g.Reshape(joined, np.array([0] * (axis - 1) + [data.tensor.dims[-1] * (8 // bits)], np.int64))


def check_block_size(ctx: InferContext, block_size: int) -> None:
    """Fails unless it is one that ONNX Runtime has."""
    if block_size < LEAST_BLOCK or block_size & (block_size - 1):
        ctx.fail("malformed block_size", expected="a power of two from 16 on", found=block_size)


def _check_sizes(op_: PyAny, ctx: InferContext) -> None:
    if op_.bits not in BITS:
        ctx.unsupported(f"weights of {op_.bits} bits", hint="4 and 8 bits are supported")
    check_block_size(ctx, op_.block_size)


@op(domain="parax")
class BlockedMatMul(Contraction):
    """a w of constant q [N, blocks, block_size · bits / 8], scales [N, blocks] and zeros, 2^(bits - 1) if omitted.

    Where it `rounds`, each block of a row of a may be rounded to 8 bits: `kernels/matmul/block_integers` has the error.
    """

    a: In[Float32]
    b: In[Packed]
    scales: In[Float32]
    zeros: Opt[Float32]
    bits: Attr[int] = 4
    block_size: Attr[int] = 32
    rounds: Attr[int] = 0
    layout_policy = layout_policies.KeepsInner()

    def infer(self, ctx: InferContext) -> list[TensorType]:
        _check_sizes(self, ctx)
        *rows, depth = ctx.shape(0) or ctx.fail("a scalar cannot be multiplied as a matrix", found=ctx.types[0])
        n, blocks, nbytes = ctx.shape(1)
        ctx.equal(blocks, ceil_div(depth, self.block_size), "blocks of weights and columns of the operand differ")
        ctx.equal(nbytes, self.block_size * self.bits // 8, "a block of weights has another size")
        for i in (2, 3) if ctx.has(3) else (2,):
            for found, wanted in zip(ctx.shape(i), (n, blocks), strict=True):
                ctx.equal(wanted, found, "scales or zero points are not one a block")
        return [ctx.tensor(0).with_shape((*rows, n))]

    def row_axis(self, rows: Rows) -> int:
        a = rows.first("rows in the weights")
        if a == rows.ctx.rank(0) - 1:
            raise rows.interact("contracts over the rows")
        others = [d for i, d in enumerate(rows.ctx.shape(0)[:-1]) if i != a]
        known = [d for d in others if isinstance(d, int)]
        if len(known) < len(others) or math.prod(known) <= FEW_ROWS:
            raise rows.interact("few rows round otherwise than many")
        return a

    def work(self, shapes: Shapes) -> Work:
        return Work("matmul", 2 * shapes.y_elements * shapes.operand(0)[-1])


@op(domain="com.microsoft")
class MatMulNBits(Composite):
    """a w, in f32 or, of a few rows where `accuracy_level` is 4, with activations rounded to 8 bits.

    `g_idx`, which puts weights in an order of their own, is refused.

    Scales and zero points may have one axis, row after row of w's transpose; packed zero points begin a byte a row.
    Where weights are computed, or scaled by what is no number, w is written out in f32.
    """

    a: In[Float]
    b: In[Packed]
    scales: In[Float]
    zero_points: Opt[Zeros]
    g_idx: Opt[Int]
    bias: Opt[Bias]
    K: Attr[int]
    N: Attr[int]
    block_size: Attr[int]
    bits: Attr[int] = 4
    accuracy_level: Attr[int] = 0
    row_axis = row_rules.unknown

    @property
    def blocks(self) -> int:
        """Of a column."""
        return -(-self.K // self.block_size)

    def infer(self, ctx: InferContext) -> PyAny:
        _check_sizes(self, ctx)
        if ctx.has(4):
            ctx.unsupported("weights in an order of their own (g_idx)", hint="quantise the model without reordering")
        if self.K < 1 or self.N < 1:
            ctx.fail("malformed MatMulNBits", expected="K and N of 1 or more", found=f"K={self.K}, N={self.N}")
        a = ctx.shape(0)
        if not a:
            ctx.fail("a scalar cannot be multiplied as a matrix", found=ctx.types[0])
        ctx.equal(self.K, a[-1], "columns of the operand are not K")
        self._check(ctx, 1, self.block_size * self.bits // 8)
        self._check(ctx, 2, 1)
        if ctx.has(3):
            packed = ctx.tensor(3).dtype == U8
            nbytes = -(-self.blocks * self.bits // 8)
            self._check(ctx, 3, nbytes if packed else self.blocks, 1)
        if ctx.has(5):
            self._check(ctx, 5, 1, 1)
        return super().infer(ctx)

    def _check(self, ctx: InferContext, i: int, each: int, blocks: int | None = None) -> None:
        """Operand `i` must have N · blocks · each elements."""
        wanted = self.N * (self.blocks if blocks is None else blocks) * each
        found = ctx.tensor(i)
        if not found.is_static or found.numel != wanted:
            names = ("a", "B", "scales", "zero_points", "g_idx", "bias")
            ctx.fail(f"{names[i]} has another size than N, K, bits and block_size say", expected=f"{wanted} elements",
                     found=found)  # fmt: skip

    def expand(self, g: PyAny, a: PyAny, b: PyAny, scales: PyAny, zeros: PyAny = None, g_idx: PyAny = None,
               bias: PyAny = None) -> PyAny:
        shape = (self.N, self.blocks)
        if not isinstance(a.tensor.dims[-1], int):  # columns that the model leaves open are K
            a = g.Reshape(a, [*[0] * (a.tensor.rank - 1), self.K])
        if all(v is None or _is_finite(v) for v in (b, scales, zeros)):
            whole = (*shape, self.block_size * self.bits // 8)
            q = b if b.tensor.dims == whole else g.const(b.data.reshape(whole))
            zero = None if zeros is None else g.const(self._zero_points(zeros.data))
            y = g.BlockedMatMul(as_float(g, a), q, g.const(scales.data.astype(np.float32).reshape(shape)), zero,
                                bits=self.bits, block_size=self.block_size,
                                rounds=int(self.accuracy_level == IN_8_BITS))  # fmt: skip
        else:
            y = g.MatMul(as_float(g, a), self._weights(g, b, scales, zeros))
        y = cast_to(g, y, a.type.dtype)
        return y if bias is None else g.Add(y, bias)

    def _zero_points(self, data: np.ndarray) -> np.ndarray:
        """Of constants, f32 [N, blocks]."""
        if data.dtype == np.uint8:
            data = unpacked(data.reshape(self.N, -1), self.bits, self.blocks)
        return data.astype(np.float32).reshape(self.N, self.blocks)

    def _weights(self, g: PyAny, b: PyAny, scales: PyAny, zeros: PyAny) -> PyAny:
        """w in f32, of values that only a run knows."""
        shape = (self.N, self.blocks)
        q = unpack(g, _shaped(g, b, (*shape, self.block_size * self.bits // 8)), self.bits)
        if zeros is None:
            zero = g.const(np.full((1, 1, 1), 1 << self.bits - 1, np.float32))
        else:
            if zeros.type.dtype == U8:
                zeros = unpack(g, _shaped(g, zeros, (self.N, -(-self.blocks * self.bits // 8))), self.bits)
                zeros = g.Slice(zeros, [0], [self.blocks], [1])
            zero = _shaped(g, cast_to(g, zeros, F32), (*shape, 1))
        w = g.Mul(g.Sub(g.Cast(q, to=F32), zero), _shaped(g, as_float(g, scales), (*shape, 1)))
        rows = g.Slice(_shaped(g, w, (self.N, self.blocks * self.block_size)), [0], [self.K], [1])
        return g.Transpose(rows, perm=[1, 0])


def _is_finite(v: PyAny) -> bool:
    """Whether a value is a constant of finite numbers."""
    return v.data is not None and (v.type.dtype == U8 or bool(np.isfinite(v.data.astype(np.float32)).all()))


def _shaped(g: PyAny, v: PyAny, shape: tuple[int, ...]) -> PyAny:
    return v if v.tensor.dims == shape else g.Reshape(v, np.array(shape, np.int64))
