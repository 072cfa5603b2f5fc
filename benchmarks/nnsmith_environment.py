"""The environment of its own that NNSmith runs in: it wants a PyTorch, and older packages than parax may have.

Made once, by pip, in the folder of parax's caches unless another is named. Nothing of it becomes a dependency of parax.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from parax.env import cache_dir
from parax.errors import ResourceLimit

from .trials import ROOT, Command

REQUIREMENTS = ("nnsmith==0.1.0", "torch==2.13.0", "onnx==1.23.2")
"""What is known to work together. PyTorch's builds for CPUs have an index of their own; PIP_EXTRA_INDEX_URL says it."""
MOST_WORDS = 400
"""Characters of pip's that are shown where it fails: its last ones."""


def environment_folder() -> Path:
    """Where the environment of these requirements lies unless another folder is named."""
    name = hashlib.sha256(" ".join((*REQUIREMENTS, sys.version)).encode()).hexdigest()[:12]
    return cache_dir() / f"nnsmith-{name}"


def ready_environment(folder: Path, seconds: float) -> Path:
    """The interpreter of an environment that has NNSmith, made now if it is not there.

    Args:
        seconds: that making it may take, and trying which types NNSmith can export.

    Raises:
        ResourceLimit: pip failed or the generator does not start, or either took longer.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        _make(folder, seconds)
    with tempfile.TemporaryDirectory() as output:  # before several try at a time which types can be exported
        problem = _run(generator(python, "", Path(output)), ["--numbers", "0:0:1"], seconds)
    if problem:
        raise ResourceLimit("NNSmith's generator does not start", where=str(folder), found=problem,
                            hint="remove that folder, so that it is made anew")  # fmt: skip
    return python


def _make(folder: Path, seconds: float) -> None:
    """In place, as an environment cannot be moved; nothing is left where it fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        venv.create(folder, with_pip=True)
        words = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        problem = _run(Command(words, folder), REQUIREMENTS, seconds)
        if problem:
            raise ResourceLimit("NNSmith's environment cannot be made", where=str(folder), found=problem,
                                hint="an index of packages must be in reach")  # fmt: skip
    except BaseException:
        shutil.rmtree(folder)
        raise


def generator(python: Path, seed: str, output: Path) -> Command:
    """The command of workers that write a seed's models to a folder."""
    words = [str(python), "-m", "benchmarks.nnsmith_side", "--seed", seed, "--output", str(output),
             "--cache", str(python.parents[1] / "exportable")]  # fmt: skip
    # NNSmith orders sets by hashes of texts; and one model at a time uses one core
    return Command(words, ROOT, {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"})


def _run(command: Command, arguments: Sequence[str], seconds: float) -> str:
    """What went wrong, in a program's last words; "" if nothing did."""
    try:
        done = subprocess.run([*command.words, *arguments], cwd=command.folder, capture_output=True, text=True,
                              env={**os.environ, **command.environment}, timeout=seconds, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"more than {seconds:g} s"
    return (done.stderr.strip()[-MOST_WORDS:] or f"exit {done.returncode}") if done.returncode else ""
