"""Operators that move elements: views, Transpose, Concat, Split, Slice, Pad, Expand, Tile, blocks, triangles."""

from __future__ import annotations

import numpy as np

from ..contents import BOOL, I32, I64, UNSIGNED, is_float
from ..maker import Maker, Refused, Value, allowed_types, tensor_code
from ..sizes import ONE, Shape, Size, derived, product, shape_of, static, total
from .reduction import some_axes
from .registry import family


@family("Reshape", frequency=2)
def reshape(m: Maker, op: str) -> None:
    x = m.pick()
    entries, shape = _reshaped(m, x)
    runtime = m.chance(0.06) and all(s.is_static for s in x.shape) and 0 not in entries
    result = tuple(m.opaque(s.at) for s in shape) if runtime else shape
    m.one(op, [x, m.ints(entries, runtime=runtime)], x.dtype, result)


def _reshaped(m: Maker, x: Value) -> tuple[list[int], Shape]:
    """The numbers that Reshape is given and the shape that they make."""
    shape = x.shape
    if all(s.is_static for s in shape) and product(shape).value > 0:
        factors = _factors(m, product(shape).value)
        entries = list(factors)
        if entries and m.chance(0.5):
            entries[m.rng.randrange(len(entries))] = -1
        return entries, shape_of(*factors)
    if x.rank == 0:
        return [1], (ONE,)
    i = m.rng.randrange(x.rank)
    j = m.rng.randint(i + 1, x.rank)
    merged = product(shape[i:j])
    out = (*shape[:i], merged, *shape[j:])
    unknown = [k for k, s in enumerate(out) if not s.is_static]
    copied = [k for k in unknown if k < i]  # 0 copies the size at the same place
    free = [k for k in unknown if k not in copied]
    if len(free) > 1 or any(s.is_static and s.value == 0 for s in out) or any(s.least == 0 for s in x.shape):
        raise Refused("more than one size is left open")
    return [0 if k in copied else -1 if k in free else s.value for k, s in enumerate(out)], out


def _factors(m: Maker, n: int) -> list[int]:
    out = []
    for _ in range(m.rng.randint(0, 4)):
        divisors = [d for d in range(1, min(n, 128) + 1) if n % d == 0]
        out.append(m.choose(divisors))
        n //= out[-1]
    if n > 1 or not out or m.chance(0.2):
        out.insert(m.rng.randint(0, len(out)), n)
    return out if m.chance(0.95) or int(np.prod(out)) != 1 else []


@family("Flatten")
def flatten(m: Maker, op: str) -> None:
    x = m.pick(allowed_types(op, m.opset)[0])
    axis = m.rng.randint(0, x.rank)
    m.one(op, [x], x.dtype, (product(x.shape[:axis]), product(x.shape[axis:])), axis=axis)


@family("Squeeze", "Unsqueeze")
def squeeze(m: Maker, op: str) -> None:
    if op == "Squeeze":
        x = m.pick(where=lambda v: ONE in v.shape)
        ones = [i for i, s in enumerate(x.shape) if s == ONE]
        if m.chance(0.2) and all(s.is_static for s in x.shape):
            m.one(op, [x], x.dtype, tuple(s for s in x.shape if s != ONE))
            return
        gone = m.rng.sample(ones, m.rng.randint(1, len(ones)))
        axes = [a - x.rank if m.chance(0.3) else a for a in gone]
        m.one(op, [x, m.ints(axes)], x.dtype, tuple(s for i, s in enumerate(x.shape) if i not in gone))
        return
    x = m.pick(ranks=range(5))
    count = m.rng.randint(1, 2)
    places = sorted(m.rng.sample(range(x.rank + count), count))
    out = list(x.shape)
    for p in places:
        out.insert(p, ONE)
    m.one(op, [x, m.ints([p - len(out) if m.chance(0.3) else p for p in places])], x.dtype, tuple(out))


@family("Transpose", frequency=2)
def transpose(m: Maker, op: str) -> None:
    x = m.pick(fresh=0.05)
    perm = list(range(x.rank))
    m.rng.shuffle(perm)
    if m.chance(0.15):
        m.one(op, [x], x.dtype, x.shape[::-1])
        return
    m.one(op, [x], x.dtype, tuple(x.shape[p] for p in perm), perm=perm if x.rank else None)


