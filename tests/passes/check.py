"""`check_pass`: one pass, one small graph in text form before and after it, and the proof that both mean the same.

    check_pass(FuseElementwise(), before="graph @g(%x: f32[4]) {...}", after="graph @g(%x: f32[4]) {...}")
    check_pass(FuseElementwise(), before="...", after=None, refuses="another shape")      # must not fire

The text is parsed, verified, transformed, verified and compared, up to names of values and dead code; both sides are computed on the same random inputs by
ONNX Runtime (onnx.reference where that is not installed); a second run of the pass must change nothing.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping

import numpy as np

from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.frontend.oracle import best_kind, oracle
from parax.compiler.ir.graph import Graph, Value
from parax.compiler.ir.text import parse_graph, print_graph
from parax.compiler.ir.types import TensorType, evaluate, symbols_of
from parax.compiler.ir.verify import verify
from parax.compiler.passes.base import Pass
from parax.compiler.passes.dataflow.dead_code import DeadCode
from parax.compiler.passes.rewrite import Rewriter

TOLERANCE = {"f64": (1e-9, 1e-11), "f16": (4e-3, 4e-3)}  # relative, absolute; anything else as f32


def check_pass(
    pass_: Pass,
    before: str,
    after: str | None,
    *,
    refuses: str | None = None,
    symbols: Mapping[str, int] | None = None,
    low: float = -2.0,
    high: float = 2.0,
    evaluate: bool = True,
    data: Mapping[str, np.ndarray] | None = None,
    keep_dead: bool = False,
) -> Graph:
    """Checks that `pass_` turns `before` into `after` (None: leaves it alone); returns the transformed graph.

    Args:
        refuses: a piece of a reason that the pass must have recorded. symbols: sizes of symbolic dimensions (default 3).
        low, high: range of random inputs. evaluate: compare results, too. data: contents of constants given by key.
        keep_dead: compare unused nodes and constants, too.
    """
    source, graph = parse_graph(before, data), parse_graph(before, data)
    verify(graph)
    rw = Rewriter(graph)
    changed = pass_.run(graph, rw)
    verify(graph)
    expected = source if after is None else parse_graph(after)
    assert comparable(graph, keep_dead) == comparable(expected, keep_dead), print_graph(graph)
    assert changed == (after is not None), "the pass misreports whether it changed something"
    if refuses is not None:
        assert any(refuses in miss for miss in rw.misses), rw.misses
    if evaluate:
        assert_equivalent(source, graph, symbols or {}, low, high)
    again = Rewriter(graph)
    assert not pass_.run(graph, again), f"the second run changed something:\n{print_graph(graph)}"
    verify(graph)
    return graph


def comparable(graph: Graph, keep_dead: bool) -> str:
    """The text without dead code, values numbered in order of use: what a pass leaves unused or calls it is its own."""
    copy = graph.clone()
    if not keep_dead:
        DeadCode().run(copy, Rewriter(copy))
    text = re.sub(r"\s+# .*", "", print_graph(_renumbered(copy, {v.name for v in copy.inputs}, "")))
    return re.sub(r"(= const f\d+\[\d.*?\]) \[.*\]", r"\1 ...", text)  # contents of several floats: see the results


def _renumbered(graph: Graph, kept: set[str], prefix: str) -> Graph:
    """A graph rebuilt with constants in order of use and every value but `kept` renamed."""
    copy = Graph(graph.name)
    mapping = {v: copy.add_input(v.name if v.name in kept else f"{prefix}in{i}", v.type) for i, v in enumerate(graph.inputs)}
    for (a, b), where in graph.constraints.items():
        copy.add_constraint(a, b, where)

    def of(v: Value | None) -> Value | None:
        if v is not None and v not in mapping:
            mapping[v] = copy.add_constant(v.data, f"{prefix}c{len(mapping)}")
            mapping[v].type = v.type
        return None if v is None else mapping[v]

    for node in graph:
        bodies = {name: _renumbered(body, set(), f"{prefix}b") for name, body in node.bodies.items()}
        new = copy.add_node(node.op, [of(v) for v in node.inputs], [f"{prefix}v{len(mapping)}.{i}" for i in range(len(node.outputs))],
                            types=[v.type for v in node.outputs], bodies=bodies)
        mapping.update(zip(node.outputs, new.outputs, strict=True))
    outputs = [v for v in map(of, graph.outputs) if v is not None]
    copy.set_outputs(outputs, [str(i) for i in range(len(outputs))] if prefix else graph.output_names)
    return copy


def assert_equivalent(
    a: Graph, b: Graph, symbols: Mapping[str, int], low: float = -2.0, high: float = 2.0, seed: int = 0
) -> None:
    """Both graphs give the same results on random inputs."""
    given = feeds(a, symbols, low, high, seed)
    kind = best_kind()
    want, got = oracle(to_onnx(a), kind)(given), oracle(to_onnx(b), kind)(given)
    assert list(want) == list(got)
    for name, expected in want.items():
        actual = got[name]
        assert expected.dtype == actual.dtype and expected.shape == actual.shape, name
        if expected.dtype.kind in "biu":
            np.testing.assert_array_equal(actual, expected, name)
        else:
            dtype = next(v.tensor.dtype.name for n, v in zip(a.output_names, a.outputs, strict=True) if n == name)
            rtol, atol = TOLERANCE.get(dtype, (2e-4, 2e-5))
            np.testing.assert_allclose(actual, expected, rtol, atol, err_msg=name)


def feeds(graph: Graph, symbols: Mapping[str, int], low: float, high: float, seed: int) -> dict[str, np.ndarray]:
    """Random inputs: floats in [low, high), integers in [0, 4)."""
    given = {}
    for v in graph.inputs:
        t = v.type
        assert isinstance(t, TensorType) and t.dtype.numpy is not None
        sizes = {s: symbols.get(s, 3) for s in symbols_of(t.dims)}
        shape = tuple(evaluate(d, sizes) for d in t.dims)
        rng = np.random.default_rng(zlib.crc32(v.name.encode()) + seed)
        if t.dtype.is_float:
            given[v.name] = rng.uniform(low, high, shape).astype(t.dtype.numpy)
        else:
            given[v.name] = rng.integers(0, 2 if t.dtype.name == "bool" else 4, shape).astype(t.dtype.numpy)
    return given
