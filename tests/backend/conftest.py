"""Compiles kernels for each portable target that this machine runs, and calls them on numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest

from backend.harness import host_targets
from fake_plans import ARCH
from parax.compiler.backend.host import host_features
from parax.compiler.backend.jit import load_function
from parax.compiler.ir.types import DType
from parax.compiler.kernel_ir.builder import Builder, KValue
from parax.compiler.kernel_ir.interpreter import Pointer, interpret
from parax.compiler.kernel_ir.loops import PtrType
from parax.compiler.kernel_ir.verifier import verify_function
from parax.compiler.targets.target import TARGETS, Target

MOST_INTERPRETED = 1024  # elements of a call that the interpreter does, too
_NUMBERS = count()


@pytest.fixture(params=[name for name, target in TARGETS.items() if target.arch == ARCH])
def target(request: pytest.FixtureRequest) -> Target:
    """One of the portable targets of this machine's architecture."""
    chosen = TARGETS[request.param]
    if not chosen.supported_by(host_features()):
        pytest.skip(f"this CPU does not run {chosen.name} code")
    return chosen


def assert_as_near(interpreted: np.ndarray, native: np.ndarray) -> None:
    """The interpreter gives what native code does, but for roundings on the way."""
    if native.dtype.kind != "f":
        np.testing.assert_array_equal(interpreted, native)
        return
    info = np.finfo(native.dtype)
    np.testing.assert_allclose(interpreted, native, rtol=64 * info.eps, atol=64 * info.smallest_subnormal)


@pytest.fixture
def call(target: Target) -> Callable[..., None]:
    """call(body, *arrays): builds a kernel whose pointers are the arrays, runs it; results are left in the arrays."""

    def run(body: Callable[..., Any], *arrays: np.ndarray) -> None:
        types = [PtrType(DType.from_numpy(a.dtype)) for a in arrays]
        k = Builder(f"case_{next(_NUMBERS)}", [(f"a{i}", t) for i, t in enumerate(types)])
        body(k, *(k[f"a{i}"] for i in range(len(arrays))))
        verify_function(k.func)
        copies = [a.copy() for a in arrays]
        load_function(k.func, target, opt_level=1)(*(a.ctypes.data for a in arrays))
        if target is host_targets()[0] and sum(a.size for a in arrays) <= MOST_INTERPRETED:
            interpret(k.func, [Pointer(c.reshape(-1).view(np.uint8)) for c in copies])
            for native, interpreted in zip(arrays, copies, strict=True):
                assert_as_near(interpreted, native)

    return run


@pytest.fixture
def lanewise(call: Callable[..., None]) -> Callable[..., Any]:
    """lanewise(f, inputs, dtype, lanes): f(k, *vectors) over whole arrays, whose length is a multiple of lanes.

    f may be a list: then one kernel computes them all, and the result has a row for each.
    """

    def run(f: Any, inputs: Sequence[np.ndarray], dtype: Any, lanes: int) -> np.ndarray:
        functions = f if isinstance(f, list) else [f]
        n = inputs[0].size
        out = np.zeros((len(functions), n), dtype)

        def body(k: Builder, *pointers: KValue) -> None:
            def step(i: KValue, _: list[KValue]) -> None:
                values = [k.load(p, i, lanes) for p in pointers[:-1]]
                for row, function in enumerate(functions):
                    k.store(pointers[-1], i + row * n, function(k, *values))

            assert n % lanes == 0
            k.for_(0, n, lanes, [], step)

        call(body, *inputs, out)
        return out if isinstance(f, list) else out[0]

    return run
