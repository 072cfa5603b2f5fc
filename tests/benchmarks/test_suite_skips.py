"""Why cases of ONNX's suite that parax "fails" are not its errors: their own exact results fail, or are further off."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from benchmarks import suite_sides
from parax.compiler.shrinking.graphs import all_nodes

pytestmark = pytest.mark.slow  # the suite computes all its cases at once
DFT = ("test_dft_inverse", "test_dft_inverse_opset19")
ATTENTION = ("test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded")


@cache
def cases() -> dict[str, suite_sides.Case]:
    return {case.name: case for case in suite_sides.cases() if case.name in (*DFT, *ATTENTION)}


def fails(case: suite_sides.Case, found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return ~np.isclose(found.astype(np.float64), expected.astype(np.float64), case.rtol, case.atol)


def results(case: suite_sides.Case) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Inputs, what the suite expects, what parax gives."""
    ((inputs, (expected,)),) = case.data
    return inputs, expected, suite_sides.with_parax(case.model)(inputs)[0]


@pytest.mark.parametrize("name", DFT)
def test_the_exact_inverse_dft_fails_as_parax_does(name: str) -> None:
    case = cases()[name]
    assert any(n.op_type == "DFT" for n in all_nodes(case.model.graph))
    (x, *_), expected, found = results(case)
    z = np.fft.ifft(x[..., 0].astype(np.float64) + 1j * x[..., 1], axis=1)
    exact = np.stack([z.real, z.imag], -1)
    bad = fails(case, exact, expected)
    assert bad.sum() == 10 and np.abs(exact[bad]).max() < 1e-14 < 1e-7 < np.abs(expected[bad]).min()
    np.testing.assert_array_equal(fails(case, found, expected), bad)
    assert np.abs(found[bad]).max() < 1e-14


@pytest.mark.parametrize("name", ATTENTION)
def test_parax_is_nearer_to_attention_than_the_suite(name: str) -> None:
    """In steps of f16 from the result in f64, everywhere at most, and how many are not the nearest number."""
    case = cases()[name]
    (q, k, v, *_), expected, found = results(case)
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    share = np.exp(scores - scores.max(-1, keepdims=True))
    exact = share / share.sum(-1, keepdims=True) @ v
    nearest = exact.astype(np.float16)
    step = np.spacing(np.abs(nearest)).astype(np.float64)
    off, suite_off = (np.abs(y - exact) / step for y in (found, expected))
    assert off.max() < 1 < 1.4 < suite_off.max()
    assert (found != nearest).sum() < (expected != nearest).sum()
    bad = fails(case, found, expected)
    assert bad.sum() == 2
    assert ((found - exact) * (expected - exact))[bad].max() < 0  # one on each side
