"""Folders of images: a folder a class, in the order of their names. Pillow decodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ....errors import InvalidData, UsageError
from .dataset import Batch, Specs
from .files import existing

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", ".gif")
MOST_PIXELS = 1 << 26
"""Of an image; a small file may promise any number."""
MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def pillow() -> Any:
    """Pillow's `Image` module. Raises UsageError where it is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError("images need Pillow", hint="pip install 'parax[data]'") from error
    return Image


class ImageFolder:
    """input u8[channels, H, W] and label i64: all images resized to one size, as they are decoded.

    Attributes:
        classes: names of the folders; a label is an index. paths: of the images. labels: i64[images].

    Raises:
        UsageError: no folder, no Pillow, wrong sizes. InvalidData: no class, or a class without an image.
    """

    def __init__(self, folder: Path | str, size: tuple[int, int], channels: int = 3) -> None:
        self._image = pillow()
        if min(size) < 1 or size[0] * size[1] > MOST_PIXELS or channels not in MODES:
            raise UsageError("no such images", found=f"{channels} channels of {list(size)}",
                             expected=f"{sorted(MODES)} channels, at most {MOST_PIXELS} pixels")  # fmt: skip
        self.size, self.channels = size, channels
        folders = sorted(path for path in existing(folder, "folder").iterdir() if path.is_dir())
        by_class = [sorted(p for p in own.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file()) for own in folders]
        if not folders:
            raise InvalidData("an empty data set", where=str(folder), expected="a folder for each class", found="none")
        for own, paths in zip(folders, by_class):
            if not paths:
                raise InvalidData("a class without an image", where=str(own), found="none",
                                  expected=f"files that end in {', '.join(ENDINGS)}")  # fmt: skip
        self.classes = [own.name for own in folders]
        self.paths = [path for paths in by_class for path in paths]
        self.labels = np.repeat(np.arange(len(folders)), [len(paths) for paths in by_class])

    @property
    def specs(self) -> Specs:
        return {"input": ((self.channels, *self.size), np.dtype(np.uint8)), "label": ((), np.dtype(np.int64))}

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, indices: np.ndarray) -> Batch:
        images = np.empty((len(indices), self.channels, *self.size), np.uint8)
        for row, index in enumerate(indices):
            images[row] = self._decoded(self.paths[index])
        return {"input": images, "label": self.labels[indices]}

    def _decoded(self, path: Path) -> np.ndarray:
        """u8[channels, H, W]. Raises InvalidData where Pillow cannot read it or it is too large."""
        height, width = self.size
        try:
            with self._image.open(path) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise InvalidData("an image that is too large", where=str(path), found=list(image.size),
                                      expected=f"at most {MOST_PIXELS} pixels")  # fmt: skip
                image.draft(MODES[self.channels], (width, height))  # JPEG is decoded no larger than needed
                fitting = image.convert(MODES[self.channels])
                if fitting.size != (width, height):
                    fitting = fitting.resize((width, height), self._image.Resampling.BILINEAR)
                values = np.asarray(fitting)
        except (OSError, SyntaxError, ValueError, self._image.DecompressionBombError) as error:
            raise InvalidData("an unreadable image", where=str(path), found=error, expected="a whole image",
                              hint="remove it or write it anew") from error  # fmt: skip
        return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)
