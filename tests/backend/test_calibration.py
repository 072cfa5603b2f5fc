"""The running machine as a description: measured once, read back, plausible."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import llvmlite
import onnx
import pytest

import parax
from parax.compiler.backend import calibration, machine
from parax.compiler.backend.costs import KINDS
from parax.compiler.backend.host import resolve_target, running_target
from parax.compiler.backend.microkernels.table import features_of
from parax.compiler.backend.reference_kernels import (
    BF16_REFERENCES,
    FAR_REFERENCES,
    HALVED_REFERENCES,
    REFERENCES,
    References,
)
from parax.compiler.ir.types import BF16
from parax.compiler.options import CompileOptions
from parax.compiler.targets.machine import Machine
from parax.compiler.targets.target import Target
from parax.runtime.topology import Core, Topology, choose_cores
from parax.runtime.topology import machine as topology

from ..conftest import Cli
from .harness import host_targets


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Machine, Path]:
    folder = tmp_path_factory.mktemp("cache")
    patch = pytest.MonkeyPatch()
    patch.setattr(machine, "REPEATS", 2)
    patch.setattr(calibration, "ROUNDS", 2)
    patch.setattr(calibration, "L3_PROBES", (2, 4, 16))
    found = calibration.running_machine(folder, choose_cores(None))
    patch.undo()
    assert found is not None
    return found, folder


def test_a_measured_machine_is_plausible(measured: tuple[Machine, Path]) -> None:
    found, _ = measured
    assert not found.simulated
    assert found.n_cores == len(choose_cores(None))
    assert found.l2_bandwidth_per_core > 1e9
    assert found.bandwidth_per_socket >= found.bandwidth_per_core > 1e8
    assert 0 <= found.barrier_seconds < 1e-3
    assert all(0 < found.share(kind) < math.inf for kind in KINDS)


def test_it_is_read_back(measured: tuple[Machine, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    found, folder = measured
    monkeypatch.setattr(calibration, "measure_machine", lambda *_: pytest.fail("measured again"))
    again = calibration.running_machine(folder, choose_cores(None))
    assert again is not None
    assert again.name == found.name
    assert again.flops_per_core == pytest.approx(found.flops_per_core, rel=1e-4)


def test_nothing_is_measured_unasked(tmp_path: Path) -> None:
    assert calibration.running_machine(tmp_path, [0], measure=False) is None
    for damaged in ("name = 3", "[", ""):
        path_of(tmp_path).write_text(damaged)
        assert calibration.running_machine(tmp_path, [0], measure=False) is None, "damaged is as none"


def path_of(folder: Path) -> Path:
    return folder / f"machine-{calibration._key([0])}.toml"


class Fake:
    """Stands for measuring: counts, and returns a machine of its own each time."""

    def __init__(self, disturbed: bool = False) -> None:
        self.count, self.disturbed = 0, disturbed

    def __call__(self, cores: Sequence[int]) -> tuple[Machine, bool]:
        self.count += 1
        time.sleep(0.05)
        return Machine(f"machine {self.count}", len(cores), 1e11, 1e10, 1e10, simulated=False), self.disturbed


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    measure = Fake()
    monkeypatch.setattr(calibration, "measure_machine", measure)
    return measure


def named(folder: Path | None, **more: Any) -> str:
    found = calibration.running_machine(folder, [0], **more)
    assert found is not None
    return found.name


def test_it_is_measured_once_whoever_asks_at_the_same_time(tmp_path: Path, fake: Fake) -> None:
    told: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        names = list(pool.map(lambda i: named(tmp_path, before=lambda: told.append(i)), range(4)))
    assert names == ["machine 1"] * 4
    assert fake.count == len(told) == 1


def test_again_measures_what_is_known(tmp_path: Path, fake: Fake) -> None:
    assert [named(tmp_path), named(tmp_path), named(tmp_path, again=True), named(tmp_path)] == [
        "machine 1", "machine 1", "machine 2", "machine 2"]  # fmt: skip


def test_what_others_disturbed_serves_for_an_hour(tmp_path: Path, fake: Fake) -> None:
    fake.disturbed = True
    assert [named(tmp_path), named(tmp_path)] == ["machine 1"] * 2
    file = calibration._disturbed(path_of(tmp_path))
    past = time.time() - 2 * calibration.TRUSTED_SECONDS
    os.utime(file, (past, past))
    fake.disturbed = False
    assert [named(tmp_path), named(tmp_path)] == ["machine 2"] * 2


def test_an_undisturbed_measurement_wins(tmp_path: Path, fake: Fake) -> None:
    named(tmp_path)
    fake.disturbed = True
    assert named(tmp_path, again=True) == "machine 2"
    assert named(tmp_path) == "machine 1"


@pytest.mark.parametrize("change", [
    ("cpu_identity", lambda: ("another CPU",)), ("__version__", "99"), ("VERSION", 99),
    ("topology", lambda: topology()._replace(quota=0.7)),
])  # fmt: skip
def test_other_circumstances_are_measured_anew(
    tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch, change: tuple[str, Any]
) -> None:
    named(tmp_path)
    monkeypatch.setattr(calibration, *change)
    assert named(tmp_path) == "machine 2"


def test_another_llvm_is_measured_anew(tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    named(tmp_path)
    monkeypatch.setattr(llvmlite, "__version__", "99")
    assert named(tmp_path) == "machine 2"


@pytest.mark.parametrize("cores", [(0, 1), (1,)])
def test_what_holds_for_other_cores(cores: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    places = [Core(0, 0, 0, 0), Core(1, 0, 0, 1), Core(2, 0, 0, 0)]
    monkeypatch.setattr(calibration, "topology", lambda: Topology(tuple(places), None, ()))
    assert (calibration._key([0]) == calibration._key(cores)) == (len(cores) == 1)
    assert calibration._key([0, 1]) != calibration._key([0, 2]), "two threads of one core"


def test_nothing_is_measured_that_cannot_be_kept(tmp_path: Path, fake: Fake) -> None:
    (tmp_path / "file").write_text("no folder")
    assert calibration.running_machine(tmp_path / "file", [0]) is None
    assert fake.count == 0
    assert named(tmp_path / "file", again=True) == "machine 1"
    assert named(None) == "machine 2", "asked for without a folder"


MODEL = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 8] x) => (float[N, 8] y) { y = Relu(x) }
""")


