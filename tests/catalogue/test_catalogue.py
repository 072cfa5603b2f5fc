"""Walks the catalogue: types, kernel and text form of every operator against another implementation of ONNX."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import parax
from backend.harness import run_graph
from catalogue.cases import ELSEWHERE, Case, Constant, all_cases
from catalogue.running import assert_close, build, check_types, expected, onnx_model
from parax.compiler.ir.ops import CATALOGUE, Operator, lookup
from parax.compiler.ir.ops.base import Composite, Elementwise, Host
from parax.compiler.ir.ops.interfaces import DECLARED
from parax.compiler.ir.text import graph_data, parse_graph, print_graph
from parax.compiler.ir.types import NARROW, DType
from parax.runtime.host_ops import HOST_OPS
from sampling import first_of_each, sampled

CASES = all_cases()


@pytest.mark.parametrize("case", first_of_each(CASES, lambda case: (case.domain, case.op)), ids=str)
def test_operator(case: Case) -> None:
    graph, feeds, symbols, contents = build(case)
    text = print_graph(graph)
    assert print_graph(parse_graph(text, graph_data(graph))) == text
    with np.errstate(all="ignore"):
        wanted = expected(case, contents)
    op = lookup(case.domain, case.op)
    if issubclass(op, Composite) and issubclass(op, Host):
        model, feeds = onnx_model(case, contents)
        with parax.compile(model).session() as session:
            results = list(session.run(feeds).values())
    elif issubclass(op, Host):
        results = HOST_OPS[case.domain, case.op](case.attrs)(contents)
    else:
        check_types(graph, symbols, wanted)
        results = run_graph(graph, feeds, symbols)
    for found, array in zip(results, wanted):
        assert_close(case, found, array)


def _from_the_other_end(case: Case, contents: list[np.ndarray | None]) -> Case | None:
    """The case on the same content with its axes counted from the other end; None where it has none, or one no axis."""
    assert contents[0] is not None
    rank = contents[0].ndim + (case.op == "OneHot")  # its axis is the result's
    attrs = dict(case.attrs)
    for name in {"axis", "axes"} & attrs.keys():
        given = np.asarray(attrs[name])
        if given.dtype.kind != "i" or (np.abs(given) >= rank).any():
            return None
        turned = np.where(given < 0, given + rank, given - rank)
        attrs[name] = turned.tolist()
    operands = tuple(o if isinstance(o, Constant) or o is None else c
                     for o, c in zip(case.operands, contents, strict=True))  # fmt: skip
    return replace(case, operands=operands, attrs=attrs)


WITH_AXES = [case for case in CASES if {"axis", "axes"} & case.attrs.keys() and case.operands
             and not issubclass(lookup(case.domain, case.op), Host)]  # fmt: skip


@pytest.mark.parametrize("case", sampled(WITH_AXES, 3), ids=str)
def test_axes_may_be_counted_from_either_end(case: Case) -> None:
    _, _, _, contents = build(case)
    turned = _from_the_other_end(case, contents)
    if turned is None:
        return
    results = []
    for each in (replace(turned, attrs=case.attrs), turned):
        graph, feeds, symbols, _ = build(each)
        results.append(run_graph(graph, feeds, symbols))
    for a, b in zip(*results, strict=True):
        narrow = DType.from_numpy(a.dtype) in NARROW  # whose NaN NumPy does not take for one
        np.testing.assert_array_equal(*((a.astype(np.float64), b.astype(np.float64)) if narrow else (a, b)))


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


@pytest.mark.parametrize("op", CATALOGUE.values(), ids=lambda op: op.name)
def test_every_operator_declares_its_interfaces(op: type[Operator]) -> None:
    names = (*DECLARED, "effort") if issubclass(op, Elementwise) else DECLARED
    missing = [name for name in names if not hasattr(op, name)]
    assert not missing, f"{op.name} declares no {', '.join(missing)}: see ir/ops/interfaces.py"
