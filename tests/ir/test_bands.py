"""Large constants band after band: every element once, whatever the strides; files are forgotten, not lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from parax.compiler.ir import bands
from parax.compiler.ir.mapped import MappedFile, forget, is_mapped, map_file
from parax.compiler.ir.types import BF16, F16, F32, F64, DType, float_info


def _mapped(path: Path, content: np.ndarray, offset: int = 0) -> np.ndarray:
    path.write_bytes(b"\0" * offset + content.tobytes())
    with path.open("rb") as file:
        mapping = map_file(file.fileno())
    return np.frombuffer(memoryview(mapping), content.dtype, offset=offset).reshape(content.shape)


def _resident(mapping: MappedFile) -> int:
    """Kibibytes of a mapping in memory."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{mapping.address:08x}-"))
    return next(int(line.split()[1]) for line in lines[start:] if line.startswith("Rss:"))


@given(st.lists(st.integers(0, 5), min_size=0, max_size=4), st.randoms(), st.integers(1, 200))
def test_bands_hold_every_element_once(shape: list[int], random: object, most: int) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)  # type: ignore[attr-defined]
    array = np.zeros(shape, np.float64).transpose(order)
    for band in bands.bands(array, most):
        assert array[band].nbytes <= max(most, 8)
        array[band] += 1
    assert (array == 1).all()


def test_bands_of_a_broadcast_array_end() -> None:
    array = np.broadcast_to(np.float32(3), (1, 3000, 1, 2000))
    target = np.empty(array.shape, np.float32)
    bands.copy(target, array)
    assert (target == 3).all()


@pytest.mark.parametrize("factor", [2.5, np.linspace(-1, 1, 700)[None], np.linspace(-3, 2, 3000)[:, None]])
def test_scaled_rounds_once(factor: ArrayLike) -> None:
    array = np.random.default_rng(0).standard_normal((3000, 700), np.float32)
    expected = (array.astype(np.float64) * factor).astype(np.float32)
    np.testing.assert_array_equal(bands.scaled(array, np.asarray(factor)), expected)
    np.testing.assert_array_equal(bands.scaled(array.T, np.asarray(factor).T), expected.T)


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
def test_what_a_float_type_does_not_hold_is_none(dtype: DType) -> None:
    tiny, large = float(float_info(dtype.numpy).tiny), float(float_info(dtype.numpy).max)
    array = np.array([1, -2, 0], dtype.numpy)
    np.testing.assert_array_equal(bands.scaled(array, np.array(0.5)), np.array([0.5, -1, 0], dtype.numpy))
    np.testing.assert_array_equal(bands.rounded(np.array([0.5, tiny, 0]), dtype.numpy), [0.5, tiny, 0])
    assert bands.scaled(array, np.array(tiny / 2)) is None and bands.scaled(array, np.array(large)) is None
    assert bands.rounded(np.array([1, tiny / 4]), dtype.numpy) is None
    assert bands.rounded(np.array([1, np.inf]), dtype.numpy) is None


def test_turned() -> None:
    array = np.random.default_rng(0).standard_normal((30, 50, 70, 20), np.float32)
    found = bands.turned(array, (2, 0, 3, 1))
    np.testing.assert_array_equal(found, array.transpose(2, 0, 3, 1))
    assert found.flags.c_contiguous


@pytest.mark.parametrize("bad", [np.inf, np.nan, 1e300])
def test_is_finite_as_f32(bad: float) -> None:
    array = np.zeros((3, 1 << 20))
    assert bands.is_finite(array) and bands.greatest(array - 3) == 3
    array[2, -1] = bad
    with np.errstate(over="ignore"):
        assert not bands.is_finite(array)


def test_equal() -> None:
    a = np.zeros(bands.BAND_NBYTES + 5, np.uint8)
    b = a.copy()
    assert bands.equal(a, b)
    b[-1] = 1
    assert not bands.equal(a, b)


@pytest.mark.parametrize("offset", [0, 3])
def test_what_is_forgotten_is_read_again(tmp_path: Path, offset: int) -> None:
    content = np.random.default_rng(0).standard_normal((1024, 2048), np.float32)
    array = _mapped(tmp_path / "a", content, offset)
    assert is_mapped(array) and is_mapped(array[3:, 5:].T) and not is_mapped(content)
    owner = array.base
    while not isinstance(owner, MappedFile):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj  # type: ignore[union-attr]
    assert float(array.sum()) and _resident(owner) >= 8192
    for part in (array, array[::-1, ::-1], array.T):
        assert array.max()
        forget(part)
        assert _resident(owner) <= 8
    target = np.empty(content.shape[::-1], np.float32)
    bands.copy(target, array.T)
    assert _resident(owner) <= 8
    np.testing.assert_array_equal(target, content.T)
    np.testing.assert_array_equal(array, content)


def test_nothing_else_is_forgotten() -> None:
    array = np.ones(1 << 20)
    forget(array)
    forget(array[:0])
    assert (array == 1).all()
