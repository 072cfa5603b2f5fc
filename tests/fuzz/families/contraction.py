"""Products: MatMul, Gemm, Einsum, convolutions plain and transposed, Col2Im."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..contents import FLOATS, is_float
from ..maker import Maker, Refused, Value, allowed_types
from ..sizes import ONE, Shape, Size, derived, product, shape_of, static
from .registry import family


def hidden(m: Maker, array: np.ndarray) -> Value:
    """A constant that other nodes do not take up."""
    value = m.constant(array)
    for values in (m.values, m.root().values):
        if value in values:
            values.remove(value)
    return value


def operand(m: Maker, dtype: np.dtype, shape: Shape, constant: float = 0.6) -> Value:
    """A value of exactly that shape: one of the graph's if there is one, else fresh."""
    fits = [v for v in m.values if v.dtype == dtype and v.shape == shape]
    if fits and m.chance(0.5):
        return m.choose(fits)
    scale = 2.0 if not is_float(dtype) else 1.0
    made = m.fresh(dtype, shape, -scale if dtype.kind != "u" else 0, scale, constant)
    if made is None:
        raise Refused("a size that no input declares")
    return made


def length(size: Size) -> float:
    """How many terms a sum over it has, at least one."""
    return max(1.0, float(size.most))


def columns(m: Maker) -> Size:
    """The size of a free axis of a product."""
    return static(m.choose([1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 64, 65] + ([96, 128, 257] if m.large else [])))


@family("MatMul", frequency=3)
def matmul(m: Maker, op: str) -> None:
    types = allowed_types(op, m.opset)[0]
    a = m.pick(types if m.chance(0.3) else [t for t in types if is_float(t)], (1, 2, 2, 3, 3, 4, 5))
    k = a.shape[-1]
    n = columns(m)
    kind = m.rng.randrange(4)
    if kind == 0:
        b = operand(m, a.dtype, (k,))
        shape = a.shape[:-1]
    elif kind == 1 and a.rank > 2:
        batch = tuple(ONE if m.chance(0.3) else s for s in a.shape[:-2])
        b = operand(m, a.dtype, (*batch, k, n))
        shape = (*a.shape[:-1], n)
    elif kind == 2 and a.rank == 2:
        b = operand(m, a.dtype, (m.size(), k, n), 0.3)
        shape = (b.shape[0], a.shape[0], n)
    else:
        b = operand(m, a.dtype, (k, n))
        shape = (*a.shape[:-1], n)
    m.one(op, [a, b], a.dtype, shape, a.bound * b.bound * length(k) ** 0.5)


@family("Gemm", frequency=2)
def gemm(m: Maker, op: str) -> None:
    types = allowed_types(op, m.opset)[0]
    a = m.pick(types if m.chance(0.3) else [t for t in types if is_float(t)], (2,))
    left, right = m.choose([None, 0, 1]), m.choose([None, 0, 1])
    rows, k = a.shape[::-1] if left else a.shape
    n = columns(m)
    b = operand(m, a.dtype, (n, k) if right else (k, n))
    c = None
    if m.chance(0.7):
        full: Shape = (rows if m.chance(0.5) else ONE, n if m.chance(0.8) else ONE)
        c = operand(m, a.dtype, full[m.rng.randint(0, 2) :])
    factors: dict[str, Any] = {}
    if m.chance(0.4) and a.is_float:
        factors = {"alpha": m.choose([0.5, -1.0, 2.0]), "beta": m.choose([0.0, 0.5, -2.0])}
    m.one(
        op,
        [a, b, c],
        a.dtype,
        (rows, n),
        2 * a.bound * b.bound * length(k) ** 0.5 + 4,
        transA=left,
        transB=right,
        **factors,
    )


EQUATIONS = ("ij,jk->ik", "bij,bjk->bik", "ij,kj->ik", "bhqd,bhkd->bhqk", "ij->ji", "ij->i", "ij,ij->", "i,j->ij",
             "bij,bkj->bik", "bij,jk->bik", "...ij,...jk->...ik", "abc,cd->abd", "ii->i", "ii->", "ij,jk", "abc->cab",
             "bqhd,bkhd->bhqk", "i,i->", "ab,bc,cd->ad", "bi,bj->bij", "bij,bj->bi")  # fmt: skip


