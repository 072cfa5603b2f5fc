"""`parax inspect MODEL.onnx` and `parax.compile` agree on what compiles, and why not: they ask the same code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import onnx
import pytest

import parax
from parax.compiler import driver
from parax.compiler.options import CompileOptions
from parax.errors import ParaxError, UnsupportedOp, UnsupportedUse
from parax.runtime.host_ops import HOST_OPS

Cli = Callable[..., "CompletedProcess[str]"]
EVERY = 8  # of the real models and fragments, one is compared; all are by hand: nothing in them depends on the machine


class Reached(Exception):
    """Compiling came to where only object code is left to be made."""


def model(body: str, inputs: str = "float[N, 3] x") -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["": 17, "other": 1]> g ({inputs}) => (float[?, ?] y) {{ {body} }}"""
    return onnx.parser.parse_model(text)


def outcomes(source: Path | onnx.ModelProto, patch: pytest.MonkeyPatch) -> tuple[str, str]:
    """What the pre-flight check and compiling say: "" where there is nothing against it."""

    def said(work: Callable[[], object]) -> str:
        try:
            work()
        except Reached:
            return ""
        except ParaxError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def reached(*_: object) -> None:
        raise Reached

    checked = said(lambda: driver.preflight(source, CompileOptions()))
    with patch.context() as inner:
        inner.setattr(driver, "assembled", reached)
        return checked, said(lambda: driver.compile_model(source, CompileOptions()))


CASES = {
    "sound": "y = Relu(x)",
    "constants": "c = Constant <value = float[3] {1, 2, 3}> ()\ny = Add(x, c)",
    "no such operator": "a = Nonsense(x)\n[second] y = Nonsense(a)",
    "another domain": "y = other.Thing(x)",
    "several": "[p] a = Nonsense(x)\n[q] b = Strange(x)\ny = Add(a, b)",
    "on the host": "u = Unique <sorted = 1> (x)\ny = Unsqueeze(u, one)\n",
    "a type that no kernel has": "i = Cast <to = 6> (x)\n[p] m = Gemm <alpha = 2.0> (i, i)\ny = Cast <to = 1> (m)",
    "malformed": "y = Concat(x, x)",
}


@pytest.mark.parametrize("name", CASES)
def test_small_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = model(CASES[name].replace("one)", "x1)"), "float[N, 3] x, int64[1] x1" if "one)" in CASES[name] else
                 "float[3, 3] x")  # fmt: skip
    checked, compiled = outcomes(made, monkeypatch)
    assert checked == compiled
    assert (checked == "") == (name in ("sound", "constants", "on the host")), checked


