"""Operators of ai.onnx.ml that replace values by others: labels, categories. Numbers natively, strings on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import F32, F64, I16, I32, I64, STR, DType, TensorType, Type
from .base import Any2, Attr, Floats, Host, HostComposite, In, InferContext, Ints, Mixed, Strs, TypeGroup, op
from .casting import cast_to
from .ml_scores import DOMAIN, Model

_COMPARED = 16  # so many keys are compared with one by one; in more of them a binary search finds the place


class _Labels(TypeGroup):
    """What LabelEncoder maps."""

    dtypes = frozenset({STR, I16, I32, I64, F32, F64})


class _Categories(TypeGroup):
    """What OneHotEncoder compares with its categories."""

    dtypes = frozenset({STR, I32, I64, F32, F64})


class _Named(TypeGroup):
    """What CategoryMapper takes."""

    dtypes = frozenset({STR, I64})


@op(domain="parax")
class LookUp(Host):
    """values[i] where x equals keys[i], default elsewhere; for strings, on either side."""

    x: In[Mixed]
    keys: In[Mixed]
    values: In[Any2]
    default: In[Any2]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.tensor(0).dtype != ctx.tensor(1).dtype:
            ctx.fail("keys must be of the element type that is looked up", found=ctx.types[:2])
        return [TensorType(ctx.tensor(2).dtype, ctx.shape(0))]


def looked_up(g: PyAny, x: PyAny, keys: np.ndarray, values: np.ndarray, default: np.ndarray) -> PyAny:
    """The value of each element's key, of which no two are alike; NaN is equal to itself."""
    if "O" in (keys.dtype.kind, values.dtype.kind):
        return g.LookUp(x, keys, values, default)
    numbers = keys[keys == keys]
    y = _compared(g, x, keys, values, default) if len(numbers) <= _COMPARED else _searched(g, x, keys, values, default)
    odd = np.flatnonzero(keys != keys)
    return g.Where(g.IsNaN(x), g.const(values[odd[0]]), y) if odd.size else y


def _compared(g: PyAny, x: PyAny, keys: np.ndarray, values: np.ndarray, default: np.ndarray) -> PyAny:
    y = g.const(default)
    for key, value in zip(keys, values, strict=True):
        if key == key:
            y = g.Where(g.Equal(x, g.const(key)), g.const(value), y)
    return y if y.type.rank == x.type.rank and y.producer is not None else g.Expand(y, g.Shape(x))


def _searched(g: PyAny, x: PyAny, keys: np.ndarray, values: np.ndarray, default: np.ndarray) -> PyAny:
    """The last key that is not greater, by halves; the keys in order, the last of them again up to a power of two."""
    order = np.argsort(keys, kind="stable")
    order = order[keys[order] == keys[order]]
    steps = int(len(order) - 1).bit_length()
    order = np.concatenate([order, np.full((1 << steps) - len(order), order[-1])])
    table, at = g.const(keys[order]), None
    for step in (1 << i for i in reversed(range(steps))):
        next_ = g.const(np.asarray(step)) if at is None else g.Add(at, step)
        further = g.GreaterOrEqual(x, g.Gather(table, next_))
        at = g.Where(further, next_, g.const(np.asarray(0)) if at is None else at)
    return g.Where(g.Equal(g.Gather(table, at), x), g.Gather(g.const(values[order]), at), g.const(default))


@op(since=4, domain=DOMAIN)
class LabelEncoder(Model):
    """The value of each element's key, the default where it is none."""

    x: In[_Labels]
    default_float: Attr[float] = -0.0
    default_int64: Attr[int] = -1
    default_string: Attr[str] = "_Unused"
    default_tensor: Attr[np.ndarray | None] = None
    keys_floats: Attr[Floats] = ()
    keys_int64s: Attr[Ints] = ()
    keys_strings: Attr[Strs] = ()
    keys_tensor: Attr[np.ndarray | None] = None
    values_floats: Attr[Floats] = ()
    values_int64s: Attr[Ints] = ()
    values_strings: Attr[Strs] = ()
    values_tensor: Attr[np.ndarray | None] = None

    def _given(self, prefix: str) -> list[np.ndarray]:
        """Keys or values, of every attribute that has some."""
        lists = [("floats", np.float32), ("int64s", np.int64), ("strings", object)]
        found = [np.array(getattr(self, f"{prefix}_{kind}"), dtype) for kind, dtype in lists
                 if getattr(self, f"{prefix}_{kind}")]  # fmt: skip
        tensor = getattr(self, f"{prefix}_tensor")
        return found if tensor is None else [*found, _strings_as_objects(tensor.reshape(-1))]

    def _default(self, values: np.ndarray) -> np.ndarray:
        if self.values_tensor is not None and self.default_tensor is not None:
            return _strings_as_objects(self.default_tensor.reshape(()))
        by_kind = {"f": self.default_float, "i": self.default_int64, "O": self.default_string}
        return np.array(by_kind[values.dtype.kind], values.dtype)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        keys, values = self._given("keys"), self._given("values")
        if len(keys) != 1 or len(values) != 1:
            ctx.fail("one list of keys and one of values are needed", found=f"{len(keys)} and {len(values)}")
        if len(keys[0]) != len(values[0]):
            ctx.fail("as many values as keys are needed", expected=len(keys[0]), found=len(values[0]))
        check_distinct(ctx, "keys", keys[0])
        if DType.from_numpy(keys[0].dtype) != ctx.tensor(0).dtype:
            ctx.fail("keys must be of X's element type", expected=ctx.tensor(0).dtype, found=keys[0].dtype)
        default = self._default(values[0])
        if default.dtype != values[0].dtype:
            ctx.fail("the default must be of the values' type", expected=values[0].dtype, found=default.dtype)
        return [TensorType(DType.from_numpy(values[0].dtype), ctx.shape(0))]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        (keys,), (values,) = self._given("keys"), self._given("values")
        return looked_up(g, x, keys, values, self._default(values))


