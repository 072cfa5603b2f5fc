"""The cases of ONNX's own backend suite, and what each side makes of one; a child of `benchmarks.suite`.

`python -m benchmarks.suite_sides INDEX COUNT DONE` runs the cases number INDEX, INDEX + COUNT, … of those that come
with the package on every side, leaves out the first DONE of these pairs, and prints a JSON object a line: one before a
pair (so that a crash is known by its absence of a second), one after it.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner, _normalize_tensor

import parax
from parax.errors import ParaxError, UnsupportedOp

from .children import Record

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
"""Those whose models and data come with the package; `real` ones are downloaded."""
MOST_REASON = 160
"""Characters of an error that are kept."""
BYTES_APART = {
    "bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e4m3fnuz": np.uint8, "float8_e5m2": np.uint8,
    "float8_e5m2fnuz": np.uint8,
}  # fmt: skip
"""Element types that ONNX Runtime's Python takes as bytes only."""

DRAWN = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"})  # fmt: skip
"""Operators of whose results only types and shapes can be expected: NumPy drew those of the suite."""

Run = Callable[[list[Any]], list[Any]]


class Refused(Exception):
    """A side says that it does not implement something of the model.

    Attributes:
        operators: those, where it says which.
    """

    def __init__(self, reason: str, operators: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.operators = operators


@dataclass(frozen=True)
class Case:
    """One model with inputs and the outputs that the suite expects, and how far results may be from these."""

    kind: str
    name: str
    model: onnx.ModelProto
    data: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float

    @property
    def is_drawn(self) -> bool:
        """Whether random numbers go into the results."""
        nodes = [*self.model.graph.node, *(node for f in self.model.functions for node in f.node)]
        return any(node.op_type in DRAWN or (node.op_type == "Dropout" and len(node.input) > 2) for node in nodes)


def cases() -> Iterator[Case]:
    """All, in the order of their names within each kind."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # the suite computes its references on the way
        for kind in KINDS:
            for test in sorted(load_model_tests(kind=kind), key=lambda t: t.name):
                if test.model is not None:
                    data = [([_normalize_tensor(x) for x in xs], [_normalize_tensor(y) for y in ys])
                            for xs, ys in test.data_sets or []]
                    yield Case(kind, test.name, test.model, data, test.rtol, test.atol)
                else:
                    model = onnx.load(Path(test.model_dir) / "model.onnx")
                    yield Case(kind, test.name, model, _read_data(model, Path(test.model_dir)), test.rtol, test.atol)


def _read_data(model: onnx.ModelProto, folder: Path) -> list[tuple[list[Any], list[Any]]]:
    return [
        tuple([_read(path / f"{what}_{i}.pb", spec.type) for i, spec in enumerate(specs)
               if (path / f"{what}_{i}.pb").exists()] for what, specs in (("input", model.graph.input),
                                                                         ("output", model.graph.output)))
        for path in sorted(folder.glob("test_data_set_*"))
    ]  # type: ignore[misc]


def _read(path: Path, kind: onnx.TypeProto) -> Any:
    message, read = {
        "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
    }.get(str(kind.WhichOneof("value")), (onnx.TensorProto, numpy_helper.to_array))
    return read(message.FromString(path.read_bytes()))  # type: ignore[arg-type]


def with_parax(model: onnx.ModelProto) -> Run:
    """Compiled at the default level for this machine, run through the standard interface."""
    try:
        prepared = parax.onnx_backend.prepare(model)
    except UnsupportedOp as error:
        raise Refused(str(error), tuple(use.operator for use in error.uses)) from error
    return lambda inputs: list(prepared.run(inputs))


def with_onnxruntime(model: onnx.ModelProto) -> Run:
    """One thread, as it comes."""
    import onnxruntime
    from onnxruntime import OrtValue

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Refused(str(error)) from error

    def taken(x: Any, spec: onnx.ValueInfoProto) -> Any:
        x = np.asarray(x) if isinstance(x, np.generic) else x  # the suite's scalars
        bits = BYTES_APART.get(x.dtype.name) if isinstance(x, np.ndarray) else None
        if bits is None:
            return x
        return OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(bits), spec.type.tensor_type.elem_type)

    def run(inputs: list[Any]) -> list[Any]:
        specs = model.graph.input
        feeds = {spec.name: taken(x, spec) for x, spec in zip(inputs, specs)}
        if not any(isinstance(x, OrtValue) for x in feeds.values()):
            return list(session.run(None, feeds))
        values = {n: x if isinstance(x, OrtValue) else OrtValue.ortvalue_from_numpy(x) for n, x in feeds.items()}
        return [value.numpy() for value in session.run_with_ort_values(None, values)]

    return run


def with_reference(model: onnx.ModelProto) -> Run:
    """ONNX's own evaluator."""
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(model)
    except Exception as error:
        raise Refused(str(error)) from error
    return lambda inputs: list(evaluator.run(None, dict(zip([spec.name for spec in model.graph.input], inputs))))


SIDES: dict[str, Callable[[onnx.ModelProto], Run]] = {
    "parax": with_parax, "onnxruntime": with_onnxruntime, "onnx.reference": with_reference,
}  # fmt: skip


def outcome(case: Case, side: Callable[[onnx.ModelProto], Run]) -> Record:
    """`pass`, `refused` (says that it does not implement it), `wrong` (other results) or `failed` (another error)."""
    try:
        run = side(case.model)
        for inputs, expected in case.data:
            found = run(inputs)
            try:
                compared = _without_numbers if case.is_drawn else list
                Runner.assert_similar_outputs(compared(expected), compared(found), case.rtol, case.atol)
            except Exception as error:  # types that cannot be compared are other types
                return {"status": "wrong", "reason": _first_words(error)}
    except Refused as error:
        return {"status": "refused", "reason": _first_words(error), "operators": sorted(set(error.operators))}
    except NotImplementedError as error:
        return {"status": "refused", "reason": _first_words(error), "operators": []}
    except (Exception, ParaxError) as error:
        return {"status": "failed", "reason": f"{type(error).__name__}: {_first_words(error)}"}
    return {"status": "pass"}


def _without_numbers(arrays: list[Any]) -> list[Any]:
    return [np.zeros_like(a) for a in arrays]


def _first_words(error: BaseException) -> str:
    return " ".join(str(error).split())[:MOST_REASON]


def main(index: int, count: int, done: int) -> None:
    """A child's work."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no record
    pairs = ((case, side) for n, case in enumerate(cases()) if n % count == index for side in SIDES)
    for number, (case, side) in enumerate(pairs):
        if number < done:
            continue
        key = {"kind": case.kind, "name": case.name, "side": side}
        for record in (lambda: key, lambda: key | outcome(case, SIDES[side])):  # noqa: B023 - called at once
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                print(json.dumps(record()), file=out, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
