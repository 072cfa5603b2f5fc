"""SplitWideOperators: trees for many operands, and where it must not fire."""

from __future__ import annotations

import numpy as np
import pytest

from backend.harness import run_graph
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.types import parse_type
from parax.compiler.passes.node.split_wide_operators import SplitWideOperators
from parax.compiler.passes.rewrite import Rewriter


def wide(op: str, count: int, distinct: int) -> Graph:
    graph = Graph("wide")
    inputs = [graph.add_input(f"x{i}", parse_type("f32[3]")) for i in range(distinct)]
    node = graph.add_node(lookup("", op)(), [inputs[i % distinct] for i in range(count)])
    graph.set_outputs(node.outputs, ["y"])
    return graph


@pytest.mark.parametrize(("op", "wanted"), [("Sum", 4950.0), ("Mean", 49.5), ("Max", 99.0), ("Min", 0.0)])
def test_a_tree_computes_the_same(op: str, wanted: float) -> None:
    graph = wide(op, 100, 100)
    assert SplitWideOperators(max_operands=8).run(graph, Rewriter(graph))
    assert max(len(node.operands) for node in graph) == 8
    (found,) = run_graph(graph, {f"x{i}": np.full(3, i, np.float32) for i in range(100)})
    np.testing.assert_allclose(found, np.full(3, wanted), rtol=1e-6)
    assert not SplitWideOperators(max_operands=8).run(graph, Rewriter(graph))


@pytest.mark.parametrize(("count", "distinct"), [(8, 8), (100, 3)])
def test_few_different_operands_stay(count: int, distinct: int) -> None:
    graph = wide("Sum", count, distinct)
    rewriter = Rewriter(graph)
    assert not SplitWideOperators(max_operands=8).run(graph, rewriter)
    assert "few operands" in rewriter.misses[0]