def _strings_as_objects(array: np.ndarray) -> np.ndarray:
    """The array, texts of any length."""
    return array.astype(object) if array.dtype.kind in "USO" else array


def check_distinct(ctx: InferContext, name: str, values: np.ndarray) -> None:
    """Fails where two values are alike."""
    texts = ["nan" if v != v else v for v in values.tolist()]
    if len(set(texts)) != len(texts):
        twice = next(v for i, v in enumerate(texts) if v in texts[:i])
        ctx.fail(f"{name} has a value twice", found=str(twice)[:60])


@op(since=1, domain=DOMAIN)
class CategoryMapper(HostComposite):
    """The number of each string's category, or the string of each number's; the default for what is none."""

    x: In[_Named]
    cats_int64s: Attr[Ints]
    cats_strings: Attr[Strs]
    default_int64: Attr[int] = -1
    default_string: Attr[str] = "_Unused"

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if len(self.cats_int64s) != len(self.cats_strings):
            ctx.fail("as many numbers as strings are needed", expected=len(self.cats_strings),
                     found=len(self.cats_int64s))  # fmt: skip
        strings = ctx.tensor(0).dtype == STR
        check_distinct(ctx, "categories", np.array(self.cats_strings if strings else self.cats_int64s, object))
        return [TensorType(I64 if strings else STR, ctx.shape(0))]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        numbers, strings = np.asarray(self.cats_int64s, np.int64), np.array(self.cats_strings, object)
        if x.type.dtype == STR:
            return g.LookUp(x, strings, numbers, np.asarray(self.default_int64, np.int64))
        return g.LookUp(x, numbers, strings, np.array(self.default_string, object))


@op(since=1, domain=DOMAIN)
class OneHotEncoder(Model):
    """f32[..., categories]: 1 where the element is the category; all 0 for what is none, or an error if zeros is 0."""

    x: In[_Categories]
    cats_int64s: Attr[Ints] = ()
    cats_strings: Attr[Strs] = ()
    zeros: Attr[int] = 1

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        cats = self.cats_strings if ctx.tensor(0).dtype == STR else self.cats_int64s
        if not cats or (self.cats_strings and self.cats_int64s):
            ctx.fail("categories of X's kind are needed, and no others", expected=f"some of {ctx.tensor(0).dtype}",
                     found=f"{len(self.cats_int64s)} integers, {len(self.cats_strings)} strings")  # fmt: skip
        check_distinct(ctx, "categories", np.array(cats, object))
        return [TensorType(F32, (*ctx.shape(0), len(cats)))]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        n = len(self.cats_strings or self.cats_int64s)
        places = np.arange(n)
        if x.type.dtype == STR:
            x = g.LookUp(x, np.array(self.cats_strings, object), places, np.asarray(n))
            cats = g.const(places)
        else:
            wide = F64 if x.type.dtype.is_float else I64
            x, cats = cast_to(g, x, wide), g.const(np.array(self.cats_int64s), wide)
        y = g.Cast(g.Equal(g.Unsqueeze(x, [-1]), cats), to=F32)
        if self.zeros:
            return y
        known = g.Greater(g.ReduceMax(y, [-1], keepdims=0), 0.0)  # what is none has a place behind all categories
        return g.Gather(g.const(np.eye(n, dtype=np.float32)), g.Where(known, g.ArgMax(y, axis=-1, keepdims=0), n))
