"""The cases of spatial operators with every tensor stored channels last, and on each target this machine runs."""

from __future__ import annotations

import numpy as np
import pytest

from backend.harness import host_targets, run_graph
from catalogue.cases import Case, all_cases
from catalogue.running import assert_close, build, expected
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.ops.base import Reduce, Window
from parax.compiler.ir.ops.normalization import Normalize
from parax.compiler.ir.ops.reduce import ArgReduce, Cumulative
from parax.compiler.ir.ops.softmax import AlongAxis
from parax.compiler.targets.target import Target
from sampling import sampled

KINDS = (Reduce, Window, Normalize, ArgReduce, Cumulative, AlongAxis)
CASES = [c for c in all_cases() if issubclass(lookup(c.domain, c.op), KINDS)]


def channels_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def to_channels_last(graph: Graph) -> None:
    """Operand 0 and the results of the same rank, before any kernel is made."""
    x = graph.inputs[0]
    (node,) = graph
    if x.tensor.rank > 2:
        x.type = x.tensor.with_layout(channels_last(x.tensor.rank))
        for y in node.outputs:
            if y.tensor.rank == x.tensor.rank:
                y.type = y.tensor.with_layout(channels_last(x.tensor.rank))


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", sampled([c for c in CASES if str(c).count(",") > 1], 2), ids=str)
def test_channels_last(case: Case) -> None:
    graph, feeds, symbols, contents = build(case)
    to_channels_last(graph)
    with np.errstate(all="ignore"):
        wanted = expected(case, contents)
    for found, array in zip(run_graph(graph, feeds, symbols), wanted):
        assert_close(case, found, array)


@pytest.mark.sample(5)
@pytest.mark.parametrize("target", host_targets()[1:], ids=lambda t: t.name)
@pytest.mark.parametrize("case", CASES[::7], ids=str)
def test_older_targets(case: Case, target: Target) -> None:
    graph, feeds, symbols, contents = build(case)
    with np.errstate(all="ignore"):
        wanted = expected(case, contents)
    for found, array in zip(run_graph(graph, feeds, symbols, target), wanted):
        assert_close(case, found, array)