@pytest.mark.slow
def test_onnxs_own_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of those that come with the package as files; `python -m benchmarks.agreement` compares all."""
    files = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data").rglob("*.onnx"))
    assert files
    for file in files[::3]:
        checked, compiled = outcomes(file, monkeypatch)
        assert checked == compiled, file


@pytest.mark.slow
def test_real_models_and_fragments(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [folder for folder in (models, models.parent / "fragments") if folder.is_dir()]
    files = [file for folder in folders for file in sorted(folder.rglob("*.onnx"))]
    assert files
    for file in files[::EVERY]:
        checked, compiled = outcomes(file, monkeypatch)
        assert checked == compiled, file


def test_all_nodes_are_named_with_their_reasons() -> None:
    with pytest.raises(UnsupportedOp, match="Nonsense-17 × 2, other::Thing-1 × 1") as caught:
        driver.preflight(model("[p] a = Nonsense(x)\n[q] b = Nonsense(x)\nc = other.Thing(x)\n y = Sum(a, b, c)"),
                         CompileOptions())  # fmt: skip
    assert set(caught.value.uses) == {
        UnsupportedUse("Nonsense", 17, 'Nonsense "p"'), UnsupportedUse("Nonsense", 17, 'Nonsense "q"'),
        UnsupportedUse("other.Thing", 1, "Thing %c"),
    }  # fmt: skip


def test_all_nodes_without_a_kernel_are_named() -> None:
    body = """i = Cast <to = 6> (x)
              [p] m = Gemm <alpha = 2.0> (i, i)
              [q] n = Gemm <alpha = 3.0> (m, i)
              y = Cast <to = 1> (n)"""
    with pytest.raises(UnsupportedOp) as caught:
        parax.compile(model(body, "float[3, 3] x"))
    assert [use.node for use in caught.value.uses] == ['Gemm "p"', 'Gemm "q"']
    assert all("alpha and beta on integers" in use.reason for use in caught.value.uses)


def test_nodes_of_the_models_own_functions_are_named() -> None:
    thing = onnx.helper.make_function(
        "other", "Thing", ["a"], ["b"], [onnx.helper.make_node("Nonsense", ["a"], ["b"], "inside")],
        [onnx.helper.make_opsetid("", 17)],
    )  # fmt: skip
    made = model("[p] y = other.Thing(x)")
    made.functions.append(thing)
    with pytest.raises(UnsupportedOp) as caught:
        driver.preflight(made, CompileOptions())
    assert [(use.operator, use.node) for use in caught.value.uses] == [("Nonsense", 'Nonsense "inside"')]


def test_what_runs_on_the_host_is_counted(cli: Cli, tmp_path: Path) -> None:
    body = "w = MatMul(x, x)\nr = Relu(w)\n[u] v = Unique <sorted = 1> (r)\ny = Unsqueeze(v, k)"
    made = model(body, "float[3, 3] x")
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "k"))
    onnx.save(made, tmp_path / "m.onnx")
    done = cli("inspect", "m.onnx", "--format", "json")
    assert done.returncode == 0, done.stderr
    host = json.loads(done.stdout)["host"]
    assert host["operators"] == {"Unique": 1} and host["n_native"] == 2, "MatMul with Relu behind it, Unsqueeze's copy"
    assert 0.2 < host["share"] < 0.6, "some 32 results against 3·3·3 multiply-adds and 9 comparisons"
    shown = " ".join(cli("inspect", "m.onnx").stdout.split())
    assert "outside native code 1 of 3 operators (Unique × 1)" in shown and "Unique 1 host" in shown
    done = cli("compile", "m.onnx", "-o", "plan.bin")
    assert "runs partly outside native code, in Python: 1 of 3 operators (Unique × 1)" in done.stderr
    assert "1 of 3 operators (Unique × 1)" in cli("inspect", "plan.bin").stdout


def test_a_native_model_says_so(cli: Cli, tmp_path: Path) -> None:
    onnx.save(model("y = Relu(x)"), tmp_path / "m.onnx")
    assert "outside native code nothing" in " ".join(cli("inspect", "m.onnx").stdout.split())
    assert "outside native code" not in cli("compile", "m.onnx", "-o", "plan.bin").stderr


def test_the_exit_code_is_that_of_compiling(cli: Cli, tmp_path: Path) -> None:
    onnx.save(model("y = Concat <axis = 0> (x, w)"), tmp_path / "m.onnx")
    done, compiled = cli("inspect", "m.onnx"), cli("compile", "m.onnx", "-o", "plan.bin")
    assert done.returncode == compiled.returncode == 4
    assert "compiles no: " in " ".join(done.stdout.split())


def test_only_some_uses_of_an_operator(cli: Cli, tmp_path: Path) -> None:
    body = """i = Cast <to = 6> (x)
              [p] m = Gemm <alpha = 2.0> (i, i)
              f = Cast <to = 1> (m)
              y = Gemm(x, f)"""
    onnx.save(model(body, "float[3, 3] x"), tmp_path / "m.onnx")
    done = cli("inspect", "m.onnx")
    assert done.returncode == 3
    shown = " ".join(done.stdout.split())
    assert "Gemm 2 1 of them not" in shown and 'Gemm "p" no kernel: alpha and beta on integers' in shown


def test_what_the_host_lacks_is_named_at_once_in_bodies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes are found only once the graph is cut into steps."""
    for name in ("GatherND", "ScatterElements", "ScatterND"):
        monkeypatch.delitem(HOST_OPS, ("", name))
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g (string[2] s, bool c, float[1] x) => (string[2] y, string[2] z)
        <int64[2] at = {0, 1}, int64[2,1] places = {0, 1}> {
            y = ScatterElements <axis = 0> (s, at, s)
            z = If (c) <then_branch = t () => (string[2] p) { p = GatherND(s, places) },
                        else_branch = e () => (string[2] q) { q = ScatterND(s, places, s) }> }"""
    with pytest.raises(UnsupportedOp) as caught:
        driver.preflight(onnx.parser.parse_model(text), CompileOptions())
    assert sorted(use.operator for use in caught.value.uses) == ["GatherND", "ScatterElements", "ScatterND"]
    assert all("not supported for str[2]" in use.reason for use in caught.value.uses)
