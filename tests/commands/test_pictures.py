"""Pictures as inputs, against values worked out by hand."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parax.compiler.commands import pictures
from parax.compiler.commands.pictures import Preparation
from parax.errors import ParaxError, ResourceLimit, UsageError
from parax.runtime.manifest import TensorSpec

Image = pytest.importorskip("PIL.Image", reason="pictures need Pillow: pip install '.[test]'")

PIXELS = np.zeros((2, 5, 3), np.uint8)
PIXELS[:, :3] = [[[0, 51, 255], [10, 20, 30], [255, 0, 0]], [[1, 2, 3], [4, 5, 6], [7, 8, 9]]]


def png(pixels: np.ndarray, form: str = "PNG", **options: Any) -> BytesIO:
    file = BytesIO()
    Image.fromarray(pixels).save(file, form, **options)
    file.seek(0)
    return file


def spec(*dims: Any, dtype: str = "f32") -> TensorSpec:
    return TensorSpec("x", dtype, dims)


def read(pixels: np.ndarray, wanted: TensorSpec, **how: Any) -> np.ndarray:
    return pictures.read(png(pixels), wanted, Preparation(**how), "x=@p.png")[0]


def test_a_picture_is_divided_by_255_and_laid_out_as_the_input() -> None:
    first = read(PIXELS, spec(1, 3, 2, 5))
    assert first.dtype == np.float32 and first.shape == (1, 3, 2, 5) and first.flags.c_contiguous
    np.testing.assert_array_equal(first[0, :, 0, 0], np.float32([0, 51 / 255, 1]))
    np.testing.assert_array_equal(first[0, 2, :, :3], np.float32([[1, 30 / 255, 0], [3 / 255, 6 / 255, 9 / 255]]))
    np.testing.assert_array_equal(read(PIXELS, spec("N", 2, 5, 3)), first.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(read(PIXELS, spec(3, 2, "W")), first[0])


def test_mean_and_std_are_of_the_channels_in_the_models_order() -> None:
    means, deviations = (0.5, 0.25, 0.125), (0.5, 2.0, 4.0)
    red = read(PIXELS, spec(1, 3, 2, 5), mean=means, std=deviations)
    assert red[0, :, 0, 0] == pytest.approx([-1, (0.2 - 0.25) / 2, (1 - 0.125) / 4])
    blue = read(PIXELS, spec(1, 3, 2, 5), mean=means, std=deviations, bgr=True)
    assert blue[0, :, 0, 0] == pytest.approx([1, (0.2 - 0.25) / 2, (0 - 0.125) / 4])
    unscaled = read(PIXELS, spec(1, 3, 2, 5), scale=1.0, mean=(1.0,), std=(2.0,))
    assert unscaled[0, :, 0, 0].tolist() == [-0.5, 25, 127]


def test_integers_get_whole_pixels() -> None:
    np.testing.assert_array_equal(read(PIXELS, spec(1, 2, 5, 3, dtype="u8"))[0], PIXELS)
    centred = read(PIXELS, spec(1, 3, 2, 5, dtype="i8"), mean=(128.0,))
    assert centred.dtype == np.int8 and centred[0, :, 0, 0].tolist() == [-128, -77, 127]
    rounded = read(PIXELS, spec(1, 3, 2, 5, dtype="i32"), scale=0.1)
    assert rounded[0, :, 0, 1].tolist() == [1, 2, 3] and rounded[0, :, 1, 2].tolist() == [1, 1, 1]
    with pytest.raises(UsageError, match="out of range; expected uint8; found -1"):
        read(PIXELS, spec(1, 3, 2, 5, dtype="u8"), mean=(1.0,))


def test_channels_become_as_many_as_the_input_has() -> None:
    grey = np.array([[0, 51], [102, 255]], np.uint8)
    np.testing.assert_array_equal(read(grey, spec(1, 1, 2, 2))[0, 0], np.float32([[0, 0.2], [0.4, 1]]))
    np.testing.assert_array_equal(read(grey, spec(1, 3, 2, 2))[0, :, 0, 1], np.float32([0.2, 0.2, 0.2]))
    # ITU-R 601: 0.299 R + 0.587 G + 0.114 B
    assert read(PIXELS, spec(1, 1, 2, 5), scale=1.0)[0, 0, 0].tolist() == [59, 18, 76, 0, 0]
    transparent = np.array([[[1, 2, 3, 4]]], np.uint8)
    assert read(transparent, spec(1, 3, 1, 1), layout="nchw", scale=1.0).ravel().tolist() == [1, 2, 3]
    assert read(transparent, spec(1, 4, 1, 1), layout="nchw", scale=1.0).ravel().tolist() == [1, 2, 3, 4]


def columns(width: int) -> np.ndarray:
    """A picture of 2 rows whose pixels are ten times their column's number."""
    return np.tile(np.arange(width, dtype=np.uint8) * 10, (2, 1))


def test_crop_keeps_the_middle() -> None:
    assert read(columns(8), spec(1, 1, "H", "W"), crop=(2, 4), scale=1.0)[0, 0, 0].tolist() == [20, 30, 40, 50]
    assert read(columns(8), spec(1, 1, "H", "W"), crop=(1, 2), scale=1.0)[0, 0].tolist() == [[30, 40]]
    with pytest.raises(UsageError, match="smaller than what is to be kept; expected 9×2; found 8×2"):
        read(columns(8), spec(1, 1, "H", "W"), crop=(2, 9))


