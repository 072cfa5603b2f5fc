"""An operand that kernels know gives what it gives where it comes with the request, whatever number it is.

Kernels write constants of one element into their text, and leave out what a constant makes unnecessary.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from backend.harness import run_graph
from catalogue.cases import Case, all_cases
from catalogue.running import build, sprinkled
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.ops.base import Elementwise
from parax.compiler.ir.types import DType, TensorType
from sampling import sampled

FLOATS = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 2.0, 0.5, 3e38, 1e-45)
EPSILON = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
INTEGERS = (-1, 0, 1, 2, 3, 8, 64)


def cases() -> list[Case]:
    """Element-wise operators of several operands: the first of each operator, attributes and element types."""
    found: dict[tuple[object, ...], Case] = {}
    for case in all_cases():
        texts = [o for o in case.operands if isinstance(o, str)]
        if len(texts) == len(case.operands) in (2, 3) and issubclass(lookup(case.domain, case.op), Elementwise):
            found.setdefault((case.op, str(case.attrs), *(text.split("[")[0] for text in texts)), case)
    return list(found.values())


@pytest.mark.parametrize("case", sampled(cases(), 10), ids=str)
def test_a_constant_is_what_an_input_is(case: Case) -> None:
    rng = np.random.default_rng(zlib.crc32(str(case).encode()))
    feeds = {name: sprinkled(array, np.concatenate(_numbers(array.dtype)), 0.5, rng)
             for name, array in build(case)[1].items()}  # fmt: skip
    for place in range(case.op == "PRelu", 2):  # whose slope is no larger than x
        numbers = _numbers(feeds[f"x{place}"].dtype)
        known, given = (_results(case, feeds, place, numbers, fixed) for fixed in (True, False))
        for number, a, b in zip(numbers, known, given, strict=True):
            units = 4 * EPSILON.get(a.dtype.name, 0.0)  # small powers are products
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), units, 0,
                                       err_msg=f"operand {place} is {number}")  # fmt: skip


def _results(
    case: Case, feeds: dict[str, np.ndarray], place: int, numbers: list[np.ndarray], fixed: bool
) -> list[np.ndarray]:
    """With each of the numbers in the operand's place, as a constant or as an input."""
    graph, feeds = Graph("constants"), dict(feeds)
    inputs = [graph.add_input(name, TensorType(DType.from_numpy(a.dtype), a.shape)) for name, a in feeds.items()]
    op = lookup(case.domain, case.op).from_attributes(case.attrs)
    outputs = []
    for i, number in enumerate(numbers):
        name = f"n{i}"
        if fixed:
            one = graph.add_constant(number, name)
        else:
            one = graph.add_input(name, TensorType(DType.from_numpy(number.dtype), number.shape))
            feeds[name] = number
        operands = [*inputs[:place], one, *inputs[place + 1 :]]
        outputs.append(graph.add_node(op, operands, name=f"node{i}").output)
    graph.set_outputs(outputs)
    return run_graph(graph, feeds, {})


def _numbers(dtype: np.dtype) -> list[np.ndarray]:
    """Of that type, each in an array of its own."""
    values = INTEGERS if dtype.kind in "iu" else (False, True) if dtype.kind == "b" else FLOATS
    with np.errstate(all="ignore"):
        return [np.array([value]).astype(dtype) for value in values]
