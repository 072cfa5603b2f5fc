"""Described CPUs, and which description code is arranged by."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from parax.compiler.backend.host import tune_of
from parax.compiler.backend.microkernels.table import TABLE
from parax.compiler.targets import core
from parax.compiler.targets.architecture import ARCHITECTURES
from parax.compiler.targets.core import Core, core_of, shipped_cores
from parax.compiler.targets.target import TARGETS, best_target, least_target
from parax.errors import InternalError


@pytest.mark.parametrize("described", shipped_cores(), ids=lambda found: found.name)
def test_descriptions_are_of_cpus_that_there_may_be(described: Core) -> None:
    for table in (described.multiply_adds["f32"], described.loads, described.stores):
        assert set(table) in ({128}, {128, 256}, {128, 256, 512}) and all(1 <= n <= 4 for n in table.values())
        assert list(table.values()) == sorted(table.values(), reverse=True), "wider registers are no faster each"
    for name, table in described.multiply_adds.items():
        assert name in {tile.rate or tile.input.name for tile in TABLE} and set(table) <= set(described.loads)
        assert all(0 < n <= 4 for n in table.values())
    assert described.arch in ARCHITECTURES and 2 <= described.latency <= 6
    assert (16 << 10) <= described.l1_nbytes < described.l2_nbytes <= (4 << 20)
    assert described.l2_nbytes_per_cycle in (16, 32, 64)


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_is_described_for_its_registers(name: str) -> None:
    target = TARGETS[name]
    assert target.vector_bits in target.core.multiply_adds["f32"] and target.core.arch == target.arch


def test_a_cpu_without_a_description_is_one_with_its_instructions() -> None:
    assert core_of("some-future-lake", "x86-64-v4") is core_of("", "x86-64-v4") is core_of("x86-64-v4", "x86-64-v3")


def test_targets_are_found_by_architecture_and_features() -> None:
    arm = TARGETS["aarch64"]
    assert best_target(set(arm.features)) is arm and best_target(set(TARGETS["x86-64-v2"].features)).arch == "x86_64"
    assert best_target(set(arm.features) - {"lse"}) is None
    assert least_target("x86_64").name == "x86-64-v2" and least_target("aarch64") is arm
    assert arm.has_fma and not TARGETS["x86-64-v2"].has_fma


def test_which_cpus_split_wide_registers() -> None:
    wide = TARGETS["x86-64-v4"]
    splits = {tune: replace(wide, tune=tune).splits_wide for tune in ("", "znver4", "emeraldrapids", "skylake-avx512")}
    assert splits == {"": False, "znver4": True, "emeraldrapids": False, "skylake-avx512": False}
    assert not replace(TARGETS["x86-64-v3"], tune="znver4").splits_wide


def test_a_description_that_lacks_something_is_named(tmp_path, monkeypatch) -> None:
    names = [f.name for f in fields(Core)]
    (tmp_path / "half.toml").write_text('name = "half"\ntunes = ["half"]\n')
    monkeypatch.setattr(core, "FOLDER", tmp_path)
    core._by_name.cache_clear()
    with pytest.raises(InternalError, match=r"half\.toml") as raised:
        core_of("half", "half")
    core._by_name.cache_clear()
    assert all(name in str(raised.value) for name in names)


@pytest.mark.parametrize(("name", "features", "tune"), [
    ("rocketlake", {"avx512f", "amx-tile"}, "sapphirerapids"), ("rocketlake", {"avx512f"}, "rocketlake"),
    ("graniterapids", {"amx-tile"}, "graniterapids"), ("znver4", {"avx512f"}, "znver4"),
])  # fmt: skip
def test_features_tell_what_the_model_number_does_not(name: str, features: set[str], tune: str) -> None:
    assert tune_of(name, features) == tune
