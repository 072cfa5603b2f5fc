"""Sizes of 0 that only a run finds: every operator that has a result of nothing, beside another implementation of ONNX.

An axis of an operand is cut by a Compress whose condition is an input, so that nobody knows its size before; it keeps
nothing, and everything. Where the other implementation computes nothing with that, there is nothing to compare with.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, parser

import parax
from catalogue.cases import Case, all_cases
from catalogue.running import assert_close, build, onnx_model
from parax import CompileOptions
from parax.compiler.frontend.oracle import oracle

Feeds = dict[str, np.ndarray]
Places = Sequence[tuple[str, int]]
"""Inputs and their axes."""


def _cut(model: ModelProto, feeds: Feeds, places: Places) -> tuple[ModelProto, dict[str, Feeds]]:
    """The model with a Compress for each place, and its inputs where they keep nothing and everything."""
    kept: Feeds = {}
    cuts: list[NodeProto] = []
    renamed: dict[str, str] = {}
    for name, axis in places:
        size = feeds[name].shape[axis]
        condition, result = f"keep_{size}", f"{name}_{axis}"
        kept[condition] = np.ones(size, bool)
        cuts.append(helper.make_node("Compress", [renamed.get(name, name), condition], [result], axis=axis))
        renamed[name] = result
    cut = ModelProto()
    cut.CopyFrom(model)
    (node,) = cut.graph.node
    node.input[:] = [renamed.get(name, name) for name in node.input]
    del cut.graph.node[:]
    cut.graph.node.extend([*cuts, node])
    cut.graph.input.extend(helper.make_tensor_value_info(n, TensorProto.BOOL, c.shape) for n, c in kept.items())
    nothing = {name: np.zeros_like(condition) for name, condition in kept.items()}
    return cut, {"everything": {**feeds, **kept}, "nothing": {**feeds, **nothing}}


def _places(feeds: Mapping[str, np.ndarray]) -> Iterator[Places]:
    """Each axis by itself, and all of one size together."""
    alike: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for name, array in feeds.items():
        for axis, size in enumerate(array.shape):
            if size:
                alike[size].append((name, axis))
                yield [(name, axis)]
    yield from (places for places in alike.values() if len(places) > 1)


def _wanted(model: ModelProto, case: Case, feeds: Feeds) -> Feeds | None:
    """What the case's oracle makes of it; None: it refuses it."""
    try:
        with np.errstate(all="ignore"):
            return oracle(model, case.oracle)(feeds)
    except Exception:  # of every kind, by implementation and operator
        return None


FIRST: dict[tuple[str, str], Case] = {}
for each in all_cases():
    if each.oracle == "reference":  # ONNX Runtime dies of some empty tensors
        FIRST.setdefault((each.domain, each.op), each)
WINDOW = "the window is larger than the padded input"
REFUSED = {
    "Conv": WINDOW, "MaxPool": WINDOW, "ConvInteger": WINDOW, "QLinearConv": WINDOW,
    "DeformConv": "must be known at compile time", "ScatterElements": "must agree",
    "ScatterND": "does not fit|number of coordinates",
    "FeatureVectorizer": "must be known at compile time", "Split": "must add up", "DepthToSpace": "must be a multiple",
    "ReverseSequence": "must have a length for each", "BatchNormalization": "has no statistics",
    "RNN": "must have shape", "RoiAlign": "needs a batch index", "AffineGrid": "must have a map for each",
    "MaxUnpool": "of symbolic dimensions",
    "NonMaxSuppression": "of different|must be one number", "Squeeze": "axes must be given",
}  # fmt: skip
"""What onnx.reference computes although the specification does not allow it, or parax must know when it compiles."""


@pytest.mark.parametrize("case", FIRST.values(), ids=str)
def test_a_size_of_0_that_a_run_finds(case: Case) -> None:
    model, feeds = onnx_model(case, build(case)[3])
    if any(array.dtype.kind in "OU" for array in feeds.values()):
        return  # strings are host steps, and of any size
    for places in _places(feeds):
        cut, requests = _cut(model, feeds, places)
        wanted = {name: _wanted(cut, case, request) for name, request in requests.items()}
        if wanted["nothing"] is None:
            continue
        try:
            found = _run(cut, requests)
        except parax.ParaxError as error:
            if not re.search(REFUSED.get(case.op, "nothing"), str(error)):
                raise
            continue
        for name, outputs in wanted.items():
            for output, array in (outputs or {}).items():
                assert_close(case, found[name][output], array)


