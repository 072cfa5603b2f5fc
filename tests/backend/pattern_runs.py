"""Runs patterns of instructions between guard pages, against numpy.

    python -m backend.pattern_runs            (in tests/): every pattern on every target that this machine runs
    python -m backend.pattern_runs --every 3 x86-64-v4

Prints what is wrong; dies where code touches memory that is not ours: the pattern that was running is the last line on
standard error. Every source and result lies against a page that faults, at its end or at its beginning, among garbage
that must still be there afterwards.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import llvmlite
import llvmlite.binding
import numpy as np

from backend.lane_values import Lanes, NumpyLanes, differing
from backend.llvm_patterns import Mask, Pattern, build, masks
from backend.pattern_families import FAMILIES
from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.backend.jit import Loaded, compile_object
from parax.compiler.ir.types import BF16, BOOL, F16, DType
from parax.compiler.kernel_ir.loops import KFunc, KType
from parax.compiler.targets.target import TARGETS, Target

PAGE = mmap.PAGESIZE
PER_MODULE = 100
NOWHERE = 1 << 40  # the index of a lane that is off: whoever uses it faults
MOST_REPORTED = 20
LEVELS = (2, 0, 2, 1)  # of modules in turn
VERSIONS = f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, llvmlite.binding.llvm_version_info))}"


# -- memory -----------------------------------------------------------------------------------------------------------
class Pages:
    """Pages of memory, each between two that may not be touched."""

    def __init__(self, n: int) -> None:
        self._map = mmap.mmap(-1, (2 * n + 1) * PAGE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.bytes = np.frombuffer(self._map, np.uint8)
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for i in range(0, 2 * n + 1, 2):
            if protect(ctypes.c_void_p(self.start + i * PAGE), ctypes.c_size_t(PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")

    def page(self, i: int) -> np.ndarray:
        """The bytes of page i."""
        return self.bytes[(2 * i + 1) * PAGE : (2 * i + 2) * PAGE]

    def place(self, i: int, on: np.ndarray, itemsize: int, at_end: bool) -> int:
        """Where the first element goes within page i, so that the last (or the first) that is on touches its edge."""
        lit = np.flatnonzero(on)
        first, end = (int(lit[0]), int(lit[-1]) + 1) if lit.size else (0, 0)
        return PAGE - end * itemsize if at_end else -first * itemsize

    def address(self, i: int, offset: int) -> int:
        return self.start + (2 * i + 1) * PAGE + offset


class Numbers:
    """Random elements of each type, the special ones among them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._pools: dict[DType, np.ndarray] = {}

    def some(self, dtype: DType, n: int) -> np.ndarray:
        if dtype not in self._pools:
            self._pools[dtype] = self._pool(dtype)
        at = int(self.rng.integers(4096 - n))
        return self._pools[dtype][at : at + n]

    def _pool(self, dtype: DType) -> np.ndarray:
        n, kind = 4096, dtype.numpy
        if dtype == BOOL:
            return self.rng.integers(0, 2, n).astype(bool)
        if not dtype.is_float:
            return np.frombuffer(self.rng.bytes(n * dtype.nbytes), kind)
        wide = self.rng.standard_normal(n) * np.exp2(self.rng.integers(-10, 40, n))
        wide[::37] = self.rng.choice([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, 3e38, 255.5, -128.5], wide[::37].size)
        with np.errstate(all="ignore"):
            return wide.astype(np.float32).astype(kind) if dtype in (F16, BF16) else wide.astype(kind)


