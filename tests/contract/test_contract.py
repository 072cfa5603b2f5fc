"""Every kernel of the catalogue does the work items [begin, end) and nothing else; all: `benchmarks.contract`."""

from __future__ import annotations

import contextlib
import zlib
from random import Random
from typing import Any

import numpy as np
import pytest

from backend.harness import Program, expand_composites
from backend.ways import EVERY
from catalogue.running import build
from contract.checking import NoVariant, check, lowered
from contract.variants import Variant, cases_of, drawn, dtypes, edge_sizes, has_lowering, targets
from parax.compiler.ir.ops import CATALOGUE
from parax.compiler.ir.ops.base import Operator
from parax.compiler.ir.text import parse_graph
from parax.compiler.targets.target import Target
from sampling import sampled

CASES = cases_of()
WANTED, TRIED = 3, 15
INTERNAL = {
    "Copy": """graph @g(%x: f32[S,3]) {
        %y = parax::Copy(%x) : f32[S,3]
        return %y
        }""",
    "Relayout": """graph @g(%x: f32[2,3,S,5]) {
        %y = parax::Relayout(%x) : f32[2,3,S,5]{0,2,3,1}
        return %y
        }""",
    "DotProductAttention": """graph @g(%q: f32[2,3,S,16], %kt: f32[2,3,16,17], %v: f32[2,3,17,20]) {
        %y = parax::DotProductAttention(%q, %kt, %v) {scale=0.25} : f32[2,3,S,20]
        return %y
        }""",
}


def attention(q: np.ndarray, kt: np.ndarray, v: np.ndarray) -> np.ndarray:
    e = np.exp(q @ kt * 0.25)
    return (e / e.sum(-1, keepdims=True)) @ v


INTERNAL_RESULTS: dict[str, Any] = {"Copy": lambda x: x, "Relayout": lambda x: x, "DotProductAttention": attention}


@pytest.mark.parametrize("name", sampled(sorted(CASES), 8))
def test_kernels_keep_the_contract(name: str) -> None:
    random, checked = Random(zlib.crc32(name.encode())), 0
    plain = [Variant(CASES[name][0], random.choice(targets()))]
    for variant in plain + [drawn(CASES[name], random) for _ in range(TRIED)]:
        try:
            check(variant)
        except NoVariant:
            continue
        except AssertionError as error:
            raise AssertionError(f"{variant}\n{error}") from error
        checked += 1
        if checked == WANTED:
            break
    assert checked


def test_no_kernel_refuses_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.harness.load_kernels", lambda functions, target: None)
    target, asked = targets()[0], 0
    for variant in (Variant(case, target, dtype=d) for cases in CASES.values() for case in cases[:2]
                    for d in dtypes(case)):  # fmt: skip
        with contextlib.suppress(NoVariant):
            lowered(variant)
            asked += 1
    assert asked > 1000


@pytest.mark.parametrize("target", targets(), ids=lambda t: f"{t.name} {t.tune}")
@pytest.mark.parametrize("name", INTERNAL)
def test_operators_of_our_own_keep_the_contract(name: str, target: Target) -> None:
    program = Program(parse_graph(INTERNAL[name]), target, ("S",))
    random = np.random.default_rng(0)
    runs = []
    for size in edge_sizes(target):
        shapes = [tuple(size if not isinstance(d, int) else d for d in v.tensor.dims) for v in program.graph.inputs]
        feeds = {v.name: random.standard_normal(s, np.float32) for v, s in zip(program.graph.inputs, shapes)}
        runs.append((feeds, {"S": size}))
    for (feeds, _), (found,) in zip(runs, program.run_all(runs, EVERY)):
        wanted = INTERNAL_RESULTS[name](*feeds.values())
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_no_operator_with_a_kernel_is_forgotten() -> None:
    met: set[type[Operator]] = set()
    for cases in CASES.values():
        for case in cases:
            graph = build(case)[0]
            expand_composites(graph)
            met |= {type(node.op) for node in graph}
    missing = {op.name for op in CATALOGUE.values() if has_lowering(op) and op not in met} - INTERNAL.keys()
    assert not missing, "give it a case: see the top of tests/catalogue/cases.py"
