"""Malformed and hostile models: only ParaxError or a valid graph. A corpus where there is one, and random damage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

from parax.compiler.frontend.importer import import_model
from parax.compiler.frontend.limits import Limits
from parax.compiler.ir.verify import verify
from parax.compiler.passes.dataflow.autodiff import Autodiff
from parax.compiler.passes.rewrite import Rewriter
from parax.errors import InternalError, ParaxError, UnsupportedOp

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

# Errors of these cases appear when the plan runs, not when the model is read.
AT_RUN_TIME = {
    "fed_wrong_shape", "fed_too_few", "gather_runtime_out_of_range", "scatternd_runtime_out_of_range",
    "gru_seq_lens_out_of_range", "gather_int64_min", "gatherelements_out_of_range", "scatternd_out_of_range",
    "scatterelements_out_of_range", "sequence_at_out_of_range", "optional_empty_get", "quant_scale_zero",
}  # fmt: skip


@pytest.fixture(scope="session")
def corpus(models: Path) -> Path:
    folder = models.parent / "bad"
    if not folder.is_dir():
        pytest.skip("no corpus of hostile models beside the real ones")
    return folder


def test_hostile_corpus(corpus):
    wrong = []
    for name, case in json.loads((corpus / "expect.json").read_text()).items():
        try:
            graph = import_model(corpus / name / "model.onnx")
            Autodiff().run(graph, Rewriter(graph))  # the first pass, which resolves names of tensors
            outcome = "ok"
        except InternalError as error:
            outcome = f"internal error: {error}"
        except UnsupportedOp as error:
            outcome = "either" if case["expect"] == "ok" else "error"  # what it needs may come later
            assert str(error)
        except ParaxError as error:
            outcome = "error"
            assert str(error)
        accepted = {case["expect"], "either"} if case["expect"] != "either" else {"ok", "error", "either"}
        if outcome not in accepted and not (name in AT_RUN_TIME and outcome == "ok"):
            wrong.append(f"{name}: expected {case['expect']}, got {outcome}")
    assert not wrong, "\n".join(wrong)


def test_rejected_files(models):
    folder = models.parent / "rejects"
    if not folder.is_dir():
        pytest.skip("no corpus of rejected models beside the real ones")
    wrong = []
    for path in sorted(folder.glob("*.onnx")):
        try:
            verify(import_model(path))
        except InternalError as error:
            wrong.append(f"{path.name}: {error}")
        except ParaxError as error:
            assert str(error)
    assert not wrong, "\n".join(wrong)


def _victim() -> bytes:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 11, "f": 1]>
        g (float[N,1,4,4] x) => (float[N,2] y) {
            c = Conv<kernel_shape = [3,3], pads = [1,1,1,1]>(x, w)
            r = Relu(c)
            p = GlobalAveragePool(r)
            s = Reshape(p, shape)
            t = Softmax<axis = 1>(s)
            y = f.scaled<by = 2.0>(t)
        }
        <domain: "f", opset_import: ["": 11]>
        scaled <by>(a) => (b) { k = Constant<value_float: float = @by>()  b = Mul(a, k) }
    """)
    weights = np.arange(18, dtype=np.float32).reshape(2, 1, 3, 3)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    model.graph.initializer.append(helper.make_tensor("shape", 7, [2], [-1, 2]))
    for opset in model.opset_import:
        opset.version = 12 if opset.domain == "" else opset.version
    for opset in model.functions[0].opset_import:
        opset.version = 12
    return model.SerializeToString()


VICTIM = _victim()
SMALL = Limits(tensor_nbytes=2**24, constants_nbytes=2**24, nodes=1000, calls=100)


def survives(data: bytes) -> None:
    try:
        graph = import_model(data, limits=SMALL)
    except ParaxError as error:
        assert not isinstance(error, InternalError), error
        assert str(error)
    else:
        verify(graph)


def test_the_victim_is_sound():
    assert len(import_model(VICTIM)) >= 5


@hypothesis.settings(max_examples=300)
@hypothesis.given(st.lists(st.tuples(st.integers(0, len(VICTIM) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_flipped_bytes(changes):
    data = bytearray(VICTIM)
    for position, byte in changes:
        data[position] = byte
    survives(bytes(data))


@hypothesis.settings(max_examples=100)
@hypothesis.given(st.integers(0, len(VICTIM) - 1))
def test_truncation(length):
    survives(VICTIM[:length])


@hypothesis.settings(max_examples=100)
@hypothesis.given(st.integers(0, len(VICTIM)), st.integers(0, len(VICTIM)), st.integers(0, len(VICTIM)))
def test_moved_parts(a, b, c):
    a, b, c = sorted((a, b, c))
    survives(VICTIM[:a] + VICTIM[b:c] + VICTIM[a:b] + VICTIM[c:])


@hypothesis.settings(max_examples=100)
@hypothesis.given(st.binary(max_size=200))
def test_random_bytes(data):
    survives(data)
