"""SinkConstants: captured constants move into bodies; other captures stay."""

from __future__ import annotations

import numpy as np
from onnx import parser

from parax.compiler.frontend.importer import import_model
from parax.compiler.ir.verify import verify
from parax.compiler.passes.dataflow.sink_constants import SinkConstants
from parax.compiler.passes.rewrite import Rewriter

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,4] x, bool c, float[4] w) => (float[N,4] y) {
    y = If (c) <then_branch = then () => (float[N,4] a) { a = Add(x, w) },
                else_branch = other () => (float[N,4] b) { b = Neg(x) }>
}
"""


def test_constants_move_into_every_body_and_other_captures_stay() -> None:
    graph = import_model(parser.parse_model(MODEL).SerializeToString())
    given = graph.value("w")  # becomes constant only now, as folding may do; the importer copies constants itself
    graph.replace_all_uses_with(given, graph.add_constant(np.array([1, 2, 3, 4], np.float32)))
    graph.erase_input(given)
    (node,) = graph
    assert len(node.inputs) == 3
    assert SinkConstants().run(graph, Rewriter(graph))
    verify(graph)
    (node,) = graph
    assert [v.name for v in node.operands] == ["c", "x"]
    assert node.op.captures == 1  # type: ignore[attr-defined]
    then, other = node.bodies["then_branch"], node.bodies["else_branch"]
    assert len(then.inputs) == len(other.inputs) == 1
    (w,) = [v for n in then for v in n.operands if v.is_constant]
    np.testing.assert_array_equal(w.data, [1, 2, 3, 4])
    rewriter = Rewriter(graph)
    assert not SinkConstants().run(graph, rewriter)
    assert "captures no constant" in rewriter.misses[0]