def test_the_first_compilation_measures_and_says_so(
    tmp_path: Path, fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="parax")
    names = []
    for calibrate in (False, True, True):
        plan = parax.compile(MODEL, options=CompileOptions(cache_dir=tmp_path, calibrate=calibrate))
        choice = plan.manifest.choice
        assert choice is not None
        names.append(choice["machine"])
    assert names == ["this machine, not measured", "machine 1", "machine 1"]
    assert caplog.text.count("measuring this machine, once") == 1


@pytest.mark.slow
def test_the_command_line_says_so_once(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARAX_CALIBRATE")
    model = tmp_path / "m.onnx"
    onnx.save(MODEL, model)
    runs = [("a", ["--no-calibrate"], False), ("a", ["-q"], False), ("b", [], True), ("b", [], False)]
    for folder, more, says in runs:
        done = cli(model, "--cache-dir", tmp_path / folder, *more, script="paraxc")
        assert done.returncode == 0
        assert ("measuring this machine" in done.stderr) == says, (more, done.stderr)


def test_every_reference_runs_and_is_of_its_kind() -> None:
    for bound, reference in zip(References(resolve_target("native"), jobs=2).bound(), REFERENCES, strict=True):
        bound.run()
        assert bound.cost.kind == bound.kind == reference.kind
    able = running_target(features_of(BF16))
    for bound, reference in zip(References(able, BF16_REFERENCES).bound(), BF16_REFERENCES, strict=True):
        bound.run()
        assert bound.cost.kind == bound.kind == reference.kind
    halved = References(resolve_target("native"), HALVED_REFERENCES)
    assert [calls[0].func.name.partition("_")[0] for _, calls in halved.lowered()] == ["strassen", "matmul"]
    for bound in halved.bound():
        bound.run()
    kinds = {r.kind for r in (*REFERENCES, *FAR_REFERENCES, *BF16_REFERENCES, *HALVED_REFERENCES)}
    assert kinds >= set(KINDS) - {"lookup", "host", "view", "trees"}


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
def test_only_winograds_reference_is_transformed(target: Target) -> None:
    transformed = {r.kind for r, calls in References(target).lowered() if any("winograd" in c.func.name for c in calls)}
    assert transformed == {"winograd"}
