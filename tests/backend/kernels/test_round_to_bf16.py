"""RoundToBf16: to the nearest, ties to even, NaN and infinities stay; denormals rounded or zeros, all lanes alike."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Program, op
from backend.interpreted import interpreted
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import F32, TensorType
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

EXTENDED = [resolve_target(f"x86-64-v4+{more}") for more in ("avx512bf16", "amx-bf16+amx-tile")]
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 1.00390625, 1.01171875, 3.3895e38, 3.4e38, 1e-38, -1e-40,
                    2.0**-126, 2.0**-149], np.float32)  # fmt: skip


def rounded(x: np.ndarray, target: Target) -> np.ndarray:
    graph = Graph("round")
    given_ = graph.add_input("x", TensorType(F32, x.shape))
    graph.set_outputs(graph.add_node(op("RoundToBf16", "parax"), [given_]).outputs)
    program = Program(graph, target)
    if target.supported_by(host_features()):
        return program.run({"x": x}, {})[0]
    return interpreted(program, {"x": x}, {})[0]


def check(x: np.ndarray, y: np.ndarray) -> None:
    assert y.dtype == ml_dtypes.bfloat16
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = x.astype(ml_dtypes.bfloat16)
    assert np.array_equal(np.isnan(y.astype(np.float32)), np.isnan(x))
    small = np.abs(x) < 2.0**-126
    same = y.view(np.uint16) == wanted.view(np.uint16)
    assert (same | small | np.isnan(x)).all()
    zeros = (y.view(np.uint16) & 0x7FFF == 0) & (np.signbit(y.astype(np.float32)) == np.signbit(x))
    assert (same | zeros)[small].all()


@pytest.mark.parametrize("target", [*TARGETS.values(), *EXTENDED], ids=lambda t: t.name)
def test_numbers_of_every_kind(target: Target) -> None:
    for n in (1, 3, 7, 16, 33):
        x = np.resize(np.roll(SPECIAL, n), n)
        check(x, rounded(x, target))


@thorough(30)
@given(seed=st.integers(0, 1 << 20), n=st.integers(1, 100))
def test_any_bits(seed: int, n: int) -> None:
    x = np.random.default_rng(seed).integers(0, 1 << 32, n, dtype=np.uint32).view(np.float32)
    check(x, rounded(x, resolve_target("native")))


def test_a_number_rounds_alike_wherever_it_lies() -> None:
    x = np.resize(SPECIAL, (len(SPECIAL), 70)).T.copy()  # each row a number less far from the beginning
    y = rounded(x, resolve_target("native"))
    for bits in np.unique(x.view(np.uint32)):
        assert len(np.unique(y.view(np.uint16)[x.view(np.uint32) == bits])) == 1


def test_other_types_to_round_to_are_refused() -> None:
    with pytest.raises(Exception, match="rounds to nothing else"):
        parse_graph("graph @g(%x: f32[3]) {\n %y = parax::RoundToBf16(%x) {to=f16}\n return %y\n}")
