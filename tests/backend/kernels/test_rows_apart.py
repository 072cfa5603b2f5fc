"""Every row of a product by itself: outliers, denormals, infinities and NaNs cost no other row its bound by default.

Nor a bit, but where Strassen's algorithm pairs the rows of long items; with strict floating point nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

from backend.harness import Program, host_targets, op, run_node
from backend.kernels.naive import conv, normal
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.targets.target import Target
from sampling import sampled

UNIT_ROUNDOFF = 2.0**-24
EXTRA_ROUNDINGS = 8  # beside the sum over k: partial sums, alpha, beta and the bias
UNDERFLOW = 1e-40  # of sums of a few thousand products
SCALES = (1e4, 1e6, 1e8, 1e-41, 0.0, np.inf, np.nan)
targets = pytest.mark.parametrize("target", sampled(host_targets(), 3), ids=lambda t: t.name)


@dataclass
class Product:
    """x [.., rows, K] · b [K, columns] or, batched, [.., K, columns], and what is added.

    Attributes:
        text: the graph; `x` is its first operand. x, b: as matrices. constant: whether b is known when compiling.
        more: what is added to every row; `more_feeds` are its other inputs.
    """

    text: str
    x: np.ndarray
    b: np.ndarray
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    more: np.ndarray | float = 0.0
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    transposed: bool = False  # x is fed as [K, rows]
    pixels: tuple[int, int] | None = None  # x is fed as [N, K, *pixels], the result has these pixels too


def wrapped(inputs: str, body: str) -> str:
    return f"graph @g({inputs}) {{\n{body}\n  return %y\n}}"


@cache
def products() -> dict[str, Product]:
    a, b, c = normal(130, 256), normal(256, 200, seed=1), normal(200, seed=2)
    tall, wide = normal(2, 256, 512), normal(512, 512, seed=1)
    deep, deep_b = normal(37, 4096), normal(4096, 48, seed=1)
    batch, batch_b = normal(3, 50, 96), normal(3, 96, 70, seed=1)
    image, filters = normal(2, 196, 256), normal(512, 256, 1, 1, seed=1)
    const = '  %b = const f32[256,200] "b"\n'
    return {
        "2-D": Product(wrapped("%x: f32[N,256]", f"{const}  %y = MatMul(%x, %b)"), a, b, {"b": b}),
        "items": Product(wrapped("%x: f32[N,256,512]", '  %b = const f32[512,512] "b"\n  %y = MatMul(%x, %b)'),
                         tall, wide, {"b": wide}),
        "deep": Product(wrapped("%x: f32[N,4096]", '  %b = const f32[4096,48] "b"\n  %y = MatMul(%x, %b)'),
                        deep, deep_b, {"b": deep_b}),
        "deep, run-time B": Product(wrapped("%x: f32[N,4096], %b: f32[4096,48]", "  %y = MatMul(%x, %b)"),
                                    deep, deep_b, feeds={"b": deep_b}),
        "run-time B": Product(wrapped("%x: f32[N,256], %b: f32[256,200]", "  %y = MatMul(%x, %b)"), a, b,
                              feeds={"b": b}),
        "batches": Product(wrapped("%x: f32[N,50,96], %b: f32[N,96,70]", "  %y = MatMul(%x, %b)"), batch, batch_b,
                           feeds={"b": batch_b}),
        "Gemm": Product(wrapped("%x: f32[N,256]", '  %b = const f32[200,256] "b"\n  %c = const f32[200] "c"\n'
                                "  %y = Gemm(%x, %b, %c) {alpha=1.0, transB=1}"), a, b,
                        {"b": np.ascontiguousarray(b.T), "c": c}, c),
        "Gemm, run-time B": Product(wrapped("%x: f32[N,256], %b: f32[200,256]",
                                            "  %y = Gemm(%x, %b) {transB=1}"), a, b, feeds={"b": b.T.copy()}),
        "Gemm, A transposed": Product(wrapped("%x: f32[256,N]", f"{const}  %y = Gemm(%x, %b) {{transA=1}}"), a, b,
                                      {"b": b}, transposed=True),
        "1x1": Product(wrapped("%x: f32[N,256,14,14]{0,2,3,1}", '  %w = const f32[512,256,1,1] "w"\n'
                               "  %y = Conv(%x, %w) : f32[N,512,14,14]{0,2,3,1}"),
                       image, np.ascontiguousarray(filters[:, :, 0, 0].T), {"w": filters}, pixels=(14, 14)),
        "tail": Product(wrapped("%x: f32[N,256], %r: f32[N,200]", f"""{const}
  %y = fused<MatMul>(%x, %b, %r) : f32[N,200]
    body(%x: f32[N,256], %b: f32[256,200], %r: f32[N,200]) {{
      %1 = MatMul(%x, %b) : f32[N,200]
      %y = Add(%1, %r) : f32[N,200]
      return %y
    }}"""), a, b, {"b": b}, normal(130, 200, seed=3), {"r": normal(130, 200, seed=3)}),
    }  # fmt: skip


def run(program: Program, p: Product, x: np.ndarray) -> np.ndarray:
    """[.., rows, columns]."""
    n = len(x)
    if p.transposed:
        x = np.ascontiguousarray(x.T)
    if p.pixels:
        x = x.transpose(0, 2, 1).reshape(n, -1, *p.pixels)
    (y,) = program.run({"x": x, **p.feeds}, {"N": n}, 3)
    return y.reshape(n, y.shape[1], -1).transpose(0, 2, 1) if p.pixels else y


@targets
@pytest.mark.parametrize("name", sampled(products(), 3))
@pytest.mark.parametrize("fp", [Fp.STRICT, Fp.DEFAULT])
def test_every_row_keeps_its_bound_and_costs_no_other_one_a_bit(fp: Fp, name: str, target: Target) -> None:
    p = products()[name]
    graph = parse_graph(p.text, p.constants)
    assert isinstance(graph, Graph)
    program = Program(graph, target, ("N",), fp)
    paired = any(call.func.name.startswith("strassen") for _, call in program.calls)
    assert paired == (name == "items" and fp is Fp.DEFAULT)
    clean = run(program, p, p.x)
    assert_bound(clean, p, p.x)
    rows = (0, p.x.shape[-2] // 2, p.x.shape[-2] - 1)
    for scale, row in zip(SCALES, rows * 3):
        x = p.x.copy()
        with np.errstate(invalid="ignore", under="ignore"):
            x[..., row, :] *= np.float32(scale)
        found = run(program, p, x)
        others = np.arange(x.shape[-2]) != row
        if not paired:
            np.testing.assert_array_equal(found[..., others, :], clean[..., others, :])
        assert_bound(found[..., others, :], p, x[..., others, :], p.more[others] if np.ndim(p.more) > 1 else p.more)
        if np.isfinite(scale):
            assert_bound(found, p, x)
        else:
            assert not np.isfinite(found[..., row, :]).any()


def assert_bound(found: np.ndarray, p: Product, x: np.ndarray, more: np.ndarray | float | None = None) -> None:
    """|error| ≤ (K + 8) · 2⁻²⁴ · |row| · |column|, element by element: what docs/commands.md says.

    Pairs of rows keep it, too, where their errors' signs are random; what bounds them is another bound (`strassen`).
    """
    more = p.more if more is None else more
    a, b = x.astype(np.float64), p.b.astype(np.float64)
    error = np.abs(found - (a @ b + more))
    share = (x.shape[-1] + EXTRA_ROUNDINGS) * UNIT_ROUNDOFF
    assert (error <= share * (np.abs(a) @ np.abs(b) + np.abs(more)) + UNDERFLOW).all()


@targets
@pytest.mark.parametrize("depth", [96, 4096])
def test_every_column_of_a_run_time_matrix_by_itself(depth: int, target: Target) -> None:
    a, b = normal(2, 37, depth), normal(2, depth, 70, seed=1)
    clean, spoiled = (run_node(op("MatMul"), [a, b * f], target=target)[0]
                      for f in (1, np.where(np.arange(70) == 33, np.float32(np.nan), np.float32(1))))  # fmt: skip
    others = np.arange(70) != 33
    np.testing.assert_array_equal(spoiled[..., others], clean[..., others])
    assert np.isnan(spoiled[..., 33]).all()


@targets
@pytest.mark.parametrize("poison", [1e8, np.inf, np.nan])
def test_queries_and_heads_of_attention_stay_apart(target: Target, poison: float) -> None:
    q, kt, v = normal(2, 4, 70, 64), normal(2, 4, 64, 70, seed=1), normal(2, 4, 70, 64, seed=2)
    attention = op("DotProductAttention", "parax", scale=0.125)
    (clean,) = run_node(attention, [q, kt, v], target=target)
    for operand, at in ((0, (1, 2, 33)), (1, (1, 2, 5)), (2, (1, 2, 69))):
        changed = [q.copy(), kt.copy(), v.copy()]
        changed[operand][at] = poison
        (found,) = run_node(attention, changed, target=target)
        reached = np.zeros(clean.shape, bool)
        reached[at if operand == 0 else at[:2]] = True  # k and v are everybody's in their head
        np.testing.assert_array_equal(found[~reached], clean[~reached])


@pytest.mark.sample(2)
@targets
@pytest.mark.parametrize("cell, gates", [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_sequences_of_a_batch_stay_apart(cell: str, gates: int, direction: str, target: Target) -> None:
    directions, hidden = (2 if direction == "bidirectional" else 1), 40
    x, b = normal(9, 5, 24), normal(directions, 2 * gates * hidden, seed=3)
    w, r = (normal(directions, gates * hidden, n, seed=n) for n in (24, hidden))
    layer = op(cell, hidden_size=hidden, direction=direction)

    def outputs(x: np.ndarray) -> np.ndarray:
        n = 3 if cell == "LSTM" else 2
        return run_node(layer, [x, w, r, b], outputs=n, constants=(1, 2, 3), target=target)[0]

    clean = outputs(x)
    for poison in (1e8, np.nan):
        spoiled = x.copy()
        spoiled[4, 2, 7] = poison
        found = outputs(spoiled)
        reached = np.zeros(clean.shape, bool)  # [time, direction, batch, hidden]
        for i in range(directions):
            times = slice(0, 5) if direction == "reverse" or i == 1 else slice(4, None)
            reached[times, i, 2] = True
        np.testing.assert_array_equal(found[~reached], clean[~reached])
        assert not np.isnan(poison) or np.isnan(found[reached]).all()


@targets
@pytest.mark.parametrize("groups, inputs, outputs, kernel, stride", [
    (4, 16, 3, 3, 2), (8, 8, 2, 1, 1), (32, 3, 2, 3, 2), (8, 2, 8, 1, 1), (4, 4, 4, 3, 1), (3, 16, 6, 3, 1),
    (16, 1, 1, 3, 1), (4, 16, 16, 3, 1),
])  # fmt: skip
def test_groups_of_a_convolution_stay_apart(
    groups: int, inputs: int, outputs: int, kernel: int, stride: int, target: Target
) -> None:
    """Narrow groups lie in one register: no lane may multiply another group's pixel, not even by zero."""
    x, w = normal(2, groups * inputs, 9, 10), normal(groups * outputs, inputs, kernel, kernel, seed=1)
    graph = parse_graph(f"""graph @g(%x: f32[N,{groups * inputs},9,10]{{0,2,3,1}}) {{
  %w = const f32[{",".join(map(str, w.shape))}] "w"
  %y = Conv(%x, %w) {{group={groups}, strides=[{stride},{stride}], pads=[{kernel // 2},0,0,{kernel // 2}]}}
  return %y
}}""", {"w": w})
    assert isinstance(graph, Graph)
    graph.outputs[0].type = graph.outputs[0].tensor.with_layout((0, 2, 3, 1))
    program = Program(graph, target, ("N",))
    (clean,) = program.run({"x": x}, {"N": 2}, 3)
    for poison in (np.inf, np.nan):
        spoiled = x.copy()
        spoiled[1, inputs, 4, 6] = poison  # of the second group
        (found,) = program.run({"x": spoiled}, {"N": 2}, 3)
        how = {"strides": [stride] * 2, "pads": [kernel // 2, 0, 0, kernel // 2], "dilations": [1, 1]}
        reached = conv(np.where(np.isfinite(spoiled), 0.0, 1.0), np.ones_like(w), None, group=groups, **how) > 0
        np.testing.assert_array_equal(found[~reached], clean[~reached])
        assert reached.any() and not np.isfinite(found[reached]).any()


CHAIN = """
graph @g(%x: f32[N,16,15,13]{0,2,3,1}) {
  %e = const f32[96,16,1,1] "e"
  %d = const f32[96,1,3,3] "d"
  %p = const f32[64,96,1,1] "p"
  %y = fused<Conv>(%x, %e, %d, %p) : f32[N,64,15,13]{0,2,3,1}
    body(%x: f32[N,16,15,13]{0,2,3,1}, %e: f32[96,16,1,1], %d: f32[96,1,3,3], %p: f32[64,96,1,1]) {
      %1 = Conv(%x, %e) : f32[N,96,15,13]{0,2,3,1}
      %2 = Conv(%1, %d) {group=96, pads=[1,1,1,1]} : f32[N,96,15,13]{0,2,3,1}
      %y = Conv(%2, %p) : f32[N,64,15,13]{0,2,3,1}
      return %y
    }
  return %y
}
"""


@targets
@pytest.mark.parametrize("inverted", [True, False])
def test_pixels_of_fused_convolutions_reach_their_neighbours_alone(inverted: bool, target: Target) -> None:
    constants: dict[str, Any] = {"e": normal(96, 16, 1, 1, seed=1), "d": normal(96, 1, 3, 3, seed=2),
                                 "p": normal(64, 96, 1, 1, seed=3)}  # fmt: skip
    text = CHAIN
    if not inverted:  # the depthwise convolution reads the input itself
        lines = [line for line in CHAIN.splitlines() if "%e = const" not in line and "%1 = Conv" not in line]
        text = "\n".join(lines).replace("Conv(%1,", "Conv(%x,").replace(" %e,", "").replace(", %e: f32[96,16,1,1]", "")
        text = text.replace("%x: f32[N,16,", "%x: f32[N,96,")
        del constants["e"]
    graph = parse_graph(text, constants)
    assert isinstance(graph, Graph)
    program = Program(graph, target, ("N",))
    assert program.calls[0][1].func.name.partition("_")[0] == ("inverted" if inverted else "separable")
    x = normal(2, 16 if inverted else 96, 15, 13)
    (clean,) = program.run({"x": x}, {"N": 2}, 3)
    for h, w in ((0, 0), (7, 6), (14, 12), (0, 12)):
        for poison in (1e8, np.inf, np.nan):
            spoiled = x.copy()
            spoiled[1, 3, h, w] = poison
            (found,) = program.run({"x": spoiled}, {"N": 2}, 3)
            reached = np.zeros(clean.shape, bool)
            reached[1, :, max(0, h - 1) : h + 2, max(0, w - 1) : w + 2] = True
            np.testing.assert_array_equal(found[~reached], clean[~reached])
            assert not np.isnan(poison) or np.isnan(found[reached]).all()