# -- running ----------------------------------------------------------------------------------------------------------
class Runner:
    """Calls functions and looks at their results and at what lies around them."""

    def __init__(self, seed: int) -> None:
        self.pages, self.numbers = Pages(64), Numbers(seed)
        self.expect = NumpyLanes()

    def run(self, pattern: Pattern, pieces: Sequence[Mask], function: Any) -> Iterator[str]:
        """What is wrong, of a few runs with other data, counts and places."""
        lanes = pattern.lanes
        counts = self.numbers.rng.permutation([1, lanes - 1, 0, lanes + 3, lanes // 2 + 1, -5])
        for n, at_end in zip(counts.tolist(), (False, True, True)):  # bytes too many are told before they fault
            yield from self.run_once(pattern, pieces, function, n, at_end)

    def run_once(self, p: Pattern, pieces: Sequence[Mask], function: Any, n: int, at_end: bool) -> Iterator[str]:
        """What is wrong, of one run: under a count of lanes, at the end of pages or at their start."""
        given = self.numbers.rng.integers(0, 2, p.lanes).astype(bool)
        arguments: list[int] = [n, self._put(0, given, np.ones(p.lanes, bool), at_end)]
        checks, slot = [], 1
        for mask in pieces:
            on = mask.on(p.lanes, n, given)
            sources = [self.numbers.some(d, p.lanes) for d in p.sources]
            read = on if mask.loads else np.ones(p.lanes, bool)
            spread = self.numbers.rng.permutation(p.lanes) if p.access == "indexed" else np.arange(p.lanes)
            for data in sources:
                arguments.append(self._put(slot, data, read[np.argsort(spread)], at_end))
                slot += 1
            arguments.append(self._put(slot, np.where(on | read, spread, NOWHERE), np.ones(p.lanes, bool), at_end))
            loaded = [np.where(read, data[spread], data.dtype.type(0)) for data in sources]
            wanted = p.compute(self.expect, *map(Lanes, loaded, p.sources)).data
            written = np.ones(p.lanes, bool) if p.access == "blend" else on
            offset = self.pages.place(slot + 1, written[np.argsort(spread)], p.result.nbytes, at_end)
            page = self.pages.page(slot + 1)
            page[:] = np.frombuffer(self.numbers.rng.bytes(PAGE), np.uint8)
            arguments.append(self.pages.address(slot + 1, offset))
            checks.append((mask, on, spread, wanted, offset, page, page.copy()))
            slot += 2
        function(*arguments)
        for mask, on, spread, wanted, offset, page, before in checks:
            wrong = _compare(page, before, offset, on, spread, wanted)
            if wrong:
                yield f"{p.name}, {mask}, n={n}, {'end' if at_end else 'start'} of a page: {wrong}"

    def _put(self, slot: int, data: np.ndarray, read: np.ndarray, at_end: bool) -> int:
        """Write those elements of a source that may be read; its address."""
        offset, size = self.pages.place(slot, read, data.itemsize, at_end), data.itemsize
        page = self.pages.page(slot)
        raw = data.view(np.uint8) if data.flags.c_contiguous else np.ascontiguousarray(data).view(np.uint8)
        low, high = max(0, offset), min(PAGE, offset + data.size * size)
        page[low:high] = raw[low - offset : high - offset]
        return self.pages.address(slot, offset)


def _compare(page: np.ndarray, before: np.ndarray, offset: int, on: np.ndarray, spread: np.ndarray,
             wanted: np.ndarray) -> str:
    """What is wrong with a page of results, in words; "" if nothing is."""
    size = wanted.itemsize
    lanes = np.flatnonzero(on)
    at = (offset + spread[lanes][:, None] * size + np.arange(size)).astype(np.int64)
    found = page[at].view(wanted.dtype)[:, 0] if lanes.size else wanted[:0]
    around = page != before
    around[at] = False
    if around.any():
        return f"bytes changed at {(np.flatnonzero(around) - offset).tolist()[:16]} from the first element's"
    if wanted.dtype == bool:
        found, wanted = found.view(np.uint8), wanted.view(np.uint8)
    bad = differing(found, wanted[lanes])
    if bad.any():
        return f"lanes {lanes[bad].tolist()[:8]}: expected {wanted[lanes][bad][:8]}, found {found[bad][:8]}"
    return ""


def load(functions: Sequence[KFunc], target: Target, level: int) -> list[Any]:
    """The functions, compiled in one module, as ctypes callables."""
    emitter = ModuleEmitter(target)
    names = [f"entry_{f.name}" for f in functions]
    for f, name in zip(functions, names):
        emitter.export(f, name)
    code = Loaded(compile_object(emitter.text(), target, level), names)
    return [code.function(name, None, *(ctypes.c_int64 if isinstance(p.type, KType) else ctypes.c_void_p
                                        for p in f.params)) for f, name in zip(functions, names)]


def failures(target: Target, every: int, seed: int = 0) -> Iterator[str]:
    """What is wrong with each `every`-th pattern on a target; the one that is running is named on standard error."""
    rng, runner = np.random.default_rng(seed), Runner(seed)
    patterns = [p for family in FAMILIES for p in list(family(target))[int(rng.integers(every)) :: every]]
    patterns = [patterns[i] for i in rng.permutation(len(patterns))]
    for start, level in zip(range(0, len(patterns), PER_MODULE), cycle(LEVELS)):
        some = patterns[start : start + PER_MODULE]
        pieces = [masks(p.lanes, start + i) for i, p in enumerate(some)]
        for p, m, function in zip(some, pieces, load([build(*both) for both in zip(some, pieces)], target, level)):
            os.write(2, f"running {p.name} on {target.name} at -O{level}\n".encode())
            for failure in runner.run(p, m, function):
                yield f"{target.name} -O{level}: {failure}"


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    parser = argparse.ArgumentParser(prog="python -m backend.pattern_runs", description="Try LLVM on all patterns.")
    parser.add_argument("targets", nargs="*", help="default: those that this machine runs")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th pattern")
    options = parser.parse_args()
    names = options.targets or [*(t.name for t in TARGETS.values() if t.supported_by(host_features())), "native"]
    found = [failure for name in names for failure in failures(resolve_target(name), options.every)]
    for failure in found[:MOST_REPORTED]:
        print(failure)
    print(f"{len(found)} results are wrong with {VERSIONS} for {' '.join(names)}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
