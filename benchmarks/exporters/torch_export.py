"""Torch's two exporters: by TorchScript (tracing, or scripting) and by torch.export ("dynamo").

Owns how they are called; knows nothing of single models.
"""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .sources import Feeds, Traced, Written

OPSET = 18
"""Of both exporters: the default of the one by torch.export."""


def export(source: Traced, exporter: str, path: Path, seed: int = 0) -> Written:
    """Write the model; its feeds are random inputs like the examples, whose integers and bools are kept.

    Args:
        exporter: of `listed.EXPORTERS`.
    """
    import torch

    module = torch.jit.script(source.module) if source.scripted and exporter == "torchscript" else source.module
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        options: dict[str, Any] = {"input_names": list(source.inputs), "output_names": list(source.outputs)}
        if exporter == "dynamo":
            _by_dynamo(module, source, path, options)
        else:
            axes = {name: dict(axes) for name, axes in source.open.items()}
            torch.onnx.export(module, tuple(source.inputs.values()), str(path), dynamo=False, opset_version=OPSET,
                              dynamic_axes=axes, **options)  # fmt: skip
    return Written(path, f"torch {torch.__version__.split('+')[0]}, {exporter}", feeds(source, seed))


def _by_dynamo(module: Any, source: Traced, path: Path, options: dict[str, Any]) -> None:
    import torch

    shapes: list[Any] = [{axis: torch.export.Dim.DYNAMIC for axis in source.open.get(name, {})}
                         for name in source.inputs]  # fmt: skip
    taken = list(inspect.signature(module.forward).parameters.values())
    if taken[-1].kind is inspect.Parameter.VAR_POSITIONAL:
        shapes[len(taken) - 1 :] = [tuple(shapes[len(taken) - 1 :])]
    torch.onnx.export(module, tuple(source.inputs.values()), str(path), dynamo=True, opset_version=OPSET,
                      dynamic_shapes=tuple(shapes) if source.open else None, external_data=False, verbose=False,
                      **options)  # fmt: skip


def feeds(source: Traced, seed: int) -> Feeds:
    """Inputs to compare on: random ones of the example's sizes, twice, and of others where some are open."""
    rng = np.random.default_rng(seed)
    examples = [source.inputs, source.inputs, *([source.resized] if source.resized else [])]
    return [{name: _like(value.numpy(), rng) for name, value in example.items()} for example in examples]


def _like(example: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Numbers of an example's mean and spread; integers and bools are choices, and stay."""
    if example.dtype.kind != "f":
        return example
    return (example.mean() + example.std() * rng.standard_normal(example.shape)).astype(example.dtype)
