"""A PNG or JPEG picture as an input: decoded, resized, cropped, scaled and laid out as the command line says.

Owns the order and the meaning of these steps; decoding and resampling are Pillow's, which only pictures need.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from ...errors import ResourceLimit, UsageError

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

    from ...runtime.manifest import TensorSpec

MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # channels → what Pillow calls such a picture
WITHOUT_PILLOW = "pip install 'parax[images]', or pip install pillow"
Extent = tuple[int, int]
"""(height, width) in pixels"""


@dataclass(frozen=True)
class Preparation:
    """What is done to a picture, in this order. What is None is not asked for.

    Attributes:
        resize: the shorter side, in pixels, or (height, width).
        crop: (height, width) of the middle that is kept.
        scale: what values in 0..255 are multiplied by; None divides by 255 where the input is of floats.
        bgr: channels in reverse.
        mean, std: subtracted and divided by, one for each channel as the model gets them, or one for all.
        layout: nchw or nhwc; None: where the input's shape has 1, 3 or 4.
    """

    resize: int | Extent | None = None
    crop: Extent | None = None
    scale: float | None = None
    bgr: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    layout: str | None = None


def extent(text: str) -> Extent:
    """`224` or `240x320`, height first."""
    sides = text.split("x") if re.fullmatch(r"[1-9]\d{0,5}(x[1-9]\d{0,5})?", text) else []
    if not sides:
        raise argparse.ArgumentTypeError(f"expected 224 or 240x320, found {text!r}")
    return int(sides[0]), int(sides[-1])


def new_size(text: str) -> int | Extent:
    """`224`, the shorter side, or `240x320`, height first."""
    height, width = extent(text)
    return (height, width) if "x" in text else height


def numbers(text: str) -> tuple[float, ...]:
    """`0.485,0.456,0.406`."""
    try:
        found = tuple(float(word) for word in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(map(math.isfinite, found)):
        raise argparse.ArgumentTypeError(f"expected numbers like 0.485,0.456,0.406, found {text!r}")
    return found


def factor(text: str) -> float:
    """One number."""
    (found, *others) = numbers(text)
    if others:
        raise argparse.ArgumentTypeError(f"expected one number, found {text!r}")
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is done to pictures among the inputs."""
    group = parser.add_argument_group("pictures (PNG and JPEG inputs), in the order in which it is done")
    group.add_argument("--resize", type=new_size, metavar="N|HxW", help="N: the shorter side becomes N pixels, and the "
                       "middle that fits the input, else N×N, is kept; HxW: exactly so high and wide")  # fmt: skip
    group.add_argument("--crop", type=extent, metavar="N|HxW", help="keep so much of the middle")
    group.add_argument("--scale", type=factor, metavar="S", help="multiply values, which are 0..255, by S "
                       "(default 1/255 where the input is of floats, else 1)")  # fmt: skip
    group.add_argument("--bgr", action="store_true", help="blue, green, red instead of red, green, blue")
    group.add_argument("--mean", type=numbers, metavar="A,B,C", help="subtract, a number for each channel, or one")
    group.add_argument("--std", type=numbers, metavar="A,B,C", help="divide by, a number for each channel, or one")
    group.add_argument("--layout", choices=("nchw", "nhwc"),
                       help="where the channels go (default: where the input's shape has 1, 3 or 4)")  # fmt: skip


def preparation(args: argparse.Namespace) -> Preparation:
    """The flags of `add_arguments`."""
    return Preparation(args.resize, args.crop, args.scale, args.bgr, args.mean, args.std, args.layout)


def read(file: BinaryIO, spec: TensorSpec, how: Preparation, where: str) -> tuple[np.ndarray, str]:
    """The picture as a tensor of one row, of the input's type, and in words what was done to it.

    Raises:
        UsageError: no picture, one that cannot become such an input, or Pillow is not installed.
        ResourceLimit: more pixels than Pillow takes for harmless.
    """
    import numpy as np

    from .casting import fitted

    form = _Form.of(spec, how)
    picture = _decoded(file, MODES[form.channels], where)
    done = [f"{picture.width}×{picture.height} pixels, {'grey' if form.channels == 1 else picture.mode}"]
    picture = _sized(picture, form, how, where, done)
    pixels = np.asarray(picture).reshape(picture.height, picture.width, form.channels)
    values = _valued(pixels, spec.numpy.kind in "iu", how, where, done)
    if form.channels_first:
        values = values.transpose(2, 0, 1)
    values = values.reshape((1,) * (form.rank - 3) + values.shape)
    if spec.numpy.kind in "iu":
        values = np.rint(values)
    return fitted(np.ascontiguousarray(values), spec, where), ", ".join([*done, form.layout])


