"""plan.bin: build, save, load, and every way in which a file can be wrong."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_plans import add_manifest, fake_plan, object_code
from parax.errors import CorruptPlan, IncompatiblePlan, InternalError, ParaxError, UsageError
from parax.runtime import Plan, load
from parax.runtime.cpu import host_arch
from parax.runtime.manifest import FORMAT
from parax.runtime.manifest_reader import ManifestReader
from parax.runtime.native import choose_target, host_features

Build = Callable[..., Plan]
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def result(plan: Plan) -> np.ndarray:
    with plan.session(instances=1) as session:
        return session.run({"x": X})["y"]


def test_round_trip(add_plan: Build, tmp_path: Path) -> None:
    built = add_plan(provenance={"parax": "1"})
    built.save(tmp_path / "plan.bin")
    plan = load(tmp_path / "plan.bin", verify="full")
    assert plan.json() == built.json()
    assert plan.manifest == built.manifest
    assert bytes(plan.weights) == bytes(built.weights)
    assert plan.graph == "graph @add {}"
    assert [str(t) for t in (*plan.inputs, *plan.outputs)] == ["x: f32[N,4]", "y: f32[N,4]"]
    assert plan.inputs[0].shape == ("N", 4)
    assert np.array_equal(result(plan), X + 1)
    assert np.array_equal(result(built), X + 1)


def test_a_plan_is_a_zip_with_aligned_members(saved_plan: Path) -> None:
    with zipfile.ZipFile(saved_plan) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["manifest.json", "code/base.o", "weights.bin", "graph.txt"]
        assert json.loads(archive.read("manifest.json"))["format"] == FORMAT
    plan = load(saved_plan)
    for name in ("manifest.json", "code/base.o", "weights.bin"):
        member = np.frombuffer(plan._member(name), np.uint8)
        assert member.__array_interface__["data"][0] % 64 == 0
        assert not member.flags.writeable


def test_equal_plans_are_equal_files(add_plan: Build, tmp_path: Path) -> None:
    for name in "ab":
        add_plan().save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_saving_replaces_the_file_and_leaves_the_loaded_one_alone(add_plan: Build, tmp_path: Path) -> None:
    path = tmp_path / "plan.bin"
    add_plan().save(path)
    old = load(path)
    add_plan(weight=5).save(str(path))
    assert np.array_equal(result(old), X + 1)
    assert np.array_equal(result(load(path)), X + 5)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("place", ["missing/plan.bin", "folder", "file/plan.bin"])
def test_unwritable_output_leaves_nothing_behind(add_plan: Build, tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="cannot be written"):
        add_plan().save(tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before


def test_disk_full(add_plan: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("parax.runtime.container_writer._write_member", full)
    with pytest.raises(UsageError, match="No space left"):
        add_plan().save(tmp_path / "plan.bin")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "said"), [("missing.bin", "cannot read"), (".", "this is a folder")])
def test_unreadable(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load(tmp_path / name)


def other_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", "{}")


@pytest.mark.parametrize(
    "make",
    [
        lambda p: p.write_bytes(b""),
        lambda p: p.write_bytes(b"garbage" * 100),
        lambda p: p.write_bytes(b"PK\x05\x06" + bytes(18)),
        lambda p: p.write_bytes(os.urandom(4096)),
        other_zip,
    ],
)
def test_foreign_files(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "plan.bin")
    with pytest.raises(CorruptPlan):
        load(tmp_path / "plan.bin")


def outcome(path: Path, data: bytes) -> str:
    """What a damaged plan does: "refused", or "same" results."""
    path.write_bytes(data)
    try:
        assert np.array_equal(result(load(path)), X + 1)
    except (CorruptPlan, IncompatiblePlan):
        return "refused"
    return "same"


def test_every_truncation_is_refused(saved_plan: Path, tmp_path: Path) -> None:
    data = saved_plan.read_bytes()
    for n in range(0, len(data), 7):
        assert outcome(tmp_path / "cut.bin", data[:n]) == "refused"


def test_every_flipped_byte_of_a_member_is_refused(saved_plan: Path, tmp_path: Path) -> None:
    data = saved_plan.read_bytes()
    plan = load(saved_plan)
    base = np.frombuffer(plan._member("manifest.json"), np.uint8).__array_interface__["data"][0]
    start = data.index(b'{"name"')
    for name in ("manifest.json", "code/base.o", "weights.bin"):
        member = np.frombuffer(plan._member(name), np.uint8)
        first = member.__array_interface__["data"][0] - base + start
        for at in range(first, first + member.size, 13):
            flipped = data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]
            assert outcome(tmp_path / "flipped.bin", flipped) == "refused", (name, at - first)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_anywhere_is_refused_or_harmless(saved_plan: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(saved_plan.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        how = data.draw(st.sampled_from(["set", "cut", "repeat", "zero"]))
        if how == "set":
            content[at] = data.draw(st.integers(0, 255))
        elif how == "cut":
            del content[at : at + data.draw(st.integers(1, 64))]
        elif how == "repeat":
            content[at:at] = content[at : at + 16]
        else:
            content[at : at + 64] = bytes(len(content[at : at + 64]))
    outcome(tmp_path / "damaged.bin", bytes(content))


def test_graph_text_is_checked_when_read(saved_plan: Path) -> None:
    data = saved_plan.read_bytes()
    saved_plan.write_bytes(data.replace(b"graph @add", b"graph @odd"))
    plan = load(saved_plan)
    with pytest.raises(CorruptPlan, match=r"graph\.txt"):
        _ = plan.graph
    with pytest.raises(CorruptPlan):
        load(saved_plan, verify="full")


def test_verify_none_reads_no_weights(add_plan: Build, tmp_path: Path) -> None:
    path = tmp_path / "plan.bin"
    plan = add_plan(weight=3)
    plan.save(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(bytes(plan.weights), bytes(64)))
    load(path, verify="none")
    for verify in ("fast", "full"):
        with pytest.raises(CorruptPlan, match=r"weights\.bin"):
            load(path, verify=verify)
    with pytest.raises(UsageError):
        load(path, verify="maybe")


def test_large_weights_are_checked_in_every_part(add_code: bytes, tmp_path: Path) -> None:
    path = tmp_path / "plan.bin"
    weights = np.zeros(33 << 20, np.uint8)
    fake_plan(add_manifest(), {"base": add_code}, weights).save(path)
    plan = load(path)
    assert plan.manifest.weights.checksum != plan.manifest.weights.digest
    start = -(-path.read_bytes().index(bytes(1 << 20)) // 64) * 64
    for at in (0, 17 << 20, (33 << 20) - 1):
        with open(path, "r+b") as file:
            file.seek(start + at)
            file.write(b"\1")
            file.flush()
            with pytest.raises(CorruptPlan, match=r"weights\.bin"):
                load(path)
            file.seek(start + at)
            file.write(b"\0")
    load(path)


def test_a_later_format(add_plan: Build) -> None:
    manifest = add_plan().json()
    manifest["format"] = FORMAT + 1
    with pytest.raises(IncompatiblePlan, match="unknown plan format"):
        ManifestReader(manifest).read()


def test_a_compiler_that_breaks_the_format_is_an_internal_error(add_plan: Build) -> None:
    with pytest.raises(InternalError):
        add_plan(steps=[])


@pytest.mark.parametrize(
    "target",
    [{"features": ["warp-drive"]}, {"arch": "z80"}],
)
def test_a_cpu_without_the_features(add_plan: Build, target: dict[str, Any]) -> None:
    manifest = add_plan().json()["targets"][0]
    with pytest.raises(IncompatiblePlan, match=r"needs (warp-drive|z80)"):
        add_plan(targets=[{**manifest, **target}]).session()


def test_best_target_and_parax_target(add_code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    some = sorted(host_features())[:3]
    arch = host_arch()
    targets = [
        {"name": "base", "arch": arch, "features": []},
        {"name": "best", "arch": arch, "features": some},
        {"name": "middle", "arch": arch, "features": some[:1]},
        {"name": "alien", "arch": arch, "features": [*some, "warp-drive"]},
    ]
    manifest = {**add_manifest(), "targets": targets}
    plan = fake_plan(manifest, {t["name"]: add_code for t in targets}, bytes(64))
    assert choose_target(plan.manifest).name == "best"
    monkeypatch.setenv("PARAX_TARGET", "middle")
    assert choose_target(plan.manifest).name == "middle"
    for wrong in ("alien", "nobody"):
        monkeypatch.setenv("PARAX_TARGET", wrong)
        with pytest.raises(IncompatiblePlan, match=wrong):
            choose_target(plan.manifest)


def test_a_targets_features_may_be_named_in_any_order(add_code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = [{"name": "base+a+b", "arch": host_arch(), "features": []}]
    plan = fake_plan({**add_manifest(), "targets": targets}, {"base+a+b": add_code}, bytes(64))
    monkeypatch.setenv("PARAX_TARGET", "base+b+a")
    assert choose_target(plan.manifest).name == "base+a+b"


@pytest.mark.parametrize("code", [b"", b"garbage", b"\x7fELF" + bytes(60)])
def test_an_object_that_is_none(code: bytes) -> None:
    with pytest.raises(ParaxError):
        fake_plan(add_manifest(), {"base": code}, bytes(64)).session()


def test_an_object_that_needs_what_nobody_has() -> None:
    text = "declare i32 @nobody()\ndefine i32 @parax_run_0() {\n  %a = call i32 @nobody()\n  ret i32 %a\n}"
    for code in (text, text.replace("parax_run_0", "parax_run_9")):
        with pytest.raises(IncompatiblePlan):
            fake_plan(add_manifest(), {"base": object_code(code)}, bytes(64)).session()


def test_loading_and_running_needs_neither_compiler_nor_onnx_nor_networkx(saved_plan: Path) -> None:
    script = (
        "import sys, numpy as np, parax.runtime\n"
        f"plan = parax.runtime.load({str(saved_plan)!r})\n"
        "with plan.session() as s: print(s.run({'x': np.zeros((2, 4), 'f4')})['y'].sum())\n"
        "bad = {'llvmlite', 'onnx', 'networkx', 'rich', 'asyncio'} | {'parax.compiler'}\n"
        "assert not bad & set(sys.modules), bad & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "8.0"), done.stderr
