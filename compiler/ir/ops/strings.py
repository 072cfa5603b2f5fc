"""Operators of strings, which run on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

from ..types import BOOL, F32, I32, I64, STR, TensorType, Type
from .base import Attr, Floats, Host, HostComposite, In, InferContext, Ints, Out, Str, Strs, TypeGroup, op
from .regular_expressions import as_python

_CASED_APART = ("az", "lt", "tr")
"""Languages whose capital letters are not those of all others."""
_MOST_SKIPPED, _LONGEST = 1 << 20, 1 << 10  # of n-grams: items between two, items in one


class _Items(TypeGroup):
    """What TfIdfVectorizer counts."""

    dtypes = frozenset({STR, I32, I64})


@op(since=20)
class StringConcat(Host):
    """Every string of x, followed by the one of y at the same (broadcast) place."""

    x: In[Str]
    y: In[Str]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        return [TensorType(STR, ctx.broadcast(ctx.shape(0), ctx.shape(1)))]


@op(since=20)
class StringSplit(Host):
    """str[..., n]: the parts of every string, filled up with empty ones; and how many there are of each.

    Parts lie between delimiters, or between runs of whitespace where there is none; `maxsplit` leaves the rest whole.
    """

    x: In[Str]
    y: Out
    count: Out
    delimiter: Attr[str] = ""
    maxsplit: Attr[int | None] = None

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        shape = ctx.shape(0)
        return [TensorType(STR, (*shape, ctx.fresh("parts"))), TensorType(I64, shape)]


@op(since=10)
class StringNormalizer(Host):
    """The strings of x, str[n] or str[1,n], that are no stop words, in lower or upper case; an empty one for none."""

    x: In[Str]
    case_change_action: Attr[str] = "NONE"
    is_case_sensitive: Attr[int] = 0
    locale: Attr[str] = "en_US"
    stopwords: Attr[Strs] = ()

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        shape = ctx.shape(0)
        if len(shape) not in (1, 2):
            ctx.fail("strings, or one row of them, are needed", expected="[n] or [1,n]", found=ctx.tensor(0))
        if len(shape) == 2:
            ctx.equal(shape[0], 1, "strings must be one row")
        if self.case_change_action not in ("NONE", "LOWER", "UPPER"):
            ctx.fail("unknown case_change_action", expected="NONE, LOWER, UPPER", found=self.case_change_action[:60])
        if self.locale[:2].lower() in _CASED_APART and self.case_change_action != "NONE":
            ctx.unsupported("letters of this locale have capitals of their own", self.locale[:60])
        length = shape[-1]
        kept = max(1, length) if isinstance(length, int) and not self.stopwords else ctx.fresh("kept")
        return [TensorType(STR, (*((1,) if len(shape) == 2 else ()), kept))]


@op(domain="parax")
class FullMatch(Host):
    """Whether each string as a whole matches a regular expression of Python's."""

    x: In[Str]
    pattern: Attr[str]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        return [TensorType(BOOL, ctx.tensor(0).shape)]


@op(since=20)
class RegexFullMatch(HostComposite):
    """Whether each string as a whole matches a regular expression of RE2's."""

    x: In[Str]
    pattern: Attr[str]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        return g.FullMatch(x, pattern=as_python(self.pattern))


@op(since=9)
class TfIdfVectorizer(Host):
    """f32[..., terms]: how often each n-gram of a pool is in a row of x, weighted; for x [n] or [rows, n].

    Items of an n-gram may lie apart: with up to `max_skip_count` others between each two.
    """

    x: In[_Items]
    max_gram_length: Attr[int]
    max_skip_count: Attr[int]
    min_gram_length: Attr[int]
    mode: Attr[str]
    ngram_counts: Attr[Ints]
    ngram_indexes: Attr[Ints]
    pool_int64s: Attr[Ints] = ()
    pool_strings: Attr[Strs] = ()
    weights: Attr[Floats] = ()

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        shape = ctx.shape(0)
        if len(shape) not in (1, 2):
            ctx.fail("items, or rows of them, are needed", expected="[n] or [rows,n]", found=ctx.tensor(0))
        self._check_lengths(ctx)
        self._check_pool(ctx)
        return [TensorType(F32, (*shape[:-1], max(self.ngram_indexes) + 1))]

    def _check_lengths(self, ctx: InferContext) -> None:
        if self.mode not in ("TF", "IDF", "TFIDF"):
            ctx.fail("unknown mode", expected="TF, IDF, TFIDF", found=self.mode[:60])
        if not 1 <= self.min_gram_length <= self.max_gram_length <= _LONGEST:
            ctx.fail("lengths of n-grams must be in order", expected=f"1 ≤ min ≤ max ≤ {_LONGEST}",
                     found=f"{self.min_gram_length} and {self.max_gram_length}")  # fmt: skip
        if not 0 <= self.max_skip_count <= _MOST_SKIPPED:
            ctx.fail("max_skip_count out of range", expected=f"0 to {_MOST_SKIPPED}", found=self.max_skip_count)

    def _check_pool(self, ctx: InferContext) -> None:
        strings = ctx.tensor(0).dtype == STR
        pool = self.pool_strings if strings else self.pool_int64s
        if not pool or (self.pool_strings and self.pool_int64s):
            ctx.fail("a pool of x's kind is needed, and no other", found=f"{len(self.pool_int64s)} integers, "
                     f"{len(self.pool_strings)} strings")  # fmt: skip
        starts = self.ngram_counts
        if len(starts) < self.max_gram_length or list(starts) != sorted(starts) or starts[0] != 0 or (
                starts[-1] > len(pool)):  # fmt: skip
            ctx.fail("ngram_counts must say where the n-grams of each length begin",
                     expected=f"at least {self.max_gram_length} rising positions from 0 to {len(pool)}", found=starts)
        ends = (*starts[1:], len(pool))
        sizes = [end - start for start, end in zip(starts, ends, strict=True)]
        if any(size % n for n, size in enumerate(sizes, 1)):
            ctx.fail("the pool has a part of an n-gram", expected="whole n-grams", found=sizes)
        grams = [tuple(pool[i : i + n]) for n, (start, end) in enumerate(zip(starts, ends, strict=True), 1)
                 for i in range(start, end, n)]  # fmt: skip
        if len(set(grams)) != len(grams):
            ctx.fail("the pool has an n-gram twice")
        if len(self.ngram_indexes) != len(grams) or min(self.ngram_indexes) < 0:
            ctx.fail("ngram_indexes must say a column for each n-gram", expected=f"{len(grams)} numbers from 0",
                     found=f"{len(self.ngram_indexes)} numbers")  # fmt: skip
        if self.weights and len(self.weights) != len(grams):
            ctx.fail("weights must be one for each n-gram", expected=len(grams), found=len(self.weights))
