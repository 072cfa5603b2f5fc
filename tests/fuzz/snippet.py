"""A reduced case as a test that can be put beside the others: the model as text, the inputs as numbers."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import parser, printer

from .candidates import Failing
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


def test_of(failing: Failing, outcome: Outcome, name: str) -> str:
    """The test's text."""
    text = printer.to_text(failing.model)
    model, imports = f'parser.parse_model("""\n{text}\n""")', "from onnx import parser"
    if not _comes_back(text, failing.model) or '"""' in text or "\\" in text:
        model = 'onnx.load(Path(__file__).parent / "model.onnx")'
        imports = "import onnx\nfrom pathlib import Path"
    feeds = "".join(
        "    {" + ", ".join(f"{k!r}: {array_text(v)}" for k, v in f.items()) + "},\n" for f in failing.feeds
    )
    configurations = "".join(f"    {c.as_json()!r},\n" for c in failing.configurations)
    problem = " ".join(f"{outcome.status}: {outcome.problem}".replace('"', "'").replace("\\", "/").split())
    return TEMPLATE.format(name=name, problem=problem, imports=imports, model=model, feeds=feeds,
                           configurations=configurations)  # fmt: skip


def _comes_back(text: str, model: onnx.ModelProto) -> bool:
    """Whether the text is the whole model: the text form has no infinities, among others."""
    try:
        again = parser.parse_model(text)
    except Exception:  # the parser's errors have no common base
        return False
    return [n.SerializeToString() for n in again.graph.node] == [n.SerializeToString() for n in model.graph.node] and [
        onnx.numpy_helper.to_array(t).tobytes() for t in again.graph.initializer
    ] == [onnx.numpy_helper.to_array(t).tobytes() for t in model.graph.initializer]


def array_text(array: np.ndarray) -> str:
    """A numpy expression that makes exactly this array."""
    dtype = f"np.dtype({array.dtype.name!r})"
    if (array.size <= 64 and array.dtype.name in ("float32", "float64", "bool")) or (
        array.dtype.kind in "iu" and array.size <= 256
    ):
        numbers = array.tolist()
        if "nan" not in str(numbers) and "inf" not in str(numbers) and 0 not in array.shape:
            return f"np.array({numbers}, {dtype})"
    return f"np.frombuffer(bytes.fromhex({array.tobytes().hex()!r}), {dtype}).reshape({array.shape})"