@family("Einsum")
def einsum(m: Maker, op: str) -> None:
    equation = m.choose(EQUATIONS)
    left, _, right = equation.partition("->")
    dtype = m.dtype(allowed_types(op, m.opset)[0])
    sizes: dict[str, Size] = {}
    xs = []
    for term in left.split(","):
        letters = term.replace("...", "")
        dots = (m.size(),) if "..." in term and "." not in sizes else (sizes["."],) if "..." in term else ()
        if dots:
            sizes["."] = dots[0]
        x = None
        if not sizes and m.chance(0.6) and len(set(letters)) == len(letters):
            x = m.pick((dtype,), (len(letters) + len(dots),))
            sizes.update(zip(letters, x.shape[len(dots) :]))
        for letter in letters:
            # the diagonal of a symbol is refused by design
            sizes.setdefault(letter, m.size(0.0 if letters.count(letter) > 1 else 0.15))
        shape = (*dots, *(sizes[c] for c in letters))
        xs.append(x if x is not None else operand(m, dtype, shape, 0.3))
    if "->" not in equation:
        right = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    out = ((sizes["."],) if "..." in right else ()) + tuple(sizes[c] for c in right.replace("...", ""))
    bound = float(np.prod([x.bound for x in xs])) * 16
    m.one(op, xs, dtype, out, bound, equation=equation)