@family("Concat", frequency=2)
def concat(m: Maker, op: str) -> None:
    x = m.pick(ranks=range(1, 6))
    axis = m.rng.randrange(x.rank)
    parts = [x]
    for _ in range(m.choose([0, 1, 1, 2, 3, 5])):
        fits = [
            v
            for v in m.values
            if v.dtype == x.dtype
            and v.rank == x.rank
            and all(a == b or i == axis for i, (a, b) in enumerate(zip(v.shape, x.shape)))
        ]
        if m.chance(0.6):
            parts.append(m.choose(fits))
        else:
            shape = tuple(m.size() if i == axis else s for i, s in enumerate(x.shape))
            made = m.fresh(x.dtype, shape)
            parts.append(made if made is not None else x)
    m.rng.shuffle(parts)
    shape = tuple(total([p.shape[axis] for p in parts]) if i == axis else s for i, s in enumerate(x.shape))
    m.one(op, parts, x.dtype, shape, max(p.bound for p in parts), axis=axis - x.rank if m.chance(0.3) else axis)


@family("Split", frequency=1.5)
def split(m: Maker, op: str) -> None:
    x = m.pick(ranks=range(1, 6), where=lambda v: any(s.is_static and s.value > 0 for s in v.shape))
    axis = m.choose([i for i, s in enumerate(x.shape) if s.is_static and s.value > 0])
    n = x.shape[axis].value
    attributes = {"axis": axis - x.rank if m.chance(0.3) else axis}
    if m.chance(0.4):
        count = m.rng.randint(1, min(n, 4))
        part = -(-n // count)
        parts = [part] * (count - 1) + [n - part * (count - 1)]
        if parts[-1] < 0:
            raise Refused("too many parts")
        m.node(op, [x], [(x.dtype, _with(x.shape, axis, static(p))) for p in parts], num_outputs=count, **attributes)
        return
    cuts = sorted(m.rng.randint(0, n) for _ in range(m.choose([0, 1, 1, 2, 3])))
    parts = [b - a for a, b in zip([0, *cuts], [*cuts, n])]
    runtime = m.chance(0.06)
    sizes = [m.opaque([p] * len(ONE.at)) if runtime else static(p) for p in parts]
    m.node(op, [x, m.ints(parts, runtime=runtime)], [(x.dtype, _with(x.shape, axis, s)) for s in sizes], **attributes)


def _with(shape: Shape, axis: int, size: Size) -> Shape:
    return tuple(size if i == axis else s for i, s in enumerate(shape))


@family("Slice", frequency=2)
def slice_(m: Maker, op: str) -> None:
    x = m.pick(ranks=range(1, 6), fresh=0.05)
    out, starts, ends, axes, steps = list(x.shape), [], [], [], []
    for axis in m.rng.sample(range(x.rank), m.rng.randint(1, x.rank)):
        size, step = x.shape[axis], m.choose([1, 1, 1, 2, 3, -1, -2])
        top = size.most + 2
        start = m.choose([0, 0, 1, m.rng.randint(-top, top), -1])
        end = m.choose([2**31 - 1, 2**63 - 1, m.rng.randint(-top, top), -1])
        if step < 0:
            start, end = m.choose([-1, 2**31 - 1, start]), m.choose([-(2**31), -(2**63), end])
        starts.append(start)
        ends.append(end)
        axes.append(axis - x.rank if m.chance(0.2) else axis)
        steps.append(step)
        at = [len(range(n)[slice(start, end, step)]) for n in size.at]
        text = f"{{}}[{start}:{end}:{step}]"
        whole = (start, step) == (0, 1) and end > 2**30
        out[axis] = size if whole else derived(text, lambda n, s=slice(start, end, step): len(range(n)[s]), size)
        assert tuple(at) == out[axis].at
    dtype = I32 if m.chance(0.3) and max(map(abs, ends)) < 2**31 else I64
    runtime = m.chance(0.06)
    numbers_ = [m.ints(v, dtype, runtime=runtime and i < 2) for i, v in enumerate((starts, ends, axes, steps))]
    shape = tuple(s for s in out)
    if runtime:
        shape = tuple(m.opaque(s.at) if i in [a % x.rank for a in axes] else s for i, s in enumerate(out))
    if all(s == 1 for s in steps) and m.chance(0.5):
        numbers_.pop()
    m.one(op, [x, *numbers_], x.dtype, shape)


@family("Pad", frequency=1.5)
def pad(m: Maker, op: str) -> None:
    x = m.pick(allowed_types(op, m.opset)[0], range(1, 6))
    modes = ["constant", "constant", "edge", "reflect", *(["wrap"] if m.opset >= 19 else [])]
    mode = m.choose(modes)
    if mode != "constant" and any(s.least == 0 for s in x.shape):
        raise Refused("nothing to repeat")
    axes = [a % x.rank for a in some_axes(m, x.rank)] if m.chance(0.4) else list(range(x.rank))
    most = {"constant": 3, "edge": 3}
    before, after = [], []
    for a in axes:
        limit = most.get(mode, min(3, x.shape[a].least - 1))
        before.append(m.rng.randint(0, max(limit, 0)) if m.chance(0.5) else 0)
        after.append(
            m.rng.randint(-1 if x.shape[a].least > 1 and mode == "constant" and m.chance(0.2) else 0, max(limit, 0))
            if m.chance(0.5)
            else 0
        )
    out = list(x.shape)
    for a, b, f in zip(axes, before, after):
        if b + f:
            out[a] = derived(f"{{}}+{b + f}", lambda n, d=b + f: n + d, x.shape[a])
    value = m.scalar(m.choose([0, 1, 2]), x.dtype) if mode == "constant" and m.chance(0.6) else None
    given = m.ints(axes, m.choose([I32, I64])) if axes != list(range(x.rank)) or m.chance(0.2) else None
    m.one(
        op,
        [x, m.ints(before + after), value, given],
        x.dtype,
        tuple(out),
        max(x.bound, 2.0),
        mode=mode if mode != "constant" or m.chance(0.5) else None,
    )


@family("Expand", "Tile")
def repeat(m: Maker, op: str) -> None:
    x = m.pick(ranks=range(5))
    if op == "Tile":
        counts = [m.choose([1, 1, 2, 3, 0]) if m.chance(0.1) else m.choose([1, 1, 2, 3]) for _ in x.shape]
        out = tuple(s if c == 1 else product([s, static(c)]) for s, c in zip(x.shape, counts))
        m.one(op, [x, m.ints(counts)], x.dtype, out)
        return
    out = tuple(m.size(0.0) if s == ONE else s for s in x.shape)
    extra = tuple(static(m.choose([1, 2, 3])) for _ in range(m.choose([0, 0, 1, 2])))
    wanted = [*(s.value for s in extra), *(s.value if s.is_static else 1 for s in out)]
    m.one(op, [x, m.ints(wanted)], x.dtype, (*extra, *out))


@family("DepthToSpace", "SpaceToDepth")
def blocks(m: Maker, op: str) -> None:
    b = m.choose([1, 2, 3])

    def fits(v: Value) -> bool:
        checked = v.shape[1:2] if op == "DepthToSpace" else v.shape[2:]
        unit = b * b if op == "DepthToSpace" else b
        return all(s.is_static and s.value % unit == 0 and s.value > 0 for s in checked)

    shape = (
        m.size(),
        static(b * b * m.choose([1, 2, 3])),
        static(b * m.choose([1, 2, 4])),
        static(b * m.choose([1, 2, 3])),
    )
    found = [v for v in m.values if v.rank == 4 and fits(v) and v.dtype in allowed_types(op, m.opset)[0]]
    x = m.choose(found) if found and m.chance(0.8) else m.input(m.dtype(allowed_types(op, m.opset)[0]), shape)
    n, c, h, w = x.shape
    up, down = (lambda s: product([s, static(b)])), (lambda s: derived(f"{{}}/{b}", lambda v: v // b, s))
    if op == "DepthToSpace":
        m.one(
            op,
            [x],
            x.dtype,
            (n, static(c.value // (b * b)), up(h), up(w)),
            blocksize=b,
            mode=m.choose([None, "DCR", "CRD"]),
        )
    else:
        m.one(op, [x], x.dtype, (n, product([c, static(b * b)]), down(h), down(w)), blocksize=b)


@family("Trilu", "EyeLike")
def triangle(m: Maker, op: str) -> None:
    if op == "EyeLike":
        x = m.pick(allowed_types(op, m.opset)[0], (2,))
        to = m.choose([None, m.dtype()])
        m.node(
            op, [x], [(to or x.dtype, x.shape)], 1.0, dtype=tensor_code(to) if to else None, k=m.choose([None, -1, 2])
        )
        return
    x = m.pick(allowed_types(op, m.opset)[0], range(2, 6))
    k = m.ints(m.rng.randint(-3, 3), runtime=m.chance(0.2)) if m.chance(0.6) else None
    m.one(op, [x, k], x.dtype, x.shape, upper=m.choose([None, 0, 1]))


@family("Shape", "Size")
def sizes(m: Maker, op: str) -> None:
    x = m.pick()
    if op == "Size":
        m.one(op, [x], I64, ())
        return
    start, end = m.choose([None, 0, 1, -1]), m.choose([None, None, 2, -1])
    count = len(range(x.rank)[slice(_clamped(start, x.rank), _clamped(end, x.rank))])
    m.one(op, [x], I64, shape_of(count), start=start, end=end)


def _clamped(bound: int | None, rank: int) -> int | None:
    return None if bound is None else max(-rank, bound)


@family("ConstantOfShape", "Range", "OneHot")
def filled(m: Maker, op: str) -> None:
    if op == "ConstantOfShape":
        _constant_of_shape(m)
    elif op == "Range":
        dtype = m.dtype([t for t in allowed_types(op, m.opset)[0]])
        start, delta, count = m.rng.randint(-5, 5), m.choose([1, 2, -1, 3]), m.choose([0, 1, 3, 16, 17])
        if dtype in UNSIGNED:
            start, delta = abs(start), abs(delta)
        runtime = m.chance(0.15)
        ends = [start, start + delta * count, delta]
        xs = [
            m.ints(v, dtype, runtime=runtime and i == 1) if not is_float(dtype) else m.scalar(v, dtype)
            for i, v in enumerate(ends)
        ]
        size = m.opaque([count] * len(ONE.at)) if runtime and not is_float(dtype) else static(count)
        m.one(op, xs, dtype, (size,), 60.0)
    else:
        indices = m.input(m.dtype([t for t in allowed_types(op, m.opset)[0] if t in (I64, I32)]), m.shape(), -6, 6)
        depth, values = (
            m.choose([1, 5, 6, 17]),
            m.constant(np.array([0, 1]).astype(m.dtype(allowed_types(op, m.opset)[2]))),
        )
        axis = m.rng.randint(-indices.rank - 1, indices.rank)
        out = list(indices.shape)
        out.insert(axis % (indices.rank + 1), static(depth))
        m.one(
            op, [indices, m.ints([depth] if m.chance(0.5) else depth), values], values.dtype, tuple(out), 1.0, axis=axis
        )


def _constant_of_shape(m: Maker) -> None:
    value = m.dtype([t for t in (*allowed_types("Cast", m.opset)[0],) if t != BOOL])
    array = np.array([m.choose([0, 1, 3])]).astype(value)
    given = None if m.chance(0.3) else array
    dtype = np.dtype("float32") if given is None else value
    tensor = None if given is None else m.tensor(given)
    if m.chance(0.5) and m.values:
        x = m.pick(fresh=0.0)
        (taken,) = m.node("Shape", [x], [(I64, shape_of(x.rank))])
        m.one("ConstantOfShape", [taken], dtype, x.shape, 3.0, value=tensor)
        return
    shape = m.shape(symbolic=0.0)
    m.one("ConstantOfShape", [m.ints([s.value for s in shape])], dtype, shape, 3.0, value=tensor)
