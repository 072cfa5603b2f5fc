"""Strings through whole plans, beside numbers that are computed natively, against ONNX Runtime."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.compiler.ir.ops.regular_expressions import as_python
from parax.errors import InvalidInput, InvalidModel, UnsupportedOp

WORDS = np.array([["a", "bb", "ccc"], ["d", "", "ü"]], object)
FLOATS = [1.5, 0.1, 1e20, 1e-7, 123456789.0, -0.0, float("nan"), float("inf"), -float("inf"), 1 / 3]
onnxruntime.set_default_logger_severity(4)


def kind_of(array: np.ndarray) -> int:
    return TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)


def model_of(
    op: str, operands: list[np.ndarray], attrs: dict[str, Any], constant: tuple[int, ...] = (), domain: str = "",
    outputs: int = 1, is_open: bool = False,
) -> onnx.ModelProto:  # fmt: skip
    names = [f"x{i}" for i in range(len(operands))]
    given = [helper.make_tensor_value_info(n, kind_of(x), [f"{n}_{a}" for a in range(x.ndim)] if is_open else x.shape)
             for i, (n, x) in enumerate(zip(names, operands, strict=True)) if i not in constant]
    fixed = [numpy_helper.from_array(operands[i], names[i]) for i in constant]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attrs)
    graph = helper.make_graph([node], "g", given, list(map(helper.make_empty_tensor_value_info, results)), fixed)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def feeds_of(operands: list[np.ndarray], constant: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {f"x{i}": x for i, x in enumerate(operands) if i not in constant}


def ours(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[Any]:
    with parax.compile(model).session() as session:
        return list(session.run(feeds).values())


I = np.array
CASES: list[tuple[str, list[np.ndarray], dict[str, Any], tuple[int, ...]]] = [
    ("Equal", [WORDS, WORDS[:1]], {}, ()),
    ("StringConcat", [WORDS, WORDS[:1]], {}, ()),
    ("GatherND", [WORDS, I([[0, 1], [-1, 2]])], {}, (1,)),
    ("GatherND", [WORDS, I([[1], [-3]])], {"batch_dims": 1}, (1,)),
    ("ScatterND", [WORDS, I([[0, 1], [1, -1]]), I(["X", "Y"], object)], {}, (1,)),
    ("ScatterElements", [WORDS, I([[0, -1]]), I([["X", "Y"]], object)], {"axis": 1}, ()),
    ("Shape", [WORDS], {"start": -1}, ()),
    ("Size", [WORDS], {}, ()),
    ("Where", [WORDS == "a", WORDS, WORDS[:1]], {}, ()),
    ("Compress", [WORDS, I([True, False, True])], {"axis": 1}, ()),
    ("OneHot", [I([0, 2]), I(3), I(["off", "on"], object)], {}, (1,)),
    ("Expand", [WORDS[:1], I([2, 3])], {}, (1,)),
    ("Identity", [WORDS], {}, ()),
    ("ArrayFeatureExtractor", [WORDS, I([0, 2])], {}, ()),
    ("Squeeze", [WORDS[None], I([0])], {}, (1,)),
    ("CategoryMapper", [WORDS], {"cats_int64s": [5, 6], "cats_strings": ["a", "ü"], "default_int64": -7}, ()),
    ("CategoryMapper", [I([5, 9])], {"cats_int64s": [5, 6], "cats_strings": ["a", "ü"], "default_string": "?"}, ()),
    ("RegexFullMatch", [WORDS], {"pattern": r"[a-c]+|\w"}, ()),
    *(("Cast", [x], {"to": TensorProto.STRING}, fixed) for fixed in ((), (0,))
      for x in (I(FLOATS, np.float32), I(FLOATS), I([1.5, 1 / 3], np.float16), I([1, -5]), I([True, False]),
                I([200], np.uint8))),
    *(("CastLike", [x, WORDS], {}, ()) for x in (I(FLOATS, np.float32), I([[7]], np.int8))),
    *(("Cast", [I(["1", "0", "12", " 7 ", "+4"], object)], {"to": getattr(TensorProto, to)}, fixed)
      for fixed in ((), (0,))
      for to in ("FLOAT", "DOUBLE", "FLOAT16", "INT64", "INT32", "INT16", "INT8", "UINT64", "UINT8", "BOOL")),
    *(("Cast", [I(["1.5", "-inf", "NaN", "1e3", "INF", "3.4e38", "1e39"], object)], {"to": getattr(TensorProto, to)},
       ()) for to in ("FLOAT", "DOUBLE", "FLOAT16")),
    ("Cast", [WORDS], {"to": TensorProto.STRING}, ()),
]  # fmt: skip


@pytest.mark.parametrize("op, operands, attrs, constant", CASES, ids=lambda p: p if isinstance(p, str) else "")
def test_onnx_runtime_agrees(op: str, operands: list[Any], attrs: dict[str, Any], constant: tuple[int, ...]) -> None:
    domain = "ai.onnx.ml" if op in ("CategoryMapper", "ArrayFeatureExtractor") else ""
    model = model_of(op, operands, attrs, constant, domain)
    feeds = feeds_of(operands, constant)
    (found,) = ours(model, feeds)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert str(found.tolist()) == str(wanted.tolist())


CUBE = np.array(list("abcdefghijklmnop"), object)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_and_space_agree_with_numbers(mode: str) -> None:
    """ONNX Runtime has them for numbers alone."""
    for op, shape in (("DepthToSpace", (1, 8, 1, 2)), ("SpaceToDepth", (1, 2, 2, 4))):
        if op == "SpaceToDepth" and mode == "CRD":
            continue
        attrs = {"blocksize": 2, **({"mode": mode} if op == "DepthToSpace" else {})}
        numbers = np.arange(16, dtype=np.float32).reshape(shape)
        (wanted,) = ours(model_of(op, [numbers], attrs), {"x0": numbers})
        (found,) = ours(model_of(op, [CUBE.reshape(shape)], attrs), {"x0": CUBE.reshape(shape)})
        assert found.tolist() == CUBE[wanted.astype(int)].tolist()


@pytest.mark.parametrize("op, operands, attrs", [
    ("StringNormalizer", [WORDS[:1]], {"stopwords": ["BB"], "case_change_action": "NONE"}),
    ("StringSplit", [WORDS], {"delimiter": "c"}),
    ("NonZero", [WORDS], {}),
    ("Unique", [WORDS], {}),
])  # fmt: skip
def test_sizes_that_the_texts_decide(op: str, operands: list[Any], attrs: dict[str, Any]) -> None:
    wanted = {"StringNormalizer": [["a", "ccc"]], "NonZero": [[0, 0, 0, 1, 1], [0, 1, 2, 0, 2]],
              "StringSplit": [[["a", "", "", ""], ["bb", "", "", ""], ["", "", "", ""]],
                              [["d", "", "", ""], ["", "", "", ""], ["ü", "", "", ""]]],
              "Unique": ["", "a", "bb", "ccc", "d", "ü"]}  # fmt: skip
    outputs = 2 if op == "StringSplit" else 1
    for is_open in (False, True):
        found = ours(model_of(op, operands, attrs, outputs=outputs, is_open=is_open), {"x0": operands[0]})
        assert found[0].tolist() == wanted[op]


@pytest.mark.parametrize("to, text", [
    ("UINT8", ""), ("UINT8", "x"), ("UINT8", "1_0"), ("INT64", "7x"), ("INT8", "1.5"), ("UINT8", "300"),
    ("UINT64", "-1"), ("INT64", "9" * 30), ("FLOAT", ""), ("FLOAT", "1_0"), ("DOUBLE", "0x10"), ("FLOAT", "٣"),
    ("BOOL", "true"),
])  # fmt: skip
def test_texts_that_are_no_numbers(to: str, text: str) -> None:
    given = np.array([text], object)
    plan = parax.compile(model_of("Cast", [given], {"to": getattr(TensorProto, to)}))
    with plan.session() as session, pytest.raises(InvalidInput, match="a text is"):
        session.run({"x0": given})


def test_narrow_types_and_texts() -> None:
    texts = np.array(["1.5", "1000", "-inf", "nan", "0.3"], object)
    for saturate in (0, 1):
        to = {"to": TensorProto.FLOAT8E4M3FN, "saturate": saturate}
        (found,) = ours(model_of("Cast", [texts], to), {"x0": texts})
        numbers = np.array(texts, np.float32)
        (wanted,) = ours(model_of("Cast", [numbers], to), {"x0": numbers})
        assert found.view(np.uint8).tolist() == wanted.view(np.uint8).tolist()
        (back,) = ours(model_of("Cast", [found], {"to": TensorProto.STRING}), {"x0": found})
        assert back.tolist() == [{"inf": "INF", "-inf": "-INF", "nan": "NaN"}.get(t, t) for t in
                                 (f"{v:.8g}" for v in found.astype(np.float32).tolist())]  # fmt: skip


def test_numbers_beside_strings_stay_native() -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["": 21]>
    g (float[N,4] x, string[N] s) => (float[N,4] y, string[N,4] t, bool[N] same) {
        r = Relu (x)
        e = Exp (r)
        t = Cast <to = 8> (e)
        two = Constant <value_float = 2.0> ()
        y = Mul (e, two)
        u = StringNormalizer <case_change_action = "UPPER"> (s)
        same = Equal (u, s)
    }""")
    x, s = np.array([[0.0, 1.0, -2.0, 3.0]], np.float32), np.array(["UP"], object)
    plan = parax.compile(model)
    steps = {getattr(step, "op", "native") for step in plan.manifest.steps}
    assert steps == {"native", "Cast", "StringNormalizer", "Equal"}
    with plan.session() as session:
        found = session.run({"x": x, "s": s})
    np.testing.assert_allclose(found["y"], 2 * np.exp(np.maximum(x, 0)), rtol=1e-6)
    assert found["t"].tolist() == [[f"{v:.8g}" for v in row] for row in (found["y"] / 2).tolist()]
    assert found["same"].tolist() == [True]


