"""Operators of strings: their parts, their case, what matches them; and n-grams of strings or numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...errors import IncompatiblePlan
from ..limits import afford, current
from .base import HOST_OPS, Attributes, HostOp, host_op

_TEXT_NBYTES = 60  # of a short one


def _of_texts(texts: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(shape)


@host_op("StringConcat")
def string_concat(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """x + y."""
    x, y = np.broadcast_arrays(*inputs)
    afford(_TEXT_NBYTES * x.size, "StringConcat")
    return [_of_texts([a + b for a, b in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)], x.shape)]


@host_op("StringSplit")
def string_split(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """The parts as Python's split makes them."""
    (x,) = inputs
    delimiter, limit = attributes.get("delimiter") or None, attributes.get("maxsplit")
    most = -1 if limit is None else int(limit)
    parts = [text.split(delimiter, most) for text in x.ravel().tolist()]
    longest = max(map(len, parts), default=0)
    afford(_TEXT_NBYTES * longest * len(parts), "StringSplit")
    flat = [part for own in parts for part in (*own, *[""] * (longest - len(own)))]
    counts = np.array([len(own) for own in parts], np.int64)
    return [_of_texts(flat, (*x.shape, longest)), counts.reshape(x.shape)]


def _lower(text: str) -> str:
    return "".join(map(partial(_in_case, str.lower), text))


def _upper(text: str) -> str:
    return "".join(map(partial(_in_case, str.upper), text))


def _in_case(change: Any, char: str) -> str:
    """A character in another case, where that is one character: as C's towlower and towupper."""
    changed: str = change(char)
    return changed if len(changed) == 1 else char


_CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": _lower, "UPPER": _upper}


@host_op("StringNormalizer")
def string_normalizer(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """What is no stop word, in another case."""
    (x,) = inputs
    action = attributes.get("case_change_action", "NONE")
    change = _CASES[action]
    compared = _CASES["LOWER" if action == "NONE" else action]
    if attributes.get("is_case_sensitive", 0):
        compared = _CASES["NONE"]
    stopwords = {compared(word) for word in attributes.get("stopwords") or ()}
    kept = [change(text) for text in x.ravel().tolist() if compared(text) not in stopwords] or [""]
    return [_of_texts(kept, (*x.shape[:-1], len(kept)))]


def _full_match(attributes: Attributes) -> HostOp:
    try:
        pattern = re.compile(attributes["pattern"])
    except (re.error, RecursionError, OverflowError) as error:
        raise IncompatiblePlan("no regular expression for this Python", found=str(error)[:100]) from error
    return partial(_matches, pattern)


def _matches(pattern: re.Pattern[str], inputs: list[Any]) -> list[Any]:
    (x,) = inputs
    found = []
    for text in x.ravel().tolist():
        current().tick("RegexFullMatch")
        found.append(pattern.fullmatch(text) is not None)
    return [np.array(found, bool).reshape(x.shape)]


HOST_OPS["parax", "FullMatch"] = _full_match


def _tf_idf(attributes: Attributes) -> HostOp:
    """The pool as a table: n-gram → its column and weight."""
    pool = attributes.get("pool_strings") or attributes.get("pool_int64s") or []
    starts = attributes["ngram_counts"]
    grams = [tuple(pool[i : i + n]) for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)]), 1)
             for i in range(start, end, n)]  # fmt: skip
    columns = attributes["ngram_indexes"]
    weights = attributes.get("weights") or [1.0] * len(grams)
    table = {gram: (column, weight) for gram, column, weight in zip(grams, columns, weights, strict=True)}
    least, most = attributes["min_gram_length"], attributes["max_gram_length"]
    lengths = [n for n in range(least, most + 1) if any(len(gram) == n for gram in table)]
    return partial(_counted, attributes, table, max(columns, default=-1) + 1, lengths)


def _counted(
    attributes: Attributes, table: dict[tuple[Any, ...], tuple[int, float]], width: int, lengths: list[int],
    inputs: list[Any],
) -> list[Any]:  # fmt: skip
    (x,) = inputs
    mode, skips = attributes["mode"], attributes["max_skip_count"]
    rows = x if x.ndim > 1 else x[None]
    afford(4 * width * len(rows), "TfIdfVectorizer")
    y = np.zeros((len(rows), width), np.float32)
    for row, items in zip(y, rows.tolist(), strict=True):
        current().tick("TfIdfVectorizer")
        for gram, count in _grams(items, lengths, skips, table).items():
            column, weight = table[gram]
            row[column] += {"TF": count, "IDF": weight, "TFIDF": count * weight}[mode]
    return [y.reshape(*x.shape[:-1], width)]


def _grams(items: list[Any], lengths: list[int], skips: int, table: Any) -> Counter[tuple[Any, ...]]:
    """How often each n-gram of the table is among the items, of every distance between two; single items once."""
    found: Counter[tuple[Any, ...]] = Counter()
    for n in lengths:
        for distance in range(1, (skips if n > 1 else 0) + 2):
            span = (n - 1) * distance
            if span >= len(items):
                break
            shifted = (items[i * distance : len(items) - span + i * distance] for i in range(n))
            found.update(gram for gram in zip(*shifted, strict=True) if gram in table)
    return found


HOST_OPS["", "TfIdfVectorizer"] = _tf_idf
