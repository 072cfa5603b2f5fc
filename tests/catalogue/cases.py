"""Test cases of every operator in the catalogue; `test_catalogue.py` runs each against another implementation of ONNX.

How to add cases: open (or create) the file `cases_<family>.py` beside this one, named after the operator's file in
compiler/ir/ops, and append to its list `CASES`:

    from catalogue.cases import case, const

    CASES = [
        case("Softmax", ["f32[3,17]"], {"axis": 0}),                      # random values in [-2, 2)
        case("Softmax", ["f32[N=5,33]"]),                                 # N is a symbol, 5 at run time
        case("ReduceSum", ["f32[2,3,4]", const([1])], {"keepdims": 0}),   # a constant operand, known when compiling
        case("Clip", ["f32[7]", None, const(1.5)]),                       # an omitted optional operand
        case("Gather", ["f32[9,4]", np.array([[1, -2]])]),                # a given run-time operand
        case("Log", ["f32[40]"], low=0.1, high=9),                        # another range of random values
        case("MaxPool", ["f32[1,3,9,9]"], {"kernel_shape": [2, 2]}, outputs=2),
        case("LRN", ["f32[1,5,4,4]"], {"size": 3}, oracle="onnxruntime"), # onnx.reference is wrong or lacks it
        case("Attention", [...], opset=23, rtol=1e-2),
    ]

Wanted for each operator: every attribute, odd sizes (1, 3, 17, 33: vector tails), rank 0 where it is legal, an empty
tensor where it is legal, each kind of element type (f32, f64, f16, an integer, bool) and one symbolic dimension.
A new operator without a case fails `test_every_operator_has_a_case`; operators that only tests elsewhere can cover
(control flow with bodies, parax's own) are named with the reason in `ELSEWHERE`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ELSEWHERE = {
    ("parax", "Fused"): "tests of the fusion passes and tests/backend/kernels",
    ("", "If"): "tests of the importer: bodies are graphs",
    ("", "Loop"): "tests of the importer: bodies are graphs",
    ("", "Scan"): "tests of the importer: bodies are graphs",
    ("ai.onnx.ml", "TreeEnsembleClassifier"): "tests/backend/kernels/test_trees.py",
    ("ai.onnx.ml", "TreeEnsembleRegressor"): "tests/backend/kernels/test_trees.py",
    ("ai.onnx.ml", "TreeEnsemble"): "tests/backend/kernels/test_tree_ensemble.py",
    **{("ai.onnx.ml", name): "tests/integration/test_maps.py: maps are no tensors"
       for name in ("CastMap", "DictVectorizer", "ZipMap")},
    **{("", name): "tests/integration/test_host_sequences.py: sequences are no tensors" for name in (
        "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
        "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
        "SplitToSequence")},
    ("ai.onnx.ml", "CategoryMapper"): "tests/integration/test_strings.py: strings lie on the host",
    ("", "RegexFullMatch"): "tests/integration/test_strings.py: strings lie on the host",
    ("", "SequenceMap"): "tests of the importer: bodies are graphs",
    **{("", name): "tests/integration/test_random.py: others draw other numbers" for name in (
        "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")},
    ("ai.onnx.preview.training", "Gradient"): "tests/passes/dataflow/test_autodiff.py",
    ("com.microsoft", "GemmFastGelu"): "catalogue/test_contrib_blocks.py: ONNX Runtime has it on GPUs alone",
    ("com.microsoft", "BiasAdd"): "catalogue/test_contrib.py: ONNX Runtime has it on GPUs alone",
    ("com.microsoft", "QLinearReduceMean"): "catalogue/test_contrib.py: ONNX Runtime has a definition alone",
    ("com.microsoft", "BiasSplitGelu"): "catalogue/test_contrib.py: ONNX Runtime has it on GPUs alone",
}


@dataclass(frozen=True)
class Constant:
    """An operand whose content is known when compiling."""

    array: np.ndarray


Operand = str | np.ndarray | Constant | None


def const(value: Any, dtype: Any = None) -> Constant:
    """A constant operand. Python ints become int64, floats float32."""
    array = np.asarray(value, dtype)
    if dtype is None and not isinstance(value, (np.ndarray, np.generic)):
        array = array.astype({"f": np.float32, "i": np.int64}.get(array.dtype.kind, array.dtype))
        array = array.astype(np.int64) if array.size == 0 else array
    return Constant(array)


@dataclass(frozen=True)
class Case:
    """One run of one operator.

    Attributes:
        operands: type texts (random values), arrays, constants, None. symbols are written `N=3`: name, run-time size.
        outputs: how many to ask for. low, high: the range of random values (integers: high is exclusive).
        oracle: "reference" (onnx.reference) or "onnxruntime". opset: of the oracle's model, None = the newest.
        domain_opset: of the operator's own domain.
        rtol, atol: None = by element type; whole numbers may differ by `atol`, by nothing where it is None.
    """

    op: str
    operands: tuple[Operand, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    low: float = -2.0
    high: float = 2.0
    oracle: str = "reference"
    opset: int | None = None
    domain_opset: int = 1
    rtol: float | None = None
    atol: float | None = None

    def __str__(self) -> str:
        attrs = ",".join(f"{k}={v}" for k, v in self.attrs.items())
        return re.sub(r"\s+", "", f"{self.op}({';'.join(map(_shown, self.operands))}){attrs}")[:120]


def _shown(operand: Operand) -> str:
    """An operand in a test's name."""
    if operand is None or isinstance(operand, str):
        return operand or "-"
    kind, array = ("const", operand.array) if isinstance(operand, Constant) else ("array", operand)
    return kind + str(array.tolist() if array.size <= 6 else list(array.shape))


def case(op: str, operands: Sequence[Operand], attrs: Mapping[str, Any] | None = None, **more: Any) -> Case:
    """A case; see the module's docstring."""
    return Case(op, tuple(operands), attrs or {}, **more)


def all_cases() -> list[Case]:
    """The cases of every `cases_*.py` of this folder."""
    found: list[Case] = []
    for path in sorted(Path(__file__).parent.glob("cases_*.py")):
        found += importlib.import_module(f"catalogue.{path.stem}").CASES
    return found
