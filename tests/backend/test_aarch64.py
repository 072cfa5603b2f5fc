"""AArch64's code in an emulator: every operator's kernels on one thread and on two, against another ONNX."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
import pytest

import parax
from backend.emulated import Emulated, EmulatedPlan, Emulator
from backend.harness import Program
from catalogue.cases import Case, all_cases
from catalogue.running import assert_close, build, expected
from cross import EMULATOR, GCC, needs, require
from examples import models
from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.jit import compile_assembly
from parax.compiler.frontend.oracle import oracle
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.ops.base import Host
from parax.compiler.kernel_ir.builder import BYTES, Builder
from parax.compiler.kernel_ir.loops import INDEX
from parax.compiler.kernel_ir.synchronisation import barrier, meet, take_ticket, wait_function
from parax.compiler.options import CompileOptions
from parax.compiler.targets.target import TARGETS
from parax.runtime.cpu import host_arch
from parax.runtime.elf import ObjectFile
from parax.runtime.stamps import stamp_text
from sampling import exhaustive, sampled, thinned

TARGET = TARGETS["aarch64"]
OPTIONS = CompileOptions(targets=(TARGET.name,), calibrate=False)
CASES = [case for case in all_cases() if not issubclass(lookup(case.domain, case.op), Host)]
USUAL, REST = thinned(CASES, lambda case: case.op, 3)  # x86-64's kernels meet all of them: tests/catalogue
LARGE = ("mobilenet-v2", "word-lm", "bert-base", "unet")
N_USUAL, N_REST = 16, 32  # groups: each is linked and run at once; every N-th case, so that it is of many operators


def cases_of(group: int) -> list[Case]:
    """The cases of a group, of those that CI runs first."""
    return USUAL[group::N_USUAL] if group < N_USUAL else REST[group - N_USUAL :: N_REST]


@pytest.mark.parametrize("group", [*sampled(range(N_USUAL), 8), *exhaustive(range(N_USUAL, N_USUAL + N_REST))])
def test_operators(group: int, tmp_path: Path) -> None:
    cases = cases_of(group)
    built = [build(case) for case in cases]
    emulated, names = [], []
    for i, (graph, _, symbols, _) in enumerate(built):
        emulated.append(Emulated(Program(graph, TARGET, tuple(symbols)), f"case{i}", len(names)))
        names += emulated[-1].names
    objects = [each.object_code() for each in emulated if each.names]
    for code in objects:
        read = ObjectFile(code, "case", TARGET.arch)
        read.link(bytearray(read.nbytes), 1 << 32, lambda name: 1 << 40)
    require(GCC, EMULATOR)
    emulator = Emulator(tmp_path, objects, names)
    wrong = [f"{case}: {found}" for case, each, (_, feeds, symbols, contents) in zip(cases, emulated, built)
             if (found := _difference(emulator, each, case, feeds, symbols, contents))]  # fmt: skip
    assert not wrong, "\n".join(wrong)


@needs(GCC, EMULATOR)
@pytest.mark.parametrize("name", ["digits", *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_models(name: str, tmp_path: Path) -> None:
    """Whole plans, whose threads wait for each other between kernels; word-lm's also inside, at every time step."""
    if name == "digits":
        model = onnx.load(str(files("parax.models") / "digits.onnx"))
        inputs = {"picture": np.random.default_rng(1).random((3, 1, 28, 28), np.float32)}
    else:
        model, inputs = models.build(name, small=True), models.feeds(name, 3, small=True)
    wanted = oracle(model, "reference")(inputs)
    plan = EmulatedPlan(parax.compile(model, options=OPTIONS), tmp_path)
    alone, shared = plan.run(inputs, 1), plan.run(inputs, 3)
    for key, array in wanted.items():
        np.testing.assert_array_equal(alone[key], shared[key])
        np.testing.assert_allclose(alone[key], array, rtol=1e-4, atol=1e-4 * float(np.abs(array).max()))


@pytest.mark.usefixtures("any_target")
def test_a_plan_for_several_architectures_runs_here_and_one_for_another_alone_says_so() -> None:
    if host_arch() != "x86_64":
        pytest.skip("this machine may run the code")
    model = str(files("parax.models") / "digits.onnx")
    picture = {"picture": np.zeros((1, 1, 28, 28), np.float32)}
    both = parax.compile(model, target=["aarch64", "x86-64-v2"])
    assert [(t.name, t.arch) for t in both.manifest.targets] == [("aarch64", "aarch64"), ("x86-64-v2", "x86_64")]
    with both.session() as session:
        assert session.run(picture)["probabilities"].shape == (1, 10)
    alone = parax.compile(model, options=OPTIONS)
    with pytest.raises(parax.IncompatiblePlan, match="aarch64 needs aarch64 CPU"), alone.session() as session:
        session.run(picture)


ORDERED = (r"\bldaddal\b", r"\bstlr\b", r"\bldap?r\b", r"\bisb\b")  # to take part, to open, to look, to pause
WAITING = {"parax_barrier": ORDERED, "parax_meet": ORDERED, "parax_claim": ORDERED[:2], "parax_wait": ORDERED[2:],
           "parax_ticks": (r"\bcntvct_el0\b",)}  # fmt: skip


def test_cores_that_meet_rely_on_no_order_of_memory_that_only_x86_keeps() -> None:
    """No run on this machine would show it, in the emulator neither: the instructions do."""
    k = Builder("probe", [("word", BYTES), ("n", INDEX)])
    meet(k, k["word"], k["n"], k["n"] + 1)
    barrier(k, k["word"], 2)
    k.call(wait_function(), [k["word"], k["n"]])
    k.if_(take_ticket(k, k["word"], k["n"]) < 2, lambda: k.store(k["word"], 0, k.const(1, k.load(k["word"], 0))))
    module = ModuleEmitter(TARGET)
    module.export(k.func, "entry")
    text = module.text(extra=stamp_text(TARGET.arch)).replace("define internal", "define")
    assembly = compile_assembly(text, TARGET)
    bodies = {body.partition(":")[0]: body.lower() for body in re.split(r"\n(?=\w+:)", assembly)}
    for name, instructions in WAITING.items():
        missing = [each for each in instructions if not re.search(each, bodies[name])]
        assert not missing, f"{name} lacks {missing}"


def _difference(
    emulator: Emulator, emulated: Emulated, case: Case, feeds: dict[str, np.ndarray], symbols: dict[str, int],
    contents: list[np.ndarray | None],
) -> str:  # fmt: skip
    """What is wrong with the results of a case; "" if nothing is."""
    try:
        runs = [emulated.read(emulator(emulated.job(feeds, symbols, n)), symbols) for n in (1, 2)]
        with np.errstate(all="ignore"):
            wanted = expected(case, contents)
        for alone, shared, array in zip(*runs, wanted, strict=True):
            assert alone.tobytes() == shared.tobytes(), "two threads give other bits than one"
            assert_close(case, alone, array)
    except AssertionError as error:
        return str(error)
    return ""
