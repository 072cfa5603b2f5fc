"""What ends a training in the middle: a clear error with the right exit code, and the last checkpoint as it was."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from parax.runtime.train.checkpoint import read

SIDE, CLASSES, ROWS, BATCH = 6, 3, 60, 10
N_WIDE = 3000  # numbers that make a checkpoint larger than all else that is written
MOST_NBYTES = 1 << 18


def model() -> onnx.ModelProto:
    """A picture of bytes → scores."""
    rng = np.random.default_rng(0)
    width = SIDE * SIDE
    weights = {"w1": (width, N_WIDE), "w2": (N_WIDE, CLASSES)}
    arrays = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 40, name)
        for name, shape in weights.items()
    ]
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("MatMul", ["f", "w1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]), helper.make_node("MatMul", ["r", "w2"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "wide", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, SIDE, SIDE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])], arrays,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


JOB = """
[model]
path = "model.onnx"
output = "trained.onnx"
[data]
train = {{ {data} }}
loaders = "{loaders}"
workers = {workers}
transforms = [{{ kind = "normalise" }}]
shuffle = false
[optimizer]
name = "sgd"
lr = 0.01
[train]
epochs = {epochs}
batch = 10
[checkpoints]
folder = "checkpoints"
[log]
file = "log.jsonl"
"""


def job(folder: Path, epochs: int, data: str = 'kind = "npz", path = "train.npz"', loaders: str = "threads",
        workers: int = 0) -> list[str]:  # fmt: skip
    text = JOB.format(data=data, epochs=epochs, loaders=loaders, workers=workers)
    (folder / "job.toml").write_text(text)
    return [sys.executable, "-m", "parax", "train", str(folder / "job.toml")]


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    labels = np.arange(ROWS) % CLASSES
    return {"x": rng.integers(0, 255, (ROWS, 1, SIDE, SIDE)).astype(np.float32), "labels": labels}


def trained(command: list[str], limit: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)


@pytest.fixture(scope="module")
def first_epoch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of one epoch that was done."""
    folder = tmp_path_factory.mktemp("first")
    onnx.save(model(), folder / "model.onnx")
    np.savez(folder / "train.npz", **arrays())
    done = trained(job(folder, 1))
    assert done.returncode == 0, done.stderr
    (folder / "trained.onnx").unlink()
    return folder


@pytest.fixture
def begun(first_epoch: Path, tmp_path: Path) -> Path:
    """A copy of it for a test of its own."""
    return shutil.copytree(first_epoch, tmp_path / "own")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "checkpoints").iterdir()}


def require_intact(folder: Path, before: dict[str, bytes]) -> None:
    """The checkpoint of the first epoch is there, whole, nothing lies beside it, and a training goes on from it."""
    after = contents(folder)
    assert after == before
    assert read(folder / "checkpoints" / f"step-{ROWS // BATCH:09d}.safetensors").facts["steps"] == ROWS // BATCH
    assert not (folder / "trained.onnx").exists()
    np.savez(folder / "train.npz", **arrays())
    done = trained(job(folder, 2))
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]
    per_epoch = ROWS // BATCH
    assert steps == [*range(1, per_epoch + 1), per_epoch, *range(per_epoch + 1, 2 * per_epoch + 1), 2 * per_epoch]


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"x": np.nan}, 5, "the loss is not finite; found nan"),
        ({"labels": CLASSES}, 2, f"'labels', row 3 of the batch: a label is none of the model's {CLASSES} classes"),
    ],
)
def test_data_that_goes_wrong_in_the_middle(begun: Path, change: dict, code: int, message: str) -> None:
    before, broken = contents(begun), arrays()
    for name, value in change.items():
        broken[name][33] = value
    np.savez(begun / "train.npz", **broken)
    done = trained(job(begun, 2))
    assert done.returncode == code and message in done.stderr and "Traceback" not in done.stderr, done.stderr
    require_intact(begun, before)


def test_an_empty_data_set(begun: Path) -> None:
    before = contents(begun)
    np.savez(begun / "train.npz", **{name: array[:0] for name, array in arrays().items()})
    done = trained(job(begun, 2))
    assert done.returncode == 4 and "an empty data set" in done.stderr, done.stderr
    require_intact(begun, before)


def test_a_wrong_key_of_the_job(begun: Path) -> None:
    before, command = contents(begun), job(begun, 2)
    (begun / "job.toml").write_text((begun / "job.toml").read_text().replace("epochs", "epocs"))
    done = trained(command)
    assert done.returncode == 2 and "[train]: no such key" in done.stderr, done.stderr
    assert "found epocs; did you mean epochs?" in done.stderr
    require_intact(begun, before)


def test_a_full_disk(begun: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_NBYTES, MOST_NBYTES))

    before = contents(begun)
    assert all(len(content) > MOST_NBYTES for content in before.values())
    done = trained(job(begun, 2), limit)
    assert done.returncode == 2 and "cannot be written" in done.stderr and "step-" in done.stderr, done.stderr
    require_intact(begun, before)


def test_a_disk_that_is_full_for_the_log(begun: Path) -> None:
    before = contents(begun)
    (begun / "log.jsonl").rename(begun / "kept")
    (begun / "log.jsonl").symlink_to("/dev/full")
    done = trained(job(begun, 2))
    assert done.returncode == 2 and "log" in done.stderr and "Traceback" not in done.stderr, done.stderr
    (begun / "log.jsonl").unlink()
    (begun / "kept").rename(begun / "log.jsonl")
    require_intact(begun, before)


def test_an_unreadable_image(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is an extra: pip install 'parax[data]'")
    onnx.save(model(), tmp_path / "model.onnx")
    for i, pixels in enumerate(arrays()["x"]):
        place = tmp_path / "images" / f"class{i % CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels[0].astype(np.uint8)).save(place / f"{i}.png")
    data = f'kind = "images", path = "images", size = {SIDE}, channels = 1'
    for workers in (0, 2):
        assert trained(job(tmp_path, workers + 1, data, workers=workers)).returncode == 0
        before = contents(tmp_path)
        victim = tmp_path / "images" / "class1" / "31.png"
        whole = victim.read_bytes()
        victim.write_bytes(whole[:40])
        done = trained(job(tmp_path, workers + 2, data, workers=workers))
        assert done.returncode == 4 and "an unreadable image" in done.stderr and "31.png" in done.stderr, done.stderr
        assert contents(tmp_path) == before
        victim.write_bytes(whole)


def test_a_killed_loader(begun: Path) -> None:
    """Each epoch has a loader of its own, which may have done its work when it is killed: then the next one is."""
    before, noted = contents(begun), len((begun / "log.jsonl").read_bytes())
    process = subprocess.Popen(job(begun, 100_000, loaders="processes", workers=1), stderr=subprocess.PIPE, text=True)
    try:
        children, end = Path(f"/proc/{process.pid}/task/{process.pid}/children"), time.monotonic() + 300
        while len((begun / "log.jsonl").read_bytes()) <= noted:  # what runs before a step is no loader
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.05)
        while process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.002)
            with suppress(OSError):  # it ended meanwhile
                for child in children.read_text().split():
                    os.kill(int(child), signal.SIGKILL)
        _, said = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 6 and "loader process" in said and "SIGKILL" in said, said
    last = sorted((begun / "checkpoints").glob("step-*"))[-1]
    assert read(last).facts["steps"] % 6 == 0 and len(contents(begun)) >= len(before)
    assert not [path for path in (begun / "checkpoints").iterdir() if path.name.startswith(".")]
