"""LLVM compiles every pattern of instructions right: between guard pages, against numpy, in processes of their own.

What LLVM gets wrong is worked round where the instruction is emitted (backend/llvm_memory.py). The versions of llvmlite
that pass are those that pyproject.toml allows; CONTRIBUTING.md says how to allow another.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import llvmlite
import pytest

from backend.llvm_patterns import Mask, Pattern, build, masks
from backend.pattern_families import FAMILIES
from backend.pattern_runs import Runner, load
from fake_plans import ARCH
from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.backend.jit import compile_assembly
from parax.compiler.ir.types import BF16, F16, F32, F64, I8, I16, I32, I64, DType
from parax.compiler.kernel_ir.builder import Builder
from parax.compiler.kernel_ir.loops import INDEX, PtrType
from parax.compiler.targets.target import TARGETS, best_target
from sampling import sampled

TESTS = Path(__file__).parents[1]
EVERY = 4  # of which one is tried here: all take ten minutes
OPCODES = {
    "load", "store", "gather", "scatter", "cast", "bitcast", "select", "cmp", "splat", "ramp", "reduce", "extract",
    "insert", "shuffle", "math", "add", "sub", "mul", "div", "rem", "udiv", "urem", "min", "max", "and", "or", "xor",
    "shl", "shr", "dot_bf16", "dot_i16", "dot_u8i8", "round_to",
}  # fmt: skip


def in_a_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(TESTS), *(os.path.abspath(entry) for entry in sys.path if entry)])
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=900,
                          env={**os.environ, "PYTHONPATH": path})  # fmt: skip


EXTENDED = "x86-64-v4+avx512bf16"


HERE = ["native", *(name for name, target in TARGETS.items() if target.arch == ARCH)]


@pytest.mark.parametrize("name", [*sampled(HERE, 4), pytest.param(EXTENDED, marks=pytest.mark.slow)])
def test_llvm_compiles_patterns_right(name: str) -> None:
    if not resolve_target(name).supported_by(host_features()):
        pytest.skip(f"this CPU does not run {name} code")
    done = in_a_process("-m", "backend.pattern_runs", "--every", str(EVERY), name)
    last = (done.stderr.strip().splitlines() or [""])[-1]
    assert done.returncode == 0, (
        f"llvmlite {llvmlite.__version__} does not compile right what kernels consist of (exit {done.returncode}, "
        f"{last}): work round it where it is emitted, or exclude this version in pyproject.toml\n{done.stdout}"
    )


def test_patterns_cover_the_operations_on_lanes_and_memory() -> None:
    target = resolve_target(EXTENDED)
    patterns = [p for family in FAMILIES for p in family(target)]
    found = {o.opcode for i, p in enumerate(patterns[::3]) for o in build(p, masks(p.lanes, i)).walk()}
    assert found >= OPCODES, OPCODES - found
    assert len({p.name for p in patterns}) == len(patterns)
    for lanes in (2, 4, 8, 16, 32, 64):  # what has turns comes about for every lane
        tried = [m for turn in range(6 * lanes) for m in masks(lanes, turn)]
        assert {m.value for m in tried if m.kind == "tail"} == set(range(1, lanes))
        assert {m.value for m in tried if m.kind == "bits"} >= {1 << i for i in range(lanes)}
        kinds = ("tail", "bits", "count", "given")
        assert {(m.kind, m.loads) for m in tried} >= {(k, b) for k in kinds for b in (True, False)}


# -- that wrong code is found -----------------------------------------------------------------------------------------
def wrong(pattern: Pattern, mask: Mask, meant: Mask | None = None) -> list[str]:
    """What is found wrong with a pattern that is compiled under one mask and meant to be under another."""
    function = load([build(pattern, [mask])], best_target(host_features()), 2)[0]
    runner = Runner(0)
    return [failure for n in (1, 4) for failure in runner.run_once(pattern, [meant or mask], function, n, False)]


def test_a_wrong_lane_is_told() -> None:
    def compute(e: object, x: object) -> object:
        added = 1 if isinstance(e, Builder) else 2
        return e.binary("add", x, added)  # type: ignore[attr-defined]

    found = wrong(Pattern("adds one", 8, (I16,), I16, compute), Mask("count"))
    assert len(found) == 2 and "lanes [0]: expected" in found[0] and "lanes [0, 1, 2, 3]: expected" in found[1]


def test_a_store_one_lane_too_wide_is_told() -> None:
    found = wrong(Pattern("copies", 8, (I16,), I16, lambda e, x: x), Mask("tail", 5), Mask("tail", 4))
    assert "bytes changed at [8, 9] from the first element's" in found[0]


@pytest.mark.parametrize("at_end", (True, False))
@pytest.mark.parametrize("what", ("stores", "loads"))
def test_an_element_beyond_ends_the_process(what: str, at_end: bool) -> None:
    store, load = (1 if at_end else -1) * (what == "stores"), (1 if at_end else -1) * (what == "loads")
    program = (
        "from backend.pattern_runs import *\n"
        "from parax.compiler.kernel_ir.builder import Builder\n"
        "from parax.compiler.kernel_ir.loops import PtrType\nfrom parax.compiler.ir.types import I8\n"
        "k = Builder('beyond', [('a', PtrType(I8)), ('b', PtrType(I8))])\n"
        f"k.store(k['b'], {store}, k.load(k['a'], {load}))\n"
        f"pages, at = Pages(2), {at_end} * (PAGE - 1)\n"
        "load([k.func], resolve_target('native'), 2)[0](pages.address(0, at), pages.address(1, at))\n"
    )
    assert in_a_process("-c", program).returncode == -signal.SIGSEGV


# -- the workaround ---------------------------------------------------------------------------------------------------
def assembly(source: DType, to: DType, lanes: int, masked: bool, name: str = "x86-64-v4") -> str:
    k = Builder("stores", [("a", PtrType(source)), ("r", PtrType(to)), ("n", INDEX)])
    k.store(k["r"], 0, k.cast(k.load(k["a"], 0, lanes), to), mask=k.tail_mask(k["n"], lanes) if masked else None)
    emitter = ModuleEmitter(TARGETS[name])
    emitter.export(k.func, "entry")
    return compile_assembly(emitter.text(), TARGETS[name])


@pytest.mark.parametrize("masked", (True, False))
@pytest.mark.parametrize("source, to", ((I32, I16), (I32, I8), (I64, I32), (F32, BF16), (F32, I8)), ids=str)
def test_no_store_truncates(source: DType, to: DType, masked: bool) -> None:
    """vpmovdw, vpmovqb and such to memory: the instructions that LLVM 22.1 makes a scalar store of."""
    text = assembly(source, to, 16 if to != I32 else 8, masked)
    assert re.search(r"vpmov[su]*[qdw][dwb]\b", text), text
    assert not re.search(r"vpmov[su]*[qdw][dwb]\b.*\(%r", text), text


@pytest.mark.parametrize("dtype", (F32, F64, I64), ids=str)
def test_wide_stores_have_no_fence(dtype: DType) -> None:
    k = Builder("wide", [("a", PtrType(dtype)), ("r", PtrType(dtype)), ("n", INDEX)])
    for i in (0, 16):
        k.store(k["r"], i, k.load(k["a"], i, 8), mask=k.tail_mask(k["n"], 8) if i else None)
    emitter = ModuleEmitter(TARGETS["x86-64-v4"])
    emitter.export(k.func, "entry")
    assert "fence" not in emitter.text()
    assert "fence" not in assembly(F32, F16, 8, True, "x86-64-v3").lower()


def test_the_range_of_llvmlite_is_closed() -> None:
    """A newer LLVM has been tried on the patterns before users get it."""
    text = (TESTS.parent / "pyproject.toml").read_text()
    least, below = re.search(r'"llvmlite>=(\d+\.\d+),<(\d+\.\d+)"', text).groups()  # type: ignore[union-attr]
    version = tuple(map(int, llvmlite.__version__.split(".")[:2]))
    least, below = (tuple(map(int, v.split("."))) for v in (least, below))
    assert least <= version < below, "CONTRIBUTING.md, \"Allow another llvmlite\", says what to try first"
