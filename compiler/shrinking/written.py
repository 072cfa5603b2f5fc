"""What a reduction leaves: the model, its inputs beside it, and a test that passes once the mistake is mended."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import numpy as np

from ...files import write_whole
from ..options import CompileOptions
from .candidates import Case
from .texts import array_text, model_text
from .trial import Expectation, Outcome, without_watching

PLACES = ("dump", "cache_dir")
TEST = '''"""{status}: {problem}"""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (its types for numpy)
import numpy as np
import onnx  # noqa: F401
from onnx import parser  # noqa: F401

from parax.compiler.options import CompileOptions
from parax.compiler.shrinking.trial import Expectation, tried, without_watching

MODEL = {model}
FEEDS = {{{feeds}}}
EXPECTATION = Expectation({expectation})


def test_{name}() -> None:
    outcome = tried(MODEL.SerializeToString(), FEEDS, EXPECTATION)
    assert outcome.status == "pass", outcome.problem
'''


def write_model(case: Case, path: Path) -> Path:
    """Write the model, and its inputs beside it as NAME.npz, which `parax run --input` takes; the inputs' path."""
    write_whole(path, case.model.SerializeToString())
    packed = io.BytesIO()
    np.savez(packed, **{name: _plain(array) for name, array in case.feeds[0].items()})  # type: ignore[arg-type]
    beside = path.with_suffix(".npz")
    write_whole(beside, packed.getvalue())
    return beside


def test_text(case: Case, expectation: Expectation, outcome: Outcome, name: str) -> str:
    """A test, with the model in ONNX's text form where that holds all of it, else by its bytes."""
    model = model_text(case.model) or f"onnx.load_from_string(bytes.fromhex({case.model.SerializeToString().hex()!r}))"
    feeds = ", ".join(f"{k!r}: {array_text(v)}" for k, v in case.feeds[0].items())
    problem = " ".join(outcome.problem.replace('"', "'").replace("\\", "/").split())
    options = f"without_watching({_options(expectation.options)})"
    given = [f"{expectation.status!r}", f"{expectation.against!r}", options]
    given += [f"{key}={value!r}" for key in ("rtol", "atol", "factor")
              if (value := getattr(expectation, key)) != getattr(Expectation, key)]  # fmt: skip
    return TEST.format(status=outcome.status, problem=problem, model=model, feeds=feeds, name=name,
                       expectation=", ".join(given))  # fmt: skip


def _options(options: CompileOptions) -> str:
    """The expression of those options that differ from the usual ones of trials, but for where things are kept."""
    usual, texts = without_watching(CompileOptions()), []
    for each in fields(options):
        value = getattr(options, each.name)
        if each.name not in PLACES and value != getattr(usual, each.name):
            shown = dict(value) if isinstance(value, Mapping) else str(value) if isinstance(value, Path) else value
            texts.append(f"{each.name}={shown!r}")
    return f"CompileOptions({', '.join(texts)})"


def _plain(array: np.ndarray) -> np.ndarray:
    """In a type that .npz has: strings of fixed length, and numbers that numpy lacks as unsigned ones of their bits."""
    if array.dtype.kind == "O":
        return array.astype(str)
    return array if array.dtype.isbuiltin == 1 or array.dtype.kind in "SU" else array.view(f"u{array.itemsize}")
