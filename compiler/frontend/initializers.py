"""A model's file with other contents of some initializers: graph, names and everything else as they were."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from ...errors import ResourceLimit, UsageError
from ...files import write_whole
from .parse import InFolder, Settled

MOST_NBYTES = 1 << 31  # protobuf's limit on one message
_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def with_initializers(source: Settled, arrays: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model of `source` with these contents, which the types of its initializers hold.

    Raises:
        UsageError: an array that the model has no initializer for.
    """
    model = whole(source)
    left = set(arrays)
    for tensor in model.graph.initializer:
        if tensor.name in left:
            left.remove(tensor.name)
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(arrays[tensor.name]), tensor.name))
    if left:
        raise UsageError("the model has no such initializer", found=", ".join(sorted(left))[:200])
    return model


def write_model(model: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    """Write a model, whole or not at all.

    Raises:
        UsageError: the file cannot be written. ResourceLimit: the model would be larger than a protobuf may be.
    """
    if model.ByteSize() >= MOST_NBYTES:
        raise ResourceLimit("the trained model is too large for one file", expected=f"below {MOST_NBYTES} bytes",
                            found=model.ByteSize())  # fmt: skip
    write_whole(Path(path), model.SerializeToString())


def weights_of(source: Settled) -> dict[str, np.ndarray]:
    """Contents of the initializers that may be weights, by name: of floats, with an axis."""
    tensors = (tensor for tensor in whole(source).graph.initializer if tensor.data_type in _FLOATS and tensor.dims)
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in tensors}


def whole(source: Settled) -> onnx.ModelProto:
    """The protobuf with all its tensors, those of other files too, for the caller to change."""
    if isinstance(source, InFolder):
        model = whole(source.model)
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
