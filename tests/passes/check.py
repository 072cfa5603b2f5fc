"""`check_pass`: one pass, one small graph in text form before and after it, and the proof that both mean the same.

    check_pass(FuseElementwise(), before="graph @g(%x: f32[4]) {...}", after="graph @g(%x: f32[4]) {...}")
    check_pass(FuseElementwise(), before="...", after=None, refuses="another shape")      # must not fire

The text is parsed, verified, transformed, verified and compared; both sides are computed on the same random inputs by
ONNX Runtime (onnx.reference where that is not installed); a second run of the pass must change nothing.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping

import numpy as np

from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.frontend.oracle import best_kind, oracle
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph, print_graph
from parax.compiler.ir.types import TensorType, evaluate, symbols_of
from parax.compiler.ir.verify import verify
from parax.compiler.passes.base import Pass
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
) -> Graph:
    """Checks that `pass_` turns `before` into `after` (None: leaves it alone); returns the transformed graph.

    Args:
        refuses: a piece of a reason that the pass must have recorded. symbols: sizes of symbolic dimensions (default 3).
        low, high: range of random inputs. evaluate: compare results, too. data: contents of constants given by key.
    """
    source, graph = parse_graph(before, data), parse_graph(before, data)
    verify(graph)
    rw = Rewriter(graph)
    changed = pass_.run(graph, rw)
    verify(graph)
    expected = source if after is None else parse_graph(after)
    assert comparable(graph) == comparable(expected), print_graph(graph)
    assert changed == (after is not None), "the pass misreports whether it changed something"
    if refuses is not None:
        assert any(refuses in miss for miss in rw.misses), rw.misses
    if evaluate:
        assert_equivalent(source, graph, symbols or {}, low, high)
    again = Rewriter(graph)
    assert not pass_.run(graph, again), f"the second run changed something:\n{print_graph(graph)}"
    verify(graph)
    return graph


def comparable(graph: Graph) -> tuple[list[str], list[str]]:
    """The text as constants in use, in any order, and everything else."""
    constants, rest = [], []
    for line in print_graph(graph).splitlines():
        match = re.match(r"  %(\S+) = const ", line)
        if match is None:
            rest.append(re.sub(r"\s+# .*", "", line))
        elif graph.value(match[1].strip('"')).is_used:
            constants.append(re.sub(r' ".*"$', "", line))
    return sorted(constants), rest


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
