"""PARAX_PERF_MAP: perf finds every function of a plan's code by address, and nothing else is touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fake_plans
import parax
from parax.compiler.commands.models import BUNDLED
from parax.errors import UsageError
from parax.runtime import perf_map
from parax.runtime.native import code_of

pytestmark = pytest.mark.skipif(fake_plans.ARCH != "x86_64", reason="objects are for x86-64")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(perf_map, "FOLDER", str(tmp_path))
    monkeypatch.setenv("PARAX_PERF_MAP", "1")
    return tmp_path


def test_every_kernel_has_a_line(folder: Path) -> None:
    plan = parax.compile(BUNDLED / "digits.onnx", options=parax.CompileOptions(profile=True))
    code = code_of(plan)
    assert code is not None
    (path,) = folder.iterdir()
    assert path.name == f"perf-{os.getpid()}.map" and path.stat().st_mode & 0o777 == 0o600
    found = {}
    for line in path.read_text().splitlines():
        address, nbytes, name = line.split(" ")
        found[name] = int(address, 16), int(nbytes, 16)
    kernels = {name for calls in plan.manifest.provenance["profile"]["calls"] for _, name in calls}
    assert {f"{plan.name}:{name}" for name in kernels} <= found.keys()
    assert found[f"{plan.name}:parax_team"][0] == code.address("parax_team")
    ordered = sorted(found.values())
    assert all(a + n <= b for (a, n), (b, _) in zip(ordered, ordered[1:], strict=False))


def test_it_is_off_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_map, "FOLDER", str(tmp_path))
    code_of(parax.compile(BUNDLED / "digits.onnx"))
    assert not list(tmp_path.iterdir())


def test_names_are_one_word_and_plans_add_to_each_other(folder: Path) -> None:
    perf_map.add_to_perf_map([(0x1000, 16, "k")], "a b\nc")
    perf_map.add_to_perf_map([(0x2000, 255, "l")], "d")
    assert next(folder.iterdir()).read_text() == "1000 10 a_b_c:k\n2000 ff d:l\n"


def test_another_users_link_is_not_followed(folder: Path) -> None:
    aim = folder / "aim"
    aim.write_text("as it was")
    (folder / f"perf-{os.getpid()}.map").symlink_to(aim)
    with pytest.raises(UsageError, match="PARAX_PERF_MAP"):
        perf_map.add_to_perf_map([(1, 1, "k")], "d")
    assert aim.read_text() == "as it was"
