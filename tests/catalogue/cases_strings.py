"""Cases of the operators in compiler/ir/ops/strings.py. onnx.reference strips accents, drops empty strings, and
looks at the case of stop words; ONNX Runtime needs a locale for cases, and has no part of an empty string."""

from __future__ import annotations

from typing import Any

import numpy as np

from catalogue.cases import Case, case


def words(*texts: str) -> np.ndarray:
    return np.array(texts, object)


DAYS = words("Monday", "tuesday", "FRIDAY", "monday")
TEXTS = words(" a  b c ", "", "x,y,,z", "a--b", "p q\tr", ",")
POOL = {"max_gram_length": 2, "max_skip_count": 0, "min_gram_length": 1, "mode": "TF", "ngram_counts": [0, 4],
        "ngram_indexes": [6, 0, 2, 1, 4, 5, 3]}  # fmt: skip
NUMBERS = {**POOL, "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]}
WEIGHTS = [1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
LINE = np.array([1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8])


def counted(operand: Any, **attrs: Any) -> Case:
    return case("TfIdfVectorizer", [operand], {**NUMBERS, **attrs}, oracle="onnxruntime")


CASES = [
    case("StringConcat", [DAYS, DAYS[::-1].copy()]),
    case("StringConcat", [DAYS.reshape(4, 1), words("x", "", "ü")]),
    case("StringConcat", [np.array("a", object), words("x", "y")]),
    case("StringConcat", [DAYS[:0], words("x")], oracle="onnxruntime"),
    *(case("StringSplit", [x], attrs, outputs=2) for x in (TEXTS, TEXTS.reshape(2, 3), TEXTS[:0])
      for attrs in ({}, {"delimiter": ""}, {"delimiter": ","}, {"delimiter": "--"}, {"maxsplit": 1}, {"maxsplit": 0},
                    {"delimiter": ",", "maxsplit": 2}, {"maxsplit": -1})),
    case("StringSplit", [np.array("a b", object)], outputs=2, oracle="onnxruntime"),
    *(case("StringNormalizer", [x], attrs) for x in (DAYS, DAYS[None]) for attrs in (
        {}, {"case_change_action": "LOWER"}, {"case_change_action": "UPPER"},
        {"stopwords": ["monday"], "is_case_sensitive": 1}, {"stopwords": ["monday"], "case_change_action": "LOWER"},
        {"stopwords": ["monday", "tuesday", "friday"], "case_change_action": "UPPER"},
        {"stopwords": ["monday"], "is_case_sensitive": 1, "case_change_action": "UPPER"})),
    case("StringNormalizer", [words("é", "ß", "É", "")], {"stopwords": ["é"], "is_case_sensitive": 1},
         oracle="onnxruntime"),
    *(counted(x, **attrs) for x in (LINE, LINE.astype(np.int32).reshape(2, 6), LINE[:1], LINE[:0]) for attrs in (
        {}, {"max_skip_count": 5}, {"min_gram_length": 2, "max_skip_count": 2}, {"mode": "IDF"}, {"mode": "TFIDF"},
        {"mode": "IDF", "weights": WEIGHTS}, {"mode": "TFIDF", "weights": WEIGHTS, "max_skip_count": 3},
        {"max_gram_length": 1}, {"ngram_indexes": [6, 0, 2, 1, 4, 4, 4]}, {"ngram_indexes": [9, 0, 2, 1, 4, 5, 3]})),
    case("TfIdfVectorizer", [np.zeros((2, 0), np.int64)], NUMBERS, oracle="onnxruntime"),
    case("TfIdfVectorizer", [words("e", "f", "ü", "ü", "h", "a")], {**POOL, "max_skip_count": 1,
         "pool_strings": ["a", "b", "c", "d", "e", "f", "ü", "h", "f", "ü"]}, oracle="onnxruntime"),
]  # fmt: skip
