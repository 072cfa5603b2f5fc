"""`parax run`: what the inputs may be, and what is said of those that were made up or changed."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import parax
from parax.compiler import cli
from parax.compiler.commands.casting import fitted
from parax.compiler.commands.models import BUNDLED
from parax.errors import UsageError
from parax.runtime.manifest import TensorSpec

Capture = pytest.CaptureFixture[str]
SUM = "g (float[N, 3] a, int64[N, 3] b) => (float[N, 3] y) { c = Cast <to = 1> (b) y = Add (a, c) }"


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = a + b of a: f32[N,3] and b: i64[N,3]."""
    path = tmp_path_factory.mktemp("run") / "sum.bin"
    parax.compile(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {SUM}')).save(path)
    return path


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model as a plan."""
    path = tmp_path_factory.mktemp("run") / "digits.bin"
    parax.compile(BUNDLED / "digits.onnx").save(path)
    return path


def ran(capsys: Capture, *words: object) -> tuple[dict[str, Any], str]:
    """The document on stdout, and stderr."""
    code = cli.main(["run", *map(str, words), "--format", "json"])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    return json.loads(shown.out), shown.err


def refused(capsys: Capture, *words: object) -> str:
    assert cli.main(["run", *map(str, words)]) == 2
    return capsys.readouterr().err


def test_without_inputs_they_are_random_and_it_says_so(plan: Path, capsys: Capture) -> None:
    found, said = ran(capsys, plan)
    assert said == "random inputs (--seed 0; sizes by --dim): a f32[1, 3], b i64[1, 3]\n"
    assert found["random_inputs"] == ["a", "b"] and found["outputs"]["y"]["shape"] == [1, 3]
    again, _ = ran(capsys, plan, "--random")
    other, said = ran(capsys, plan, "--seed", 1, "--dim", "N=2")
    assert "--seed 1" in said and "a f32[2, 3]" in said
    assert found["outputs"] == again["outputs"] != other["outputs"]
    assert ran(capsys, plan, "-q")[1] == ""


def test_some_inputs_are_not_made_up_unless_asked_for(plan: Path, capsys: Capture) -> None:
    assert "inputs missing; expected b: i64[N,3]; give --input b=@FILE, or --random" in refused(
        capsys, plan, "--input", "a=[[1,2,3]]"
    )
    found, said = ran(capsys, plan, "--input", "a=[[1e6,2e6,3e6]]", "--random")
    assert found["random_inputs"] == ["b"] and "b i64[1, 3]" in said and "a f32" not in said
    assert np.abs(np.subtract(found["outputs"]["y"]["values"], [[1e6, 2e6, 3e6]])).max() <= 1


def test_a_misspelt_tensor_is_told_what_was_meant(tmp_path: Path, capsys: Capture) -> None:
    text = "g (float[2] ids, float[2] mask) => (float[2] y) { y = Mul (ids, mask) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'), tmp_path / "m.onnx")
    said = refused(capsys, tmp_path / "m.onnx", "--input", "msak=[1,2]")
    assert "--input msak: no such tensor; expected ids or mask; did you mean mask?" in said


def test_an_input_with_a_default_may_be_left_out(tmp_path: Path, capsys: Capture) -> None:
    text = "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {3, 4}> { y = Mul (x, w) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'), tmp_path / "m.onnx")
    parax.compile(tmp_path / "m.onnx", overridable=["w"]).save(tmp_path / "p.bin")
    found, said = ran(capsys, tmp_path / "p.bin", "--input", "x=[1,2]")
    assert found["outputs"]["y"]["values"] == [3, 8] and said == ""


def test_casts_on_request_and_says_which(plan: Path, tmp_path: Path, capsys: Capture) -> None:
    np.save(tmp_path / "a.npy", np.array([[0.5, 1, 2]]))
    np.save(tmp_path / "b.npy", np.array([[-1.9, 1.9, 7]], np.float32))
    words = (plan, "--input", f"a=@{tmp_path}/a.npy", "--input", f"b=@{tmp_path}/b.npy")
    assert "input 'a': wrong element type; expected float32; found float64; --cast casts it" in refused(capsys, *words)
    found, said = ran(capsys, *words, "--cast")
    assert found["outputs"]["y"]["values"] == [[-0.5, 2, 9]]
    assert said.splitlines() == ["a: cast from float64 to float32", "b: cast from float32 to int64"]


@pytest.mark.parametrize(("dtype", "given", "expected"), [
    ("f32", np.float64([1e-50, np.inf, -np.inf]), [0, np.inf, -np.inf]),
    ("i64", np.float64([-(2.0**63), 0.9]), [-(2**63), 0]),
    ("i8", np.int64([-128, 127]), [-128, 127]),
    ("u8", np.float32([-0.9, 255.9]), [0, 255]),
    ("u64", np.uint8([1]), [1]),
    ("bool", np.float32([0, -2, np.nan]), [False, True, True]),
    ("f64", np.array([True, False]), [1, 0]),
    ("c64", np.int32([2]), [2]),
    ("str", np.array(["a", "bc"]), ["a", "bc"]),
])  # fmt: skip
def test_a_cast_keeps_what_the_type_holds(dtype: str, given: np.ndarray, expected: list[Any]) -> None:
    spec = TensorSpec("x", dtype, None)
    cast = fitted(given, spec, "x")
    assert cast.dtype == spec.numpy and cast.tolist() == expected


@pytest.mark.parametrize(("dtype", "given", "said"), [
    ("f32", np.float64([1, 1e39]), "out of range; expected float32; found 1e\\+39"),
    ("f16", np.float32([7e4]), "out of range"),
    ("i64", np.float64([2.0**63]), "out of range"),
    ("i64", np.uint64([2**63]), "out of range"),
    ("u64", np.int64([-1]), "out of range"),
    ("i32", np.float32([np.nan]), "out of range; expected int32; found nan"),
    ("u8", np.int64([3, 256]), "found 256"),
    ("u8", np.float32([-1]), "found -1"),
    ("f32", np.complex64([1j]), "cannot be cast"),
    ("f32", np.array(["1"]), "cannot be cast"),
    ("str", np.float32([1]), "cannot be cast"),
])  # fmt: skip
def test_a_cast_refuses_what_the_type_does_not_hold(dtype: str, given: np.ndarray, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fitted(given, TensorSpec("x", dtype, None), "x")


def test_a_cast_to_types_that_numpy_lacks() -> None:
    pytest.importorskip("ml_dtypes")
    assert fitted(np.float32([1.5, 3e38]), TensorSpec("x", "bf16", None), "x").astype(np.float32)[0] == 1.5
    assert fitted(np.int64([-8, 7]), TensorSpec("x", "i4", None), "x").astype(int).tolist() == [-8, 7]
    for wrong in (np.int64([8]), np.float32([8])):
        with pytest.raises(UsageError, match="out of range"):
            fitted(wrong, TensorSpec("x", "i4", None), "x")


def drawn(number: int, folder: Path) -> Path:
    """A bundled drawing as a PNG file, three times as wide and twice as high as the model takes it."""
    image = pytest.importorskip("PIL.Image", reason="pictures need Pillow: pip install '.[test]'")
    with np.load(BUNDLED / "digits.npz") as samples:
        where = samples["digit"].tolist().index(number)
        pixels = np.rint(samples["picture"][where, 0] * 255).astype(np.uint8)
    image.fromarray(pixels.repeat(2, 0).repeat(3, 1)).save(folder / f"{number}.png")
    return folder / f"{number}.png"


def test_a_picture_is_read_and_its_class_named(digits: Path, tmp_path: Path, capsys: Capture) -> None:
    with (tmp_path / "names").open("w") as file:
        file.write("zero\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n")
    for number, name in ((2, "two"), (7, "seven")):
        words = (digits, "--input", f"picture=@{drawn(number, tmp_path)}", "--top", 2, "--labels", tmp_path / "names")
        found, said = ran(capsys, *words, "--resize", "28x28")
        ((best, second),) = found["top"]["probabilities"]
        assert (best["class"], best["label"]) == (number, name) and best["score"] > 0.9 > second["score"]
        assert said.endswith("84×56 pixels, grey, resized to 28×28, ÷255, nchw\n")
    assert cli.main(["run", *map(str, words), "--resize", "28x28"]) == 0
    table = capsys.readouterr().out.split("best classes by probabilities\n")[1].splitlines()
    assert table[0].split() == ["row", "class", "label", "score"] and table[1].split()[:3] == ["0", "7", "seven"]


def test_without_pillow_the_way_to_it_is_named(
    digits: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "p.png").open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + bytes(50))
    load = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "PIL":
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    said = refused(capsys, digits, "--input", f"picture=@{tmp_path}/p.png")
    assert "pictures need Pillow" in said and "pip install 'parax[images]'" in said


def test_options_without_what_they_are_for(digits: Path, plan: Path, tmp_path: Path, capsys: Capture) -> None:
    assert "no input is a picture" in refused(capsys, digits, "--resize", 28)
    assert "only with --top" in refused(capsys, digits, "--softmax")
    with (tmp_path / "notes.txt").open("w") as file:
        file.write("words")
    assert "found a text file" in refused(capsys, digits, "--input", f"picture=@{tmp_path}/notes.txt")
    said = refused(capsys, digits, "--input", f"picture={tmp_path}/notes.txt")
    assert f"give picture=@{tmp_path}/notes.txt" in said
