"""Models and plans as callers hand them in: paths, bytes, open files, protobufs, external data; and what is none."""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

import parax
from parax import sources
from parax.compiler.frontend.limits import Limits
from parax.compiler.frontend.parse import read_model

MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }'
)
CONTENT = MODEL.SerializeToString()
X = np.array([[-1.0, 2.0, 3.0]], np.float32)
SHAPES: dict[str, Callable[[bytes, Path], object]] = {
    "text": lambda content, path: str(path),
    "Path": lambda content, path: path,
    "PathLike": lambda content, path: os.scandir(path.parent).__next__(),
    "bytes": lambda content, path: content,
    "bytearray": lambda content, path: bytearray(content),
    "memoryview": lambda content, path: memoryview(content),
    "BytesIO": lambda content, path: io.BytesIO(content),
    "open file": lambda content, path: path.open("rb"),
    "unbuffered file": lambda content, path: path.open("rb", buffering=0),
    "temporary file": lambda content, path: _temporary(content),
    "spooled file": lambda content, path: _spooled(content),
    "member of an archive": lambda content, path: _archived(content),
}


def _temporary(content: bytes) -> object:
    file = tempfile.NamedTemporaryFile()  # noqa: SIM115 - read by whom it is given to
    file.write(content)
    file.seek(0)
    return file


def _spooled(content: bytes) -> object:
    file = tempfile.SpooledTemporaryFile()  # noqa: SIM115 - as above
    file.write(content)
    file.seek(0)
    return file


def _archived(content: bytes) -> object:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("m.onnx", content)
    return zipfile.ZipFile(archive).open("m.onnx")


