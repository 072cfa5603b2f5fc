"""Attention in blocks equals the products and the softmax one by one, for odd sizes, layouts, masks and targets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import host_targets, op, run_graph, run_node
from parax.compiler.ir.text import parse_graph
from parax.compiler.targets.target import Target
from sampling import thorough

PLAIN, HEADS_INSIDE = (0, 1, 2, 3), (0, 2, 1, 3)
KEYS_INSIDE = (0, 3, 1, 2)  # kᵀ as a view of keys whose heads are inside


def reference(q: np.ndarray, kt: np.ndarray, v: np.ndarray, mask: np.ndarray | None, scale: float) -> np.ndarray:
    scores = q.astype(np.float64) @ kt.astype(np.float64) * scale
    scores = scores if mask is None else (scores.astype(np.float32) + mask).astype(np.float64)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v.astype(np.float64)


def operands(n: int, h: int, m: int, s: int, d: int, e: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, np.float32) for shape in ((n, h, m, d), (n, h, d, s), (n, h, s, e))]


def check(arrays: list[np.ndarray], mask: np.ndarray | None, scale: float, **options: object) -> None:
    out_layout = options.pop("out_layout", None)
    found = run_node(op("DotProductAttention", "parax", scale=scale), [*arrays, mask][: 3 + (mask is not None)],
                     out_layouts=[out_layout], **options)[0]  # type: ignore[arg-type]  # fmt: skip
    np.testing.assert_allclose(found, reference(*arrays, mask, scale), rtol=2e-4, atol=2e-5)


@thorough(25, deadline=None)
@given(n=st.integers(1, 2), h=st.integers(1, 3), m=st.integers(1, 60), s=st.integers(1, 140), d=st.integers(1, 70),
       e=st.integers(1, 90), masked=st.sampled_from(["no", "keys", "heads", "full"]), inside=st.booleans(),
       target=st.sampled_from(host_targets()))  # fmt: skip
def test_odd_sizes(n: int, h: int, m: int, s: int, d: int, e: int, masked: str, inside: bool, target: Target) -> None:
    shapes = {"keys": (n, 1, 1, s), "heads": (h, m, 1), "full": (n, h, m, s)}
    mask = np.random.default_rng(1).standard_normal(shapes[masked]).astype(np.float32) if masked in shapes else None
    layouts = [HEADS_INSIDE, KEYS_INSIDE, HEADS_INSIDE, None] if inside else None
    check(operands(n, h, m, s, d, e), mask, 0.3, layouts=layouts, target=target,
          out_layout=HEADS_INSIDE if inside else None)  # fmt: skip


@pytest.mark.parametrize("keys", [511, 512, 513, 1100])
def test_several_blocks_of_keys(keys: int) -> None:
    arrays = operands(1, 2, 50, keys, 16, 24)
    arrays[0] *= 4  # the greatest score moves from block to block
    check(arrays, None, 1.0)


@pytest.mark.parametrize("hidden", [slice(0, 600), slice(500, 700)])
def test_masked_keys_count_for_nothing_even_if_a_whole_block_is(hidden: slice) -> None:
    arrays = operands(1, 1, 9, 700, 8, 8)
    mask = np.zeros((1, 1, 1, 700), np.float32)
    mask[..., hidden] = -np.inf
    check(arrays, mask, 0.5)


def test_a_query_without_keys_is_no_number() -> None:
    arrays = operands(1, 1, 8, 20, 8, 8)
    mask = np.zeros((8, 20), np.float32)
    mask[3] = -np.inf
    found = run_node(op("DotProductAttention", "parax"), [*arrays, mask])[0]
    assert np.isnan(found[0, 0, 3]).all() and np.isfinite(np.delete(found, 3, axis=2)).all()


def test_without_keys_at_run_time_all_is_zero() -> None:
    text = """graph @g(%q: f32[1,2,9,8], %k: f32[1,2,8,S], %v: f32[1,2,S,8]) {
      %y = parax::DotProductAttention(%q, %k, %v)\n return %y\n}"""
    feeds = dict(zip("qkv", operands(1, 2, 9, 0, 8, 8), strict=True))
    (found,) = run_graph(parse_graph(text), feeds, {"S": 0})
    np.testing.assert_array_equal(found, np.zeros((1, 2, 9, 8)))


LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("keys", [20, 700])
@pytest.mark.parametrize("low", [-1e9, -2.3e38, -2.4e38, -LARGEST])
def test_a_query_whose_keys_all_have_the_lowest_mask_takes_their_mean(low: float, keys: int) -> None:
    """What exporters write for "no attention", often for whole rows: beside it scores are too small to count."""
    arrays = operands(1, 1, 9, keys, 8, 8)
    mask = np.zeros((9, keys), np.float32)
    mask[3], mask[4, keys // 2 :], mask[5, :600] = low, low, low
    mask[6], mask[6, 7] = -LARGEST, -2e38  # the greater of two very low ones takes all
    check(arrays, mask, 0.5)


@pytest.mark.parametrize("size", [2.3e38, 3e38])
def test_scores_may_be_as_large_as_numbers_are(size: float) -> None:
    arrays = operands(1, 1, 9, 20, 8, 8)
    arrays[0][:], arrays[1][:] = 1e19, size / 8e19
    arrays[1][..., 5] *= -1
    check(arrays, None, 1.0)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_symbolic_sizes(axis: int) -> None:
    check(operands(2, 3, 37, 41, 16, 16), None, 0.25, symbols={"S": axis})


def test_any_layout_and_a_mask_read_across() -> None:
    arrays = operands(2, 2, 33, 35, 16, 20)
    mask = np.random.default_rng(2).standard_normal((2, 2, 33, 35)).astype(np.float32)
    check(arrays, mask, 1.0, layouts=[(3, 0, 1, 2), (1, 2, 3, 0), (3, 2, 1, 0), (0, 1, 3, 2)])
