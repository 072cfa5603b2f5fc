"""Philox4x32-10 against its published vectors; masks against the same generator written with NumPy's integers."""

from __future__ import annotations

import numpy as np
import pytest

from backend.harness import host_targets, op, run_graph, run_node
from backend.kernels.plain_random import plain_philox, plain_words
from parax.compiler.backend.kernels.random import philox
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import U32
from parax.compiler.kernel_ir.builder import Builder
from parax.compiler.kernel_ir.interpreter import Pointer, interpret
from parax.compiler.kernel_ir.loops import PtrType

VECTORS = [  # of Random123's kat_vectors: counter, key, result
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> np.ndarray:
    return np.array([int(word, 16) for word in text.split()], np.uint32)


def plain_mask(n: int, ratio: float, seed: int, step: int = 0, first: int = 0) -> np.ndarray:
    """The mask of n elements from `first` on."""
    return plain_words(n, seed, step, first) >= np.uint64(int(np.float64(np.float32(ratio)) * 2**32))


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_the_published_vectors(counter: str, key: str, expected: str) -> None:
    k = Builder("philox", [(n, PtrType(U32)) for n in ("c", "k", "y")])
    found = philox(k, [k.load(k["c"], i) for i in range(4)], [k.load(k["k"], i) for i in range(2)])
    for i, word in enumerate(found):
        k.store(k["y"], i, word)
    result = np.zeros(4, np.uint32)
    interpret(k.func, [Pointer(a.view(np.uint8)) for a in (words(counter), words(key), result)])
    np.testing.assert_array_equal(result, words(expected))
    np.testing.assert_array_equal(plain_philox(words(counter)[:, None], tuple(map(int, words(key))))[:, 0], result)


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize(("shape", "step", "first"), [
    ((1,), 0, 0), ((64,), 1, 0), ((3, 50), 2, 7), ((5, 1000), 3, 2**34 + 63), ((2, 4096), 2**40 + 5, 64),
    ((9001,), 0, 1),
])  # fmt: skip
def test_masks(target, shape, step, first) -> None:
    for seed, ratio in ((0, 0.5), (-3, 0.1), (2**40 + 1, 0.999)):
        (mask,) = run_node(op("RandomMask", "parax"), [np.array(shape), np.float32(ratio), np.int64(seed),
                           np.array([step, first])], constants=[0], target=target)  # fmt: skip
        np.testing.assert_array_equal(mask, plain_mask(mask.size, ratio, seed, step, first).reshape(shape))


@pytest.mark.parametrize(("ratio", "kept"), [(0.0, 1.0), (1.0, 0.0), (0.25, 0.75)])
def test_the_share_that_is_kept(ratio: float, kept: float) -> None:
    (mask,) = run_node(op("RandomMask", "parax"), [np.array([1 << 18]), np.float32(ratio), np.int64(7)], constants=[0])
    assert abs(mask.mean() - kept) <= 5 * np.sqrt(kept * (1 - kept) / mask.size)


def test_pieces_of_a_batch_are_pieces_of_its_mask() -> None:
    def run(n: int, first: int) -> np.ndarray:
        position = np.array([4, 37 * first])
        operands = [np.array([n, 37]), np.float32(0.3), np.int64(7), position]
        return run_node(op("RandomMask", "parax"), operands, constants=[0])[0]

    np.testing.assert_array_equal(np.concatenate([run(5, 0), run(11, 5)]), run(16, 0))


def test_no_elements() -> None:
    graph = parse_graph("""graph @g(%s: f32[N,3]) {
      %r = const f32[] 0.5
      %k = const i64[] 1
      %n = Shape(%s)
      %m = parax::RandomMask(%n, %r, %k)
      return %m
    }""")
    assert run_graph(graph, {"s": np.zeros((0, 3), np.float32)}, {"N": 0})[0].shape == (0, 3)


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize(("shape", "step", "first"), [((1,), 0, 0), ((3, 50), 2, 7), ((5, 1000), 3, 2**34 + 63)])
def test_words_are_those_that_masks_compare(target, shape, step, first) -> None:
    (found,) = run_node(op("RandomBits", "parax"), [np.array(shape), np.int64(-3), np.array([step, first])],
                        constants=[0], target=target)  # fmt: skip
    assert found.dtype == np.uint32 and found.shape == shape
    np.testing.assert_array_equal(found.ravel(), plain_words(found.size, -3, step, first))
