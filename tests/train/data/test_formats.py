"""Files of data sets: read as they were written, and refused with file, place and reason where malformed."""

from __future__ import annotations

import gzip
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parax.errors import InvalidData, ParaxError, UsageError
from parax.runtime.train.data.arrays import npy_dataset, npz_dataset
from parax.runtime.train.data.cifar import cifar_dataset
from parax.runtime.train.data.idx import TYPES, idx_dataset, read_idx
from parax.runtime.train.data.text import Bytes, TokenStreams, Words, text_dataset

RNG = np.random.default_rng(2)


def idx(array: np.ndarray) -> bytes:
    code = next(code for code, name in TYPES.items() if np.dtype(name) == array.dtype.newbyteorder(">"))
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "i4", "f4", "f8"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_idx(tmp_path: Path, dtype: str, pack: Callable[[bytes], bytes]) -> None:
    array = (RNG.standard_normal((3, 4, 5)) * 50).astype(dtype)
    found = read_idx(written(tmp_path / "a", pack(idx(array))))
    assert found.dtype == array.dtype and np.array_equal(found, array)


def test_mnist(tmp_path: Path) -> None:
    images, labels = RNG.integers(0, 256, (7, 28, 28), dtype=np.uint8), np.arange(7, dtype=np.uint8)
    own = written(tmp_path / "l", idx(labels))
    data = idx_dataset(written(tmp_path / "i.gz", gzip.compress(idx(images))), own)
    found = data.take(np.array([6, 2]))
    assert np.array_equal(found["input"], images[[6, 2], None]) and found["label"].tolist() == [6, 2]
    with pytest.raises(InvalidData, match=r"sample 5: .*expected 0 to 4; found 5"):
        idx_dataset(tmp_path / "i.gz", own, classes=5)


SOUND = idx(np.arange(12, dtype=np.uint8).reshape(3, 4))