def _run(model: ModelProto, requests: Mapping[str, Feeds]) -> dict[str, Feeds]:
    with parax.compile(model, options=CompileOptions(cache=False)).session(instances=1) as session:
        return {name: dict(session.run(request)) for name, request in requests.items()}


KEPT = [(0, 2, 3, 5), (), (2,), range(6)]
TEXT = """<ir_version: 10, opset_import: ["" : 21]> g (float[6,2] x, bool[6] k) => (float[a,b] y)
    <int64[1] zero={0}, int64[1] one={1}, int64[1] last={-1}, int64[1] far={9223372036854775807},
     int64[1] low={-9223372036854775807}, bool on={1}, int64 trips={3}>
    { c = Compress<axis=0>(x, k) n = Shape<start=0, end=1>(c) BODY }"""
SLICES = ["y = Slice(c, zero, one)", "y = Slice(c, last, far)", "m = Sub(n, one) y = Slice(c, m, n)",
          "m = Neg(n) y = Slice(x, m, far)", "m = Sub(n, one) y = Slice(c, m, low, zero, last)",
          "m = Sub(n, one) y = Slice(x, zero, m)", "e = Slice(c, last, far) y = Relu(e)"]  # fmt: skip
LOOP = """y = Loop(trips, on, c) <body: graph = b (int64 i, bool o, float[M,2] v) => (bool p, float[R,2] w)
    { p = Identity(o) w = Concat<axis=0>(v, v) }>"""


def _requests() -> Iterator[Feeds]:
    for kept in KEPT:
        yield {"x": np.arange(12, dtype=np.float32).reshape(6, 2), "k": np.isin(np.arange(6), list(kept))}


def _model(body: str) -> ModelProto:
    return parser.parse_model(TEXT.replace("BODY", body))


@pytest.mark.parametrize("body", [*SLICES, LOOP])
def test_bounds_and_carried_tensors_of_a_size_that_a_run_finds(body: str) -> None:
    proto = _model(body)
    with parax.compile(proto, options=CompileOptions(cache=False)).session(instances=1) as session:
        for request in _requests():
            wanted = oracle(proto, "onnxruntime")(request)["y"]
            np.testing.assert_array_equal(session.run(request)["y"], wanted)


@pytest.mark.parametrize("body", ["f = Slice(c, zero, one) y = Sub(c, f)", "f = Slice(c, last, far) y = Sub(x, f)"])
def test_one_row_or_none_that_is_broadcast(body: str) -> None:
    """Kernels must know which it is: it is taken for one, and nothing is refused by the name of the size."""
    proto = _model(body)
    with parax.compile(proto, options=CompileOptions(cache=False)).session(instances=1) as session:
        for request in _requests():
            if not request["k"].any():
                with pytest.raises(parax.InvalidInput, match=re.escape("dimension Compress.c")):
                    session.run(request)
                continue
            wanted = oracle(proto, "onnxruntime")(request)["y"]
            np.testing.assert_array_equal(session.run(request)["y"], wanted)


def test_a_branch_of_nothing_is_not_decided_before() -> None:
    """torchvision's detectors ask whether there are any boxes."""
    proto = _model("""s = Size(c) z = Size(y0) q = Equal(s, z) y = If(q) <
        then_branch: graph = t () => (float[a,b] u) { u = Neg(x) }, else_branch: graph = e () => (float[d,f] v)
        { v = Identity(c) }>""".replace("z = Size(y0)", "r = Slice(c, zero, zero) z = Size(r)"))
    with parax.compile(proto).session(instances=1) as session:
        for request in _requests():
            wanted = oracle(proto, "onnxruntime")(request)["y"]
            np.testing.assert_array_equal(session.run(request)["y"], wanted)


def test_constraints_of_what_is_left_out() -> None:
    """The result has no elements: nothing asks for the sizes that had to agree."""
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[0,6] x, float[6,4] w, bool[6] k) => (float[a,b] y)
        { c = Compress<axis=1>(x, k) d = Compress<axis=0>(w, k) y = MatMul(c, d) }""")
    feeds = {"x": np.zeros((0, 6), np.float32), "w": np.ones((6, 4), np.float32), "k": np.ones(6, bool)}
    with parax.compile(proto).session(instances=1) as session:
        assert session.run(feeds)["y"].shape == (0, 4)
