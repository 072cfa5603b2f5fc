"""`parax reduce` on compilers that are broken on purpose: by a module that every Python of the test imports first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

HEAD = '<ir_version: 10, opset_import: ["" : 22, "ours" : 1]>'
MODEL = f"""{HEAD} g (float[N,8] x, float[8,8] w) => (float[N,8] y, float[N,8] z) {{
    a = Exp(x) b = Add(a, x) c = MatMul(b, w) d = Tanh(c) e = Mish(d) f = Add(e, b) h = Softmax(f) y = Relu(h)
    z = Neg(x) }}"""
BRANCHES = f"""{HEAD} g (float[4] x, bool yes) => (float[4] y) {{
    a = Exp(x) b = Tanh(a)
    c = If (yes) <then_branch = t () => (float[4] p) {{ m = Mish(b) p = Neg(m) }},
                  else_branch = e () => (float[4] q) {{ q = Neg(a) }}>
    d = Add(c, a) y = Relu(d) }}"""
UNKNOWN = f"""{HEAD} g (float[2,3] x) => (float[2,3] y) {{
    a = Exp(x) b = Add(a, x) c = ours.Nothing(b) d = Tanh(c) y = Relu(d) }}"""
FUNCTIONS = f"""{HEAD} g (float[4] x) => (float[4] y) {{ a = ours.twice(x) b = Mish(a) c = ours.twice(b) y = Relu(c) }}
    <domain: "ours", opset_import: ["" : 22]> twice (x) => (y) {{ y = Add(x, x) }}"""
BREAK = """
import os, signal, time
from parax.compiler.ir.ops.activation import Mish
right = Mish.compute
def broken(self, e, x):
    {how}
Mish.compute = broken
"""
WRONG = BREAK.format(how="return right(self, e, x) * 1.01")


def reduce(folder: Path, text: str, expect: str, *flags: str, broken: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command on a model's text, with a compiler that is broken so."""
    onnx.save(parser.parse_model(text), folder / "m.onnx")
    (folder / "sitecustomize.py").write_text(broken)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "parax", "reduce", "m.onnx", "--expect", expect, "-o", "s.onnx",
               "--no-cache", *flags]  # fmt: skip
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)


def operators(folder: Path) -> list[str]:
    """Of the reduced model, which is valid."""
    model = onnx.load(folder / "s.onnx")
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("against", ["onnxruntime", "reference"])
def test_a_wrong_operator_is_found_and_its_test_passes_once_it_is_right(tmp_path: Path, against: str) -> None:
    done = reduce(tmp_path, MODEL, "wrong", "--test", "test_m.py", "--against", against, broken=WRONG)
    assert done.returncode == 0, done.stderr
    assert operators(tmp_path) == ["Mish"]
    onnx.checker.check_model(onnx.load(tmp_path / "s.onnx"))
    with np.load(tmp_path / "s.npz") as feeds:
        assert {k: v.shape for k, v in feeds.items()} == {"d": (1, 1)}
    for broken, code in ((WRONG, 1), ("", 0)):
        (tmp_path / "sitecustomize.py").write_text(broken)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_m.py"]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        assert subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True).returncode == code


@pytest.mark.parametrize(("how", "problem"), [
    ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    ("os._exit(3)", "exit code 3"),
    ("raise KeyError(7)", "KeyError"),
])  # fmt: skip
def test_a_crash_is_data(tmp_path: Path, how: str, problem: str) -> None:
    done = reduce(tmp_path, MODEL, "crash", broken=BREAK.format(how=how))
    assert done.returncode == 0, done.stderr
    assert problem in done.stdout
    assert operators(tmp_path) == ["Mish"]


def test_so_is_a_hang(tmp_path: Path) -> None:
    small = f"{HEAD} g (float[4] x) => (float[4] y) {{ a = Mish(x) y = Relu(a) }}"
    how = "time.sleep(1000)"
    done = reduce(tmp_path, small, "crash", "--timeout", "4", "--max-seconds", "40", broken=BREAK.format(how=how))
    assert done.returncode == 0, done.stderr
    assert "hang" in done.stdout
    assert operators(tmp_path) == ["Mish"]


def test_what_no_other_implementation_runs_is_cut_by_its_types(tmp_path: Path) -> None:
    done = reduce(tmp_path, UNKNOWN, "refused")
    assert done.returncode == 0, done.stderr
    assert "Nothing" in done.stdout
    assert operators(tmp_path) == ["Nothing"]


def test_branches_keep_what_they_take_from_outside(tmp_path: Path) -> None:
    done = reduce(tmp_path, BRANCHES, "wrong", broken=WRONG)
    assert done.returncode == 0, done.stderr
    assert operators(tmp_path) == ["If"]


def test_functions_that_nobody_calls_any_more_go(tmp_path: Path) -> None:
    done = reduce(tmp_path, FUNCTIONS, "wrong", broken=WRONG)
    assert done.returncode == 0, done.stderr
    assert operators(tmp_path) == ["Mish"]
    assert not onnx.load(tmp_path / "s.onnx").functions


def test_what_is_slow_stays_slow(tmp_path: Path) -> None:
    """Everything is, by a factor small enough."""
    text = f"""{HEAD} g (float[256,256] x) => (float[256,256] y) {{
        a = MatMul(x, x) b = MatMul(a, a) c = Relu(b) d = MatMul(c, a) y = Tanh(d) }}"""
    done = reduce(tmp_path, text, "slow", "--factor", "0.001", "--max-seconds", "30")
    assert done.returncode == 0, done.stderr
    assert len(operators(tmp_path)) < 5
    assert "onnxruntime" in done.stdout


@pytest.mark.parametrize("expect", ["wrong", "crash", "refused", "slow"])
def test_a_model_that_does_not_show_it_is_told(tmp_path: Path, expect: str) -> None:
    done = reduce(tmp_path, MODEL, expect, *(["--factor", "1000"] if expect == "slow" else []))
    assert done.returncode == 2
    assert f"--expect {expect}: the model does not show it; found pass" in done.stderr
    assert not (tmp_path / "s.onnx").exists()


def test_given_inputs_and_sizes(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((5, 8), 0.5, np.float32))
    done = reduce(tmp_path, MODEL, "wrong", "--input", "x=@x.npy", "--dim", "N=5", "--max-seconds", "60", broken=WRONG)
    assert done.returncode == 0, done.stderr
    assert operators(tmp_path) == ["Mish"]


def test_a_reference_is_no_measure_of_speed(tmp_path: Path) -> None:
    assert "no measure of speed" in reduce(tmp_path, MODEL, "slow", "--against", "reference").stderr