@dataclass(frozen=True)
class _Form:
    """How the input holds a picture: its rank, where the channels are and how many, and the fixed height and width."""

    rank: int
    channels_first: bool
    channels: int
    height: int | None
    width: int | None

    @property
    def layout(self) -> str:
        return ("nchw" if self.channels_first else "nhwc")[4 - self.rank :]

    @classmethod
    def of(cls, spec: TensorSpec, how: Preparation) -> _Form:
        dims: Sequence[Any] = spec.dims if spec.dims is not None else ("?",) * 4
        if len(dims) not in (3, 4):
            raise UsageError("not an input for a picture", where=str(spec), expected="3 or 4 dimensions")
        sizes = [dim if isinstance(dim, int) else None for dim in dims[-3:]]
        likely = [name for name, axis in (("nchw", 0), ("nhwc", 2)) if sizes[axis] in MODES]
        if how.layout is None and len(likely) != 1:
            raise UsageError("which dimension has the channels is not clear", where=str(spec),
                             hint="give --layout nchw or --layout nhwc")  # fmt: skip
        first = (how.layout or likely[0]) == "nchw"
        channels, height, width = sizes if first else [sizes[2], *sizes[:2]]
        if channels is not None and channels not in MODES:
            raise UsageError("no picture has so many channels", where=str(spec), expected="1, 3 or 4", found=channels)
        return cls(len(dims), first, channels or 3, height, width)


def _decoded(file: BinaryIO, mode: str, where: str) -> Image:
    """The picture, upright, in so many channels."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise UsageError("pictures need Pillow", where=where, hint=WITHOUT_PILLOW) from error
    try:
        picture = Image.open(file, formats=("PNG", "JPEG"))
        picture.load()
        upright = ImageOps.exif_transpose(picture)
    except Image.DecompressionBombError as error:
        raise ResourceLimit("the picture has too many pixels", where=where, found=str(error)) from error
    except (OSError, ValueError, SyntaxError) as error:  # SyntaxError: what Pillow calls a damaged PNG
        raise UsageError("not a PNG or JPEG picture, or a damaged one", where=where, found=str(error)) from error
    if upright.mode[0] in "IF":  # Pillow would cut off what is above 255
        hint = "save it with 8 bits a channel, or give a .npy file"
        raise UsageError("more than 8 bits a channel", where=where, found=upright.mode, hint=hint)
    return upright.convert(mode)


def _sized(picture: Image, form: _Form, how: Preparation, where: str, done: list[str]) -> Image:
    """Resized and cropped, to what the input takes."""
    crop = how.crop
    if how.resize is not None:
        height, width = how.resize if isinstance(how.resize, tuple) else _in_proportion(picture, how.resize)
        picture = picture.resize((width, height), 2)  # 2: bilinear, over all that a smaller pixel covers
        done.append(f"resized to {width}×{height}")
        if isinstance(how.resize, int) and crop is None:
            crop = (form.height or how.resize, form.width or how.resize)
    if crop is not None and crop != (picture.height, picture.width):
        if crop[0] > picture.height or crop[1] > picture.width:
            found = f"{picture.width}×{picture.height}"
            raise UsageError("the picture is smaller than what is to be kept", where=where, found=found,
                             expected=f"{crop[1]}×{crop[0]}", hint="give a larger --resize")  # fmt: skip
        top, left = round((picture.height - crop[0]) / 2), round((picture.width - crop[1]) / 2)
        picture = picture.crop((left, top, left + crop[1], top + crop[0]))
        done.append(f"the middle {crop[1]}×{crop[0]}")
    wanted = (form.height or picture.height, form.width or picture.width)
    if wanted != (picture.height, picture.width):
        resize = wanted[0] if wanted[0] == wanted[1] else f"{wanted[0]}x{wanted[1]}"
        raise UsageError("the picture does not fit the input", where=where, expected=f"{wanted[1]}×{wanted[0]} pixels",
                         found=f"{picture.width}×{picture.height}", hint=f"give --resize {resize}")  # fmt: skip
    return picture


def _in_proportion(picture: Image, shorter: int) -> Extent:
    """(height, width) of the picture when its shorter side is `shorter`; the longer one is rounded down."""
    least = min(picture.size)
    return shorter * picture.height // least, shorter * picture.width // least


def _valued(pixels: np.ndarray, whole: bool, how: Preparation, where: str, done: list[str]) -> np.ndarray:
    """The pixels u8[H,W,C] scaled and normalised, in f32."""
    import numpy as np

    values = pixels.astype(np.float32)
    if how.bgr:
        values = values[..., ::-1]
        done.append("BGR")
    if how.scale is not None:
        values = values * np.float32(how.scale)
        done.append(f"×{how.scale:g}")
    elif not whole:
        values = values / np.float32(255)
        done.append("÷255")
    for flag, given in (("--mean", how.mean), ("--std", how.std)):
        if given is None:
            continue
        if len(given) not in (1, pixels.shape[2]):
            expected = f"1 or {pixels.shape[2]} numbers"
            raise UsageError("not a number for each channel", where=f"{where}, {flag}", expected=expected, found=given)
        if flag == "--std" and not all(given):
            raise UsageError("division by 0", where=flag, found=given)
        each = np.asarray(given, np.float32)
        values = values - each if flag == "--mean" else values / each
        done.append(f"{'−' if flag == '--mean' else '÷'}{','.join(f'{number:g}' for number in given)}")
    return values
