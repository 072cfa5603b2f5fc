"""Every kind of bad input ends in its exit code and one clear message: no traceback, no partial file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from parax import compile as compile_model
from parax.errors import InvalidInput, InvalidModel, ParaxError, ResourceLimit, UnsupportedOp

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def model(nodes: list[NodeProto], shape: list[int | str] | None = None, dtype: int = TensorProto.FLOAT,
          opset: int = 17, **weights: np.ndarray) -> ModelProto:
    """x → y with the given nodes; x is f32[2, 3] if nothing else is said."""
    graph = helper.make_graph(
        nodes, "bad",
        [helper.make_tensor_value_info("x", dtype, [2, 3] if shape is None else shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(op: str, inputs: str, outputs: str = "y", **attributes: object) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), f"the_{op}", **attributes)


def external(location: str) -> ModelProto:
    """A model whose weight lies in another file."""
    made = model([node("Add", "x w")], w=np.zeros((2, 3), np.float32))
    weight = made.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    return made


def nowhere_domain() -> ModelProto:
    made = model([helper.make_node("Relu", ["x"], ["y"], domain="nowhere")])
    made.opset_import.append(helper.make_opsetid("nowhere", 1))
    return made


def sparse_input() -> ModelProto:
    x, y = (helper.make_sparse_tensor_value_info(name, TensorProto.FLOAT, [5]) for name in "xy")
    graph = helper.make_graph([node("Identity", "x")], "bad", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


SOUND = model([node("Relu", "x")])
F = np.float32

MODELS: dict[str, tuple[ModelProto | bytes, type[ParaxError]]] = {
    "truncated": (SOUND.SerializeToString()[:-9], InvalidModel),
    "garbage": (os.urandom(16) + bytes(range(256)), InvalidModel),
    "cycle": (model([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Neg", "b")]), InvalidModel),
    "self cycle": (model([node("Add", "x y")]), InvalidModel),
    "missing initializer": (model([node("MatMul", "x w")]), InvalidModel),
    "missing input": (model([helper.make_node("Add", ["x", ""], ["y"])]), InvalidModel),
    "wrong dtype": (model([node("Add", "x w")], w=np.ones(3, np.int64)), InvalidModel),
    "wrong shape": (model([node("MatMul", "x w")], w=np.ones((2, 3), F)), InvalidModel),
    "unknown operator": (model([node("NoSuchOperator", "x")]), UnsupportedOp),
    "unknown domain": (nowhere_domain(), UnsupportedOp),
    "sparse input": (sparse_input(), UnsupportedOp),
    "future opset": (model([node("Relu", "x")], opset=9999), UnsupportedOp),
    "negative opset": (model([node("Relu", "x")], opset=-5), InvalidModel),
    "negative dimension": (model([node("Relu", "x")], [-2, 3]), InvalidModel),
    "huge dimension": (model([node("Relu", "x")], [1 << 40, 1 << 20]), ResourceLimit),
    "huge result": (model([node("Tile", "x n")], n=np.array([1 << 40, 1])), ResourceLimit),
    "outside the folder": (external("../../etc/hostname"), InvalidModel),
    "absolute path": (external("/etc/hostname"), InvalidModel),
    "absent file": (external("absent.bin"), InvalidModel),
}


def failed_cleanly(done: subprocess.CompletedProcess[str], code: int) -> None:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error: ") == 1


def write(path: Path, made: ModelProto | bytes) -> Path:
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    return path


@pytest.mark.parametrize("name", MODELS)
def test_bad_models(name: str, cli: Cli, tmp_path: Path) -> None:
    made, kind = MODELS[name]
    path = write(tmp_path / "m.onnx", made)
    with pytest.raises(kind):
        compile_model(path)
    failed_cleanly(cli("compile", path, "-o", "plan.bin"), kind.exit_code)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.bin"
    compile_model(SOUND).save(path)
    return path


@pytest.mark.parametrize("damage", ["truncated", "flipped", "foreign", "empty", "other zip"])
def test_bad_plans(damage: str, plan: Path, cli: Cli, tmp_path: Path) -> None:
    content = bytearray(plan.read_bytes())
    content[content.index(b"\x7fELF") + 100] ^= 0xFF  # inside the object code
    bad = {
        "truncated": plan.read_bytes()[:-100],
        "flipped": bytes(content),
        "foreign": b"\x7fELF" + bytes(1000),
        "empty": b"",
        "other zip": b"PK\x05\x06" + bytes(18),
    }[damage]
    failed_cleanly(cli("run", write(tmp_path / "plan.bin", bad), "--input", "x=random"), 4)


@pytest.mark.parametrize(
    ("name", "array", "code"),
    [
        ("z", np.zeros((2, 3), F), 2),
        ("x", np.zeros((3, 3), F), 2),
        ("x", np.zeros(6, F), 2),
        ("x", np.zeros((2, 3), np.int64), 2),
        ("x", np.array([["a"] * 3] * 2), 2),
    ],
    ids=["name", "size", "rank", "dtype", "strings"],
)
def test_bad_tensors(name: str, array: np.ndarray, code: int, plan: Path, cli: Cli, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", array)
    failed_cleanly(cli("run", plan, "--input", f"{name}=@in.npy", "--output", "y=@out.npy"), code)
    assert not (tmp_path / "out.npy").exists()


def test_a_missing_tensor() -> None:
    with compile_model(SOUND).session(instances=1) as session, pytest.raises(InvalidInput, match="x"):
        session.run({})


@pytest.mark.parametrize("place", ["absent/plan.bin", "folder"])
def test_unwritable_output(place: str, cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", SOUND)
    (tmp_path / "folder").mkdir()
    before = sorted(p.name for p in tmp_path.rglob("*"))
    failed_cleanly(cli("compile", "m.onnx", "-o", place), 2)
    assert sorted(p.name for p in tmp_path.rglob("*")) == before


def test_an_absent_model(cli: Cli) -> None:
    failed_cleanly(cli("compile", "absent.onnx"), 2)


def test_an_index_out_of_range_when_running() -> None:
    made = model([node("Gather", "w x")], [4], TensorProto.INT64, w=np.arange(12, dtype=F).reshape(3, 4))
    with compile_model(made).session(instances=1) as session:
        np.testing.assert_array_equal(session.run({"x": np.array([0, 2, -1, -3])})["y"][:, 0], [0, 8, 8, 0])
        with pytest.raises(InvalidInput, match="Gather"):
            session.run({"x": np.array([0, 3, 0, 0])})
        assert session.run({"x": np.zeros(4, np.int64)})["y"].shape == (4, 4)


def test_names_of_the_place() -> None:
    """The message names the node, what was expected and what was found."""
    with pytest.raises(InvalidModel) as caught:
        compile_model(MODELS["wrong shape"][0])
    assert "the_MatMul" in str(caught.value)
