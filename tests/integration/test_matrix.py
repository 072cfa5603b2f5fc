"""A part of the matrix (models × batches × modes × targets against ONNX Runtime), and the matrix's own verdicts.

The whole of it is `python -m benchmarks.matrix`; continuous integration runs that with `--quick`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import parax
from benchmarks import matrix
from benchmarks.cases import Case, case_names, open_case
from sampling import sampled

pytest.importorskip("onnxruntime", reason="ONNX Runtime computes the reference results")

LISTED = ("mlp", "ncf", "cifar-resnet20", "mobilenet-v2", "word-lm", "gnmt", "bert-base", "unet")
SHARED = (
    "libonnx/mnist_8",
    "silero-vad/silero_vad_16k_op15",
    "magika/fast_v2_1",
    "yunet/yunet_s_dynamic",
    "ort/bert_toy",
)


def _child(name: str, **changes: object) -> list[matrix.Record]:
    args = argparse.Namespace(
        batches=[1, 7], targets=list(matrix.TARGETS), modes=list(matrix.MODES), quick=True, models=None, timeout=300.0
    )
    vars(args).update(changes)
    return matrix.run_in_child(name, args)


@pytest.mark.parametrize("name", sampled(LISTED, 4))
def test_small_editions_agree_with_onnx_runtime(name: str) -> None:
    records = _child(f"listed/{name}")
    assert matrix.verdict(records) in ("pass", "no-cpu"), records


@pytest.mark.models
@pytest.mark.parametrize("name", sampled(SHARED, 5))
def test_real_models_agree_with_onnx_runtime(name: str, models: Path) -> None:
    records = _child(f"shared/{name}", models=models)
    assert matrix.verdict(records) in ("pass", "no-cpu"), records


class _FakePlan:
    """Stands for a plan and its session: answers each run by a function."""

    def __init__(self, answer: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> None:
        self.run = answer

    def session(self, **_: int) -> _FakePlan:
        return self

    def __enter__(self) -> _FakePlan:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def perceptron(tmp_path: Path) -> Case:
    return open_case("listed/mlp", small=True, batches=(1, 7), folder=None, work=tmp_path)


@pytest.mark.parametrize(
    ("change", "status", "problem"),
    [
        (lambda y: y, "pass", ""),
        (lambda y: y + 1e-5, "pass", ""),
        (lambda y: y + 1e-2, "fail", "output logits at"),
        (lambda y: y[:, ::-1], "fail", "output logits at"),
        (lambda y: y.astype(np.float64), "fail", "type float64"),
    ],
)
def test_a_run_passes_only_within_the_tolerance(
    perceptron: Case,
    change: Callable[[np.ndarray], np.ndarray],
    status: str,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = matrix.oracle(perceptron.path, "onnxruntime")
    answer = lambda inputs: {"logits": change(right(inputs)["logits"])}  # noqa: E731
    monkeypatch.setitem(vars(parax), "compile", lambda *_, **__: _FakePlan(answer))
    runs = [record for record in matrix.run_case(perceptron) if "run" in record]
    assert [record["status"] for record in runs] == [status] * 8
    assert all(problem in record["problem"] for record in runs)


def test_refusals_and_errors_are_told_apart(perceptron: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path, target: str, **_shapes: object) -> None:
        raise parax.UnsupportedOp("no") if target == "x86-64-v3" else ValueError("broken")

    monkeypatch.setitem(vars(parax), "compile", refuse)
    records = list(matrix.run_case(perceptron))
    assert [record["status"] for record in records] == ["error", "unsupported"]
    assert matrix.verdict(records) == "error"
    assert matrix.verdict(records[1:]) == "unsupported"


def test_a_child_that_dies_gives_a_record() -> None:
    (record,) = _child("listed/no-such-model")
    assert record["status"] == "crash"
    assert "no-such-model" in record["problem"]


def test_a_child_that_hangs_gives_a_record() -> None:
    assert _child("listed/mlp", timeout=0.01)[-1]["status"] == "timeout"


@pytest.mark.models
def test_rows_are_repeated_along_the_batch_symbol(models: Path) -> None:
    name = "shared/silero-vad/silero_vad_16k_op15"
    assert name in case_names(models, quick=True)
    case = open_case(name, small=True, batches=(7,), folder=models, work=Path())
    shapes = {key: value.shape for key, value in case.runs[-1].inputs.items()}
    assert shapes == {"input": (7, 576), "state": (2, 7, 128), "sr": ()}
