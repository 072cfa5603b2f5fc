"""Large tensors of a model file are read apart, and nothing else about the model changes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.compiler.frontend import apart
from parax.compiler.frontend.apart import LEAST_NBYTES, MAPPED_NBYTES, read_apart
from parax.compiler.frontend.importer import import_model
from parax.compiler.frontend.limits import Limits
from parax.compiler.frontend.parse import read_model
from parax.compiler.ir.mapped import is_mapped

LARGE = LEAST_NBYTES // 4
WEIGHTS = np.random.default_rng(0).standard_normal((4, LARGE // 2), np.float32)


def _model() -> onnx.ModelProto:
    """Large constants as an initializer, in a Constant node and inside a branch; small ones beside them."""
    constant = helper.make_node("Constant", [], ["t"], value=numpy_helper.from_array(WEIGHTS + 2, "c"))
    taken = helper.make_graph([constant], "taken", [], [helper.make_empty_tensor_value_info("t")])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["o"])], "other", [],
                              [helper.make_empty_tensor_value_info("o")])  # fmt: skip
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"]),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(WEIGHTS + 1, "k")),
        helper.make_node("Mul", ["a", "k"], ["b"]),
        helper.make_node("If", ["which"], ["d"], then_branch=taken, else_branch=other),
        helper.make_node("Sub", ["b", "d"], ["e"]), helper.make_node("Add", ["e", "s"], ["y"]),
    ]  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(WEIGHTS.shape)),
              helper.make_tensor_value_info("which", TensorProto.BOOL, [])]  # fmt: skip
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")], [
        numpy_helper.from_array(WEIGHTS, "w"), numpy_helper.from_array(np.float32([3]), "s"),
    ])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _apart(data: bytes, path: Path) -> apart.Apart:
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_apart(descriptor, len(data))
    finally:
        os.close(descriptor)


def test_the_rest_and_the_tensors_make_the_model(tmp_path: Path) -> None:
    model = _model()
    found = _apart(model.SerializeToString(), tmp_path / "m.onnx")
    assert len(found.arrays) == 3 and len(found.message) < LEAST_NBYTES
    rest = onnx.ModelProto.FromString(found.message)
    nodes = {node.output[0]: node for node in rest.graph.node}
    tensors = [rest.graph.initializer[0], nodes["k"].attribute[0].t]
    tensors += [a.g.node[0].attribute[0].t for a in nodes["d"].attribute if a.name == "then_branch"]
    for tensor in tensors:
        (entry,) = tensor.external_data
        assert entry.key == found.key
        tensor.raw_data = found.arrays[int(entry.value)].tobytes()
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    assert rest == model


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_elements_in_their_own_field_are_read_apart(tmp_path: Path, dtype: type) -> None:
    array = np.random.default_rng(0).standard_normal((3, MAPPED_NBYTES // 8 + 1)).astype(dtype)
    field = "float_data" if dtype is np.float32 else "double_data"
    model = _model()
    given = model.graph.initializer[0]
    given.CopyFrom(TensorProto(name="w", data_type=helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape))
    getattr(given, field).extend(array.ravel().tolist())
    found = _apart(model.SerializeToString(), tmp_path / "m.onnx")
    assert len(found.arrays) == 3 and is_mapped(found.arrays[2]) and not is_mapped(found.arrays[0])
    np.testing.assert_array_equal(found.arrays[2].view(array.dtype), array.ravel())


def test_a_field_of_another_type_is_left_to_the_parser(tmp_path: Path) -> None:
    model = _model()
    given = model.graph.initializer[0]
    given.CopyFrom(TensorProto(name="w", data_type=TensorProto.DOUBLE, dims=[LARGE]))
    given.float_data.extend([1.0] * LARGE)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(parax.errors.InvalidModel, match="wrong field"):
        import_model(tmp_path / "m.onnx", limits=Limits())


@pytest.mark.parametrize("shift", range(4))
def test_mapped_constants_need_not_be_aligned(tmp_path: Path, shift: int) -> None:
    """Kernels and the folding of sums get the same numbers, wherever in the file they are."""
    w = np.random.default_rng(0).standard_normal((512, 1024), np.float32)
    nodes = [helper.make_node("ReduceSum", ["w"], ["s"], keepdims=0), helper.make_node("MatMul", ["x", "w"], ["p"]),
             helper.make_node("Add", ["p", "s"], ["y"])]  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 512])]
    outputs, constants = [helper.make_empty_tensor_value_info("y")], [numpy_helper.from_array(w, "w")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = "p" * (shift + 1)  # moves what follows
    onnx.save(model, tmp_path / "m.onnx")
    options = parax.CompileOptions(cache=False)
    found, expected = (parax.compile(m, options=options) for m in (tmp_path / "m.onnx", model))
    assert bytes(found.weights) == bytes(expected.weights)


def test_a_model_runs_the_same_read_from_a_file_and_from_memory(tmp_path: Path) -> None:
    model = _model()
    onnx.save(model, tmp_path / "m.onnx")
    x = {"x": np.ones_like(WEIGHTS), "which": np.array(True)}
    found, expected = (parax.compile(m).session().run(x)["y"] for m in (tmp_path / "m.onnx", model))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(found, (1 + WEIGHTS) * (WEIGHTS + 1) - (WEIGHTS + 2) + 3, 1e-5, 1e-5)


def test_a_file_cannot_refer_to_what_was_read_apart(tmp_path: Path) -> None:
    model = _model()
    small = numpy_helper.from_array(np.zeros(2, np.float32), "s")
    small.ClearField("raw_data")
    small.data_location = TensorProto.EXTERNAL
    small.external_data.add(key="parax 0", value="0")
    model.graph.initializer[1].CopyFrom(small)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(parax.errors.InvalidModel, match="location"):
        import_model(tmp_path / "m.onnx", limits=Limits())


@given(st.data())
def test_damaged_files_are_read_as_the_parser_reads_them(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
                                                         ) -> None:  # fmt: skip
    """Whatever byte is changed or cut off: the same model, or an error in both ways of reading."""
    whole = bytearray(_model().SerializeToString())
    near = [0, 1, 2, 3, 4, 5, 6, len(whole) - 1, len(whole) - 40, *range(20, 60)]
    place = data.draw(st.sampled_from(near) | st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        del whole[place:]
    else:
        whole[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("m") / "m.onnx"
    path.write_bytes(whole)
    results = []
    for source in (path, bytes(whole)):
        try:
            graph = import_model(source, limits=Limits())
            results.append([None if v.data is None else v.data.tobytes() for n in graph for v in n.operands])
        except parax.ParaxError as error:
            results.append([str(type(error)).encode()])
    assert results[0] == results[1]


def test_what_is_no_model_is_left_to_the_parser(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x0b" * 100)
    with pytest.raises(parax.errors.InvalidModel, match="malformed"):
        read_model(tmp_path / "m.onnx", Limits())


def _of_lists(n: int) -> onnx.ModelProto:
    """A node of an unknown operator, whose lists have a field for each of n elements."""
    node = helper.make_node("Unknown", ["x"], ["y"], domain="tests", ints=[-1, *range(n)], names=["ab", ""] * n,
                            floats=np.linspace(0, 1, n).tolist())  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("tests", 1)], ir_version=8)


def test_long_lists_are_not_walked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = _of_lists(LEAST_NBYTES), []
    fields = apart._Walk._fields
    monkeypatch.setattr(apart._Walk, "_fields", lambda *a: (seen.append(f) or f for f in fields(*a)))
    found = _apart(model.SerializeToString(), tmp_path / "m.onnx")
    assert found.message == model.SerializeToString() and not found.arrays
    assert len(seen) < 4 * apart.MANY_FIELDS


def test_a_tensor_behind_a_long_list_is_read_apart(tmp_path: Path) -> None:
    """No writer puts it there; protobuf takes fields in any order."""
    many = onnx.AttributeProto(ints=range(LEAST_NBYTES)).SerializeToString()
    tensor = onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, t=numpy_helper.from_array(WEIGHTS))
    node = onnx.NodeProto(op_type="Constant", output=["k"]).SerializeToString()
    content = many + tensor.SerializeToString()
    node += b"\x2a" + apart._varint(len(content)) + content
    graph = b"\x0a" + apart._varint(len(node)) + node
    found = _apart(b"\x3a" + apart._varint(len(graph)) + graph, tmp_path / "m.onnx")
    assert [a.tobytes() for a in found.arrays] == [WEIGHTS.tobytes()]
    (attribute,) = onnx.ModelProto.FromString(found.message).graph.node[0].attribute
    assert list(attribute.ints) == list(range(LEAST_NBYTES)) and attribute.t.external_data[0].key == found.key


OVERLONG = b"\x40" + b"\x80" * 10 + b"\x01"  # an element of a list of integers
TOO_LARGE = b"\x40" + b"\xff" * 9 + b"\x7f"
NOT_SHORTEST = b"\x40\x80\x80\x00"
UNFINISHED = b"\x40\x80"
BEYOND = b"\x4a\x05ab"


@pytest.mark.parametrize("tail", [b"", OVERLONG, TOO_LARGE, NOT_SHORTEST, UNFINISHED, BEYOND, b"\x3d\0\0", b"\x0c"])
def test_a_long_list_is_accepted_as_the_parser_accepts_it(tmp_path: Path, tail: bytes) -> None:
    content = onnx.AttributeProto(name="ints", ints=range(LEAST_NBYTES)).SerializeToString() + tail
    node = b"\x2a" + apart._varint(len(content)) + content
    graph = b"\x0a" + apart._varint(len(node)) + node
    data = b"\x08\x08\x3a" + apart._varint(len(graph)) + graph + b"\x42\x02\x10\x11"
    (tmp_path / "m.onnx").write_bytes(data)
    results: list[object] = []
    for source in (tmp_path / "m.onnx", data):
        try:
            results.append(read_model(source, Limits()).model)
        except parax.ParaxError as error:
            results.append(type(error))
    assert results[0] == results[1]
    assert (results[0] is parax.errors.InvalidModel) == (tail in (OVERLONG, UNFINISHED, BEYOND, b"\x3d\0\0", b"\x0c"))
