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
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph, Value
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
    outputs = list(graph.outputs)
    graph.set_outputs([*outputs, *gradients(graph, loss, xs)])
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
    case = sequence("LSTM", steps="T=6", fixed=False)
    with pytest.raises(UnsupportedOp, match="open number of steps"):
        differentiated(case)
