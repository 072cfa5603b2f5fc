"""Gradients of RNN, GRU and LSTM: kernels' f32 against differences of the operators in plain numpy, in f64."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import helper

from backend.harness import run_graph
from catalogue.cases import Case, Constant
from catalogue.cases_recurrent import CASES, sequence
from catalogue.running import build
from fuzz import exact_recurrent
from parax.compiler.driver import compile_graph
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph, Value
from parax.compiler.ir.text import parse_graph
from parax.compiler.options import CompileOptions
from parax.compiler.passes.autodiff.reverse import gradients
from parax.errors import UnsupportedOp
from sampling import sampled

STEP, MISS = 1e-5, 2e-4


def with_inputs(case: Case) -> Case:
    """The case with inputs for constants, and open sizes but the batch's closed."""
    operands = [o.array if isinstance(o, Constant) else o for o in case.operands]
    return replace(case, operands=tuple(o.replace("T=", "") if isinstance(o, str) else o for o in operands))


def is_single(case: Case) -> bool:
    return not any(isinstance(o, str) and o.startswith("f16") for o in case.operands)


RECURRENT = [
    *map(with_inputs, filter(is_single, CASES)),
    *(with_inputs(sequence(op, given="blhcp", layout=1, direction="bidirectional", **more))
      for op, more in (("RNN", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("LSTM", {}))),
    with_inputs(sequence("GRU", given="blh", linear_before_reset=1, direction="reverse")),
    with_inputs(sequence("LSTM", given="blhcp", clip=0.4, direction="reverse")),
    with_inputs(sequence("LSTM", given="bhcp", input_forget=1)),
    with_inputs(sequence("RNN", activations=["Elu"])),
    with_inputs(sequence("RNN", activations=["LeakyRelu"])),
]  # fmt: skip


def differentiated(case: Case) -> tuple[Graph, dict[str, np.ndarray], dict[str, int], list[Value], list[str]]:
    """The sum of all results, each weighted by an input of its own, and its gradients by all float inputs."""
    graph, feeds, symbols, _ = build(case)
    g, terms, seeds = GraphBuilder(graph), [], []
    for i, y in enumerate(graph.outputs):
        seed = graph.add_input(f"seed{i}", y.type)
        seeds.append(seed.name)
        terms.append(g.ReduceSum(g.Mul(y, seed), keepdims=0))
    loss = terms[0]
    for term in terms[1:]:
        loss = g.Add(loss, term)
    xs = [v for v in graph.inputs if v.tensor.dtype.is_float and v.name in feeds]
    found = gradients(graph, loss, xs)  # may put other operators in the place of those that there are
    graph.set_outputs([*graph.outputs, *found])
    return graph, feeds, symbols, xs, seeds


def exactly(case: Case, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The operator's results in f64."""
    names = ["" if o is None else f"x{i}" for i, o in enumerate(case.operands)]
    node = helper.make_node(case.op, names, [f"y{i}" for i in range(case.outputs)], **case.attrs)
    run: Any = getattr(exact_recurrent, case.op)(node, {"log": None, "opsets": {"": 22}, "verbose": 0, "new_ops": None})
    operands = [feeds.get(n) for n in names]
    return [np.asarray(y) for y in run._run(*operands, **case.attrs)]


@pytest.mark.parametrize("case", sampled(RECURRENT, 8), ids=str)
def test_gradients_are_what_differences_say(case: Case) -> None:
    graph, feeds, symbols, xs, seeds = differentiated(case)
    wide = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in feeds.items()}
    rng = np.random.default_rng(zlib.crc32(str(case).encode()) + 1)
    seeded = {n: rng.standard_normal(y.shape) for n, y in zip(seeds, exactly(case, wide), strict=True)}
    found = run_graph(graph, {**feeds, **{n: a.astype(np.float32) for n, a in seeded.items()}}, symbols)
    found = found[len(seeds) :]

    def loss(moved: dict[str, np.ndarray]) -> float:
        return sum(float((y * s).sum()) for y, s in zip(exactly(case, moved), seeded.values(), strict=True))

    for v, gradient in zip(xs, found, strict=True):
        assert gradient.shape == feeds[v.name].shape
        direction = rng.standard_normal(gradient.shape)
        ahead, behind = (loss({**wide, v.name: wide[v.name] + sign * STEP * direction}) for sign in (1, -1))
        slope, size = float((gradient * direction).sum()), float(np.abs(gradient * direction).sum())
        assert abs((ahead - behind) / (2 * STEP) - slope) <= MISS * (1 + size), v.name


def test_an_open_number_of_steps_is_refused() -> None:
    case = sequence("GRU", steps="T=6", fixed=False, dtype=np.float16)
    with pytest.raises(UnsupportedOp, match="open number of steps"):
        differentiated(case)


TWICE = """graph @g(%x: f32[3,2,4], %w: f32[1,20,4], %r: f32[1,20,5]) {
  %y, %h, %c = LSTM(%x, %w, %r) {hidden_size=5} : f32[3,1,2,5], f32[1,2,5], f32[1,2,5]
  %squares = Mul(%y, %y) : f32[3,1,2,5]
  %loss = ReduceSum(%squares) {keepdims=0} : f32[]
  %dw = ai.onnx.preview.training::Gradient(%w) {xs=["w"], y="loss"} : f32[1,20,4]
  %slopes = Mul(%dw, %dw) : f32[1,20,4]
  %total = ReduceSum(%slopes) {keepdims=0} : f32[]
  %dr = ai.onnx.preview.training::Gradient(%r) {xs=["r"], y="total"} : f32[1,20,5]
  return %total, %dr
}"""


def test_gradients_of_gradients() -> None:
    graph = parse_graph(TWICE)
    rng, h = np.random.default_rng(0), 1e-2
    feeds = {v.name: rng.standard_normal(v.tensor.static_shape).astype(np.float32) / 2 for v in graph.inputs}
    direction = rng.standard_normal(feeds["r"].shape).astype(np.float32)
    with compile_graph(graph, CompileOptions()).session() as session:
        _, slope = session.run(feeds).values()
        ahead, behind = (session.run({**feeds, "r": feeds["r"] + sign * h * direction})["total"] for sign in (1, -1))
    expected = float((slope * direction).sum())
    assert abs(expected) > 1e-2
    assert abs((ahead - behind) / (2 * h) - expected) < 2e-3 * abs(slope * direction).sum()
