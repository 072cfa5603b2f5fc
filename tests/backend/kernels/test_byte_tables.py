"""Functions of a byte by their table, against indexing: in vectors and one by one, of both types and any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import op, run_node
from parax.compiler.backend.byte_products import features_for
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.backend.llvm_memory import LOOKUP_FEATURE
from parax.compiler.ir.text import parse_graph
from sampling import thorough

TARGETS = [resolve_target("native"), resolve_target("native", frozenset({LOOKUP_FEATURE}))]


def check(shape: tuple[int, ...], vectors: bool, dtype: type, layout: tuple[int, ...] | None = None,
          symbols: dict[str, int] | None = None) -> None:  # fmt: skip
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, shape).astype(np.uint8)
    table = rng.integers(0, 256, 256).astype(np.uint8).view(dtype)
    (y,) = run_node(op("ByteTable", domain="parax"), [x, table], constants=[1], layouts=[layout, None],
                    symbols=symbols, target=TARGETS[vectors])  # fmt: skip
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, table[x])


@pytest.mark.parametrize("vectors", [False, True])
@thorough(30)
@given(rows=st.integers(1, 5), columns=st.integers(1, 300), symbolic=st.booleans(),
       dtype=st.sampled_from([np.uint8, np.int8]))  # fmt: skip
def test_any_size(vectors: bool, rows: int, columns: int, symbolic: bool, dtype: type) -> None:
    check((rows, columns), vectors, dtype, symbols={"N": 0} if symbolic else None)


@pytest.mark.parametrize("shape", [(1,), (64,), (5000,), (3, 70, 9)], ids=str)
def test_sizes_around_a_register(shape: tuple[int, ...]) -> None:
    check(shape, True, np.uint8)


def test_elements_that_are_not_side_by_side() -> None:
    check((3, 5, 70), True, np.uint8, layout=(0, 2, 1))


@pytest.mark.usefixtures("any_target")
def test_plans_of_tables_may_use_the_instruction() -> None:
    table = f"%t = const u8[256] {list(range(256))}"
    text = f"graph @g(%x: u8[9]) {{\n{table}\n%y = parax::ByteTable(%x, %t)\nreturn %y\n}}"
    found = features_for(parse_graph(text, {}))
    assert found == {LOOKUP_FEATURE}
    assert features_for(parse_graph("graph @g(%x: f32[9]) {\n%y = Erf(%x)\nreturn %y\n}", {})) == set()
    able = resolve_target("native", frozenset({LOOKUP_FEATURE}))
    assert (LOOKUP_FEATURE in able.features) == (LOOKUP_FEATURE in host_features())