@pytest.mark.parametrize(("data", "message"), [
    (b"", "no IDX file"), (b"\x89PNG....", "at byte 0: no IDX file"),
    (SOUND[:7], "at byte 7: cut off inside its header"),
    (SOUND[:-1], "at byte 23: cut off; expected 24 bytes"), (SOUND + b"x", "at byte 24: more bytes"),
    (struct.pack(">BBBB3I", 0, 0, 14, 3, *[2**32 - 1] * 3), "cut off"),  # promises more than any memory
    (gzip.compress(SOUND, mtime=0)[:-9], "damaged gzip data"), (b"\x1f\x8bnonsense", "damaged gzip data"),
])  # fmt: skip
def test_malformed_idx(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(InvalidData, match=message) as caught:
        read_idx(written(tmp_path / "bad.idx", data))
    assert "bad.idx" in str(caught.value) and caught.value.exit_code == 4


def test_nothing_there(tmp_path: Path) -> None:
    for read in (read_idx, npz_dataset, Bytes().encode, lambda path: cifar_dataset([path])):
        with pytest.raises(UsageError, match="absent"):
            read(tmp_path / "absent")
        with pytest.raises(ParaxError):
            read(tmp_path)  # a folder


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar(tmp_path: Path, classes: int) -> None:
    images = RNG.integers(0, 256, (4, 3, 32, 32), dtype=np.uint8)
    head = [[7], [1], [0], [9]] if classes == 10 else [[3, 99], [3, 0], [0, 5], [19, 50]]
    data = b"".join(bytes(labels) + image.tobytes() for labels, image in zip(head, images))
    paths = [written(tmp_path / "1", data[: len(data) // 2]), written(tmp_path / "2", data[len(data) // 2 :])]
    found = cifar_dataset(paths, classes).take(np.arange(4))
    assert np.array_equal(found["input"], images) and found["label"].tolist() == [labels[-1] for labels in head]
    with pytest.raises(InvalidData, match="cut off inside a record"):
        cifar_dataset([written(tmp_path / "3", data[:-1])], classes)
    with pytest.raises(InvalidData, match="no class has"):
        cifar_dataset([written(tmp_path / "4", bytes([200] * len(data)))], classes)
    with pytest.raises(InvalidData, match="empty"):
        cifar_dataset([], classes)


def test_numpy_files(tmp_path: Path) -> None:
    x, y = RNG.standard_normal((5, 3)), np.arange(5)
    np.savez(tmp_path / "d.npz", x=x, y=y)
    np.savez_compressed(tmp_path / "c.npz", x=x, y=y)
    np.save(tmp_path / "x.npy", x)
    for data in (npz_dataset(tmp_path / "d.npz"), npz_dataset(tmp_path / "c.npz")):
        assert np.array_equal(data.take(np.array([4, 1]))["x"], x[[4, 1]])
    assert npz_dataset(tmp_path / "d.npz", {"label": "y"}).take(np.array([2]))["label"].tolist() == [2]
    found = npy_dataset({"input": tmp_path / "x.npy"}).take(np.array([3]))["input"]
    assert type(found) is np.ndarray and np.array_equal(found, x[[3]])
    with pytest.raises(InvalidData, match="no such array; expected z; found x, y"):
        npz_dataset(tmp_path / "d.npz", {"label": "z"})


def test_malformed_numpy_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", x=np.array([{}], object))
    np.savez(tmp_path / "e.npz", x=np.zeros((0, 2)))
    np.savez(tmp_path / "s.npz", x=np.zeros(999))
    whole = (tmp_path / "s.npz").read_bytes()
    written(tmp_path / "t.npz", whole[:-40])
    written(tmp_path / "b.npz", whole[:900] + bytes([whole[900] ^ 1]) + whole[901:])
    with zipfile.ZipFile(tmp_path / "h.npz", "w") as archive, archive.open("x.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**3)})
        file.write(bytes(8))
    for name in ("o", "e", "t", "b", "h"):
        with pytest.raises(InvalidData, match=name):
            npz_dataset(tmp_path / f"{name}.npz")
    for data in (b"", b"no", whole):
        with pytest.raises(InvalidData, match=r"n\.npy"):
            npy_dataset({"x": written(tmp_path / "n.npy", data)})


def test_words(tmp_path: Path) -> None:
    path = written(tmp_path / "t", b"b a b\nc b a\n")
    words = Words.of([path], most=4)
    assert words.words == ("<unk>", "<eos>", "b", "a")
    assert words.encode(path).tolist() == [2, 3, 2, 1, 0, 2, 3, 1]
    assert words.decode([2, 3, 1, 0]) == "b a\n<unk>"
    assert Bytes().decode(Bytes().encode(path).tolist()) == "b a b\nc b a\n"
    with pytest.raises(InvalidData, match="at byte 1: no UTF-8"):
        Words.of([written(tmp_path / "l", b"a\xff")])
    with pytest.raises(InvalidData, match="without a word"):
        Words.of([written(tmp_path / "w", b" \n")])


def test_streams_go_on_from_batch_to_batch() -> None:
    tokens = np.arange(100)
    data = TokenStreams(tokens, streams=3, length=8)
    batches = [data.take(np.arange(i, i + 3)) for i in range(0, len(data), 3)]
    assert len(batches) == 4
    for name, first in (("input", 0), ("label", 1)):
        joined = np.concatenate([batch[name] for batch in batches], 1)
        assert np.array_equal(joined, [range(33 * s + first, 33 * s + first + 32) for s in range(3)])
    with pytest.raises(InvalidData, match="27 tokens or more; found 26"):
        TokenStreams(tokens[:26], 3, 8)
    assert len(TokenStreams(tokens[:27], 3, 8)) == 3


def test_files_of_text_are_joined(tmp_path: Path) -> None:
    paths = [written(tmp_path / name, name.encode() * 10) for name in "ab"]
    data = text_dataset(paths, Bytes(), 1, 19)
    assert bytes(data.take(np.array([0]))["input"][0].tolist()) == b"a" * 10 + b"b" * 9
