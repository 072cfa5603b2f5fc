"""A wrong file is called what it is, by the function, by the command line, and by `parax.compile` and `parax.load`."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from parax import file_kinds
from parax.compiler import cli

Capture = pytest.CaptureFixture[str]


def matmul() -> onnx.ModelProto:
    """f32[N,64] · a constant."""
    weights = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 64])], [weights],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def archive(*members: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as file:
            for name in members:
                file.writestr(name, b"\x80\x02}q\0." * 9)

    return write


def content(data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(data)

    return write


def plan(path: Path) -> None:
    parax.compile(matmul()).save(path)


def with_external_data(path: Path) -> None:
    options = {"save_as_external_data": True, "location": path.name, "size_threshold": 0}
    onnx.save(matmul(), path.with_name("m.onnx"), **options)  # type: ignore[arg-type]


def saved_model(path: Path) -> None:
    path.mkdir()
    content(b"\x08\x01\x12\x03abc")(path / "saved_model.pb")


def arrays(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, x=np.ones(3))


def array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.ones(3))


HEADER = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
KINDS: list[tuple[str, Callable[[Path], None], str]] = [
    ("p.bin", plan, "a plan"),
    ("m.weights", with_external_data, "external data of m.onnx"),
    ("far.onnx.data", content(bytes([7, 200, 91]) * 999), "external data of an ONNX model"),
    ("a.npy", array, "a NumPy array"),
    ("a.npz", arrays, "an archive of NumPy arrays"),
    ("m.pt", archive("archive/data.pkl", "archive/data/0"), "a PyTorch file"),
    ("old.pth", content(pickle.dumps(0x1950A86A20F9469CFC6C, 2) + b"\x80\x02M\xe9\x03."), "a PyTorch file"),
    ("p.pkl", content(pickle.dumps({"a": 1}, 4)), "a Python pickle"),
    ("m.pt2", archive("m/archive_format", "m/models/model.json"), "a program saved by torch.export"),
    ("m.keras", archive("config.json", "model.weights.h5"), "a Keras model"),
    ("m.h5", content(b"\x89HDF\r\n\x1a\n" + bytes(99)), "an HDF5 file"),
    ("m.tflite", content(b"\x1c\0\0\0TFL3" + bytes(99)), "a TensorFlow Lite model"),
    ("m.ort", content(b"\x1c\0\0\0ORTM" + bytes(99)), "ONNX Runtime's own format"),
    ("saved", saved_model, "the folder of a TensorFlow SavedModel"),
    ("saved_model.pb", content(b"\x08\x01\x12\x03\xffbc"), "a TensorFlow SavedModel"),
    ("frozen.pb", content(b"\n\x10\n\x01x\x12\x0bPlaceholder\xff"), "a TensorFlow graph"),
    ("m.safetensors", content(struct.pack("<Q", len(HEADER)) + HEADER + bytes(4)), "a safetensors file"),
    ("m.gguf", content(b"GGUF\3\0\0\0" + bytes(99)), "a GGUF model"),
    ("page.onnx", content(b"\n<!DOCTYPE HTML><html><title>404</title>"), "an HTML page"),
    ("lfs.onnx", content(LFS), "a pointer of Git LFS"),
    ("m.xml", content(b'\xef\xbb\xbf<?xml version="1.0"?><net name="m">'), "an XML file"),
    ("empty.onnx", content(b""), "an empty file"),
    ("folder", Path.mkdir, "a folder"),
    ("r.json", content(b'{\n "contestants": []}'), "a JSON file"),
    ("long.json", content(b"[" + '1, "Zürich", '.encode() * 999), "a JSON file"),
    ("notes.txt", content("Grüße, world\n".encode() * 999), "a text file"),
    ("m.txt", content(b'<ir_version: 8, opset_import: ["": 17]>\ng (float x) => (float y) {}'), "in text form"),
    ("m.textproto", content(b"ir_version: 8\ngraph {}"), "protobuf text"),
    ("cat.png", content(b"\x89PNG\r\n\x1a\n" + bytes(99)), "a PNG picture"),
    ("cat.jpg", content(b"\xff\xd8\xff\xe0" + bytes(99)), "a JPEG picture"),
    ("m.onnx.gz", content(b"\x1f\x8b\x08" + bytes(99)), "a gzip archive"),
    ("m.tar", content(b"m.onnx".ljust(257, b"\0") + b"ustar\x0000" + bytes(250)), "a tar archive"),
    ("m.zip", archive("readme", "resnet/m.onnx"), "a ZIP archive with resnet/m.onnx in it"),
]


@pytest.mark.parametrize(("name", "write", "kind"), KINDS, ids=[name for name, *_ in KINDS])
def test_a_wrong_file_is_called_what_it_is(
    name: str, write: Callable[[Path], None], kind: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / name
    write(path)
    found = file_kinds.kind_of(path)
    assert found is not None and kind in found.name
    with pytest.raises(parax.ParaxError, match=r"not an ONNX model: this is ") as refused:
        parax.compile(str(path))
    assert found.name in str(refused.value) and str(path) in str(refused.value)
    code = cli.main(["compile", str(path), "-o", str(tmp_path / "out.bin")])
    assert code == (2 if path.is_dir() else 4) and found.name in capsys.readouterr().err
    if kind != "a plan":
        with pytest.raises(parax.ParaxError, match=r"not a plan: this is ") as refused:
            parax.load(path)
        assert found.name in str(refused.value)
        assert cli.main(["run", str(path)]) == code and found.name in capsys.readouterr().err
    if path.is_file():
        with pytest.raises(parax.InvalidModel) as refused:
            parax.compile(path.read_bytes())
        assert found.name in str(refused.value) or "not an ONNX model" in str(refused.value)


def test_a_plan_and_a_model_in_each_others_place(tmp_path: Path, capsys: Capture) -> None:
    onnx.save(matmul(), tmp_path / "m.onnx")
    plan(tmp_path / "p.bin")
    with pytest.raises(parax.CorruptPlan, match=r"m\.onnx: not a plan: this is an ONNX model; compile it first"):
        parax.load(tmp_path / "m.onnx")
    for verb in ("compile", "plan", "verify"):
        assert cli.main([verb, str(tmp_path / "p.bin")]) == 4
        assert "p.bin: not an ONNX model: this is a plan; `parax run`" in capsys.readouterr().err
    assert cli.main(["bench", str(tmp_path / "p.bin"), "--model", str(tmp_path / "p.bin"), "--vs", "onnxruntime"]) == 4
    assert "this is a plan" in capsys.readouterr().err


@pytest.mark.parametrize("nbytes", [9, 200, 4000])
def test_what_is_cut_off_keeps_its_own_error(nbytes: int, tmp_path: Path) -> None:
    onnx.save(matmul(), tmp_path / "m.onnx")
    plan(tmp_path / "p.bin")
    content((tmp_path / "m.onnx").read_bytes()[:nbytes])(tmp_path / "half.onnx")
    content((tmp_path / "p.bin").read_bytes()[:nbytes])(tmp_path / "half.bin")
    with pytest.raises(parax.InvalidModel, match=r"half\.onnx: not an ONNX model.*is the file complete"):
        parax.compile(tmp_path / "half.onnx")
    with pytest.raises(parax.CorruptPlan, match="not a plan, or a damaged one"):
        parax.load(tmp_path / "half.bin")


def test_what_is_not_known_is_not_guessed(tmp_path: Path) -> None:
    content(bytes(range(255, 0, -1)) * 20)(tmp_path / "noise")
    assert file_kinds.kind_of(tmp_path / "noise") is None
    assert file_kinds.kind_of(tmp_path / "absent") is None
    assert file_kinds.kind_of(Path("/dev/null")) is None
    assert file_kinds.kind_of_bytes(matmul().SerializeToString()) == file_kinds.MODEL
    plan(tmp_path / "p.bin")
    assert file_kinds.kind_of_bytes((tmp_path / "p.bin").read_bytes()[: file_kinds.HEAD_NBYTES]) == file_kinds.PLAN


def test_a_folder_names_the_model_in_it(tmp_path: Path) -> None:
    onnx.save(matmul(), tmp_path / "only.onnx")
    with pytest.raises(parax.UsageError, match=r"this is a folder; give the file in it: .*only\.onnx"):
        parax.compile(tmp_path)
