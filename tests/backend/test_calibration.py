"""The running machine as a description: measured once, read back, plausible."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from parax.compiler.backend import calibration, machine
from parax.compiler.backend.host import resolve_target
from parax.compiler.backend.reference_kernels import FAR_REFERENCES, REFERENCES, bind_references
from parax.compiler.ir.costs import KINDS
from parax.compiler.ir.machine import Machine
from parax.runtime.topology import choose_cores


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
    (tmp_path / "machine.toml").write_text("name = 3")
    assert calibration.running_machine(tmp_path, [0], measure=False) is None, "damaged is as none"


def test_every_reference_runs_and_is_of_its_kind() -> None:
    for bound, reference in zip(bind_references(resolve_target("native")), REFERENCES, strict=True):
        bound.run()
        assert bound.cost.kind == bound.kind == reference.kind
    assert {r.kind for r in (*REFERENCES, *FAR_REFERENCES)} >= set(KINDS) - {"lookup", "host", "view"}
