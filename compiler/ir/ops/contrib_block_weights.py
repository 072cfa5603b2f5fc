"""ONNX Runtime's weights in blocks with a scale each beside MatMulNBits: tables to gather from, and 4-bit floats.

Source: docs/ContribOperators.md of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import BF16, F16, F32, U8, DType, TensorType, Type, ceil_div
from .base import Attr, Composite, In, Index, InferContext, Opt, TypeGroup, op
from .block_products import Packed, check_block_size, unpack
from .casting import cast_to
from .contraction import swapped

PACKED_BITS = (2, 4, 8)
FP4 = (0, 0.0625 / 12, 8 / 12, 1, 4 / 12, 6 / 12, 2 / 12, 3 / 12)
"""bitsandbytes' floats of 4 bits; the eight others are their negatives."""
NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)  # fmt: skip
"""Quantiles of the normal distribution. Source: https://arxiv.org/abs/2305.14314, appendix E."""
TABLES = (np.array([*FP4, *(-v for v in FP4)], np.float32), np.array(NF4, np.float32))


class Half(TypeGroup):
    """What ONNX Runtime's operators of language models compute in."""

    dtypes = frozenset({F32, F16, BF16})


class Table(TypeGroup):
    """Bytes of 1, 2 or 4 whole numbers, whole numbers of 4 bits, and floats of 4 and 8."""

    names = ("u8", "u4", "i4", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f4e2m1")
    dtypes = frozenset(map(DType.from_name, names))


def _picked(g: PyAny, v: PyAny, ids: PyAny, axis: int) -> PyAny:
    """Scales or zero points of slices along `axis`: where one serves all, it keeps 1 for each of the indices' axes."""
    if v.tensor.dims[axis] != 1:
        return g.Gather(v, ids, axis=axis)
    dims = v.tensor.dims
    return g.Reshape(v, np.array([*dims[:axis], *[1] * ids.tensor.rank, *dims[axis + 1 :]], np.int64))


def _dequantised(g: PyAny, q: PyAny, scales: PyAny, zeros: PyAny, axis: int, block: int) -> PyAny:
    """(q - zero) · scale of f32, a scale and a zero point for each block along `axis`, of known size."""
    rank, count = q.tensor.rank, q.tensor.dims[axis]
    if is_last := axis == rank - 1 and count % block == 0:
        q = g.Reshape(q, np.array([0] * axis + [count // block, block], np.int64))
        scales, zeros = (v if v is None or not v.tensor.rank else g.Unsqueeze(v, [rank]) for v in (scales, zeros))
    else:
        blocks = np.arange(count) // block
        scales, zeros = (v if v is None or not v.tensor.rank else g.Gather(v, blocks, axis=axis)
                         for v in (scales, zeros))  # fmt: skip
    y = g.Mul(q if zeros is None else g.Sub(q, zeros), scales)
    return g.Reshape(y, np.array([0] * axis + [count], np.int64)) if is_last else y


@op(domain="com.microsoft")
class GatherBlockQuantized(Composite):
    """Gather along `gather_axis` of a table that has a scale for each block of `quantize_axis`; zeros beyond its ends.

    Of bytes, whose last axis is packed from the lowest bits on, zero points are packed alike, a whole byte or several
    for each row, 2^(bits - 1) where omitted; of other whole numbers they are 0 then, and floats have none. Scales of
    floats may be 1 along other axes, and their block_size 0: all of the axis.
    """

    data: In[Table]
    indices: In[Index]
    scales: In[Half]
    zero_points: Opt[Table]
    bits: Attr[int] = 4
    block_size: Attr[int] = 128
    gather_axis: Attr[int] = 0
    quantize_axis: Attr[int] = 1

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        data, scales = ctx.tensor(0), ctx.shape(2)
        if not data.rank or 0 in data.dims:
            ctx.fail("data must have elements along an axis", found=data)
        if not all(isinstance(d, int) for d in (*data.dims, *scales)):
            ctx.unsupported("a table with open dimensions", found=f"{data} and {ctx.types[2]}")
        gather, along = ctx.axis(self.gather_axis, data.rank), ctx.axis(self.quantize_axis, data.rank)
        self._check_kind(ctx, data, gather, along)
        if len(scales) != data.rank:
            ctx.fail("scales must have data's rank", expected=data.rank, found=ctx.types[2])
        parts, block = self.parts(data), self.block(data)
        for i, (size, found) in enumerate(zip(data.dims, scales, strict=True)):
            wanted = ceil_div(size * parts, block) if i == along else size
            if not (data.dtype.is_float and found == 1 and i != along):
                ctx.equal(wanted, found, "scales must be one a block, and one for each index of other axes")
        if ctx.has(3):
            zeros = (*scales[:-1], ceil_div(scales[-1], parts)) if parts > 1 else scales
            if ctx.rank(3) != len(zeros):
                ctx.fail("zero_points must have data's rank", expected=data.rank, found=ctx.types[3])
            for wanted, found in zip(zeros, ctx.shape(3), strict=True):
                ctx.equal(wanted, found, "zero_points must be one a scale, packed as data are")
        return super().infer(ctx)

    def _check_kind(self, ctx: InferContext, data: TensorType, gather: int, along: int) -> None:
        if data.dtype.is_float:
            if ctx.has(3):
                ctx.fail("floats have no zero points", expected="three operands", found=ctx.types[3])
        elif data.dtype == U8:
            if self.bits not in PACKED_BITS:
                ctx.fail("malformed bits", expected="2, 4 or 8", found=self.bits)
            if gather != 0 or along != data.rank - 1 or gather == along:
                ctx.fail("of bytes, rows are gathered and packed: gather_axis is the first, quantize_axis the last",
                         expected=f"0 and {data.rank - 1}", found=f"{gather} and {along}")  # fmt: skip
        elif self.bits != data.dtype.bits:
            ctx.fail("bits are not those of data", expected=data.dtype.bits, found=self.bits)
        if self.block_size or not data.dtype.is_float:
            check_block_size(ctx, self.block_size)

    def parts(self, data: TensorType) -> int:
        """How many numbers an element of data holds."""
        return 8 // self.bits if data.dtype == U8 else 1

    def block(self, data: TensorType) -> int:
        """How many numbers share a scale."""
        return self.block_size or max(1, int(data.static_shape[self.quantize_axis % data.rank]))

    def expand(self, g: PyAny, data: PyAny, ids: PyAny, scales: PyAny, zeros: PyAny = None) -> PyAny:
        t, result = data.tensor, scales.type.dtype
        gather, along = self.gather_axis % t.rank, self.quantize_axis % t.rank
        size, more = g.const(t.static_shape[gather], ids.type.dtype), ids.tensor.rank
        inside = g.And(g.GreaterOrEqual(ids, g.Neg(size)), g.Less(ids, size))
        picked = g.Where(inside, ids, g.const(0, ids.type.dtype))
        if gather == along:
            y = g.Gather(self._floats(g, data, scales, zeros, along, t), picked, axis=gather)
        else:
            rows = g.Gather(data, picked, axis=gather)
            scales, zeros = (v if v is None else _picked(g, v, picked, gather) for v in (scales, zeros))
            y = self._floats(g, rows, scales, zeros, along if along < gather else along + more - 1, t)
        mask = g.Reshape(inside, np.array([0] * more + [1] * (t.rank - 1 - gather), np.int64)) if more else inside
        return cast_to(g, g.Where(mask, y, np.float32(0)), result)

    def _floats(self, g: PyAny, q: PyAny, scales: PyAny, zeros: PyAny, axis: int, table: TensorType) -> PyAny:
        """What some of the table, or all of it, stands for, in f32."""
        if table.dtype == U8:
            q = unpack(g, q, self.bits)
            zeros = self._unpacked_zeros(g, zeros, scales.tensor.dims[-1])
        zeros = None if zeros is None else g.Cast(zeros, to=F32)
        return _dequantised(g, g.Cast(q, to=F32), cast_to(g, scales, F32), zeros, axis, self.block(table))

    def _unpacked_zeros(self, g: PyAny, zeros: PyAny, count: int) -> PyAny:
        """Of bytes, `count` zero points along the last axis, or the one that stands for omitted ones."""
        if zeros is None:
            return g.const(np.int32(1 << self.bits - 1))
        return g.Slice(unpack(g, zeros, self.bits), [0], [count], [-1])


@op(domain="com.microsoft")
class MatMulBnb4(Composite):
    """A wᵀ, or A w without `transB`, of w [N, K] in bitsandbytes' floats of 4 bits, quant_type 0: FP4, 1: NF4.

    w's numbers lie row after row, two a byte, the first in the highest bits, and every `block_size` of them are
    multiples of one of absmax, whatever row they are of. w is written out in f32, and sums are in f32.
    """

    a: In[Half]
    b: In[Packed]
    absmax: In[Half]
    K: Attr[int]
    N: Attr[int]
    block_size: Attr[int]
    quant_type: Attr[int]
    training_mode: Attr[int] = 0
    transB: Attr[int] = 1

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        check_block_size(ctx, self.block_size)
        if self.quant_type not in (0, 1):
            ctx.fail("malformed quant_type", expected="0 (FP4) or 1 (NF4)", found=self.quant_type)
        if self.K < 1 or self.N < 1:
            ctx.fail("malformed MatMulBnb4", expected="K and N of 1 or more", found=f"K={self.K}, N={self.N}")
        if not ctx.rank(0):
            ctx.fail("a scalar cannot be multiplied as a matrix", found=ctx.types[0])
        ctx.equal(self.K if self.transB else self.N, ctx.shape(0)[-1], "columns of A do not fit K and N")
        numbers = self.N * self.K
        for i, name, wanted in ((1, "B", -(-numbers // 2)), (2, "absmax", -(-numbers // self.block_size))):
            found = ctx.tensor(i)
            if not found.is_static or found.numel != wanted:
                ctx.fail(f"{name} has another size than N, K and block_size say", expected=f"{wanted} elements",
                         found=found)  # fmt: skip
        return super().infer(ctx)

    def expand(self, g: PyAny, a: PyAny, b: PyAny, absmax: PyAny) -> PyAny:
        numbers = self.N * self.K
        codes = unpack(g, g.Reshape(b, [-1]), 4, high_first=True)
        values = g.Slice(g.Gather(g.const(TABLES[self.quant_type]), codes), [0], [numbers], [0])
        scales = g.Gather(cast_to(g, g.Reshape(absmax, [-1]), F32), np.arange(numbers) // self.block_size)
        w = g.Reshape(g.Mul(values, scales), np.array([self.N, self.K], np.int64))
        if not isinstance(a.tensor.dims[-1], int):  # columns that the model leaves open are K, or N
            a = g.Reshape(a, [*[0] * (a.tensor.rank - 1), self.K if self.transB else self.N])
        return cast_to(g, g.MatMul(cast_to(g, a, F32), swapped(g, w) if self.transB else w), a.type.dtype)
