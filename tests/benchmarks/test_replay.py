"""Codegen replay: kernels out of a module, what counts as changed, files of hashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import replay

MODULE = """declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
define internal void @tile6x64_3(ptr %p) #1 {
  ret void
}
define internal void @matmul_12(ptr %p, ptr %q) {
  call void @tile6x64_3(ptr %p)
  ret void
}
attributes #1 = { nounwind }
"""


def test_kernels_lose_their_running_numbers() -> None:
    kernels = replay.kernels_of(MODULE)
    assert [name for name, _ in kernels] == ["tile6x64", "matmul"]
    assert "call void @tile6x64(ptr %p)" in kernels[1][1]
    assert kernels == replay.kernels_of(MODULE.replace("_12", "_4").replace("_3", "_9"))


def test_another_order_is_no_change_and_another_body_is() -> None:
    one, two, new = ("a", "x"), ("b", "y"), ("a", "z")
    before = {"m": {"v4": [one, two, one]}}
    assert not list(replay.changes(before, {"m": {"v4": [two, one, one]}}))
    assert list(replay.changes(before, {"m": {"v4": [two, one, new]}})) == [("m v4", [one], [new])]
    assert list(replay.changes({}, before)) == [("m v4", [], [one, two, one])]
    assert replay.report("m v4", [one], [new], 3) == "m v4: of 3 functions 1 gone, 1 new: a −1 +1"
    assert "+z" in next(replay.differences([one], [new], 1))


@pytest.mark.parametrize("texts", [[], ["--texts"]])
def test_the_same_compiler_changes_nothing_and_a_lost_kernel_is_found(
    tmp_path: Path, texts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "before.json"
    options = ["--models", "mlp", "--targets", "x86-64-v3", "--small"]
    assert replay.main([*options, "--save", str(file), *texts]) == 0
    assert replay.main([*options, "--against", str(file)]) == 0
    file.write_text(file.read_text().replace('"matmul"', '"other"', 1))
    assert replay.main([*options, "--against", str(file)]) == 1
    assert "mlp x86-64-v3" in capsys.readouterr().out
