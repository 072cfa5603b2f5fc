"""The threads of numpy's BLAS end when a plan is loaded, come back when a product wants them, and only then."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from parax.runtime import idle_blas

SCRIPT = """
import os, sys, threading
import numpy as np
import parax

def threads():
    return len(os.listdir("/proc/self/task"))

others = [threading.Thread(target=threading.Event().wait, daemon=True) for _ in range(int(sys.argv[2]))]
for thread in others:
    thread.start()
before = threads()
parax.load(sys.argv[1])
loaded = threads()
a = np.random.default_rng(0).random((700, 700))
right = np.allclose(a @ a, np.einsum("ij,jk->ik", a, a))
print(before, loaded, threads(), right)
"""


def threads_of_a_process(plan: Path, others: int) -> list[int]:
    """How many a fresh process has before a plan is loaded, after it, and after a product; the product is right."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", SCRIPT, str(plan), str(others)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    *counts, right = done.stdout.split()
    assert right == "True"
    return [int(count) for count in counts]


def test_idle_threads_end_and_come_back(saved_plan: Path) -> None:
    before, loaded, after = threads_of_a_process(saved_plan, others=0)
    if before == 1:
        pytest.skip("this numpy's BLAS has no threads here")
    if loaded == before and not can_be_ended():
        pytest.skip("this numpy's BLAS hides what ends its threads")
    assert (before, loaded, after) == (2, 1, 2)


def can_be_ended() -> bool:
    """NumPy 2.5's OpenBLAS exports no such function any more."""
    (path,) = {sys.modules[name].__file__ for name in idle_blas._PARTS_OF_NUMPY if name in sys.modules}
    return hasattr(ctypes.CDLL(path), idle_blas._END)


def test_where_there_are_other_threads_all_are_left_alone(saved_plan: Path) -> None:
    before, loaded, after = threads_of_a_process(saved_plan, others=1)
    assert before == loaded == after
