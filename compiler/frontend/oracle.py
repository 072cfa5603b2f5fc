"""Other implementations of ONNX, asked for the right answer: ONNX Runtime, without optimisations but where these are
asked for, or onnx.reference.

Knows how to load a model into them and run it; knows nothing of parax's IR or plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx

from ...errors import UsageError
from .other_side import other_side
from .parse import InFolder, Settled, Source, settled

KINDS = ("onnxruntime", "reference")
Oracle = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def best_kind() -> str:
    """ONNX Runtime where it is installed, else onnx.reference, which is always there."""
    return "onnxruntime" if find_spec("onnxruntime") else "reference"


def oracle(model: Source, kind: str, *, optimised: bool = False) -> Oracle:
    """A function from inputs by name to outputs by name; it raises UnsupportedOp where the other side fails.

    Args:
        optimised: ONNX Runtime as it runs by default, with all that it fuses and folds.

    Raises:
        UsageError: the package is not installed.
        UnsupportedOp: it cannot load this model.
    """
    source = _whole(settled(model))
    return _reference(source) if kind == "reference" else _onnxruntime(source, optimised)


def _whole(model: Settled) -> Path | bytes | onnx.ModelProto:
    """The model with its external data inside, where that lies in a folder that only parax has been told."""
    if not isinstance(model, InFolder):
        return model
    proto = onnx.ModelProto()
    if isinstance(model.model, onnx.ModelProto):
        proto.CopyFrom(model.model)
    else:
        proto.ParseFromString(model.model if isinstance(model.model, bytes) else model.model.read_bytes())
    onnx.load_external_data_for_model(proto, str(model.folder))
    return proto


def _onnxruntime(model: Path | bytes | onnx.ModelProto, optimised: bool) -> Oracle:
    try:
        import onnxruntime as ort  # optional: the extra "test" or "bench"
    except ImportError as error:
        raise UsageError("onnxruntime is not installed", hint="or --against reference") from error
    options = ort.SessionOptions()
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    hint = "try --against reference"
    with other_side("onnxruntime", hint):
        session = ort.InferenceSession(
            source if isinstance(source, bytes) else str(source), options, providers=["CPUExecutionProvider"]
        )
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        with other_side("onnxruntime", hint):
            return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    return run


def _reference(model: Path | bytes | onnx.ModelProto) -> Oracle:
    from onnx.reference import ReferenceEvaluator  # brings in hundreds of modules: only for who verifies

    with other_side("onnx.reference"):
        evaluator = ReferenceEvaluator(str(model) if isinstance(model, Path) else model)
    names = list(evaluator.output_names)

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        with other_side("onnx.reference"):
            return dict(zip(names, evaluator.run(None, dict(inputs)), strict=True))

    return run
