"""External data: what may be read, and what a hostile model may not."""

from __future__ import annotations

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from parax.compiler.frontend.importer import import_model
from parax.errors import InvalidModel

CONTENT = np.arange(6, dtype=np.float32)


def write(folder, entries: dict[str, str], dims=(6,), where: str = "initializer"):
    tensor = TensorProto(name="w", dims=dims, data_type=1, data_location=TensorProto.EXTERNAL)
    tensor.external_data.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in entries.items())
    out = helper.make_tensor_value_info("y", 1, None)
    if where == "constant":
        graph = helper.make_graph([helper.make_node("Constant", [], ["y"], value=tensor)], "g", [], [out])
    elif where == "branch":
        branch = helper.make_graph([helper.make_node("Identity", ["w"], ["z"])], "b", [], [
            helper.make_tensor_value_info("z", 1, None)], [tensor])  # fmt: skip
        node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
        graph = helper.make_graph([node], "g", [], [out], [helper.make_tensor("c", 9, [], [True])])
    else:
        graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [out], [tensor])
    path = folder / "m.onnx"
    path.write_bytes(helper.make_model(graph, ir_version=8).SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "model"
    (inside / "sub").mkdir(parents=True)
    for path in (inside / "w.bin", inside / "sub" / "w.bin", tmp_path / "secret.bin"):
        CONTENT.tofile(path)
    (inside / "link.bin").symlink_to(inside / "w.bin")
    (inside / "escape.bin").symlink_to(tmp_path / "secret.bin")
    (inside / "out").symlink_to(tmp_path)
    (inside / "empty.bin").write_bytes(b"")
    os.mkfifo(inside / "pipe")
    return inside


GOOD = {
    "whole file": ({"location": "w.bin"}, (6,)),
    "offset and length": ({"location": "w.bin", "offset": "8", "length": "8"}, (2,)),
    "odd offset": ({"location": "w.bin", "offset": "1", "length": "4"}, (1,)),
    "sub-folder": ({"location": "sub/w.bin"}, (6,)),
    "link inside": ({"location": "link.bin"}, (6,)),
    "empty": ({"location": "empty.bin"}, (0,)),
}


@pytest.mark.parametrize("where", ["initializer", "constant", "branch"])
@pytest.mark.parametrize("case", GOOD)
def test_good(case, where, folder):
    entries, dims = GOOD[case]
    graph = import_model(write(folder, entries, dims, where))
    start = int(entries.get("offset", 0))
    expected = np.frombuffer(CONTENT.tobytes()[start : start + 4 * dims[0]], np.float32)
    (array,) = [v.data for v in graph.constants if v.data.dtype == np.float32 and v.is_used][-1:]
    np.testing.assert_array_equal(array, expected)


BAD = {
    "no location": {},
    "empty location": {"location": ""},
    "absolute": {"location": "/etc/passwd"},
    "device": {"location": "/dev/zero"},
    "parent": {"location": "../secret.bin"},
    "parent in the middle": {"location": "sub/../../secret.bin"},
    "link to the outside": {"location": "escape.bin"},
    "folder link to the outside": {"location": "out/secret.bin"},
    "backslash": {"location": "..\\secret.bin"},
    "NUL": {"location": "w.bin\0"},
    "folder": {"location": "sub"},
    "pipe": {"location": "pipe"},
    "missing": {"location": "none.bin"},
    "too long a name": {"location": "a" * 5000},
    "negative offset": {"location": "w.bin", "offset": "-8"},
    "offset no number": {"location": "w.bin", "offset": "abc"},
    "offset not ASCII": {"location": "w.bin", "offset": "٣"},
    "offset too far": {"location": "w.bin", "offset": "4"},
    "huge offset": {"location": "w.bin", "offset": "9" * 100},
    "wrong length": {"location": "w.bin", "length": "23"},
    "empty file": {"location": "empty.bin"},
}


@pytest.mark.parametrize("where", ["initializer", "constant", "branch"])
@pytest.mark.parametrize("case", BAD)
def test_bad(case, where, folder):
    with pytest.raises(InvalidModel, match=r"external|location|offset|length"):
        import_model(write(folder, BAD[case], where=where))


def test_one_key_twice(folder):
    path = write(folder, {"location": "w.bin"})
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data.add(key="location", value="/etc/passwd")
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InvalidModel, match="two 'location'"):
        import_model(path)


def test_bytes_have_no_folder(folder):
    with pytest.raises(InvalidModel, match="not in a folder"):
        import_model(write(folder, {"location": "w.bin"}).read_bytes())