def window(m: Maker, spatial: Shape, pads: bool = True) -> dict[str, Any] | None:
    """Random kernel, strides, dilations and pads that fit these sizes in every run, and the resulting sizes."""
    rank = len(spatial)
    kernel = [m.choose([1, 1, 2, 3, 3, 3, 5]) for _ in spatial]
    strides = [m.choose([1, 1, 1, 2, 3]) for _ in spatial]
    dilations = [m.choose([1, 1, 1, 2]) for _ in spatial]
    begin = [m.rng.randint(0, (k - 1) * d) if pads and m.chance(0.6) else 0 for k, d in zip(kernel, dilations)]
    end = [m.choose([b, m.rng.randint(0, (k - 1) * d) if pads else 0]) for b, k, d in zip(begin, kernel, dilations)]
    auto = m.choose([None] * 5 + ["VALID", "SAME_UPPER", "SAME_LOWER"])
    if auto:
        begin, end = [0] * rank, [0] * rank
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    if auto in ("SAME_UPPER", "SAME_LOWER") and any(s > e for s, e in zip(strides, extents)):
        return None  # padding below 0: others crop, or refuse
    if auto in (None, "VALID"):
        for size, e, b, f in zip(spatial, extents, begin, end):
            if size.least + b + f < e:
                return None
        out = tuple(
            derived(f"({{}}+{b}+{f}-{e})/{s}", lambda n, b=b, f=f, e=e, s=s: (n + b + f - e) // s + 1, size)
            if (b + f + 1 - e, s) != (0, 1)
            else size
            for size, e, b, f, s in zip(spatial, extents, begin, end, strides)
        )
    else:
        out = tuple(
            derived(f"ceil({{}}/{s})", lambda n, s=s: -(-n // s), size) if s > 1 else size
            for size, s in zip(spatial, strides)
        )
    given = {
        "kernel_shape": kernel,
        "strides": strides if m.chance(0.8) or max(strides) > 1 else None,
        "dilations": dilations if max(dilations) > 1 or m.chance(0.3) else None,
        "auto_pad": auto,
        "pads": [*begin, *end] if auto is None and (any(begin) or any(end) or m.chance(0.3)) else None,
    }
    return {"attributes": given, "output": out, "begin": begin, "end": end, "extents": extents}


def image(m: Maker, types: tuple[np.dtype, ...] | list[np.dtype], ranks: tuple[int, ...] = (3, 4, 4, 4, 5)) -> Value:
    """A value [N, C, spatial...] whose channels are a number and no axis of which is empty but the first."""
    return m.pick(types, ranks, lambda v: v.shape[1].is_static and all(s.least > 0 for s in v.shape[1:]), fresh=0.25)


@family("Conv", frequency=4)
def conv(m: Maker, op: str) -> None:
    x = image(m, allowed_types(op, m.opset)[0])
    how = window(m, x.shape[2:])
    if how is None:
        raise Refused("the window does not fit")
    channels = x.shape[1].value
    group = m.choose([1, 1, 1, channels, *[g for g in (2, 3, 4) if channels % g == 0]])
    per = m.choose([1, 2, 3, 4, 8, 16, 17] + ([32, 64] if m.large else [])) if group == 1 else m.choose([1, 1, 2])
    kernel = how["attributes"]["kernel_shape"]
    w = operand(m, x.dtype, shape_of(per * group, channels // group, *kernel), 0.8)
    b = operand(m, x.dtype, shape_of(per * group), 0.8) if m.chance(0.6) else None
    if m.chance(0.3):
        how["attributes"]["kernel_shape"] = None
    terms = channels // group * int(np.prod(kernel))
    m.one(
        op,
        [x, w, b],
        x.dtype,
        (x.shape[0], static(per * group), *how["output"]),
        x.bound * w.bound * terms**0.5 + 2,
        group=group if group > 1 else None,
        **how["attributes"],
    )


@family("ConvTranspose", frequency=1.5)
def conv_transpose(m: Maker, op: str) -> None:
    x = image(m, [t for t in FLOATS if t in allowed_types(op, m.opset)[0]])
    channels, rank = x.shape[1].value, x.rank - 2
    group = m.choose([1, 1, channels, *[g for g in (2, 3) if channels % g == 0]])
    per = m.choose([1, 2, 3, 8])
    kernel, strides = ([m.choose(c) for _ in range(rank)] for c in ([1, 2, 3, 3, 5], [1, 1, 2, 3]))
    dilations = [m.choose([1, 1, 1, 2]) for _ in range(rank)]
    extra = [m.rng.randint(0, s - 1) if m.chance(0.3) else 0 for s in strides]
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    begin, end = ([m.rng.randint(0, (e - 1) // 2) if m.chance(0.4) else 0 for e in extents] for _ in range(2))
    output = tuple(
        derived(f"{s}*({{}}-1)+{o}+{e}-{b}-{f}", lambda n, s=s, o=o, e=e, b=b, f=f: s * (n - 1) + o + e - b - f, size)
        for size, s, o, e, b, f in zip(x.shape[2:], strides, extra, extents, begin, end)
    )
    if any(s.least < 1 for s in output):
        raise Refused("nothing is left")
    w = operand(m, x.dtype, shape_of(channels, per, *kernel), 0.8)
    b = operand(m, x.dtype, shape_of(per * group), 0.8) if m.chance(0.5) else None
    m.one(
        op,
        [x, w, b],
        x.dtype,
        (x.shape[0], static(per * group), *output),
        x.bound * w.bound * (channels * int(np.prod(kernel))) ** 0.5 + 2,
        strides=strides,
        dilations=dilations,
        group=group if group > 1 else None,
        pads=[*begin, *end] if m.chance(0.8) or any((*begin, *end)) else None,
        output_padding=extra if any(extra) else None,
    )


@family("Col2Im", frequency=0.5)
def col2im(m: Maker, op: str) -> None:
    dtype = m.dtype(allowed_types(op, m.opset)[0])
    rank = m.choose([1, 2, 2, 3])
    block = [m.choose([1, 2, 3]) for _ in range(rank)]
    strides, dilations = ([m.choose([1, 1, 2]) for _ in range(rank)] for _ in range(2))
    pads = [m.choose([0, 0, 1]) for _ in range(2 * rank)]
    shape = [m.choose([5, 6, 7, 9]) for _ in range(rank)]
    windows = [
        (n + pads[i] + pads[i + rank] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        for i, n in enumerate(shape)
    ]
    n, channels = m.size(), m.choose([1, 2, 3])
    x = operand(m, dtype, (n, *shape_of(channels * int(np.prod(block)), int(np.prod(windows)))), 0.1)
    m.one(
        op,
        [x, m.ints(shape), m.ints(block)],
        dtype,
        (n, *shape_of(channels, *shape)),
        x.bound * 9,
        dilations=dilations,
        pads=pads,
        strides=strides,
    )


def flattened(shape: Shape, axis: int) -> Shape:
    """The two sizes of Flatten."""
    return product(shape[:axis]), product(shape[axis:])
