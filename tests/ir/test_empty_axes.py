"""What reads at the nearest position of an axis needs one: static empty axes are refused, symbols noted as positive."""

from __future__ import annotations

import pytest

from catalogue.cases import Case, case, const
from catalogue.running import build
from parax import InvalidModel
from parax.compiler.ir.types import noting_positive


def cases(size: str) -> list[Case]:
    return [
        case("GridSample", [f"f32[1,2,{size},4]", "f32[1,2,3,2]"]),
        case("Resize", [f"f32[1,1,{size},4]", None, None, const([1, 1, 2, 4])], {"mode": "nearest"}),
    ]


@pytest.mark.parametrize("case", cases("0"), ids=str)
def test_an_empty_axis_is_refused(case: Case) -> None:
    with pytest.raises(InvalidModel, match="an empty axis cannot be"):
        build(case)


@pytest.mark.parametrize("case", cases("S=3"), ids=str)
def test_a_symbol_may_not_be_zero(case: Case) -> None:
    positive: set[str] = set()
    with noting_positive(positive):
        build(case)
    assert positive == {"S"}
