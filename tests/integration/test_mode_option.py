"""`mode` from the option to the session: a plan of that mode, or a refusal that says why there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import onnx
import onnx.parser
import pytest

import parax
from examples.models import build
from inside import router_of
from parax import CompileOptions, UsageError
from parax.runtime.topology import choose_cores

Cli = Callable[..., "CompletedProcess[str]"]
pytestmark = pytest.mark.skipif(len(choose_cores(None)) < 2, reason="needs two cores")
BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,16,28,28] x) => (float[N,64,28,28] y)
{ a = Conv <kernel_shape = [1,1]> (x, w0)  b = Conv <kernel_shape = [1,1]> (x, w1)
  c = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (a, v0)  d = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (b, v1)
  y = Concat <axis = 1> (c, d) }"""


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """Two branches of two convolutions."""
    model = onnx.parser.parse_model(BRANCHES)
    rng = np.random.default_rng(3)
    for name, shape in (("w0", (16, 16, 1, 1)), ("w1", (16, 16, 1, 1)), ("v0", (32, 16, 3, 3)), ("v1", (32, 16, 3, 3))):
        weight = rng.standard_normal(shape, np.float32) / 8
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return model


@pytest.mark.parametrize("mode", ["sequential", "layered", "pipelined"])
@pytest.mark.parametrize("hint", ["latency", "throughput"])
def test_a_plan_of_every_mode(model: onnx.ModelProto, mode: str, hint: str) -> None:
    plan = parax.compile(model, options=CompileOptions(mode=mode, hint=hint, cores=(0, 1)))
    x = np.random.default_rng(1).standard_normal((5, 16, 28, 28), np.float32)
    with plan.session(mode="sequential", instances=1) as plain, plan.session(cores=choose_cores(None)[:2]) as session:
        assert session.mode == mode
        assert session.run({"x": x})["y"].tobytes() == plain.run({"x": x})["y"].tobytes()


@pytest.mark.slow
def test_layers_write_what_is_concatenated_in_place() -> None:
    model = build("nasnet", small=True)
    plan = parax.compile(model, options=CompileOptions(mode="layered", hint="latency", cores=(0, 1)))
    (given,) = plan.inputs
    assert given.shape is not None
    shape = [d if isinstance(d, int) else 1 for d in given.shape]
    x = np.random.default_rng(1).standard_normal(shape, np.float32)
    with plan.session(mode="sequential") as plain, plan.session(mode="layered") as session:
        expected, found = (s.run({given.name: x}) for s in (plain, session))
    assert all(found[name].tobytes() == expected[name].tobytes() for name in expected)


def test_a_pipeline_cuts_larger_requests_into_more_micro_batches(model: onnx.ModelProto) -> None:
    plan = parax.compile(model, options=CompileOptions(mode="pipelined", cores=(0, 1)))
    planned = plan.manifest.scheduled
    assert planned is not None and planned.micro_batches is not None and planned.micro_rows is not None
    rows = planned.micro_rows * (planned.micro_batches + 2) + 1
    x = np.random.default_rng(1).standard_normal((rows, 16, 28, 28), np.float32)
    with plan.session(mode="sequential", instances=1) as plain, plan.session(cores=choose_cores(None)[:2]) as session:
        assert session.run({"x": x})["y"].tobytes() == plain.run({"x": x})["y"].tobytes()
        (binding,) = router_of(session).known.values()
        (cut,) = binding.cuts.values()
        assert len(cut.ranges) == planned.micro_batches + 3
        assert max(n for _, n in cut.ranges) <= planned.micro_rows


CHAIN = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,8] x) => (float[N,8] y) { a = Softmax (x)  y = Softmax (a) }"""


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (CHAIN, "layered", "no branches"),
        (CHAIN.replace("N,", "4,"), "pipelined", "no batch of independent rows"),
        (CHAIN.replace("float[N,8] y", "int64[2,M] y").replace("Softmax (a)", "NonZero (a)"), "layered", "on the host"),
    ],
)
def test_a_model_without_such_a_program(text: str, mode: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"mode {mode}: .*{why}"):
        parax.compile(onnx.parser.parse_model(text), options=CompileOptions(mode=mode))


def test_the_command_line(model: onnx.ModelProto, cli: Cli, tmp_path: Path) -> None:
    onnx.save(model, tmp_path / "m.onnx")
    assert cli("compile", "m.onnx", "-o", "p.bin", "--mode", "pipelined", "--cores", "0-1").returncode == 0
    assert "micro-batches through stages on 1 + 1 cores" in cli("inspect", "p.bin").stdout
    for file, mode in (("p.bin", "pipelined"), ("p.bin", "sequential"), ("m.onnx", "layered")):
        assert cli("run", file, "--mode", mode, "--input", "x=random", "--dim", "N=3").returncode == 0
    wrong = cli("run", "p.bin", "--mode", "layered", "--input", "x=random")
    assert wrong.returncode == 2 and "expected layered; found sequential, pipelined" in wrong.stderr
    done = cli("bench", "p.bin", "--duration", "0.1", "--rounds", "2", "--batch", "8", "--cores", "0-1")
    assert done.returncode == 0 and "2 cores, pipelined" in done.stdout


MASKED = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,3] x) => (float[N,3] y, bool[N,3] mask, int64[2] shape, float[N,3] same, int64 n, float[N,3] z)
{ y, mask = Dropout (x)  shape = Shape (x)  same = Identity (x)  n = Size (x)  r = Relu (x)  z = Sigmoid (x) }"""


@pytest.mark.parametrize("mode", ["sequential", "layered"])
def test_outputs_that_are_masks_shapes_and_inputs(mode: str) -> None:
    """Shape is a kernel that others wait for, not a view of its operand."""
    plan = parax.compile(onnx.parser.parse_model(MASKED), options=CompileOptions(mode=mode, cores=(0, 1)))
    x = np.arange(12, dtype=np.float32).reshape(4, 3) - 6
    with plan.session() as s:
        assert s.mode == mode
        for _ in range(3):
            found = s.run({"x": x})
    np.testing.assert_array_equal(found["y"], x)
    np.testing.assert_array_equal(found["same"], x)
    assert found["mask"].all() and found["mask"].shape == (4, 3)
    assert found["shape"].tolist() == [4, 3] and found["n"] == 12
