"""The verbs on a decoder with a past, whose sizes belong together: nothing needs to be said; what is said is kept."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from decoders import decoder

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
ALL = ["ids", "mask", "past", "positions"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A decoder whose mask is looked up: nothing in its shapes says how long that is."""
    onnx.save(decoder("looked up"), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_run_needs_no_flag(model: Path, cli: Cli) -> None:
    done = cli("run", "m.onnx", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert "random inputs (--seed 0" in done.stderr
    assert "S=64 T=128 P=64" in done.stderr
    assert json.loads(done.stdout)["outputs"]["present"]["shape"] == [1, 128, 4]


@pytest.mark.parametrize("file", ["m.onnx", "m.bin"])
def test_bench_needs_no_flag(file: str, model: Path, cli: Cli) -> None:
    assert cli("compile", "m.onnx", "-o", "m.bin").returncode == 0
    done = cli("bench", file, "--duration", "0.05", "--rounds", "1", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["inputs"]["mask"] == [1, 128]


def test_verify_and_check_need_no_flag(model: Path, cli: Cli) -> None:
    done = cli("verify", "m.onnx", "--n", "2", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["passed"]
    assert cli("compile", "m.onnx", "--check", "2").returncode == 0


def test_arrays_that_are_given_tell_their_sizes(model: Path, cli: Cli, tmp_path: Path) -> None:
    np.save(tmp_path / "past.npy", np.zeros((2, 3, 4), np.float32))
    rest = [flag for name in ALL if name != "past" for flag in ("--input", f"{name}=random")]
    done = cli("run", "m.onnx", "--input", "past=@past.npy", *rest, "--dim", "S=5", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"]["present"]["shape"] == [2, 8, 4]


def test_a_part_of_the_inputs_is_not_made_up_silently(model: Path, cli: Cli) -> None:
    done = cli("run", "m.onnx", "--input", "ids=[[1]]", "--input", "past=random")
    assert done.returncode == 2
    assert "inputs missing; expected mask: i64[B,T], positions: i64[B,S]; give --input mask=" in done.stderr


@pytest.mark.parametrize("verb", ["run", "bench", "verify"])
def test_sizes_that_fit_nothing_are_named(verb: str, cli: Cli, tmp_path: Path) -> None:
    onnx.save(decoder("added"), tmp_path / "m.onnx")
    dims = ["T=4", "S=9"] if verb == "run" else ["T=1..4", "S=9..10"]  # the others would compile for sizes
    done = cli(verb, "m.onnx", *(flag for dim in dims for flag in ("--dim", dim)))
    assert done.returncode == 2, done.stdout
    assert "no sizes found that fit together" in done.stderr
    assert "P+S == T" in done.stderr
    assert "--dim P=" in done.stderr


def test_plan_runs_its_candidates_at_sizes_that_fit(model: Path, cli: Cli) -> None:
    done = cli("plan", "m.onnx", "--budget", "0.5", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert "nothing was run" not in done.stdout
