"""The text of kernels: what is printed is parsed back; what is malformed is refused where it stands."""

from __future__ import annotations

import math
import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.cases import Case
from kernel_ir.every_opcode import EVERY, callee, made
from kernel_ir.lowered import CASES, functions_of
from kernel_ir.sameness import difference
from parax.compiler.ir.types import BOOL, F32, F64, I8, I64, U64, DType
from parax.compiler.kernel_ir.builder import Builder
from parax.compiler.kernel_ir.loops import INDEX, KFunc, KType, PtrType, all_functions, print_functions
from parax.compiler.kernel_ir.parser import parse_function, parse_functions
from parax.compiler.kernel_ir.verifier import verify_function
from parax.compiler.targets.target import TARGETS
from parax.errors import InternalError
from sampling import exhaustive, sampled, thinned, thorough

USUAL, REST = thinned(CASES, lambda case: case.op, 3)  # the verifier, too, sees all of them: tests/catalogue


def assert_read_back(functions: list[KFunc]) -> None:
    """The text of some functions is that of what is parsed from it, and these are the same functions."""
    text = print_functions(functions)
    parsed = parse_functions(text)
    assert print_functions(list(parsed.values())) == text
    for f, g in zip(functions, parsed.values(), strict=True):
        verify_function(g)
        assert difference(f, g) == ""


@pytest.mark.parametrize("opcode", EVERY)
def test_each_opcode_is_read_back(opcode: str) -> None:
    assert_read_back(all_functions([made(opcode)]))


@pytest.mark.parametrize("case", [*sampled(USUAL, 8), *exhaustive(REST)], ids=str)
def test_kernels_of_operators_are_right_ones_and_read_back(case: Case) -> None:
    for target in TARGETS.values():
        functions = functions_of(case, target)
        for f in functions:
            verify_function(f)
        assert_read_back(functions)


def test_what_functions_are_besides_their_signatures() -> None:
    k = Builder("all/of.it-1", [("p", PtrType(BOOL)), ("n", INDEX)], returns=KType(F32, 4), inline="always")
    k.func.noalias, k.func.exact, k.func.exported = False, True, True
    k.ret(k.const(0.1, KType(F32, 4)))
    assert str(k.func).splitlines()[0] == (
        "kernel @all/of.it-1(%p: ptr<bool>, %n: i64) -> 4xf32 inline=always aliases exact exported {"
    )
    assert_read_back([k.func])


@thorough(300)
@given(st.floats(), st.floats(width=32), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1), st.booleans())
def test_constants_are_read_back(d: float, s: float, i: int, u: int, b: bool) -> None:
    k = Builder("f", [])
    for value, dtype in ((d, F64), (s, F32), (i, I64), (u, U64), (b, BOOL), (i % 100, I8)):
        for lanes in (1, 8):
            constant = k.const(value, KType(dtype, lanes))
            k.op("select", (k.const(b, KType(BOOL)), constant, constant), constant.type)
    assert_read_back([k.func])


def test_constants_that_are_no_numbers() -> None:
    k = Builder("f", [])
    for value in (math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e22):
        k.op("neg", (k.const(value, DType.from_name("f64")),), KType(F64))
    assert_read_back([k.func])


TEXT = """\
kernel @sum(%p: ptr<f32>, %n: i64) -> f32 {
  %2 = for(0, %n, 1, 0.0:f32) : f32 {
    ^(%3: i64, %4: f32)
    %5 = load(%p, %3) {align=4} : f32
    %6 = add(%4, %5) : f32
    yield %6
  }
  return %2
}
"""


def test_a_text_by_hand() -> None:
    f = parse_function(TEXT)
    assert f"{f}\n" == TEXT
    assert [o.opcode for o in f.walk()] == ["for", "load", "add"]
    loop = f.body.ops[0]
    assert loop.operands[0].const == 0
    assert loop.operands[1] is f.params[1]
    assert loop.regions[0].ops[0].attrs == {"align": 4}
    verify_function(f)


WRONG = [  # what stands in TEXT, what stands there instead, the place, what is expected
    ("kernel", "kernal", "1, column 1", "'kernel'"), ("@sum", "sum", "1, column 8", "'@'"),
    ("ptr<f32>", "ptr<f31>", "1, column 17", "a type"), ("-> f32", "-> ptr<f32>", "1, column 39", "the type of a reg"),
    ("-> f32 {", "-> f32 inlined {", "1, column 43", "inline=, aliases, exact, exported or '{'"),
    ("-> f32 {", "-> f32 inline=yes {", "1, column 50", "always or never"),
    ("%2 =", "%2", "2, column 6", "'='"), ("for(0,", "for[0,", "2, column 11", r"'\('"),
    ("%n, 1", "%m, 1", "2, column 15", "a value that is defined; found %m"),
    ("0.0:f32)", "zero:f32)", "2, column 22", "a value or a constant"),
    (": f32 {\n    ^", "{\n    ^", "2, column 31", "':'"),
    ("%3: i64, %4", "%3: i64, %n", "3, column", "a name that is not in use; found %n"),
    ("{align=4}", "{align 4}", "4, column 30", "'='"),
    ("{align=4}", "{align=}", "4, column 30", "an attribute's value"),
    ("{align=4}", "{callee=@f}", "4, column 31", "a function that stands before; found @f"),
    ("{align=4}", "{lanes=[0 1]}", "4, column 33", "','"), ("load(%p, %3)", "load(%p, %3", "4, column 22", r"'\)'"),
    ("%6 = add", "%5 = add", "5, column", "a name that is not in use; found %5"),
    ("add(%4, %5) : f32", "add(%4, %5) : f32 f32", "5, column 28", "the end of the line"),
    ("yield %6", "yield %7", "6, column 11", "a value that is defined"),
    ("  }\n", "  } or {\n", "7, column 5", "the end"),
    ("return %2\n}\n", "return %2\n", "9, column 1", "more lines; found the end of the text"),
    ("return %2", "return %6", "8, column 10", "a value that is defined; found %6"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "place", "expected"), WRONG)
def test_malformed_text_is_refused_where_it_stands(old: str, new: str, place: str, expected: str) -> None:
    assert TEXT.count(old) >= 1
    with pytest.raises(InternalError, match=f"line {place}.*{expected}"):
        parse_function(TEXT.replace(old, new, 1))


def test_nothing_and_names_twice() -> None:
    with pytest.raises(InternalError, match=r"line 1, column 1.*expected kernel; found nothing"):
        parse_function("\n")
    with pytest.raises(InternalError, match=r"line 10, column 1.*expected another name; found @sum"):
        parse_functions(TEXT + TEXT)


@thorough(300)
@given(st.integers(0, 2**32))
def test_spoilt_text_gives_a_kernel_or_an_error_of_ours(seed: int) -> None:
    random = Random(seed)
    text = print_functions([callee(), *(made(name) for name in ("load", "shuffle", "for", "if", "call"))])
    at = random.randrange(len(text))
    spoilt = text[:at] + random.choice(("", *"{}()[]%:=,@^x0-\n ")) + text[at + random.randrange(4) :]
    try:
        parse_functions(spoilt)
    except InternalError as error:
        assert re.search(r"line \d+, column \d+", str(error))
