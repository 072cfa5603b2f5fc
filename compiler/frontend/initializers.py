"""A model's file with other contents of some initializers: graph, names and everything else as they were."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from ...errors import ResourceLimit, UsageError
from ...files import write_whole
from .parse import InFolder, Settled

MOST_NBYTES = 1 << 31  # protobuf's limit on one message


def with_initializers(source: Settled, arrays: Mapping[str, np.ndarray], path: str | os.PathLike[str]) -> None:
    """Write the model of `source` to `path` with these contents, whole or not at all.

    Raises:
        UsageError: an array that the model has no initializer for; the file cannot be written.
        ResourceLimit: the model would be larger than a protobuf may be.
    """
    model = _whole(source)
    left = set(arrays)
    for tensor in model.graph.initializer:
        if tensor.name in left:
            left.remove(tensor.name)
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(arrays[tensor.name]), tensor.name))
    if left:
        raise UsageError("the model has no such initializer", found=", ".join(sorted(left))[:200])
    if model.ByteSize() >= MOST_NBYTES:
        raise ResourceLimit("the trained model is too large for one file", expected=f"below {MOST_NBYTES} bytes",
                            found=model.ByteSize())  # fmt: skip
    write_whole(Path(path), model.SerializeToString())


def _whole(source: Settled) -> onnx.ModelProto:
    """The protobuf with all its tensors, those of other files too; the source was imported before."""
    if isinstance(source, InFolder):
        model = _whole(source.model)
        onnx.load_external_data_for_model(model, str(source.folder))
        return model
    if isinstance(source, Path):
        return onnx.load(source)
    model = onnx.ModelProto()
    if isinstance(source, bytes):
        model.ParseFromString(source)
    else:
        model.CopyFrom(source)
    return model
