"""Comparing with another implementation: its failures are its own, and layer by layer starts with layers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import parax
from parax.compiler.contest import Contestant, hold
from parax.compiler.frontend.exposed import exposed
from parax.compiler.frontend.oracle import oracle
from parax.compiler.frontend.other_side import other_side

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
needs_onnxruntime = pytest.mark.skipif(not find_spec("onnxruntime"), reason="onnxruntime is not installed")
HEADER = '<ir_version: 8, opset_import: ["": 17]> '
# ONNX Runtime has no kernel of it; parax and onnx.reference do
SMALL = HEADER + "g (int16[N,3] x) => (int16[N,3] y) { y = Relu(x) }"


@needs_onnxruntime
@pytest.mark.parametrize(
    "arguments",
    [["verify", "m.onnx"], ["compile", "m.onnx", "--check", "1"], ["bench", "m.onnx", "--vs", "onnxruntime"]],
    ids=lambda a: a[0],
)
def test_what_onnxruntime_cannot_load_is_no_failure_of_ours(arguments: list[str], cli: Cli, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(SMALL), tmp_path / "m.onnx")
    done = cli(*arguments)
    assert done.returncode == 3, done.stderr
    assert "error: onnxruntime failed: " in done.stderr
    assert "NOT_IMPLEMENTED" in done.stderr
    assert "report" not in done.stderr
    if arguments[0] == "verify":
        assert "--against reference" in done.stderr
        assert cli(*arguments, "--against", "reference").returncode == 0


@pytest.mark.parametrize("kind", [pytest.param("onnxruntime", marks=needs_onnxruntime), "onnx.reference"])
def test_what_it_cannot_run_is_neither(kind: str) -> None:
    text = HEADER + "g (float[N,S] x, int64[1] i) => (float[1,S] y) { y = Gather(x, i) }"
    right = oracle(onnx.parser.parse_model(text), kind.removeprefix("onnx."))
    inputs = {"x": np.ones((2, 3), np.float32), "i": np.array([7])}
    with pytest.raises(parax.UnsupportedOp, match=rf"^{kind} failed: \w+"):
        right(inputs)
    assert right({**inputs, "i": np.array([1])})["y"].shape == (1, 3)


def test_a_peer_that_fails_while_it_is_measured_is_named() -> None:
    def broken() -> None:
        raise RuntimeError("of\nits own")

    peer = Contestant("peer", "1", [broken], 1, blame=lambda: other_side("peer"))
    with pytest.raises(parax.UnsupportedOp, match="peer failed: RuntimeError: of its own"):
        hold([peer], 0.01, 1, lambda what, done: None)
    with pytest.raises(RuntimeError):  # ours is not excused
        hold([Contestant("parax", "1", [broken], 1)], 0.01, 1, lambda what, done: None)


def test_our_errors_and_memory_that_ends_stay_what_they_are() -> None:
    for error in (parax.InvalidInput("m"), MemoryError()):
        with pytest.raises(type(error)), other_side("peer"):
            raise error


def test_layer_by_layer_shows_layers_and_no_sizes(tmp_path: Path) -> None:
    text = HEADER + """g (float[N,3,4] x, bool c) => (float[M,3] z, int64[3] s) {
        a = Constant<value_ints=[0]>()  s = Shape(x)  n = Gather(s, a)  three = Constant<value_ints=[3]>()
        to = Concat<axis=0>(n, three)  minus = Neg(to)
        r = Relu(x)  k = ReduceMax<axes=[2], keepdims=0>(r)  y = Reshape(k, to)
        b = If(c) <then_branch = t () => (float[M,3] u) { u = Neg(y) },
                   else_branch = e () => (float[M,3] v) { v = Abs(y) }>
        z = Sqrt(b)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    assert [value.name for value in exposed(tmp_path / "m.onnx").graph.output] == ["s", "r", "k", "y", "b", "z"]


@pytest.mark.parametrize("arguments", [["verify", "m.onnx"], ["compile", "m.onnx", "--check", "1"]], ids=lambda a: a[0])
def test_agreement_that_says_little_is_said(arguments: list[str], cli: Cli, tmp_path: Path) -> None:
    text = HEADER + "g (float[N,3] x) => (float[N,3] y, float[N,3] z) <float[1] w = {0}> { y = Mul(x, w) z = Relu(x) }"
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    done = cli(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("output y: the reference is 0 everywhere") == 1
    assert "output z" not in done.stderr


def test_expectations_are_compared_by_the_same_rules(cli: Cli, tmp_path: Path) -> None:
    text = HEADER + """g (float[4] x) => (float[3] v, int64[3] i) <int64[1] k = {3}> { v, i = TopK(x, k) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    np.save(tmp_path / "v.npy", np.array([5, 2, 2], np.float32))
    np.save(tmp_path / "i.npy", np.array([3, 2, 1]))
    expect = ["--input", "x=[1, 2, 2, 5]", "--expect", "v=@v.npy", "--expect", "i=@i.npy"]
    done = cli("run", "m.onnx", *expect)
    assert done.returncode == 0, done.stdout
    assert "same, but for the order of equal scores" in done.stdout
    assert "in another order where v is equal" in done.stderr
    np.save(tmp_path / "i.npy", np.array([1, 2, 3]))
    done = cli("run", "m.onnx", *expect)
    assert done.returncode == 5
    assert "OTHER ORDER the same rows in another order" in done.stdout
