"""ir.call_rows: the sizes that kernels are chosen for."""

import pytest

from parax.compiler.ir.call_rows import ALONE, ANY, SEVERAL, call_rows
from parax.compiler.ir.types import symbol

N = symbol("N")


@pytest.mark.parametrize(
    ("bounds", "several", "expected"),
    [
        ({}, True, (1, SEVERAL)),
        ({}, False, (1,)),
        ({"N": (2, 3)}, True, (2, 3)),
        ({"N": (8, 64)}, True, (8,)),
        ({"N": (0, 64)}, True, (1, SEVERAL)),
        ({"S": (8, 64), "N": 5}, True, (1, SEVERAL)),
    ],
)
def test_sizes_keep_to_the_bounds(bounds: dict, several: bool, expected: tuple[int, ...]) -> None:
    assert call_rows(bounds, several).of(N) == expected


def test_fixed_sizes_are_themselves() -> None:
    assert ANY.of(7) == ALONE.of(7) == (7,)
    assert ANY.of(0) == (1,)


def test_expressions_are_evaluated() -> None:
    assert ANY.of(2 * N) == (2, 2 * SEVERAL)
    assert ANY.of(N // 2) == (1, SEVERAL // 2)
