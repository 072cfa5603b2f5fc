"""What a compilation holds at its peak, in a process of its own: the plan's weights, and little of the model."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

COMPILE = """
import sys
import parax
parax.compile(sys.argv[1], options=parax.CompileOptions(cache=False, strict_fp=True)).save(sys.argv[2])
with open("/proc/self/status") as file:
    print(next(line.split()[1] for line in file if line.startswith("VmHWM")))
"""
MAPPED = """
import ctypes
import sys
from parax.compiler.commands.compile import give_back_large_arrays

class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", *"abcdef")]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype, libc.malloc.restype, libc.free.argtypes = Counts, ctypes.c_void_p, [ctypes.c_void_p]
if sys.argv[1] == "compile":
    give_back_large_arrays()
libc.free(libc.malloc(24 << 20))
before = libc.mallinfo2().hblks
libc.malloc(8 << 20)
print(libc.mallinfo2().hblks - before)
"""
SLACK_NBYTES = 24 << 20  # LLVM's for larger kernels, and bands on their way
MODEL_FLOATS = 1 << 24
ROWS, COLUMNS, CHANNELS = 8192, 2048, 1360

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _model(nodes: list[onnx.NodeProto], x: list[int | str], *, dtype: int = TensorProto.FLOAT,
           **constants: np.ndarray) -> onnx.ModelProto:  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", dtype, x)]
    outputs = [helper.make_empty_tensor_value_info("y")]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _matmul(share: int = 1) -> onnx.ModelProto:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return _model([node], ["N", ROWS // share], w=_random(ROWS // share, COLUMNS))


def _floats_field() -> onnx.ModelProto:
    """As old exporters write it: not as raw data."""
    model = _matmul()
    tensor = model.graph.initializer[0]
    tensor.float_data.extend(numpy_helper.to_array(tensor).ravel().tolist())
    tensor.ClearField("raw_data")
    return model


def _transposed_gemm() -> onnx.ModelProto:
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1, alpha=0.5)
    return _model([node], ["N", ROWS], w=_random(COLUMNS, ROWS), b=_random(COLUMNS))


def _embedding() -> onnx.ModelProto:
    node = helper.make_node("Gather", ["w", "x"], ["y"])
    return _model([node], ["N", 16], dtype=TensorProto.INT64, w=_random(MODEL_FLOATS // 768, 768))


def _conv(normalised: bool = False) -> onnx.ModelProto:
    nodes = [helper.make_node("Conv", ["x", "w"], ["c" if normalised else "y"], pads=[1] * 4)]
    constants = {"w": _random(CHANNELS, CHANNELS, 3, 3)}
    if normalised:
        nodes.append(helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"]))
        constants |= {name: np.abs(_random(CHANNELS)) for name in "sbmv"}
    return _model(nodes, ["N", CHANNELS, 7, 7], **constants)


def _flattened() -> onnx.ModelProto:
    """A matrix behind a convolution, whose rows move into the order of its pixels."""
    nodes = [helper.make_node("Conv", ["x", "k"], ["c"]), helper.make_node("Flatten", ["c"], ["f"]),
             helper.make_node("Gemm", ["f", "w"], ["y"], transB=1)]  # fmt: skip
    return _model(nodes, ["N", 64, 14, 14], k=_random(64, 64, 1, 1), w=_random(1280, 64 * 14 * 14))


def _lstm() -> onnx.ModelProto:
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=1447)
    return _model([node], [4, 1, 1447], w=_random(1, 4 * 1447, 1447), r=_random(1, 4 * 1447, 1447))


def _half() -> onnx.ModelProto:
    """Packed as f32: the plan alone is twice the model."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    w = _random(2 * ROWS, COLUMNS).astype(np.float16)
    return _model([node], ["N", 2 * ROWS], dtype=TensorProto.FLOAT16, w=w)


def _peak(model: onnx.ModelProto, folder: Path, external: bool = False) -> int:
    """Bytes of memory that compiling takes at its highest."""
    path = folder / "m.onnx"
    onnx.save(model, path, save_as_external_data=external, location="m.data")
    run = subprocess.run([sys.executable, "-c", COMPILE, path, folder / "plan.bin"], capture_output=True, text=True,
                         check=False)  # fmt: skip
    assert run.returncode == 0, run.stderr
    return int(run.stdout) << 10


@pytest.fixture(scope="module")
def least() -> int:
    """The peak of compiling next to nothing."""
    with tempfile.TemporaryDirectory() as folder:
        return _peak(_matmul(share=1024), Path(folder))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "most"),
    [
        (_floats_field, 1.2), (_transposed_gemm, 1.2), (_embedding, 1.2), (_conv, 1.2), (_lstm, 1.2), (_half, 2.0),
        (_flattened, 2.0), (lambda: _conv(normalised=True), 2.0),  # a pass makes new weights of the model's
    ],
    ids=["float_data", "gemm", "gather", "conv", "lstm", "half", "flattened", "batchnorm"],
)  # fmt: skip
def test_compiling_takes_at_most_twice_the_model(make: Callable[[], onnx.ModelProto], most: float, least: int) -> None:
    model = make()
    with tempfile.TemporaryDirectory() as folder:
        assert _peak(model, Path(folder)) - least <= most * model.ByteSize() + SLACK_NBYTES


def test_external_data_is_no_exception(least: int) -> None:
    model = _matmul()
    nbytes = model.ByteSize()
    with tempfile.TemporaryDirectory() as folder:
        assert _peak(model, Path(folder), external=True) - least <= 1.2 * nbytes + SLACK_NBYTES


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33 or newer")
@pytest.mark.parametrize(("who", "mapped"), [("compile", 1), ("others", 0)])
def test_the_command_gives_large_arrays_back_even_after_larger_ones_were_freed(who: str, mapped: int) -> None:
    run = subprocess.run([sys.executable, "-c", MAPPED, who], capture_output=True, text=True, check=True)
    assert int(run.stdout) == mapped
