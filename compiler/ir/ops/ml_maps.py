"""Operators of ai.onnx.ml that make maps of tensors, or tensors of maps. All run on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import F32, F64, I64, STR, DType, MapType, SequenceType, TensorType, Type
from .base import Any2, Attr, Float32, Host, HostComposite, In, InferContext, Ints, Mixed, Strs, op
from .ml_labels import check_distinct
from .ml_scores import DOMAIN, check_choice


@op(since=1, domain=DOMAIN)
class ZipMap(Host):
    """A map for each row of x, f32[rows, classes] or f32[classes]: from the labels of the classes to its elements."""

    x: In[Float32]
    classlabels_int64s: Attr[Ints] = ()
    classlabels_strings: Attr[Strs] = ()

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        ints, strings = self.classlabels_int64s, self.classlabels_strings
        if bool(ints) == bool(strings):
            ctx.fail("either integers or strings must name the classes", found=f"{len(ints)} and {len(strings)}")
        shape = ctx.shape(0)
        if len(shape) not in (1, 2):
            ctx.fail("a row of scores, or rows of them, are needed", expected="rank 1 or 2", found=ctx.tensor(0))
        labels = strings or ints
        check_distinct(ctx, "the labels of the classes", np.array(labels, object))
        ctx.equal(shape[-1], len(labels), "as many scores as classes are needed")
        return [SequenceType(MapType(STR if strings else I64, F32))]


def map_type(ctx: InferContext, keys: tuple[DType, ...], values: tuple[DType, ...]) -> MapType:
    """The type of operand 0, which must be a map from one of the types to one of the others."""
    found = ctx.types[0]
    if not isinstance(found, MapType) or found.key not in keys or found.value not in values:
        allowed = " or ".join(str(MapType(key, value)) for key in keys for value in values)
        ctx.fail("input 0 has the wrong type", expected=allowed, found=found)
    return found


@op(since=1, domain=DOMAIN)
class CastMap(Host):
    """[1, n]: a map's values in the order of its keys, or each at the column that is its key, cast to another type."""

    x: In[Mixed]
    cast_to: Attr[str] = "TO_FLOAT"
    map_form: Attr[str] = "DENSE"
    max_map: Attr[int] = 1

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        map_type(ctx, (I64,), (STR, F32))
        types = {"TO_FLOAT": F32, "TO_STRING": STR, "TO_INT64": I64}
        check_choice(ctx, "cast_to", self.cast_to, tuple(types))
        check_choice(ctx, "map_form", self.map_form, ("DENSE", "SPARSE"))
        if self.map_form == "DENSE":
            return [TensorType(types[self.cast_to], (1, ctx.fresh("entries")))]
        if self.max_map < 1:
            ctx.fail("max_map must be positive", found=self.max_map)
        return [TensorType(types[self.cast_to], (1, self.max_map))]


@op(domain="parax")
class EntriesOf(Host):
    """[1, keys]: a map's value of every key, the default where it has none."""

    x: In[Mixed]
    keys: In[Any2]
    default: In[Mixed]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        given = map_type(ctx, (ctx.tensor(1).dtype,), (ctx.tensor(2).dtype,))
        return [TensorType(given.value, (1, *ctx.shape(1)))]


@op(since=1, domain=DOMAIN)
class DictVectorizer(HostComposite):
    """[1, vocabulary]: the value of each key of the vocabulary, 0 or an empty string where the map has none."""

    x: In[Mixed]
    int64_vocabulary: Attr[Ints] = ()
    string_vocabulary: Attr[Strs] = ()

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        ints, strings = self.int64_vocabulary, self.string_vocabulary
        if bool(ints) == bool(strings):
            ctx.fail("either integers or strings must be the vocabulary", found=f"{len(ints)} and {len(strings)}")
        given = map_type(ctx, (STR if strings else I64,), (F32, F64, I64 if strings else STR))
        return [TensorType(given.value, (1, len(strings or ints)))]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        strings, to = self.string_vocabulary, x.type.value
        keys = np.array(strings, object) if strings else np.asarray(self.int64_vocabulary, np.int64)
        return g.EntriesOf(x, keys, np.array("", object) if to == STR else np.zeros((), to.numpy))
