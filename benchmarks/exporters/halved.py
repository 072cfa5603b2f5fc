"""Models of the list in f16, as onnxconverter-common makes them of what torch's exporter wrote; their ends stay f32."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path

import onnx

from . import listed
from .sources import Traced, Written
from .torch_export import export

SUFFIX = "-half"
OF = ("yolo", "convnext", "efficientnet", "bert", "gpt2-past", "whisper-encoder")


def _halved(name: str) -> Written:
    from onnxconverter_common import float16

    source = listed.build(name)
    assert isinstance(source, Traced)
    folder = Path(tempfile.mkdtemp(prefix="parax-halved-"))
    written = export(source, "torchscript", folder / "model.onnx")
    halved = float16.convert_float_to_float16(onnx.load(written.path), keep_io_types=True)
    written.path.write_bytes(halved.SerializeToString())
    tool = f"onnxconverter-common {version('onnxconverter-common')}"
    return Written(written.path, f"{tool}, {written.exporter}", written.feeds)


MODELS: Mapping[str, Callable[[], Written]] = {name + SUFFIX: partial(_halved, name) for name in OF}
