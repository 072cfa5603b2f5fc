"""What the benchmark of versions makes of its figures, and a run of it: the installed parax against itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import versions


def test_ratios_are_those_of_the_quicker_rounds_of_each_sides_best_set_up() -> None:
    rates = {"then": {"a": [10.0, 20.0, 10.0, 10.0, 4.0], "b": [1.0, 1.0, 90.0, 1.0, 1.0]},
             "now": {"a": [1.0, 1.0, 1.0, 1.0, 1.0], "b": [11.0, 30.0, 9.0, 11.0, 5.0]}}  # fmt: skip
    assert versions.ratios(rates) == {"then": 1.0, "now": 1.1}


@pytest.mark.slow
def test_installed_versions_are_measured_in_both_modes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--against", sys.executable, "--models", "mlp", "--small", "--fast", "--restarts", "1", "--rounds", "2",
             "--seconds", "0.02", "--json", str(tmp_path / "found.json")]  # fmt: skip
    assert versions.main(words) == 0
    found = json.loads((tmp_path / "found.json").read_text())["models"]["mlp"]
    for mode in ("throughput", "latency"):
        assert set(found[mode]) == {"then", "now", "now, --fp fast", "again"}
        for setups in found[mode].values():
            assert all(len(rates) == 2 and min(rates) > 0 for rates in setups.values())
    assert "now, --fp fast" in capsys.readouterr().out


def test_a_version_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert versions.main(["--against", str(tmp_path / "python"), "--models", "mlp", "--small"]) == 1
    assert "failed" in capsys.readouterr().out