SPECIAL = ["a", "b", "A", "é", "\n", "0", "_", " ", "-", "]", "٣", "K", "ſ", "k", "s", "\r", "\x1c"]


def pattern(rng: random.Random, depth: int = 0) -> str:
    """A random regular expression of RE2's."""
    parts = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.randrange(5)
        if kind < 2:
            atom = rng.choice(["a", "k", "é", "0", "-", "]", "}", ".", r"\.", r"\x{e9}", r"\n", r"\Qa.\E"])
        elif kind == 2:
            atom = rng.choice([r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\b", r"\B", "^", "$", r"\A", r"\z"])
        elif kind == 3 or depth > 1:
            members = rng.choice(["a-c", "[:punct:]", "&&", "-k", "^"]) + rng.choice(SPECIAL[:8])
            atom = f"[{rng.choice(['', '^'])}{members}]"
        else:
            atom = f"({rng.choice(['', '?:', '?i:', '?s:', '?P<n>'])}{pattern(rng, 2)})"
        parts.append(atom + rng.choice(["", "", "", "*", "+?", "{1,2}", "{,2}", "?"]))
    return rng.choice(["", "", "(?i)"] if not depth else [""]) + "".join(parts) + rng.choice(["", "|ab"])


def test_regular_expressions_agree_with_re2() -> None:
    """Where ours are not refused."""
    rng, compared = random.Random(7), 0
    drawn = ["".join(rng.choices(SPECIAL, k=rng.randrange(4))) for _ in range(150)]
    texts = np.array([*drawn, "", "ab", "a{,2}"], object)
    for _ in range(300):
        text = pattern(rng)
        try:
            found = re.compile(as_python(text))
        except UnsupportedOp:
            continue
        model = model_of("RegexFullMatch", [texts], {"pattern": text})
        (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x0": texts})
        assert [found.fullmatch(t) is not None for t in texts] == wanted.tolist(), text
        compared += 1
    assert compared > 100


@pytest.mark.parametrize("text", [
    r"(a)\1", "(?=a)a", "(?<!a)b", "a++", "a**", r"\p{L}", r"ab\Z", "(?m)^a$", "(?U)a*", "(?x) a", "a{1001}", "(", ")",
    "[", "[b-a]", "[[:foo:]]", "*a", "a|*", r"\C", r"\x{110000}", r"\x", "\\", r"\400", "(?i)é", "(?P<n>a", "[a",
    r"(?#x)a", "^*", r"\Qab\E*", "(?P<1>a)",
])  # fmt: skip
def test_regular_expressions_that_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedOp, match="regular expression"):
        as_python(text)


@pytest.mark.parametrize("op, x, attrs, error, match", [
    ("StringNormalizer", WORDS[None], {}, InvalidModel, r"\[n\] or \[1,n\]"),
    ("StringNormalizer", WORDS, {}, InvalidModel, "one row"),
    ("StringNormalizer", WORDS[0], {"case_change_action": "TITLE"}, InvalidModel, "case_change_action"),
    ("StringNormalizer", WORDS[0], {"case_change_action": "UPPER", "locale": "tr_TR"}, UnsupportedOp, "locale"),
    ("RegexFullMatch", WORDS, {"pattern": "("}, UnsupportedOp, "regular"),
    ("Cast", WORDS, {"to": TensorProto.COMPLEX64}, UnsupportedOp, "written as text"),
])  # fmt: skip
def test_what_is_refused(op: str, x: np.ndarray, attrs: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        parax.compile(model_of(op, [x], attrs))


POOL = {"max_gram_length": 2, "max_skip_count": 0, "min_gram_length": 1, "mode": "TF", "ngram_counts": [0, 2],
        "ngram_indexes": [0, 1, 2], "pool_int64s": [2, 3, 5, 4]}  # fmt: skip


@pytest.mark.parametrize("attrs, match", [
    ({"mode": "BM25"}, "mode"),
    ({"min_gram_length": 3}, "in order"),
    ({"max_skip_count": -1}, "max_skip_count"),
    ({"pool_int64s": []}, "pool"),
    ({"pool_strings": ["a"]}, "pool"),
    ({"ngram_counts": [0]}, "ngram_counts"),
    ({"ngram_counts": [1, 2]}, "ngram_counts"),
    ({"ngram_counts": [0, 3]}, "part of an n-gram"),
    ({"pool_int64s": [2, 2, 5, 4]}, "twice"),
    ({"ngram_indexes": [0, 1]}, "ngram_indexes"),
    ({"ngram_indexes": [0, 1, -2]}, "ngram_indexes"),
    ({"weights": [1.0]}, "weights"),
])  # fmt: skip
def test_pools_that_are_refused(attrs: dict[str, Any], match: str) -> None:
    given = {k: v for k, v in {**POOL, **attrs}.items() if v != []}
    with pytest.raises(InvalidModel, match=match):
        parax.compile(model_of("TfIdfVectorizer", [np.zeros(3, np.int64)], given))


def test_capitals_are_one_letter_each() -> None:
    given = np.array(["straße", "ŉ", "Éa"], object)
    assert ours(model_of("StringNormalizer", [given], {"case_change_action": "UPPER"}), {"x0": given})[0].tolist() == [
        "STRAßE", "ŉ", "ÉA"]  # fmt: skip
