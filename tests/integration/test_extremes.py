"""Rewrites and fused kernels keep finite what the model computes step by step, however large or small numbers are."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import parax
from parax import CompileOptions

f32 = np.float32
Arrays = dict[str, np.ndarray]


def run(
    text: str, feeds: Arrays, constants: Arrays, options: dict[str, Any] | None = None, **session: Any
) -> np.ndarray:
    """What parax computes of `y` by a graph of nodes, one `OUT = OP<name=value>(IN, ...)` a line; the batch is open."""
    made = onnx.parser.parse_graph(f"g (float[1] x) => (float[1] y) {{ {text} }}")
    ins = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), ["N", *a.shape[1:]])
           for n, a in feeds.items()]  # fmt: skip
    graph = helper.make_graph(list(made.node), "g", ins, [helper.make_empty_tensor_value_info("y")],
                              [numpy_helper.from_array(a, n) for n, a in constants.items()])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with parax.compile(model, **(options or {})).session(**session) as opened:
        return opened.run(feeds)["y"]


@pytest.mark.parametrize(("scale", "size", "weight"), [(1e20, 1e-30, 1e20), (1e-25, 1e30, 1e-25), (np.inf, 1.0, 1.0)])
def test_scales_that_the_weights_cannot_take(scale: float, size: float, weight: float) -> None:
    x = (np.arange(1, 9).reshape(2, 4) * size).astype(f32)
    w = (np.arange(1, 13).reshape(4, 3) * weight * [1, -1, 1]).astype(f32)
    s = np.array(scale, f32)
    with np.errstate(over="ignore"):
        want = (x @ w) * s
    found = run("a = MatMul(x, w)\n y = Mul(a, s)", {"x": x}, {"w": w, "s": s})
    np.testing.assert_allclose(found, want, rtol=1e-5)


ONES, WHOLE = np.ones((2, 2), f32), np.arange(1, 400, dtype=f32)[:, None]
PRODUCTS = {"w": np.arange(1, 60, dtype=f32)[None], "c": np.array(0.7, f32)}
QUARTER, THIRDS = np.eye(4, 64, dtype=np.uint8), {"s": np.full(64, 1 / 3, f32), "t": np.full(64, -1, f32)}
BY_ONE = {"w": np.ones((1, 1, 1, 1), f32), "b": np.array([1e30], f32), "c": np.array(1e10, f32)}
ROWS = np.where(np.arange(6)[:, None] % 2, 2100, -2100) * np.ones((1, 32, 6, 6))
STEPS: dict[str, tuple[str, Arrays, Arrays]] = {
    "one product behind": ("a = MatMul(x, w)\n b = Mul(a, c)\n y = Floor(b)", {"x": WHOLE}, PRODUCTS),
    "one product before": ("a = Mul(x, c)\n b = MatMul(a, w)\n y = Floor(b)", {"x": WHOLE}, PRODUCTS),
    "behind an integer product": (
        "a = MatMulInteger(x, w)\n b = Cast<to = 1>(a)\n c = Mul(b, s)\n d = Add(c, t)\n y = Ceil(d)",
        {"x": np.full((64, 4), 3, np.uint8)}, {"w": QUARTER, **THIRDS}),
    "behind an integer convolution": (
        "a = ConvInteger(x, w)\n b = Cast<to = 1>(a)\n c = Mul(b, s)\n d = Add(c, t)\n y = Ceil(d)",
        {"x": np.full((1, 16, 9, 64), 3, np.uint8)}, {"w": np.eye(16, dtype=np.uint8)[:, :, None, None], **THIRDS}),
    "behind one product and a Mul": ("a = MatMul(x, w)\n c = Mul(a, s)\n d = Add(c, t)\n y = Ceil(d)",
                                     {"x": np.full((64, 1), 3, f32)}, {"w": np.ones((1, 64), f32), **THIRDS}),
    "behind a sum that is rounded": ("a = MatMul(x, w)\n b = Round(a)\n c = Mul(b, s)\n d = Add(c, t)\n y = Ceil(d)",
                                     {"x": np.full((64, 4), 3, f32)}, {"w": QUARTER.astype(f32), **THIRDS}),
    "a bias beyond f32": ("a = Conv(x, w, b)\n y = Mul(a, c)", {"x": np.full((1, 1, 3, 3), -1e30, f32)}, BY_ONE),
    "a shift by a small beta": ("a = Gemm<beta = 1e-30>(x, w, b)\n y = Add(a, d)", {"x": ONES},
                                {"w": ONES, "b": np.ones(2, f32), "d": np.array([3e9, 4], f32)}),
    "a divisor that has no inverse": (
        "a = MatMul(x, w)\n s = Add(a, b)\n y = Div(s, d)", {"x": ONES * f32(1e-10)},
        {"w": np.eye(2, dtype=f32), "b": np.array([0, 1e-11], f32), "d": np.array(1e-40, f32)}),
    "a scale that makes infinity": ("a = Mul(x, c)\n y = MatMul(a, w)", {"x": ONES * f32(1e30)},
                                    {"w": np.array([[1e-20, 1], [1, 1]], f32), "c": np.array(1e20, f32)}),
    "a table's rows, beta 0": ("a = Gather(t, x)\n y = Gemm<beta = 0.0>(a, w, b)", {"x": np.array([1, 0, 1])},
                               {"t": ONES, "w": ONES, "b": np.full(2, np.nan, f32)}),
    "f16 between pool and convolution": (
        "a = AveragePool<kernel_shape = [2, 2]>(x)\n y = Conv(a, w)", {"x": ROWS.astype(np.float16)},
        {"w": np.ones((8, 32, 1, 1), np.float16)}),
    "margins of infinite weights": (
        "a = Pad(x, p)\n y = Conv<group = 4>(a, w)", {"x": np.ones((1, 4, 5, 5), f32)},
        {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "w": np.full((4, 1, 3, 3), np.inf, f32)}),
    "the sign of 0": ("a = Add(x, z)\n y = Reciprocal(a)", {"x": -0.0 * ONES}, {"z": np.zeros((), f32)}),
    "one element of a long step": (
        "a = Slice(x, s, e, s, t)\n y = Slice(a, s, e, s, u)", {"x": WHOLE},
        {"s": np.array([0]), "e": np.array([9]), "t": np.array([2**63 - 1]), "u": np.array([2])}),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_rewrites_keep_what_each_step_makes(name: str) -> None:
    text, feeds, constants = STEPS[name]
    options = [{"options": CompileOptions(opt_level=level)} for level in (0, 2)]
    want, found = (run(text, feeds, constants, each) for each in options)
    np.testing.assert_allclose(found, want, rtol=0 if "Floor" in text else 1e-5)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(want))


@pytest.mark.parametrize("n", [32, 33])
@pytest.mark.parametrize(("op", "want"), [("Sum", np.inf), ("Mean", 60000)])
def test_many_halves_are_added_as_few(op: str, want: float, n: int) -> None:
    x = np.full((2, 3), 60000, np.float16)
    found = run(f"y = {op}({', '.join(f'x{i}' for i in range(n))})", {f"x{i}": x for i in range(n)}, {})
    np.testing.assert_array_equal(found, np.full((2, 3), want, np.float16))


def test_what_is_taken_away_before_a_convolution_does_not_cancel() -> None:
    rng = np.random.default_rng(0)
    x = f32(1e6) + rng.integers(-8, 8, (2, 3, 8, 8)).astype(f32)
    w, c = rng.integers(-4, 4, (4, 3, 1, 1)).astype(f32), np.full((3, 1, 1), 1e6, f32)
    found = run("a = Sub(x, c)\n y = Conv(a, w)", {"x": x}, {"w": w, "c": c})
    np.testing.assert_array_equal(found, np.einsum("nchw,dc->ndhw", x - c, w[:, :, 0, 0]))


def test_infinite_weights_of_a_convolution_are_infinite_products() -> None:
    x = np.random.default_rng(1).uniform(1, 2, (1, 16, 12, 12)).astype(f32)
    w = np.ones((16, 16, 3, 3), f32)
    w[3, 5, 1, 1] = np.inf
    found = run("y = Conv(x, w)", {"x": x}, {"w": w})
    assert np.isposinf(found[:, 3]).all() and np.isfinite(np.delete(found, 3, axis=1)).all()


@pytest.mark.parametrize("alpha", [-2.0, -0.5, 0.5])
def test_celu_by_its_formula(alpha: float) -> None:
    x = np.array([[-3, -1, -0.5, -0.0, 0.5, 3, np.inf, -np.inf]], f32)
    with np.errstate(over="ignore"):
        want = np.maximum(x, 0) + np.minimum(0, alpha * (np.exp(x / alpha) - 1))
    np.testing.assert_allclose(run(f"y = Celu<alpha = {alpha}>(x)", {"x": x}, {}), want, rtol=1e-5)


def test_a_large_candidate_of_a_gru_does_not_swallow_the_state() -> None:
    x, hidden = np.full((1, 1, 1), 1.0, f32), np.full((1, 1, 1), 0.3, f32)
    w = np.array([[[1e3], [0.0], [12346.0]]], f32)
    text = 'y = GRU<hidden_size = 1, activations = ["Sigmoid", "Relu"]>(x, w, r, , , h)'
    found = run(text, {"x": x}, {"w": w, "r": np.zeros((1, 3, 1), f32), "h": hidden})
    assert found.item() == f32(0.3)


@pytest.mark.parametrize("session", [{}, {"instances": 1, "micro_batch": 1}], ids=str)
@pytest.mark.parametrize("options", [{}, {"hint": "latency"}], ids=str)
@pytest.mark.parametrize("n", [1, 2, 3, 65])
def test_how_many_rows_there_are_is_the_whole_requests_number(n: int, options: dict[str, Any], session: Any) -> None:
    """Also where it passes through fused operators: then requests are not cut."""
    x = np.random.default_rng(n).uniform(-1, 1, (n, 512)).astype(f32)
    count = "s = Shape(x)\n m = Gather(s, zero)\n c = Cast<to = 1>(m)\n p = Mul(c, c)\n q = Neg(p)\n"
    sums = f"{count} e = Exp(x)\n t = Tanh(e)\n y = Add(t, q)"
    found = run(sums, {"x": x}, {"zero": np.array(0)}, options, **session)
    np.testing.assert_allclose(found, np.tanh(np.exp(x)) - f32(n) * n, rtol=1e-5)
    place = "s = Shape(x)\n m = Gather(s, zero)\n a = Sub(m, one)\n b = Mod(a, two)\n y = Gather<axis = 1>(x, b)"
    constants = {"zero": np.array(0), "one": np.array(1), "two": np.array(2)}
    np.testing.assert_array_equal(run(place, {"x": x}, constants, options, **session), x[:, (n - 1) % 2])