def test_resize_of_the_shorter_side_keeps_the_proportions_and_the_middle() -> None:
    flat = np.full((20, 50), 100, np.uint8)
    flat[:, 20:30] = 200
    assert read(flat, spec(1, 1, "H", "W"), resize=10).shape == (1, 1, 10, 10)  # the middle 10 of 25 columns
    half = read(flat, spec(1, 1, 10, 24), resize=10, scale=1.0)[0, 0]
    assert half.shape == (10, 24) and half[5, 12] == 200 and half[5, 2] == half[5, 20] == 100
    assert read(flat, spec(1, 1, 8, 8), resize=10, crop=(8, 8)).shape == (1, 1, 8, 8)
    assert read(flat.T.copy(), spec(1, 1, "H", "W"), resize=10, crop=(25, 10)).shape == (1, 1, 25, 10)


def test_resize_to_an_exact_size_averages_what_a_pixel_covers() -> None:
    quarters = np.array([[0, 0, 40, 40], [0, 0, 40, 40]], np.uint8)
    same = read(quarters, spec(1, 1, "H", "W"), resize=(2, 4), scale=1.0)[0, 0]
    np.testing.assert_array_equal(same, quarters)
    # the triangle of a pixel twice as wide weighs columns 0…3 by 3, 3, 1 and 0 sevenths
    assert read(quarters, spec(1, 1, "H", "W"), resize=(1, 2), scale=1.0)[0, 0].tolist() == [[6, 34]]


def test_a_turned_photograph_is_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90° clockwise
    file = png(np.full((4, 8), 9, np.uint8), "JPEG", exif=exif)
    assert pictures.read(file, spec(1, 1, "H", "W"), Preparation(), "x")[0].shape == (1, 1, 8, 4)


def test_jpeg_is_read() -> None:
    file = png(np.full((8, 8, 3), 128, np.uint8), "JPEG")
    array, done = pictures.read(file, spec(1, 3, 8, 8), Preparation(scale=1.0), "x")
    assert np.abs(array - 128).max() <= 1
    assert done == "8×8 pixels, RGB, ×1, nchw"


@pytest.mark.parametrize(("wanted", "how", "said"), [
    (spec(1, 3, 8, 8), {}, r"does not fit the input; expected 8×8 pixels; found 5×2; give --resize 8"),
    (spec(1, 3, 8, 6), {}, r"give --resize 8x6"),
    (spec(1, 3, 8, 8), {"resize": (8, 9)}, r"expected 8×8 pixels; found 9×8"),
    (spec(1, 3, 2, 5), {"mean": (1.0, 2.0)}, r"--mean: not a number for each channel; expected 1 or 3"),
    (spec(1, 3, 2, 5), {"std": (1.0, 0.0, 1.0)}, r"--std: division by 0"),
    (spec("N", "C", "H", "W"), {}, r"not clear; give --layout nchw or --layout nhwc"),
    (spec(1, 3, 2, 3), {}, r"not clear"),
    (spec(1, 3, 4, 6), {"layout": "nhwc"}, r"no picture has so many channels; expected 1, 3 or 4; found 6"),
    (spec(1, 9), {}, r"not an input for a picture; expected 3 or 4 dimensions"),
])  # fmt: skip
def test_what_does_not_fit_is_said_with_the_way_out(wanted: TensorSpec, how: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(PIXELS, wanted, **how)


def test_an_unknown_rank_is_four() -> None:
    assert read(PIXELS, TensorSpec("x", "f32", None), layout="nchw").shape == (1, 3, 2, 5)


def test_deep_damaged_and_huge_pictures_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="more than 8 bits a channel"):
        read(np.full((2, 2), 40000, np.uint16), spec(1, 1, 2, 2))
    whole = png(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).getvalue()
    for damaged in (whole[:100], whole[:3000], whole[:60] + bytes(60) + whole[120:]):
        with pytest.raises(ParaxError, match="not a PNG or JPEG picture, or a damaged one"):
            pictures.read(BytesIO(damaged), spec(1, 3, 64, 64), Preparation(), "x")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ResourceLimit, match="too many pixels"):
        pictures.read(BytesIO(whole), spec(1, 3, 64, 64), Preparation(), "x")


def test_the_flags(tmp_path: Path) -> None:
    import argparse

    parser = argparse.ArgumentParser(exit_on_error=False)
    pictures.add_arguments(parser)
    assert pictures.preparation(parser.parse_args([])) == Preparation()
    words = "--resize 256 --crop 224 --scale 0.5 --bgr --mean 1,2,3 --std 4 --layout nhwc"
    found = pictures.preparation(parser.parse_args(words.split()))
    assert found == Preparation(256, (224, 224), 0.5, True, (1.0, 2.0, 3.0), (4.0,), "nhwc")
    assert parser.parse_args(["--resize", "240x320"]).resize == (240, 320)
    for wrong in (["--resize", "0"], ["--crop", "1x2x3"], ["--mean", "1,"], ["--std", "nan"], ["--scale", "1,2"]):
        with pytest.raises(argparse.ArgumentError, match="expected"):
            parser.parse_args(wrong)
