"""A training that is killed at any moment goes on from its last checkpoint as if nothing had been."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("killed.py")
WIDE = 60_000  # of hidden numbers: 13 MB a checkpoint, long enough to be met while it is written


@pytest.fixture(autouse=True)
def _tests_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SCRIPT.parents[1]), os.environ.get("PYTHONPATH", "")]))


def uninterrupted(folder: Path, *more: str) -> list[str]:
    command = [sys.executable, str(SCRIPT), str(folder), "whole", "0", *more]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def killed(folder: Path, lines: dict[str, str], wait: Callable[[], None], *more: str) -> bool:
    """One try: killed once `wait` returns behind the first step, its losses noted; False where it came to its end.

    Of a step that is done again, the loss must be what it was.
    """
    process = subprocess.Popen([sys.executable, str(SCRIPT), str(folder), "killed", *more], stdout=subprocess.PIPE,
                               text=True)  # fmt: skip
    assert process.stdout is not None
    first = process.stdout.readline()
    wait()
    process.send_signal(signal.SIGKILL)
    out, _ = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL)
    for line in (first + out).splitlines():
        if line.endswith("."):  # not cut short
            step, loss = line.split(" ", 1)
            assert lines.setdefault(step, loss) == loss
    return process.returncode != 0


def whole_of(lines: dict[str, str]) -> list[str]:
    return [f"{step} {lines[step]}" for step in sorted(lines, key=int)]


def require_same(folder: Path, lines: dict[str, str], whole: list[str], *more: str) -> None:
    """What is left is done; all losses and the model are those of the uninterrupted training."""
    command = [sys.executable, str(SCRIPT), str(folder), "killed", "0", *more]
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        step, loss = line.split(" ", 1)
        assert lines.setdefault(step, loss) == loss
    assert whole_of(lines) == whole
    assert (folder / "killed.onnx").read_bytes() == (folder / "whole.onnx").read_bytes()


def test_a_killed_training_goes_on(tmp_path: Path) -> None:
    whole, lines, rng = uninterrupted(tmp_path), dict[str, str](), np.random.default_rng(5)
    for _ in range(5):
        killed(tmp_path, lines, lambda: time.sleep(rng.uniform(0, 0.25)), "0.01")
    require_same(tmp_path, lines, whole)


@pytest.mark.slow
def test_fifty_kills_some_within_the_writing_of_a_checkpoint(tmp_path: Path) -> None:
    """Every other try is killed as soon as a checkpoint is being written, or a little later."""
    rng, n_kills, n_within = np.random.default_rng(6), 0, 0
    (tmp_path / "0").mkdir()
    whole = uninterrupted(tmp_path / "0", str(WIDE))
    (model,) = (tmp_path / "0").glob("whole.onnx")
    for attempt in range(100):
        if n_kills >= 50:
            break
        folder = tmp_path / str(attempt)
        folder.mkdir(exist_ok=True)
        if attempt:
            os.link(model, folder / "whole.onnx")
        lines: dict[str, str] = {}

        def at_any_time() -> None:
            time.sleep(rng.uniform(0, 0.3))

        def while_it_writes(place: Path = folder / "killed") -> None:
            end = time.monotonic() + 1
            while not partial(place) and time.monotonic() < end:
                pass
            time.sleep(rng.uniform(0, 0.01))

        more = ("0.02", str(WIDE))
        while n_kills < 50 and killed(folder, lines, while_it_writes if n_kills % 2 else at_any_time, *more):
            n_kills += 1
            n_within += bool(partial(folder / "killed"))
        require_same(folder, lines, whole, str(WIDE))
        assert not partial(folder / "killed")
    assert n_kills >= 50 and n_within >= 5
    print(n_kills, "kills,", n_within, "of them within the writing of a checkpoint")


def partial(folder: Path) -> list[str]:
    """What lies there of checkpoints that are not whole."""
    return [name for name in os.listdir(folder) if name.endswith(".tmp")] if folder.is_dir() else []
