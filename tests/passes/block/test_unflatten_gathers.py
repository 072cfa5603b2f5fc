"""Look-ups in flattened rows."""

from __future__ import annotations

import pytest

from parax.compiler.passes.block.unflatten_gathers import UnflattenGathers
from passes.check import check_pass

TEXT = """graph @g(%x: bool[N,4]) {{
    %z = const i64[] 0\n %o = const i64[] 1\n %f = const i64[] 4\n %c = const i64[2] [-1, 1]\n %r = const i64[3] [-1, 1, 1]
    %k = const i64[1,1,{n}] {places}\n {body}\n}}"""
INDEX = """%1 = Shape(%x)\n %2 = Gather(%1, %z)\n %3 = Range(%z, %2, %o)\n %4 = Reshape(%3, %r)
    %5 = Mul(%4, %f)\n %6 = Add(%5, %k)\n %7 = Reshape(%x, %c)\n %8 = Gather(%7, %6)\n return %8"""
SIZES = "%1 = Shape(%x)\n %2 = Gather(%1, %z)\n %7 = Reshape(%x, %c)\n"
ROWS = "%a = const i64[3] [-1, 4, 1]\n %9 = Reshape(%7, %a)\n"
OPEN = """graph @g(%x: bool[N,S]) {{
    %z = const i64[] 0\n %o = const i64[] 1\n %p = const i64[1] [1]\n %c = const i64[2] [-1, 1]
    %r = const i64[3] [-1, 1, 1]\n %q = const i64[3] [1, 1, -1]
    %1 = Shape(%x)\n %2 = Gather(%1, %z)\n %3 = Gather(%1, %p)\n %7 = Reshape(%x, %c)\n {body}\n}}"""
OPEN_INDEX = """%4 = Range(%z, %2, %o)\n %5 = Reshape(%4, %r)\n %6 = Mul(%5, %3)\n %k = Gather(%1, %o)
    %8 = Range(%z, %k, %o)\n %9 = Reshape(%8, %q)\n %10 = Add({terms})\n %11 = Gather(%7, %10)\n return %11"""


def test_all_places_are_a_reshape() -> None:
    check_pass(UnflattenGathers(), TEXT.format(n=4, places="[0, 1, 2, 3]", body=INDEX),
               TEXT.format(n=4, places="[0, 1, 2, 3]", body=SIZES + """
                   %b = const i64[4] [-1, 1, 4, 1]\n %8 = Reshape(%7, %b) {allowzero=1}\n return %8"""))


@pytest.mark.parametrize("terms", ["%9, %6", "%6, %9"])
def test_rows_of_any_length(terms: str) -> None:
    """As exporters write the mask of attention for sequences of any length."""
    check_pass(UnflattenGathers(), OPEN.format(body=OPEN_INDEX.format(terms=terms)),
               OPEN.format(body="""
                   %m = const i64[1] [1]\n %n = const i64[1] [1]\n %l = const i64[1] [1]
                   %a = Reshape(%2, %m)\n %s = Concat(%a, %n, %3, %l) {axis=0}
                  \n %11 = Reshape(%7, %s) {allowzero=1}\n return %11"""),
               symbols={"N": 3, "S": 4})


def test_rows_of_another_axis_stay() -> None:
    body = OPEN_INDEX.format(terms="%6, %9").replace("Reshape(%8, %q)", "Reshape(%8, %u)")
    graph = OPEN.replace("%p = const", "%u = const i64[4] [1, 1, 1, -1]\n %p = const").format(body=body)
    check_pass(UnflattenGathers(), graph, None, refuses="places of its own")


def test_some_places_are_gathered_in_each_row() -> None:
    check_pass(UnflattenGathers(), TEXT.format(n=2, places="[3, 0]", body=INDEX),
               TEXT.format(n=2, places="[3, 0]", body=SIZES + ROWS + """
                   %i = const i64[1,2] [3, 0]\n %8 = Gather(%9, %i) {axis=1}\n return %8"""))


@pytest.mark.parametrize(("old", "new", "reason"), [
    ("Range(%z, %2, %o)", "Range(%o, %2, %o)", "row numbers"),
    ("[3, 0]", "[4, 0]", "outside of its row"),
    ("%5 = Mul(%4, %f)", "%5 = Add(%4, %f)", "no sum of a multiple"),
    ("const i64[] 4", "const i64[] 2", "not those of the data"),
    ("Gather(%7, %6)", "Gather(%7, %6) {axis=1}", "first axis"),
])  # fmt: skip
def test_other_indices_stay(old: str, new: str, reason: str) -> None:
    text = TEXT.format(n=2, places="[3, 0]", body=INDEX)
    assert old in text
    check_pass(UnflattenGathers(), text.replace(old, new), None, refuses=reason, evaluate=False)
