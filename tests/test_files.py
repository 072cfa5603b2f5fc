"""Files are written whole or not at all: whatever fails, the old one stays as it was and nothing is left beside it."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parax.compiler.commands import run
from parax.errors import ParaxError, UsageError
from parax.files import check_writable, keep, replacing, write_whole

WRITES: tuple[Callable[[Path], None], ...] = (
    lambda path: write_whole(path, "new"),
    lambda path: run.save(np.zeros(2), f"@{path}"),
)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file that was there before."""
    path = tmp_path / "file"
    path.write_text("old")
    return path


def untouched(old: Path) -> bool:
    return old.read_text() == "old" and [path.name for path in old.parent.iterdir()] == [old.name]


def test_a_file_is_written_and_replaced(old: Path) -> None:
    write_whole(old, "new, ö")
    assert old.read_text(encoding="utf-8") == "new, ö"
    write_whole(old, b"newer")
    assert old.read_bytes() == b"newer"
    assert [path.name for path in old.parent.iterdir()] == [old.name]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_half_way_leaves_the_old_file(error: type[BaseException], old: Path) -> None:
    with pytest.raises(error), replacing(old) as file:
        file.write(b"half")
        raise error
    assert untouched(old)


def test_a_text_that_is_none_leaves_the_old_file(old: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_whole(old, "\ud800")
    assert untouched(old)


def test_an_array_that_cannot_be_saved_leaves_the_old_file(old: Path) -> None:
    with pytest.raises(UsageError, match="Object arrays"):
        run.save(np.array(["a", None], dtype=object), f"@{old}")
    assert untouched(old)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("step", ["open", "replace"])
def test_a_full_disk_leaves_the_old_file_and_says_what_to_do(
    step: str, write: Callable[[Path], None], old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(ParaxError, match=r"cannot be written.*No space left.*choose another place") as caught:
        write(old)
    monkeypatch.undo()
    assert str(old) in str(caught.value)
    assert untouched(old)


@pytest.mark.parametrize("write", WRITES)
def test_a_folder_that_does_not_let_us(write: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be written.*check the folder"):
        write(tmp_path / "file" / "inside")
    with pytest.raises(UsageError, match=r"cannot be written.*check the folder"):
        write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_that_may_not_be_written(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # what root never sees
    with pytest.raises(UsageError, match="may not be written"):
        write_whole(old, "new")
    with pytest.raises(UsageError, match="check the permissions"):
        check_writable(old)
    assert untouched(old)


def test_permissions_stay(old: Path) -> None:
    old.chmod(0o640)
    write_whole(old, "new")
    assert stat.S_IMODE(old.stat().st_mode) == 0o640


def test_a_link_keeps_pointing(old: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(old)
    write_whole(link, "new")
    assert link.is_symlink()
    assert old.read_text() == "new"


def test_a_pipe_gets_everything_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"through")
    reader.join()
    assert read == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_reader_may_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def left(path: Path, content: bytes) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(Path, "write_bytes", left)
    with pytest.raises(BrokenPipeError):
        write_whole(tmp_path / "pipe", "nobody reads this")


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    assert keep(tmp_path / "made" / "entry", "kept")
    assert (tmp_path / "made" / "entry").read_text() == "kept"
    assert not keep(tmp_path / "made" / "entry" / "inside", "lost")
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["entry"]
