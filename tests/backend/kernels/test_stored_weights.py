"""Products of f32 by weights that fit 16 bits: kept so, and equal bit for bit to those by f32's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Program, host_targets
from backend.interpreted import interpreted
from backend.kernels.naive import normal
from backend.ways import USUAL
from parax.compiler.backend.fusion import Fusion
from parax.compiler.backend.host import host_features
from parax.compiler.backend.kernels.matmul.direct import ProductLayer
from parax.compiler.backend.kernels.matmul.shapes import matrices_of
from parax.compiler.backend.kernels.matmul.stored import StoredAlgorithm
from parax.compiler.backend.lowering import LowerContext, WeightStore
from parax.compiler.backend.microkernels.stored import is_exact
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import BF16, F16, DType
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

TYPES = {F16: np.float16, BF16: ml_dtypes.bfloat16}


def weights(dtype: DType, *shape: int) -> np.ndarray:
    """Of f32, all numbers of a narrower type, its least and its greatest among them."""
    narrow = normal(*shape, seed=1).astype(TYPES[dtype])
    ends = np.array([65504.0, 2.0**-24, -(2.0**-14)] if dtype == F16 else [3.3895314e38, 2.0**-133, -(2.0**-126)])
    narrow.reshape(-1)[: min(3, narrow.size)] = ends[: min(3, narrow.size)].astype(TYPES[dtype])
    return narrow.astype(np.float32)


def graph_of(w: np.ndarray, shape: str, transposed: bool = False) -> Graph:
    """x by w, and something after it that the tile computes as well."""
    product = "Gemm(%x, %w) {transB=1}" if transposed else "MatMul(%x, %w)"
    graph = parse_graph(
        f'graph @g(%x: f32[{shape}]) {{\n%w = const f32[{w.shape[0]},{w.shape[1]}] "w"\n%y = {product}\nreturn %y\n}}',
        {"w": w},
    )
    assert isinstance(graph, Graph)
    return graph


def computed(graph: Graph, x: np.ndarray, target: Target, stored: bool, rows: bool = False) -> tuple[np.ndarray, int]:
    """What a target computes, and the bytes that its weights take; this machine runs its own code."""
    with pytest.MonkeyPatch.context() as patch:
        if not stored:
            patch.setattr(StoredAlgorithm, "applies", lambda self, ctx, layer: False)
        program = Program(graph.clone(), target, ("N",) if rows else ())
    symbols = {"N": len(x)} if rows else {}
    if target.supported_by(host_features()):
        (y,) = program.run_all([({"x": x}, symbols)], USUAL)[0]
    else:
        (y,) = interpreted(program, {"x": x}, symbols)
    return y, program.context.weights.nbytes


@thorough(40)
@given(
    dtype=st.sampled_from([F16, BF16]),
    rows=st.integers(1, 40),
    depth=st.integers(1, 70),
    columns=st.integers(1, 150),
    transposed=st.booleans(),
    is_open=st.booleans(),
)
def test_the_same_bits(dtype: DType, rows: int, depth: int, columns: int, transposed: bool, is_open: bool) -> None:
    w, x = weights(dtype, depth, columns), normal(rows, depth)
    graph = graph_of(w.T.copy() if transposed else w, f"{'N' if is_open else rows},{depth}", transposed)
    for target in host_targets()[:2]:
        found, expected = (computed(graph, x, target, stored, is_open)[0] for stored in (True, False))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("dtype", TYPES)
def test_every_target_has_the_same_numbers(dtype: DType, target: Target) -> None:
    w, x = weights(dtype, 37, 70), normal(7, 37)
    found, expected = (computed(graph_of(w, "7,37"), x, target, stored)[0] for stored in (True, False))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_an_infinity_and_a_large_depth(dtype: DType) -> None:
    """Several blocks of k; infinite weights are numbers of 16 bits, too."""
    w, x = weights(dtype, 9000, 65), normal(3, 9000)
    w[4000, 7], w[17, 64] = np.inf, -np.inf
    found, expected = (computed(graph_of(w, "3,9000"), x, host_targets()[0], stored)[0] for stored in (True, False))
    np.testing.assert_array_equal(found, expected)
    assert np.isinf(found[:, [7, 64]]).all() and np.isfinite(np.delete(found, [0, 1, 2, 7, 64], axis=1)).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_weights_take_half_the_bytes(dtype: DType) -> None:
    graph, x = graph_of(weights(dtype, 512, 256), "1,512"), normal(1, 512)
    half, whole = (computed(graph, x, host_targets()[0], stored)[1] for stored in (True, False))
    assert half <= 0.51 * whole


@pytest.mark.parametrize("number", [1 + 2.0**-20, np.nan, 1e-9 * np.pi, -1e30])
def test_one_number_more_is_no_number_of_f16(number: float) -> None:
    w = weights(F16, 512, 64)
    assert is_exact(w, F16)
    w[500, 3] = number
    assert not is_exact(w, F16)


@pytest.mark.parametrize("name, rows, share", [
    ("x86-64-v4", 1, 0.55), ("x86-64-v4", 1000, 1.0), ("x86-64-v3", 1, 0.55),
])  # fmt: skip
def test_it_costs_no_more_where_widening_has_units_of_its_own(name: str, rows: int, share: float) -> None:
    assert cost(name, "", rows) <= share


@pytest.mark.parametrize("rows, taken", [(1, True), (6, True), (200, False), ("N", False)])
def test_intels_wide_vectors_widen_for_few_rows_alone(rows: Any, taken: bool) -> None:
    assert (cost("x86-64-v4", "sapphirerapids", rows) <= 1) == taken


def cost(name: str, tune: str, rows: Any) -> float:
    """The expected share of f32's time."""
    (node,) = graph_of(weights(F16, 64, 128), f"{rows},64")
    fusion = Fusion.of(node)
    ctx = LowerContext(replace(TARGETS[name], tune=tune), ("N",), WeightStore())
    return StoredAlgorithm(F16).cost(ctx, ProductLayer(fusion, matrices_of(fusion)))
