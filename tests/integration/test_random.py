"""Random operators: what is drawn, that it follows from the seed alone, and that without one it never does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import parax
from parax.compiler.options import CompileOptions
from parax.errors import InvalidModel

OPSET = helper.make_opsetid("", 22)
TYPES = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64", TensorProto.FLOAT16: "float16",
         TensorProto.BFLOAT16: "bfloat16"}  # fmt: skip


def model(op: str, x: Any = None, **attributes: Any) -> onnx.ModelProto:
    """One node; x: the element type and shape of its operand."""
    inputs = [] if x is None else [helper.make_tensor_value_info("x", *x)]
    node = helper.make_node(op, ["x"] if inputs else [], ["y"], **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[OPSET], ir_version=10)


def drawn(made: onnx.ModelProto, x: np.ndarray | None = None, runs: int = 1, options: CompileOptions | None = None,
          **arrangement: Any) -> list[np.ndarray]:  # fmt: skip
    """The results of some runs of one session."""
    with parax.compile(made, options=options).session(**arrangement) as session:
        return [session.run({} if x is None else {"x": x})["y"] for _ in range(runs)]


@pytest.mark.parametrize("code", TYPES, ids=TYPES.get)
@pytest.mark.parametrize("seed", [0.0, -0.0, 7.5])
def test_moments(code: int, seed: float) -> None:
    """Within five standard errors; shares of a normal distribution within one and two deviations."""
    n, shape = 120_000, [300, 400]
    (y,) = drawn(model("RandomUniform", shape=shape, dtype=code, low=-1.0, high=3.0, seed=seed))
    assert y.dtype.name == TYPES[code] and list(y.shape) == shape
    y = y.astype(np.float64)
    assert y.min() >= -1 and y.max() <= 3
    assert abs(y.mean() - 1) < 5 * np.sqrt(16 / 12 / n) + (0.01 if code == TensorProto.BFLOAT16 else 0)
    counts = np.histogram(y, 16, (-1, 3))[0]
    assert abs(counts - n / 16).max() < (5 if code < 16 else 30) * np.sqrt(n / 16)
    (z,) = drawn(model("RandomNormal", shape=shape, dtype=code, mean=-2.0, scale=0.5, seed=seed))
    z = (z.astype(np.float64) + 2) / 0.5
    slack = 0.05 if code == TensorProto.BFLOAT16 else 0
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - moment) < 5 * np.sqrt(variance / n) + slack
    if code <= 11:
        for k, share in ((1, 0.6826895), (2, 0.9544997), (3, 0.9973002)):
            assert abs((np.abs(z) < k).mean() - share) < 5 * np.sqrt(share * (1 - share) / n) + 0.001 * (code == 10)


def test_neighbours_and_streams_are_independent() -> None:
    rows = [drawn(model("RandomNormal", shape=[1 << 16], seed=seed))[0] for seed in (0.0, 1.0)]
    pairs = [(rows[0], rows[1]), *((row[:-lag], row[lag:]) for row in rows for lag in (1, 16, 64))]
    assert all(abs(np.corrcoef(a, b)[0, 1]) < 5 / 256 for a, b in pairs)


SEEDED = [
    ("RandomUniform", None, {"shape": [37, 1000]}), ("RandomNormal", None, {"shape": [37, 1000]}),
    ("RandomUniformLike", (TensorProto.FLOAT, ["N", 1000]), {}), ("RandomNormalLike", (TensorProto.INT8, ["N", 1000]), {
        "dtype": TensorProto.DOUBLE}), ("Bernoulli", (TensorProto.FLOAT, ["N", 1000]), {"dtype": TensorProto.INT32}),
    ("Multinomial", (TensorProto.FLOAT, ["N", 11]), {"sample_size": 100, "dtype": TensorProto.INT64}),
]  # fmt: skip


def operand(x: Any) -> np.ndarray | None:
    if x is None:
        return None
    made = np.random.default_rng(3).random((37, x[1][1]))
    return made.astype(helper.tensor_dtype_to_np_dtype(x[0]))


@pytest.mark.parametrize(("op", "x", "attributes"), SEEDED, ids=[op for op, *_ in SEEDED])
@pytest.mark.usefixtures("any_target")
def test_a_seed_gives_the_same_numbers_however_it_is_run(op: str, x: Any, attributes: dict[str, Any]) -> None:
    made, given = model(op, x, seed=3.0, **attributes), operand(x)
    first, again = drawn(made, given, 2, instances=1, cores_per_instance=1)
    np.testing.assert_array_equal(first, again)
    compilations = (CompileOptions(opt_level=0), CompileOptions(targets=("x86-64-v2",)))
    others = [{"instances": 1, "cores_per_instance": 2}, {"instances": 2, "cores_per_instance": 1}]
    for other in (*others, *({"options": options} for options in compilations)):
        np.testing.assert_allclose(first, drawn(made, given, **other)[0], rtol=2e-5 if first.dtype.kind == "f" else 0,
                                   atol=1e-5)  # fmt: skip
    assert (first != drawn(model(op, x, seed=4.0, **attributes), given)[0]).any()


@pytest.mark.parametrize(("op", "x", "attributes"), SEEDED, ids=[op for op, *_ in SEEDED])
def test_without_a_seed_every_run_draws_anew(op: str, x: Any, attributes: dict[str, Any]) -> None:
    runs = drawn(model(op, x, **attributes), operand(x), 3)
    assert not any((a == b).all() for i, a in enumerate(runs) for b in runs[:i])


def test_two_nodes_without_a_seed_draw_different_numbers() -> None:
    nodes = [helper.make_node("RandomNormal", [], [name], shape=[1000]) for name in "ab"]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1000]) for name in "ab"]
    made = helper.make_model(helper.make_graph(nodes, "g", [], outputs), opset_imports=[OPSET], ir_version=10)
    with parax.compile(made).session() as session:
        found = session.run({})
    assert (found["a"] != found["b"]).mean() > 0.99


def test_bernoulli() -> None:
    p = np.repeat(np.array([0, 1e-3, 0.25, 0.5, 1, np.nan], np.float32), 1 << 16).reshape(6, -1)
    (y,) = drawn(model("Bernoulli", (TensorProto.FLOAT, list(p.shape)), seed=1.0), p)
    assert y.dtype == np.float32 and set(np.unique(y)) == {0, 1}
    shares = y.mean(1)
    for share, wanted in zip(shares, [0, 1e-3, 0.25, 0.5, 1, 0]):
        assert abs(share - wanted) <= 5 * np.sqrt(wanted * (1 - wanted) / p.shape[1])


@pytest.mark.parametrize("code", TYPES, ids=TYPES.get)
def test_multinomial(code: int) -> None:
    """Weights need not sum to 1; classes without a weight are never drawn, first, in the middle or last."""
    weights = np.array([[0, 1, 0, 3, 0], [5, 0, 2.5, 2.5, 0], [1, 1, 1, 1, 1]])
    with np.errstate(divide="ignore"):
        logits = np.log(weights).astype(helper.tensor_dtype_to_np_dtype(code))
    n = 1 << 15
    (y,) = drawn(model("Multinomial", (code, [3, 5]), sample_size=n, seed=2.0), logits)
    assert y.dtype == np.int32 and y.shape == (3, n)
    shares = np.stack([np.bincount(row, minlength=5) for row in y]) / n
    wanted = weights / weights.sum(1, keepdims=True)
    assert (np.abs(shares - wanted) <= 5 * np.sqrt(wanted * (1 - wanted) / n) + 0.005 * (wanted % 1 > 0)).all()


@pytest.mark.parametrize(("op", "x", "attributes", "said"), [
    ("RandomUniform", None, {"shape": [3], "dtype": TensorProto.INT32}, "dtype"),
    ("RandomNormal", None, {"shape": [-3]}, "negative"),
    ("RandomNormalLike", (TensorProto.INT8, [3]), {}, "dtype"),
    ("Bernoulli", (TensorProto.FLOAT, [3]), {"dtype": TensorProto.INT4}, "dtype"),
    ("Multinomial", (TensorProto.FLOAT, [3]), {}, "batch"),
    ("Multinomial", (TensorProto.FLOAT, [3, 2]), {"sample_size": 0}, "sample_size"),
    ("Multinomial", (TensorProto.FLOAT, [3, 2]), {"dtype": TensorProto.FLOAT}, "dtype"),
    ("Multinomial", (TensorProto.FLOAT, [3, 0]), {}, "classes"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_refused(op: str, x: Any, attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidModel, match=said):
        parax.compile(model(op, x, **attributes))
