"""What the matrix runs: the project's model list and a folder of real models, each with its inputs and right answers.

Owns where models and inputs come from; knows nothing of how parax compiles or runs them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from examples.models import MODELS, build, feeds
from parax import env
from parax.files import write_whole

ROOT = Path(__file__).parents[1]
RTOL, ATOL = 1e-3, 1e-4
QUICK_MILLISECONDS = 50.0
"""Real models that take ONNX Runtime longer on one thread are left out of the quick part."""


@dataclass(frozen=True)
class Run:
    """One set of inputs; `expected` is None where ONNX Runtime is to be asked."""

    label: str
    inputs: dict[str, np.ndarray]
    expected: dict[str, np.ndarray] | None


@dataclass(frozen=True)
class Case:
    """One model with its runs.

    Attributes:
        name: listed/NAME or shared/SOURCE/NAME.
        classifies: the first output's largest entry per row must be the reference's too.
    """

    name: str
    path: Path
    runs: tuple[Run, ...]
    classifies: bool = False
    rtol: float = RTOL
    atol: float = ATOL


def models_folder() -> Path | None:
    """PARAX_MODELS, else ../shared/models beside the repository, if it is there."""
    folder = env.read("PARAX_MODELS") or ROOT.parent / "shared" / "models"
    return folder if folder.is_dir() else None


def case_names(folder: Path | None, *, quick: bool = False) -> list[str]:
    """Names of all cases: the model list, then the models of the folder; the quick part leaves out slow ones."""
    names = [f"listed/{name}" for name in MODELS]
    if folder is None:
        return names
    index = json.loads((folder / "index.json").read_text()) if (folder / "index.json").is_file() else {}
    for path in sorted(folder.glob("*/*/model.onnx")):
        name = path.parent.relative_to(folder).as_posix()
        if not quick or index.get(name, {}).get("ort_ms_1thread", 0.0) <= QUICK_MILLISECONDS:
            names.append(f"shared/{name}")
    return names


def open_case(name: str, *, small: bool, batches: Sequence[int], folder: Path | None, work: Path) -> Case:
    """The case of that name.

    Args:
        small: the small edition of a listed model.
        batches: batch sizes to run (a real model with a fixed batch runs its own data only).
        folder: of the real models.
        work: folder to write a listed model to.

    Raises:
        KeyError: no case has that name.
    """
    group, _, rest = name.partition("/")
    if group == "listed":
        return _listed(name, rest, small, batches, work)
    if group == "shared" and folder is not None and (folder / rest / "model.onnx").is_file():
        return _shared(name, folder / rest, batches)
    raise KeyError(name)


def model_file(name: str, folder: Path, small: bool = False) -> Path:
    """The file of a listed model in the folder, built there if it is missing."""
    path = folder / f"{name}{'-small' if small else ''}.onnx"
    if not path.exists():
        write_whole(path, build(name, small=small).SerializeToString())
    return path


def _listed(name: str, model: str, small: bool, batches: Sequence[int], work: Path) -> Case:
    path = model_file(model, work, small)
    runs = tuple(Run(f"N={batch}", feeds(model, batch, seed=batch, small=small), None) for batch in batches)
    return Case(name, path, runs, MODELS[model].classifies)


def _shared(name: str, folder: Path, batches: Sequence[int]) -> Case:
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    tolerances = {"rtol": RTOL, "atol": ATOL}
    if (folder / "data.json").is_file():
        own = json.loads((folder / "data.json").read_text())
        tolerances = {key: max(value, own.get(key, 0.0)) for key, value in tolerances.items()}
    weights = {weight.name for weight in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    runs = [_stored(path, inputs, model.graph.output) for path in sorted(folder.glob("test_data_set_*"))]
    runs += _at_batches(runs[0].inputs, inputs, batches) if runs else []
    return Case(name, folder / "model.onnx", tuple(runs), rtol=tolerances["rtol"], atol=tolerances["atol"])


def _stored(path: Path, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]) -> Run:
    given, expected = dict(_tensors(path, "input", inputs)), dict(_tensors(path, "output", outputs))
    return Run(path.name.replace("test_data_set_", "data "), given, expected)


def _tensors(path: Path, role: str, values: Sequence[onnx.ValueInfoProto]) -> Iterator[tuple[str, np.ndarray]]:
    for i, value in enumerate(values):
        file = path / f"{role}_{i}.pb"
        if file.is_file():
            yield value.name, numpy_helper.to_array(onnx.TensorProto.FromString(file.read_bytes()))


def _at_batches(
    given: dict[str, np.ndarray], inputs: Sequence[onnx.ValueInfoProto], batches: Sequence[int]
) -> Iterator[Run]:
    """The stored inputs with their rows repeated or cut to each batch size, if the batch is a named symbol.

    The symbol is the first dimension of the first input; it may sit on other axes of the others (recurrent states).
    """
    shapes = {value.name: [dim.dim_param for dim in value.type.tensor_type.shape.dim] for value in inputs}
    symbol = next(iter(shapes.values()), [""])[:1]
    if not symbol or not re.fullmatch(r"\w+", symbol[0]):
        return
    for batch in batches:
        resized = dict(given)
        for name, array in given.items():
            for axis, size in enumerate(shapes[name]):
                if size == symbol[0]:
                    resized[name] = np.take(resized[name], np.arange(batch) % array.shape[axis], axis=axis)
        yield Run(f"N={batch}", resized, None)