def runs(plan: parax.Plan) -> bool:
    with plan.session(instances=1) as session:
        return bool(np.array_equal(session.run({"x": X})["y"], np.maximum(X, 0)))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_model_in_every_shape(shape: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(CONTENT)
    assert runs(parax.compile(SHAPES[shape](CONTENT, tmp_path / "m.onnx")))  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_plan_in_every_shape(shape: str, tmp_path: Path) -> None:
    parax.compile(MODEL).save(tmp_path / "plan.bin")
    content = (tmp_path / "plan.bin").read_bytes()
    for verify in ("fast", "full", "none"):
        given = SHAPES[shape](content, tmp_path / "plan.bin")
        plan = parax.load(given, verify)  # type: ignore[arg-type]
        assert runs(plan)
        assert (plan.path is not None) == (shape in ("text", "Path", "PathLike"))


def test_weights_of_a_plan_from_bytes_are_aligned_and_the_plan_s_own(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", 1, ["N", 3])], [helper.make_tensor_value_info("y", 1, ["N", 3])],
        [onnx.numpy_helper.from_array(np.eye(3, dtype=np.float32), "w")],
    )  # fmt: skip
    parax.compile(helper.make_model(graph, ir_version=8)).save(tmp_path / "plan.bin")
    content = bytearray((tmp_path / "plan.bin").read_bytes())
    plan = parax.load(content)
    content[:] = bytes(len(content))  # the caller's memory may go or change
    assert plan.weights.readonly
    assert np.frombuffer(plan.weights, np.uint8).ctypes.data % 64 == 0
    with plan.session(instances=1) as session:
        np.testing.assert_array_equal(session.run({"x": X})["y"], X)


@pytest.mark.parametrize("content", [b"", b"no plan at all", CONTENT])
def test_bytes_that_are_no_plan(content: bytes) -> None:
    for given in (content, io.BytesIO(content)):
        with pytest.raises(parax.CorruptPlan, match="not a plan"):
            parax.load(given)


def test_damaged_bytes_of_a_plan_are_found(tmp_path: Path) -> None:
    parax.compile(MODEL).save(tmp_path / "plan.bin")
    content = bytearray((tmp_path / "plan.bin").read_bytes())
    content[content.index(b'"name"')] ^= 1
    with pytest.raises(parax.CorruptPlan, match=r"the plan's bytes:manifest\.json: wrong digest"):
        parax.load(content)


def test_a_file_is_read_from_where_it_stands_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PIECE_NBYTES", 7)
    file = io.BytesIO(b"something else" + CONTENT)
    file.seek(len(b"something else"))
    assert runs(parax.compile(file))
    assert file.read() == b"" and not file.closed


def test_a_file_is_read_once_however_often_the_model_is() -> None:
    options = parax.CompileOptions(opt_level=3, check=1, tune_seconds=0.0, cache=False)
    assert runs(parax.compile(io.BytesIO(CONTENT), options=options))


def test_a_file_without_an_end_is_a_limit() -> None:
    with open("/dev/zero", "rb") as endless, pytest.raises(parax.ResourceLimit, match="at most 1000 bytes"):
        read_model(endless, Limits(file_nbytes=1000))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    closed = io.BytesIO(CONTENT)
    closed.close()

    class Odd:
        def __init__(self, answer: object) -> None:
            self.answer = answer

        def read(self, size: int) -> object:
            return self.answer

    with open(tmp_path / "written", "wb") as writing:
        for file in (closed, writing, Odd(None), Odd(5)):
            for call in (parax.compile, parax.load):
                with pytest.raises(parax.UsageError, match="cannot be read"):
                    call(file)  # type: ignore[operator]


def test_a_file_that_is_open_as_text_says_how_to_open_it(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("text")
    wrapped = tempfile.NamedTemporaryFile("w+")  # noqa: SIM115 - no TextIOBase by itself
    wrapped.write("text")
    wrapped.seek(0)
    with open(tmp_path / "m.onnx") as text, wrapped:
        for file in (text, wrapped, io.StringIO("text")):
            for call in (parax.compile, parax.load):
                with pytest.raises(TypeError, match=r'open as text.*"rb"') as caught:
                    call(file)  # type: ignore[operator]
                assert isinstance(caught.value, parax.UsageError)


class Module:
    """What has the names of torch's class, where torch is not installed."""

    __module__ = "torch.nn.modules.module"


class Net(Module):
    """A model of a user."""

    __module__ = "user"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [(None, "found None"), (5, "found an object of type int"), ({}, "type dict"), (["m.onnx"], "type list"),
     (np.zeros(3), "type numpy.ndarray"), (io.BytesIO, "type type"), (object(), "type object"),
     (Net(), r'type user.Net; torch.compile\(module, backend="parax"\)'),
     (MODEL.graph, "onnx.helper.make_model"), (MODEL.graph.node[0], "run_node")],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_no_model_is_a_type_error(wrong: object, says: str) -> None:
    for call in (parax.compile, parax.onnx_backend.prepare):
        with pytest.raises(TypeError, match=f"model: not a model; expected a path, .*{says}") as caught:
            call(wrong)  # type: ignore[operator]
        assert isinstance(caught.value, parax.UsageError) and caught.value.exit_code == 2
    assert not parax.onnx_backend.is_compatible(wrong)  # type: ignore[arg-type]


def test_plans_and_sessions_are_compiled_already() -> None:
    plan = parax.compile(MODEL)
    with plan.session(instances=1) as session:
        for wrong in (plan, session):
            for call, word in ((parax.compile, "compiled"), (parax.load, "loaded")):
                with pytest.raises(TypeError, match=f"it is {word} already"):
                    call(wrong)  # type: ignore[operator]
    with pytest.raises(TypeError, match=r"not a plan; expected the path .*; parax.compile makes a plan of it"):
        parax.load(MODEL)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="found None"):
        parax.load(None)  # type: ignore[arg-type]


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A model whose weight lies beside it, in `inside`; a file to steal lies above."""
    weight = np.arange(9, dtype=np.float32).reshape(3, 3)
    folder = tmp_path / "inside"
    folder.mkdir()
    weight.tofile(folder / "w.bin")
    weight.tofile(tmp_path / "secret.bin")
    tensor = onnx.TensorProto(name="w", dims=[3, 3], data_type=1, data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", 1, ["N", 3])], [helper.make_tensor_value_info("y", 1, ["N", 3])], [tensor],
    )  # fmt: skip
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 20)])
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder


MEMORY: dict[str, Callable[[Path], object]] = {
    "ModelProto": lambda path: onnx.load(path, load_external_data=False),
    "bytes": lambda path: path.read_bytes(),
    "open file": lambda path: path.open("rb"),
    "path elsewhere": lambda path: path.rename(path.parent.parent / "m.onnx"),
}


@pytest.mark.parametrize("kind", ["onnxruntime", "reference"])
@pytest.mark.parametrize("shape", MEMORY)
def test_external_data_in_a_folder_that_is_named(
    shape: str, kind: str, external: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "onnxruntime":
        pytest.importorskip("onnxruntime")
    monkeypatch.setattr("parax.compiler.check.best_kind", lambda: kind)
    model = MEMORY[shape](external / "m.onnx")
    plan = parax.compile(model, base_dir=external, options=parax.CompileOptions(check=1))  # type: ignore[arg-type]
    with plan.session(instances=1) as session:
        np.testing.assert_allclose(session.run({"x": X})["y"], X @ np.arange(9, dtype=np.float32).reshape(3, 3))


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "link.bin"])
def test_a_named_folder_holds_what_is_looked_up_in_it(location: str, external: Path) -> None:
    (external / "link.bin").symlink_to(external.parent / "secret.bin")
    model = onnx.load(external / "m.onnx", load_external_data=False)
    model.graph.initializer[0].external_data[0].value = location
    for given in (model, model.SerializeToString()):
        with pytest.raises(parax.InvalidModel, match=r"location|outside"):
            parax.compile(given, base_dir=external)


def test_without_a_folder_the_hint_names_the_argument(external: Path) -> None:
    with pytest.raises(parax.InvalidModel, match="base_dir"):
        parax.compile((external / "m.onnx").read_bytes())


@pytest.mark.parametrize("wrong", [5, b"folder", "no such folder", "no\0folder", "m.onnx"])
def test_a_base_dir_that_is_no_folder(wrong: object, external: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(external)
    with pytest.raises(parax.UsageError, match="base_dir") as caught:
        parax.compile("m.onnx", base_dir=wrong)  # type: ignore[arg-type]
    assert isinstance(caught.value, TypeError) == (not isinstance(wrong, str))
