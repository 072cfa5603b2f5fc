"""Model-local functions and ONNX's own definitions, inlined; and the ways in which they can be wrong."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.frontend import nodes
from parax.compiler.frontend.evaluate import evaluate_graph
from parax.compiler.frontend.importer import import_model
from parax.compiler.frontend.limits import Limits
from parax.errors import InvalidModel, ResourceLimit

X = np.array([-1.0, 2.0], np.float32)
G = "g (float[2] x) => (float[2] y)"
DOMAIN = ', "f": 1'
HEAD = '<domain: "f", opset_import: ["": 18, "f": 1]>'


def run(source) -> np.ndarray:
    return evaluate_graph(import_model(source), {"x": X})["y"]


def test_a_call_is_inlined(model):
    functions = HEAD + "twice (a) => (b) { c = Add(a, a)  b = Relu(c) }"
    source = model(G + "{ t = f.twice(x)  y = f.twice(t) }", extra=DOMAIN, functions=functions)
    assert [n.op.name for n in import_model(source)] == ["Add", "Relu", "Add", "Relu"]
    np.testing.assert_array_equal(run(source), [0, 8])


def test_attributes_are_passed_on(model):
    functions = HEAD + "soft <axis>(a) => (b) { b = Softmax <axis: int = @axis>(a) }"
    source = model(G + "{ y = f.soft <axis = 0>(x) }", extra=DOMAIN, functions=functions)
    (node,) = import_model(source)
    assert node.op.axis == 0


def test_attributes_have_defaults_and_may_be_left_out(model):
    functions = HEAD + "leaky <alpha: float = 0.5>(a) => (b) { b = LeakyRelu <alpha: float = @alpha>(a) }"
    source = model(G + "{ y = f.leaky(x) }", extra=DOMAIN, functions=functions)
    np.testing.assert_array_equal(run(source), [-0.5, 2])


def test_omitted_inputs_stay_omitted(model):
    functions = HEAD + "low (a, lo) => (b) { b = Clip(a, lo) }"
    source = model(G + "{ y = f.low(x) }", extra=DOMAIN, functions=functions)
    np.testing.assert_array_equal(run(source), X)


def test_a_function_may_have_its_own_operator_set(model):
    functions = '<domain: "f", opset_import: ["": 9]>old (a) => (b) { b = Clip <min = 0.0>(a) }'
    source = model(G + "{ y = f.old(x) }", extra=DOMAIN, functions=functions)
    np.testing.assert_array_equal(run(source), [0, 2])


def test_names_in_functions_are_local(model):
    functions = HEAD + "twice (x) => (y) { t = Add(x, x)  y = Neg(t) }"
    source = model(G + "{ t = f.twice(x)  y = f.twice(t) }", extra=DOMAIN, functions=functions)
    np.testing.assert_array_equal(run(source), 4 * X)


BROKEN = {
    "recursion": ("loop (a) => (b) { b = f.loop(a) }", "{ y = f.loop(x) }", "calls itself"),
    "too many inputs": ("one (a) => (b) { b = Relu(a) }", "{ y = f.one(x, x) }", "number of arguments"),
    "too many outputs": ("one (a) => (b) { b = Relu(a) }", "{ y, z = f.one(x) }", "number of arguments"),
    "undefined name": ("one (a) => (b) { b = Relu(z) }", "{ y = f.one(x) }", "not defined"),
    "outer names are not seen": ("one (a) => (b) { b = Relu(x) }", "{ y = f.one(x) }", "not defined"),
    "output not produced": ("one (a) => (b) { c = Relu(a) }", "{ y = f.one(x) }", "not defined"),
    "required attribute": ("one <k>(a) => (b) { b = Softmax<axis: int = @k>(a) }", "{ y = f.one(x) }", "missing"),
    "unknown attribute": ("one (a) => (b) { b = Relu(a) }", "{ y = f.one<k = 1>(x) }", "unknown attribute"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_functions(case, model):
    function, body, message = BROKEN[case]
    with pytest.raises(InvalidModel, match=message):
        import_model(model(G + body, extra=DOMAIN, functions=HEAD + function))


def test_a_function_defined_twice(model):
    one = HEAD + "one (a) => (b) { b = Relu(a) }"
    with pytest.raises(InvalidModel, match="defined twice"):
        import_model(model(G + "{ y = f.one(x) }", extra=DOMAIN, functions=one + one))


def test_exponential_expansion_is_stopped(model):
    bodies = [HEAD + f"f{i} (a) => (b) {{ c = f.f{i + 1}(a)  b = f.f{i + 1}(c) }}" for i in range(30)]
    functions = "".join([*bodies, HEAD + "f30 (a) => (b) { b = Relu(a) }"])
    source = model(G + "{ y = f.f0(x) }", extra=DOMAIN, functions=functions)
    with pytest.raises(ResourceLimit, match="expand"):
        import_model(source, limits=Limits(calls=1000))


def test_a_long_chain_of_functions_needs_no_stack(model):
    bodies = [HEAD + f"f{i} (a) => (b) {{ b = f.f{i + 1}(a) }}" for i in range(2000)]
    functions = "".join([*bodies, HEAD + "f2000 (a) => (b) { b = Relu(a) }"])
    assert len(import_model(model(G + "{ y = f.f0(x) }", extra=DOMAIN, functions=functions))) == 1


def test_operators_that_the_catalogue_lacks_are_taken_from_onnx(model, monkeypatch):
    catalogue = {key: cls for key, cls in nodes.CATALOGUE.items() if key != ("", "HardSigmoid")}
    monkeypatch.setattr(nodes, "CATALOGUE", catalogue)
    source = model(G + "{ y = HardSigmoid<alpha = 0.5>(x) }")
    names = [n.op.name for n in import_model(source)]
    assert "HardSigmoid" not in names
    np.testing.assert_allclose(run(source), np.clip(0.5 * X + 0.5, 0, 1))
