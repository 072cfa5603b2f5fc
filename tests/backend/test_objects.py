"""Where object code comes from: here, another process, the cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parax.compiler.backend import objects
from parax.compiler.backend.host import resolve_target
from parax.errors import InternalError

TEXT = "define i32 @answer() {\n  ret i32 42\n}\n"


def module(text: str = TEXT) -> dict[str, object]:
    return {"a": (text, resolve_target("native"))}


def test_two_jobs_make_the_same_bytes_as_one() -> None:
    modules = {name: (TEXT, resolve_target(name)) for name in ("x86-64-v2", "x86-64-v3")}
    assert objects.compile_objects(modules, 2, 2, None) == objects.compile_objects(modules, 2, 1, None)


def test_the_cache_is_used_and_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = objects.compile_objects(module(), 2, 1, tmp_path)
    assert os.stat(tmp_path / "objects").st_mode & 0o077 == 0
    monkeypatch.setattr(objects, "compile_object", lambda *_: pytest.fail("compiled again"))
    assert objects.compile_objects(module(), 2, 1, tmp_path) == first


@pytest.fixture(autouse=True)
def _lanes() -> None:
    """Made before, so that they are in no cache of a test's."""
    objects.lanes_object("x86_64", None)


def test_the_runtimes_functions_are_made_once_on_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = objects.lanes_object("x86_64", None)
    monkeypatch.setattr(objects, "_MADE", {})
    assert objects.lanes_object("x86_64", tmp_path) == first
    monkeypatch.setattr(objects, "_MADE", {})
    monkeypatch.setattr(objects, "compile_object", None)
    assert objects.lanes_object("x86_64", tmp_path) == first
    assert objects.lanes_object("x86_64", None) is objects.lanes_object("x86_64", tmp_path)


def test_compiling_keeps_no_memory() -> None:
    def nbytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def compile_some(n: int) -> None:
        for _ in range(n):
            objects.compile_objects(module(), 2, 1, None)

    compile_some(10)
    before = nbytes()
    compile_some(100)
    assert nbytes() - before < 2 << 20  # passes that are never freed took 36 KB each time


def test_what_the_code_depends_on_is_in_the_key(tmp_path: Path) -> None:
    objects.compile_objects(module(), 2, 1, tmp_path)
    objects.compile_objects(module(), 1, 1, tmp_path)
    objects.compile_objects(module(TEXT.replace("42", "43")), 2, 1, tmp_path)
    assert len(list((tmp_path / "objects").iterdir())) == 3


def test_a_damaged_entry_is_compiled_again(tmp_path: Path) -> None:
    first = objects.compile_objects(module(), 2, 1, tmp_path)
    (entry,) = (tmp_path / "objects").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1] + b"?")
    assert objects.compile_objects(module(), 2, 1, tmp_path) == first


def test_an_unwritable_cache_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("a file where the folder should be")
    assert objects.compile_objects(module(), 2, 1, tmp_path)["a"].startswith(b"\x7fELF")


def test_the_oldest_entries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MOST_CACHED", 2)
    for number in range(4):
        objects.compile_objects(module(TEXT.replace("42", str(number))), 2, 1, tmp_path)
    assert len(list((tmp_path / "objects").iterdir())) == 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_llvm_rejects_is_an_internal_error(jobs: int) -> None:
    modules = {name: (TEXT, resolve_target(name)) for name in ("x86-64-v2", "x86-64-v3")}
    modules["x86-64-v3"] = ("nonsense", resolve_target("x86-64-v3"))
    with pytest.raises(InternalError):
        objects.compile_objects(modules, 2, jobs, None)
