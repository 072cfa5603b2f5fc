"""Gradients of a convolution as convolutions, which have the kernels of any other.

    y[j] = Σ_k x[s·j + d·k - p] · w[k]      so      dx[i] = Σ_k dy[(i + p - d·k) / s] · w[k], where that is whole

Of stride 1 that is one convolution by the weights turned round. Of larger strides, each of the s phases i ≡ r (mod s)
meets taps of its own: a small convolution each, and together as many products as forwards; their results are woven
together at the end. (Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016.) Phases whose
taps lie alike, as those of a 2 × 2 kernel of stride 2, are one convolution to all their channels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any as PyAny

import numpy as np

from ..types import F32, TensorType
from .backward import Backward
from .geometry import WindowGeometry

MOST_TAPS = 64  # of a row of a filter alone, whose loops are written out for a run; chosen, not measured


@dataclass(frozen=True)
class Phase:
    """Along one axis: the taps that the phase meets, in falling order, and the convolution that they make.

    Attributes:
        taps: first and step of the taps that are met, and how many: 0 of them where the phase gets nothing.
    """

    first: int
    step: int
    count: int
    dilation: int
    pads: tuple[int, int]


def input_gradient(back: Backward, x: PyAny, w: PyAny, dy: PyAny, s: WindowGeometry, group: int) -> PyAny:
    """dx of a convolution of x by w that dy is the result's gradient of.

    Raises:
        UnsupportedOp: a spatial size or pad is open.
    """
    phases = phases_of(s)
    if phases is None:
        back.refuse("a convolution over open sizes", list(s.input))
    turned = replace(s, input=s.output, output=s.input)
    if max(s.strides) > 1 and has_filters_alone(turned, group, w.tensor):
        return _transposed(back.g, w, dy, s, group)
    return by_phases(back.g, x, w, dy, s, phases, group)


def has_filters_alone(s: WindowGeometry, group: int, w: TensorType) -> bool:
    """Whether a transposed convolution has one filter a channel and sizes for which kernels have loops of their own.

    Args:
        s: `input` is its operand's size. w: its weights [C, M / group, kernel...], or the convolution's.
    """
    known = all(isinstance(n, int) for n in (*s.input, *s.output))
    padded = all(isinstance(p, int) and p >= 0 for p in s.pads_begin)
    alone = group > 1 and w.dims[0] == group and w.dims[1] == 1
    return known and padded and alone and s.rank <= 2 and max(s.kernel[-1], s.strides[-1]) <= MOST_TAPS


def _transposed(g: PyAny, w: PyAny, dy: PyAny, s: WindowGeometry, group: int) -> PyAny:
    """dx as a transposed convolution; what no window met at the end of the input is padding of its result."""
    begins, ends, extra = [p for p in s.pads_begin if isinstance(p, int)], [], []
    for n, o, k, t, d, p in zip(s.input, s.output, s.kernel, s.strides, s.dilations, begins, strict=True):
        over = (o - 1) * t + (k - 1) * d + 1 - p - n
        ends.append(max(over, 0))
        extra.append(max(-over, 0))
    return g.ConvTranspose(dy, w, strides=list(s.strides), dilations=list(s.dilations), group=group,
                           pads=[*begins, *ends], output_padding=extra)  # fmt: skip


def phases_of(s: WindowGeometry) -> list[tuple[Phase, ...]] | None:
    """All phases of a convolution's input, the last axis' first; None where a spatial size or pad is open."""
    sizes = [(i, o, p) for i, o, p in zip(s.input, s.output, s.pads_begin)
             if isinstance(i, int) and isinstance(o, int) and isinstance(p, int)]  # fmt: skip
    if len(sizes) != len(s.kernel):
        return None
    axes = [
        [phase(r, *size, k, t, d) for r in range(t)]
        for size, k, t, d in zip(sizes, s.kernel, s.strides, s.dilations, strict=True)
    ]
    return list(itertools.product(*axes))


def by_phases(
    g: PyAny, x: PyAny, w: PyAny, dy: PyAny, s: WindowGeometry, phases: Sequence[tuple[Phase, ...]], group: int,
    bias: PyAny = None,
) -> PyAny:  # fmt: skip
    """dx from a convolution's weights [M, C / group, …] and what its result received.

    Args:
        x: of dx's type; only its type counts where every phase meets a tap. bias: [C], added everywhere; then every
            phase must meet one.
    """
    w = _exchanged(g, w, group)
    if len(phases) > 1 and group == 1 and all(_alike(p, phases[0]) for p in phases) and _counts(phases[0]):
        turned = g.Concat(*(_taps(g, w, own, s) for own in phases), axis=0)
        addend = None if bias is None else g.Concat(*[bias] * len(phases), axis=0)
        whole = _correlated(g, dy, turned, addend, phases[0], group)
    else:
        parts = [_part(g, x, w, dy, group, own, s, bias) for own in phases]
        whole = parts[0] if len(parts) == 1 else g.Concat(*parts, axis=1)
    dx = whole if len(phases) == 1 else _woven(g, whole, x.tensor.dims[1], s.strides)
    return _cut(g, dx, [i for i in s.input if isinstance(i, int)])


def _counts(phases: Sequence[Phase]) -> bool:
    return all(p.count for p in phases)


def _alike(a: Sequence[Phase], b: Sequence[Phase]) -> bool:
    """Whether two phases read the same places."""
    return all((p.count, p.dilation, p.pads) == (q.count, q.dilation, q.pads) for p, q in zip(a, b, strict=True))


def phase(r: int, n: int, n_out: int, pad: int, kernel: int, stride: int, dilation: int) -> Phase:
    """Phase `r` of an axis of `n` inputs, ceil(n / stride) positions of it.

    With i = s·j + r and the taps k = first + step·t: dx[j] = Σ_t dy[j + q - b·t] · w[k], q = (r + p - d·first) / s.
    """
    met = [k for k in range(kernel) if (r + pad - k * dilation) % stride == 0]
    if not met:
        return Phase(0, 1, 0, 1, (0, 0))
    step = stride // math.gcd(stride, dilation)
    apart, q, count = step * dilation // stride, (r + pad - met[0] * dilation) // stride, len(met)
    begin = apart * (count - 1) - q
    end = -(-n // stride) - n_out - begin + apart * (count - 1)
    return Phase(met[0], step, count, apart, (begin, end))


def _exchanged(g: PyAny, w: PyAny, group: int) -> PyAny:
    """The weights [M, C / group, …] as [C, M / group, …]."""
    m, c, *kernel = w.tensor.static_shape
    spatial = range(len(kernel))
    if group == 1:
        return g.Transpose(w, perm=[1, 0, *(2 + a for a in spatial)])
    w = g.Reshape(w, np.array([group, m // group, c, *kernel], np.int64))
    w = g.Transpose(w, perm=[0, 2, 1, *(3 + a for a in spatial)])
    return g.Reshape(w, np.array([group * c, m // group, *kernel], np.int64))


def _part(
    g: PyAny, x: PyAny, w: PyAny, dy: PyAny, group: int, phases: Sequence[Phase], s: WindowGeometry, bias: PyAny = None
) -> PyAny:  # fmt: skip
    """One phase's positions of dx, by the exchanged weights."""
    if not _counts(phases):
        lengths = [-(-n // t) for n, t in zip(s.input, s.strides, strict=True) if isinstance(n, int)]
        return _zeros(g, x, lengths)
    return _correlated(g, dy, _taps(g, w, phases, s), bias, phases, group)


def _taps(g: PyAny, w: PyAny, phases: Sequence[Phase], s: WindowGeometry) -> PyAny:
    """The exchanged weights that a phase meets, turned round."""
    if all(p.count == 1 and k == 1 for p, k in zip(phases, s.kernel, strict=True)):
        return w
    last = [p.first + p.step * (p.count - 1) for p in phases]
    ends = [p.first - p.step for p in phases]  # one before the first; below 0 means: to the beginning
    ends = [e if e >= 0 else -(k + 1) for e, k in zip(ends, s.kernel, strict=True)]
    return g.Slice(w, np.array(last, np.int64), np.array(ends, np.int64), np.arange(2, len(phases) + 2),
                   np.array([-p.step for p in phases], np.int64))  # fmt: skip


def _correlated(g: PyAny, dy: PyAny, w: PyAny, bias: PyAny, phases: Sequence[Phase], group: int) -> PyAny:
    """The convolution that phases make."""
    pads = [p.pads for p in phases]
    if any(min(p) < 0 for p in pads):
        less = [min(b, 0) for b, _ in pads], [min(e, 0) for _, e in pads]
        dy = g.Pad(dy, np.array([0, 0, *less[0], 0, 0, *less[1]], np.int64))
    return g.Conv(dy, w, *(() if bias is None else (bias,)), group=group, dilations=[p.dilation for p in phases],
                  pads=[*(max(b, 0) for b, _ in pads), *(max(e, 0) for _, e in pads)])  # fmt: skip


def _zeros(g: PyAny, x: PyAny, lengths: Sequence[int]) -> PyAny:
    zero = g.const(np.asarray(0.0), x.tensor.dtype)
    items, channels, *_ = x.tensor.dims
    if isinstance(items, int) and isinstance(channels, int):
        return g.Expand(zero, np.array([items, channels, *lengths], np.int64))
    first = g.Shape(x, start=0, end=2)
    return g.Expand(zero, g.Concat(first, np.array(lengths, np.int64), axis=0))


def _woven(g: PyAny, whole: PyAny, c: PyAny, strides: Sequence[int]) -> PyAny:
    """[N, phases · C, …], the last axis' phases first, → [N, C, … · stride]."""
    rank, lengths = len(strides), whole.tensor.dims[2:]
    apart = g.Reshape(whole, np.array([0, *strides, c, *lengths], np.int64))
    pairs = [axis for a in range(rank) for axis in (rank + 2 + a, 1 + a)]
    turned = g.Transpose(apart, perm=[0, rank + 1, *pairs])
    return g.Reshape(turned, np.array([0, c, *(n * t for n, t in zip(lengths, strides, strict=True))], np.int64))


def _cut(g: PyAny, dx: PyAny, sizes: Sequence[int]) -> PyAny:
    """Without what is behind the input's end."""
    if tuple(dx.tensor.dims[2:]) == tuple(sizes):
        return dx
    rank = len(sizes)
    return g.Slice(dx, np.zeros(rank, np.int64), np.array(sizes, np.int64), np.arange(2, rank + 2))


def transposed_gradients(back: Backward, s: WindowGeometry, group: int) -> tuple[PyAny, PyAny]:
    """dx and dw of a ConvTranspose node, which is the gradient of a convolution: dx is that convolution of dy, and dw
    its weights' gradient, where dy is what goes in and x what comes out.

    Args:
        s: of the node: `input` is x's size.

    Raises:
        UnsupportedOp: sizes or pads are open.
    """
    rank, dy = len(s.kernel), back.dy
    pads = [p for p in (*s.pads_begin, *s.pads_end) if isinstance(p, int)]
    if len(pads) < 2 * rank:
        back.refuse("a transposed convolution with open pads", [*s.pads_begin, *s.pads_end])
    if min(pads, default=0) < 0:  # margins of the result that x does not reach
        less = [min(p, 0) for p in pads]
        dy = back.g.Pad(dy, np.array([0, 0, *less[:rank], 0, 0, *less[rank:]], np.int64))
        pads = [max(p, 0) for p in pads]
    dx = dw = None
    own = {"strides": list(s.strides), "dilations": list(s.dilations), "group": group}
    if 0 in back.wanted:
        dx = back.g.Conv(dy, back.inputs[1], pads=pads, **own)
    if 1 in back.wanted:
        turned = replace(s, input=dy.tensor.dims[2:], output=s.input, pads_begin=tuple(pads[:rank]),
                         pads_end=tuple(pads[rank:]))  # fmt: skip
        dw = weight_gradient(back, dy, back.inputs[0], turned, group)
    return dx, dw


def weight_gradient(back: Backward, x: PyAny, dy: PyAny, s: WindowGeometry, group: int) -> PyAny:
    """[M, C / group, kernel...] of a convolution of x that dy is the result's gradient of; by the operator that is made
    for it, of other types than f32 by a convolution.
    """
    pads = [p for p in s.pads_begin if isinstance(p, int)]
    if x.tensor.dtype != F32 or len(pads) < len(s.kernel):
        return _by_convolution(back, x, dy, s, group)
    return back.g.ConvWeightGradient(x, dy, kernel_shape=list(s.kernel), strides=list(s.strides), pads=pads,
                                     dilations=list(s.dilations), group=group)  # fmt: skip


def _by_convolution(back: Backward, x: PyAny, dy: PyAny, s: WindowGeometry, k: int) -> PyAny:
    """Channels take the place of items, items of channels: dw[m, c] = Σ_n x[n, c] ⋆ dy[n, m]; `k` groups."""
    g, rank = back.g, len(s.kernel)
    if not x.tensor.is_static:
        back.refuse("a convolution's weights for open sizes", x.type)
    n, c, m = x.tensor.dims[0], x.tensor.dims[1] // k, dy.tensor.dims[1]
    swap = [1, 0, *range(2, rank + 2)]
    x, dy = g.Transpose(x, perm=swap), g.Transpose(dy, perm=swap)  # [C, N, …], [M, N, …]
    if k > 1:  # the items of each group are channels of a group
        spatial_x, spatial_y = list(s.input), list(s.output)
        x = g.Reshape(x, np.array([k, c, n, *spatial_x], np.int64))
        x = g.Transpose(x, perm=[1, 0, 2, *range(3, rank + 3)])
        x = g.Reshape(x, np.array([c, k * n, *spatial_x], np.int64))
        dy = g.Reshape(dy, np.array([m, n, *spatial_y], np.int64))
    whole = g.Conv(x, dy, strides=list(s.dilations), dilations=list(s.strides), group=k,
                   pads=[*s.pads_begin, *s.pads_end])  # fmt: skip
    dw = g.Transpose(whole, perm=swap)  # [M, C / group, kernel…], and more where strides leave a rest
    if tuple(dw.tensor.dims[2:]) == tuple(s.kernel):
        return dw
    return g.Slice(dw, np.zeros(rank, np.int64), np.array(s.kernel, np.int64), np.arange(2, rank + 2))
