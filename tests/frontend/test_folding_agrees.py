"""What onnx.reference computes while compiling is what kernels compute when running, for numbers of every kind.

A list of its mistakes (reference_mistakes) holds what was found; this finds what it leaves out, for the operators that
there are and those that come.
"""

from __future__ import annotations

import zlib
from collections import defaultdict

import numpy as np
import pytest

from backend.harness import run_graph
from catalogue.cases import Case, all_cases
from catalogue.running import assert_alike, build, sprinkled
from parax.compiler.frontend.evaluate import EvaluationError, evaluate_node
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.ops.base import Contraction, Control, Elementwise, Host, Reduce
from sampling import sampled

ODD = (np.inf, -np.inf, np.nan, -0.0, 0.0, 2.5, -1.5, 0.5, -0.5)
LARGE = (3e9, -1e30)  # where nothing is added: sums of such depend on the order
EPSILON = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}
OPEN = {
    "BatchNormalization": "x·s + t has no place for infinite statistics",
    "ScatterElements": "the least of a number and NaN is open",
    "ScatterND": "the least of a number and NaN is open",
    **dict.fromkeys(("Adagrad", "Adam", "Momentum"), "a norm_coefficient of 0 adds nothing: 0 · x of a NaN is open"),
}
"""Operators whose odd numbers may differ, and why."""


def cases() -> list[Case]:
    """Two of each operator that may be folded."""
    found: dict[str, list[Case]] = defaultdict(list)
    for case in all_cases():
        if not issubclass(lookup(case.domain, case.op), (Host, Control)) and case.op not in OPEN:
            found[case.op].append(case)
    return [case for own in found.values() for case in own[:2]]


@pytest.mark.parametrize("case", sampled(cases(), 4), ids=str)
def test_constants_and_inputs_agree(case: Case) -> None:
    graph, feeds, symbols, _ = build(case)
    (node,) = graph
    rng = np.random.default_rng(zlib.crc32(str(case).encode()))
    numbers = ODD if isinstance(node.op, (Contraction, Reduce)) else ODD + LARGE
    odd = {}
    for name, array in feeds.items():
        whole = array.dtype.kind in "iu" and isinstance(node.op, Elementwise)
        given = (np.iinfo(array.dtype).min, np.iinfo(array.dtype).max) if whole else numbers
        odd[name] = sprinkled(array, given, 0.4, rng) if whole or array.dtype.name in EPSILON else array
    values = [None if v is None else odd[v.name] if v.data is None else v.data for v in node.inputs]
    try:
        with np.errstate(all="ignore"):
            folded = evaluate_node(node, [None if v is None else v.copy() for v in values])
    except EvaluationError:
        return  # left to the kernel
    for a, b in zip(folded, run_graph(graph, odd, symbols), strict=True):
        assert_alike(np.asarray(a), np.asarray(b), EPSILON)
