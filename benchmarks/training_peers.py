"""Who takes part in `python -m benchmarks.training` beside parax: which are installed, and what starts each.

Owns the list of peers; knows nothing of figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from parax.errors import UsageError
from parax.runtime.topology import choose_cores

from .training_portable import write_portable

OWN = "parax"
PEERS = {"torch": "PyTorch", "torch-compile": "PyTorch compiled", "torch-bf16": "PyTorch autocast", "jax": "JAX",
         "mxnet": "MXNet", "parax-fp32": "parax fp32"}
"""By the name of the side: as tables say it."""
OTHERS_OF_MXNET = ("gnmt", "bert-base")
"""Models that training_mxnet_models does not have."""


class Absent(Exception):
    """A peer has not got a model; the message says which."""


@dataclass(frozen=True)
class Peer:
    """One that is installed.

    Attributes:
        name: of the side. command: (model's name, its file) → what starts it, or raises Absent.
    """

    name: str
    command: Callable[[str, Path], Sequence[str]]


def present(names: Sequence[str], mxnet: str | None) -> list[Peer]:
    """The peers that can run, of those that are asked for; of each other one a line says why not.

    Args:
        mxnet: the interpreter that has it.

    Raises:
        UsageError: there is none, or `mxnet` is no interpreter that has it.
    """
    python = os.path.abspath(mxnet) if mxnet and os.sep in mxnet else mxnet  # sides run elsewhere
    found = []
    for name in names:
        if name == "mxnet":
            missing = _without_mxnet(python)
        else:
            package = name.split("-", maxsplit=1)[0]
            missing = None if find_spec(package) else f"{package} is not installed: pip install '.[bench-training]'"
        if missing:
            print(f"without {name}: {missing}", file=sys.stderr)
        else:
            found.append(Peer(name, _mxnet(python) if name == "mxnet" and python else _here(name)))
    if not found:
        raise UsageError("no peer is installed", found=", ".join(names), hint="pip install '.[bench-training]'")
    return found


def own_side(task: str) -> list[str]:
    """What starts a side in this interpreter."""
    return [sys.executable, "-m", "benchmarks.training_side", task]


def _here(side: str) -> Callable[[str, Path], Sequence[str]]:
    return lambda name, path: own_side(json.dumps({"side": side, "name": name, "model": str(path)}))


def _without_mxnet(python: str | None) -> str | None:
    """Why it cannot run. Raises UsageError where the interpreter that is named has none."""
    if python is None:
        return "give --mxnet PYTHON, an interpreter that has it (see --help)"
    try:
        tried = subprocess.run([python, "-I", "-c", "import mxnet"], capture_output=True, text=True, timeout=120)
    except OSError as error:
        raise UsageError("cannot be started", where="--mxnet", found=python, hint=str(error)) from error
    if tried.returncode:
        raise UsageError("has no MXNet that works", where="--mxnet", found=tried.stderr.strip().rpartition("\n")[2],
                         hint="pip install numpy==1.23.5 mxnet==1.9.1")  # fmt: skip
    return None


def _mxnet(python: str) -> Callable[[str, Path], Sequence[str]]:
    def command(name: str, path: Path) -> Sequence[str]:
        if name in OTHERS_OF_MXNET:
            raise Absent("the model is not written for it")
        training = path.with_suffix(".npz")
        write_portable(path, name, training)
        cores = len(choose_cores(None))
        task = {"training": str(training), "name": name, "cores": cores}
        return ["env", f"OMP_NUM_THREADS={cores}", python, "-m", "benchmarks.training_mxnet", json.dumps(task)]

    return command
