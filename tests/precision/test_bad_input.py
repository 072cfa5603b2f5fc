"""`paraxc --precision` with data, scripts and targets that do not fit: one error, its exit code, no plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from commanding import run_here
from precision.small_models import classifier, images

RAISES = "def score(outputs, inputs):\n    return outputs[0]['no such output']\n"
GROWS = """<ir_version: 10, opset_import: ["": 21]> g (float[N,4] x) => (float[N,2] y)
<float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}> { l = Log (x)  y = MatMul (l, w) }"""
USAGE, INVALID, MISSED = 2, 4, 5


def with_one(value: float) -> dict[str, np.ndarray]:
    x = images(16)
    x[3, 0, 0, 0] = value
    return {"x": x}


def run(
    tmp_path: Path, data: Mapping[str, np.ndarray] | None, *more: str, model: onnx.ModelProto | None = None
) -> tuple[int, str]:
    """Exit code and messages of a compilation to 8 bits; no plan may be there."""
    onnx.save(model or classifier(), tmp_path / "m.onnx")
    given = []
    if data is not None:
        np.savez(tmp_path / "data.npz", **data)
        given = ["--calibrate", str(tmp_path / "data.npz")]
    paths = [str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.bin")]
    done = run_here("paraxc", [*paths, "--precision", "int8", *given, *more])
    assert not (tmp_path / "m.bin").exists() and done.stderr.count("error:") == 1 and "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize(("data", "code", "says"), [
    (None, USAGE, "needs calibration data"),
    ({}, INVALID, "an empty data set"),
    ({"y": images(16)}, USAGE, "no such input"),
    ({"x": images(16)[:, :2]}, USAGE, "another shape"),
    ({"x": images(16)[0]}, USAGE, "another shape"),
    ({"x": images(16).astype(np.float64)}, USAGE, "another element type"),
    ({"x": images(1)}, INVALID, "too little calibration data"),
    (with_one(np.nan), INVALID, "NaN or infinity"),
    (with_one(np.inf), INVALID, "NaN or infinity"),
    ({"x": np.zeros((16, 3, 9, 9), np.float32)}, INVALID, "same number everywhere"),
    ({"x": images(16), "label": np.zeros(16, np.int64)[:, None].repeat(3, 1)}, USAGE, "other labels than results"),
], ids=["none", "empty", "name", "channels", "rank", "type", "few", "nan", "inf", "constant", "labels"])  # fmt: skip
def test_calibration_data(tmp_path: Path, data: dict[str, np.ndarray] | None, code: int, says: str) -> None:
    found, message = run(tmp_path, data)
    assert says in message and found == code, message


def test_an_activation_that_becomes_nan(tmp_path: Path) -> None:
    code, message = run(tmp_path, {"x": -np.ones((16, 4), np.float32)}, model=onnx.parser.parse_model(GROWS))
    assert code == INVALID and "activation is NaN or infinite" in message and "calibrate with data" in message


@pytest.mark.parametrize(("text", "says"), [
    (RAISES, "KeyError"), ("def score(outputs, inputs):\n    return 'good'\n", "ValueError"),
    ("raise OSError('no labels')\n", "no labels"), ("def rate(outputs): pass\n", "no such function"),
    ("def score(outputs, inputs):\n    return float('nan')\n", "not finite"),
], ids=["raises", "text", "import", "other-name", "nan"])  # fmt: skip
def test_metric_scripts(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "metric.py").write_text(text)
    code, message = run(tmp_path, {"x": images(16)}, "--metric", str(tmp_path / "metric.py"))
    assert code == USAGE and says in message and "metric.py" in message


@pytest.mark.parametrize(("more", "code", "says"), [
    (("--target", "aarch64", "--precision", "auto"), USAGE, "add --target native|a target that runs here"),
    (("--precision", "int3"), USAGE, "int8"),
    (("--max-accuracy-drop=-1%",), USAGE, "share"),
    (("--max-accuracy-drop", "0%"), MISSED, "most lose, each alone"),
])  # fmt: skip
def test_precisions(tmp_path: Path, more: tuple[str, ...], code: int, says: str) -> None:
    found, message = run(tmp_path, {"x": images(16)}, *more)
    assert found == code and any(each in message for each in says.split("|")), message
