"""A reduced case as a test that can be put beside the others: the model as text, the inputs as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from parax.compiler.shrinking.candidates import Case
from parax.compiler.shrinking.texts import array_text, model_text

from .configurations import Configuration
from .trial import Outcome

TEMPLATE = '''"""Found by the fuzzer as {name}: {problem}"""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (bfloat16 for numpy)
import numpy as np
{imports}
from fuzz.configurations import configuration
from fuzz.generate import Case
from fuzz.trial import PASS, try_case

MODEL = {model}
FEEDS = [
{feeds}]
CONFIGURATIONS = [
{configurations}]


def test_case() -> None:
    outcome = try_case(Case("reduced", MODEL, FEEDS), [configuration(c) for c in CONFIGURATIONS])
    assert outcome.status == PASS, outcome.problem
'''


def test_of(case: Case, configurations: Sequence[Configuration], outcome: Outcome, name: str) -> str:
    """The test's text."""
    model, imports = model_text(case.model), "from onnx import parser"
    if model is None:
        model = 'onnx.load(Path(__file__).parent / "model.onnx")'
        imports = "import onnx\nfrom pathlib import Path"
    feeds = "".join("    {" + ", ".join(f"{k!r}: {array_text(v)}" for k, v in f.items()) + "},\n" for f in case.feeds)
    shown = "".join(f"    {c.as_json()!r},\n" for c in configurations)
    problem = " ".join(f"{outcome.status}: {outcome.problem}".replace('"', "'").replace("\\", "/").split())
    return TEMPLATE.format(name=name, problem=problem, imports=imports, model=model, feeds=feeds, configurations=shown)
