"""Layers of the normal build against another implementation, on compilers that are broken on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

from parax.compiler import cli, driver
from parax.compiler.check import Procedure
from parax.compiler.ir.ops.activation import Mish
from parax.compiler.layerwise import Report, compare_layers, distance, unit_in_last_place
from parax.compiler.options import CompileOptions
from parax.compiler.sizes import symbol_sizes

HEAD = '<ir_version: 10, opset_import: ["" : 22]>'
CHAIN = f"""{HEAD} g (float[N,8] x, float[8,8] w) => (float[N,8] y) {{
    a = Exp(x) c = MatMul(a, w) d = Tanh(c) e = Mish(d) f = Add(e, a) h = Softmax(f) y = Relu(h) }}"""
IMAGES = f"""{HEAD} g (float[N,3,9,9] x, float[8,3,3,3] w, float[4,8,1,1] v) => (float[N,4] y, float[N,8,9,9] r)
    <float[8] s = {{1, 2, 1, 3, 1, 0.5, 1, 1}}, float[8] b = {{0, 1, 0, 0, 2, 0, 0, 1}}> {{
    c = Conv <pads = [1, 1, 1, 1]> (x, w) n = BatchNormalization(c, s, b, b, s) r = Relu(n)
    p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r) q = Conv(p, v) t = Mish(q) u = Concat <axis = 1> (t, q)
    z = Slice(u, from, to, axes) g = GlobalAveragePool(z) y = Flatten(g) }}""".replace(
    "<float[8] s", "<int64[1] from = {0}, int64[1] to = {4}, int64[1] axes = {1}, float[8] s")
ON_THE_HOST = f"""{HEAD} g (float[N] x) => (int64[1, M] y, float[N] z) {{
    a = Relu(x) y = NonZero(a) b = Neg(a) z = Abs(b) }}"""
BRANCHES = f"""{HEAD} g (float[4] x) => (float[4] y) {{
    a = Exp(x) s = ReduceSum <keepdims = 0> (x) zero = Sub(s, s) yes = Less(zero, s)
    c = If (yes) <then_branch = t () => (float[4] p) {{ m = Neg(a) p = Neg(m) }},
                  else_branch = e () => (float[4] q) {{ q = Neg(a) }}>
    y = Add(c, a) }}"""


def layers(folder: Path, text: str, **options: Any) -> Report:
    """The comparison with ONNX Runtime on two inputs."""
    path = folder / "m.onnx"
    onnx.save(parser.parse_model(text), path)
    chosen = CompileOptions(cache=False, calibrate=False, **options)
    return compare_layers(path, chosen, Procedure("onnxruntime", {}, times=2),
                          lambda plan: symbol_sizes(plan.manifest, {}, 2), lambda *_: None)  # fmt: skip


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mish is 1 % too large."""
    right = Mish.compute
    monkeypatch.setattr(Mish, "compute", lambda self, e, x: right(self, e, x) * 1.01)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("text", [CHAIN, IMAGES, ON_THE_HOST, BRANCHES])
def test_right_builds_do_not_depart(tmp_path: Path, text: str, level: int) -> None:
    found = layers(tmp_path, text, opt_level=level)
    assert found.first is None
    assert sum(layer.difference is not None for layer in found.layers) >= 2
    outputs = {o.name for o in parser.parse_model(text).graph.output}
    assert outputs <= {layer.name for layer in found.layers if layer.difference is not None}


@pytest.mark.usefixtures("broken")
def test_a_fused_node_that_departs_is_opened(tmp_path: Path) -> None:
    found = layers(tmp_path, CHAIN)
    by_name = {layer.name: layer for layer in found.layers}
    assert by_name["f"].kernel == "MatMul+Tanh+Mish+Add"  # in the normal build
    assert found.first is not None and found.first.name == "e" and found.first.opened
    assert [name for name, layer in by_name.items() if layer.opened] == ["c", "d", "e"]
    assert not by_name["d"].departs and by_name["e"].departs and by_name["f"].departs
    assert by_name["e"].relative == pytest.approx(0.01, rel=0.05)


@pytest.mark.usefixtures("broken")
def test_so_it_is_among_channels_last(tmp_path: Path) -> None:
    found = layers(tmp_path, IMAGES)
    assert found.first is not None and found.first.name == "t"


@pytest.mark.usefixtures("broken")
def test_without_fusion_nothing_needs_to_be_opened(tmp_path: Path) -> None:
    found = layers(tmp_path, CHAIN, opt_level=0)
    assert found.first is not None and (found.first.name, found.first.opened) == ("e", False)


def test_a_kernel_that_is_wrong_only_where_it_is_fused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, compile_model, builds = Mish.compute, driver.compile_model, []
    monkeypatch.setattr(Mish, "compute", lambda self, e, x: right(self, e, x) * (1.01 if len(builds) == 1 else 1.0))

    def counted(*args: Any, **keywords: Any) -> Any:
        builds.append(args)
        return compile_model(*args, **keywords)

    monkeypatch.setattr(driver, "compile_model", counted)
    found = layers(tmp_path, CHAIN)
    assert found.first is not None and found.first.name == "f" and not found.first.opened
    assert found.alone == "MatMul+Tanh+Mish+Add"


@pytest.mark.usefixtures("broken")
def test_the_command_says_which_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(parser.parse_model(CHAIN), tmp_path / "m.onnx")
    picture = tmp_path / "errors.svg"
    words = ["verify", str(tmp_path / "m.onnx"), "--layerwise", "--no-cache", "--no-calibrate",
             "--picture", str(picture)]  # fmt: skip
    assert cli.main(words) == 5
    shown = capsys.readouterr()
    assert "first to depart: e (Mish), inside of a fused node, which was opened: at [" in shown.err
    assert "DIFFERS" in shown.out and "Mish, opened" in shown.out
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize(("words", "message"), [
    (["--layerwise", "--plan", "p.bin"], "a plan has no intermediate tensors"),
    (["--picture", "e.svg"], "only layers are drawn"),
])  # fmt: skip
def test_what_does_not_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str],
                                   message: str) -> None:  # fmt: skip
    onnx.save(parser.parse_model(CHAIN), tmp_path / "m.onnx")
    assert cli.main(["verify", str(tmp_path / "m.onnx"), *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_unit_in_the_last_place_is_numpys_spacing(dtype: str) -> None:
    x = np.abs(np.random.default_rng(0).standard_normal(100) * 10.0 ** np.arange(-3, 1).repeat(25)).astype(dtype)
    assert (unit_in_last_place(x.astype(np.float64), x.dtype) == np.spacing(x).astype(np.float64)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
                                   ml_dtypes.float8_e5m2, np.int8, np.uint64])  # fmt: skip
def test_the_next_number_is_one_unit_away(dtype: Any) -> None:
    x = np.array([2, 1], dtype)
    bits = x.view(f"u{x.itemsize}") + np.array([1, 0], f"u{x.itemsize}")
    assert distance(bits.view(dtype), x)[1] == 1.0


def test_distances_of_what_is_no_number() -> None:
    nan, inf = np.float32("nan"), np.float32("inf")
    same = np.array([nan, inf, 1], np.float32)
    assert distance(same, same) == (0, 0)
    assert distance(np.array([nan, 1], np.float32), np.array([1, 1], np.float32)) == (np.inf, np.inf)
    assert distance(np.array([True]), np.array([False])) == (np.inf, np.inf)
    assert distance(np.zeros(2), np.zeros(2)) == (0, 0)
