"""Walks the catalogue: types, kernel and text form of every operator against another implementation of ONNX."""

from __future__ import annotations

import numpy as np
import pytest

from backend.harness import run_graph
from catalogue.cases import ELSEWHERE, Case, all_cases
from catalogue.running import assert_close, build, check_types, expected
from parax.compiler.ir.ops import CATALOGUE, lookup
from parax.compiler.ir.ops.base import Host
from parax.compiler.ir.text import graph_data, parse_graph, print_graph
from parax.runtime.host_ops import HOST_OPS

CASES = all_cases()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operator(case: Case) -> None:
    graph, feeds, symbols, contents = build(case)
    text = print_graph(graph)
    assert print_graph(parse_graph(text, graph_data(graph))) == text
    with np.errstate(all="ignore"):
        wanted = expected(case, contents)
    op = lookup(case.domain, case.op)
    if issubclass(op, Host):
        results = HOST_OPS[case.domain, case.op](case.attrs)(contents)
    else:
        check_types(graph, symbols, wanted)
        results = run_graph(graph, feeds, symbols)
    for found, array in zip(results, wanted):
        assert_close(case, found, array)


@pytest.mark.parametrize("key", sorted(CATALOGUE), ids=lambda key: "::".join(key))
def test_every_operator_has_a_case(key: tuple[str, str]) -> None:
    if key[0] == "parax" or key in ELSEWHERE:
        return
    assert any((c.domain, c.op) == key for c in CASES), "add one: see the top of cases.py"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_sign_of_minus_0_is_plain_0(dtype: type) -> None:
    graph, feeds, symbols, _ = build(Case("Sign", (np.array([-0.0, 0.0, -1.0], dtype),)))
    (found,) = run_graph(graph, feeds, symbols)
    assert found.tolist() == [0, 0, -1] and not np.signbit(found[:2]).any()
