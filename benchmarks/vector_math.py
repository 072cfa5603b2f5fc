"""Nanoseconds per element of every vector function, for each portable target this machine runs.

    python -m benchmarks.vector_math [--elements 4096] [--milliseconds 20] [function ...]

One core, data in the first-level cache, the best of several rounds: the cost inside a fused kernel is lower still.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from parax.compiler.backend.host import host_features
from parax.compiler.backend.jit import load_function
from parax.compiler.kernel_ir.builder import F32PTR, Builder
from parax.compiler.kernel_ir.loops import INDEX, KFunc
from parax.compiler.targets.target import TARGETS, Target

from .command import command_line, finish

FUNCTIONS = ("exp", "exp2", "log", "log1p", "tanh", "sigmoid", "erf", "sin", "cos", "tan", "asin", "acos", "atan",
             "sinh", "cosh", "asinh", "acosh", "atanh", "pow", "sqrt")  # fmt: skip


def array_function(fn: str, lanes: int) -> KFunc:
    """y[i] = fn(x[i]) for i in range(n), repeated `rounds` times; pow has the exponent 1.7."""
    k = Builder(f"bench_{fn}", [("x", F32PTR), ("y", F32PTR), ("n", INDEX), ("rounds", INDEX)])

    def step(i: Any, _: Any) -> None:
        x = k.load(k["x"], i, lanes)
        k.store(k["y"], i, k.pow(x, k.const(1.7, x)) if fn == "pow" else k.math(fn, x))

    k.for_(0, k["rounds"], 1, [], lambda _r, _c: k.for_(0, k["n"], lanes, [], step))
    return k.func


def nanoseconds(fn: str, target: Target, elements: int, seconds: float) -> tuple[float, float]:
    """(ns per element, ms to compile)."""
    start = time.perf_counter()
    function = load_function(array_function(fn, target.f32_lanes), target)
    compiled = (time.perf_counter() - start) * 1e3
    x = np.random.default_rng(0).uniform(1.0 if fn == "acosh" else 0.01, 3.0 if fn == "acosh" else 0.99, elements)
    x = x.astype(np.float32)
    y = np.empty_like(x)
    best, spent, rounds = np.inf, 0.0, 10
    while spent < seconds:
        start = time.perf_counter()
        function(x.ctypes.data, y.ctypes.data, elements, rounds)
        took = time.perf_counter() - start
        best, spent = min(best, took), spent + took
    return best / rounds / elements * 1e9, compiled


def main() -> None:
    """Print the table."""
    parser = command_line("vector_math", __doc__)
    parser.add_argument("functions", nargs="*", default=FUNCTIONS, metavar="FUNCTION", help="default: all")
    parser.add_argument("--elements", type=int, default=4096, metavar="N", help="of a call (default 4096)")
    parser.add_argument("--milliseconds", type=float, default=20.0, metavar="MS",
                        help="of measuring each function (default 20)")  # fmt: skip
    options = parser.parse_args()
    targets = [t for t in TARGETS.values() if t.supported_by(host_features())]
    print("ns per element (ms to compile)\n" + "function".ljust(10) + "".join(t.name.rjust(18) for t in targets))
    for fn in options.functions:
        cells = [nanoseconds(fn, t, options.elements, options.milliseconds / 1e3) for t in targets]
        print(fn.ljust(10) + "".join(f"{ns:10.3f} ({ms:4.1f})".rjust(18) for ns, ms in cells))


if __name__ == "__main__":
    finish(main)
