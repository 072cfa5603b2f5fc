"""The threads of numpy's BLAS belong to the process: plans leave them alone, our commands have them sleep early."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOADED = """
import os, sys
import numpy
import parax
before = len(os.listdir("/proc/self/task"))
with parax.load(sys.argv[1]).session(instances=1) as session:
    pass
print(before, len(os.listdir("/proc/self/task")))
"""
COMMAND = """
import os, sys
from parax.compiler import cli
assert "numpy" not in sys.modules  # its BLAS reads the variable when it is loaded
code = cli.main(["operators"])
print(code, os.environ[cli.SPIN_VARIABLE], file=sys.stderr)
"""


def words(script: str, *arguments: str, **environment: str) -> list[str]:
    """What a fresh process prints last."""
    inherited = {key: value for key, value in os.environ.items() if key != "OPENBLAS_THREAD_TIMEOUT"}
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True,
                          env=inherited | environment)  # fmt: skip
    return (done.stderr or done.stdout).splitlines()[-1].split()


def test_loading_leaves_them_alone(saved_plan: Path) -> None:
    before, after = words(LOADED, str(saved_plan), OPENBLAS_NUM_THREADS="2")
    assert before == after


@pytest.mark.parametrize("given, seen", [({}, "4"), ({"OPENBLAS_THREAD_TIMEOUT": "20"}, "20")])
def test_commands_let_them_sleep_unless_told_otherwise(given: dict[str, str], seen: str) -> None:
    assert words(COMMAND, **given) == ["0", seen]
