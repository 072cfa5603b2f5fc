"""The container's directory: what zipfile writes is read, large files included; what no plan looks like is refused."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from parax.errors import CorruptPlan
from parax.runtime import container_writer
from parax.runtime.container import ALIGNMENT, Container

MEMBERS = {"manifest.json": b"{}", "code/base.o": bytes(range(256)), "weights.bin": bytes(4096), "é.txt": b""}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small container."""
    container_writer.write_container(tmp_path / "plan.bin", MEMBERS.items(), b"a comment")
    return tmp_path / "plan.bin"


def members(path: Path) -> dict[str, bytes]:
    """What the container reads, and that it agrees with zipfile."""
    found = Container(path)
    with zipfile.ZipFile(path) as archive:
        assert found.comment == archive.comment
        assert {name: bytes(data) for name, data in found.members.items()} == {
            info.filename: archive.read(info) for info in archive.infolist()
        }
    return {name: bytes(data) for name, data in found.members.items()}


def test_reads_what_it_writes(path: Path) -> None:
    assert members(path) == MEMBERS


def test_reads_the_records_of_files_of_many_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((zipfile, "ZIP64_LIMIT"), (container_writer, "_ZIP64_LIMIT")):
        monkeypatch.setattr(module, name, 200)
    container_writer.write_container(tmp_path / "plan.bin", MEMBERS.items(), b"a comment")
    assert (tmp_path / "plan.bin").read_bytes().count(b"PK\x06\x06") == 1
    assert members(tmp_path / "plan.bin") == MEMBERS


def compressed(path: Path) -> None:
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("more", bytes(1000))


def unaligned(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more", bytes(ALIGNMENT))


def twice(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("manifest.json", b"{}")


def prefixed(path: Path) -> None:
    path.write_bytes(bytes(64) + path.read_bytes())


def continued(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def crowded(path: Path) -> None:
    many = ((str(number), b"") for number in range(1025))
    container_writer.write_container(path, many, b"")


@pytest.mark.parametrize("damage", [compressed, unaligned, twice, prefixed, continued, crowded])
def test_refuses_what_no_plan_looks_like(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    with pytest.raises(CorruptPlan):
        Container(path)


def test_refuses_every_changed_byte_of_the_directory_or_reads_the_same(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    start = data.index(b"PK\x01\x02")
    for at in range(start, len(data)):
        for bit in (0x01, 0x80):
            changed = tmp_path / "changed.bin"
            changed.write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
            try:
                found = Container(changed)
            except CorruptPlan:
                continue
            places = {name: bytes(member) for name, member in found.members.items()}
            assert places == MEMBERS, at - start
