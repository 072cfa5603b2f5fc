"""Random inputs: sizes, ranges, types; and which inputs index a table."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.compiler.samples import random_inputs
from parax.compiler.sizes import symbol_sizes
from parax.runtime.manifest import TensorSpec


def embedding() -> object:
    """ids i64[N,S] → a row each of a table of 5 rows."""
    table = numpy_helper.from_array(np.arange(10, dtype=np.float32).reshape(5, 2), "table")
    graph = helper.make_graph(
        [helper.make_node("Identity", ["ids"], ["same"]), helper.make_node("Gather", ["table", "same"], ["y"])],
        "embedding",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["N", "S"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "S", 2])],
        [table],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def test_an_input_that_indexes_a_table_is_bounded_by_it() -> None:
    assert parax.compile(embedding()).manifest.samples.ranges == {"ids": (0, 4)}


def test_sizes_are_given_or_batch_or_default_and_keep_to_their_bounds() -> None:
    manifest = parax.compile(embedding(), dims={"S": (1, 7)}).manifest
    assert symbol_sizes(manifest, {}, 3) == {"N": 3, "S": 7}
    assert symbol_sizes(manifest, {"S": 2, "N": 9}, 3) == {"N": 9, "S": 2}
    with pytest.raises(parax.UsageError, match="no such symbolic dimension"):
        symbol_sizes(manifest, {"T": 2}, 3)


def test_values_fit_types_and_bounds() -> None:
    plan = parax.compile(embedding())
    inputs = random_inputs(plan.inputs, {"N": 50, "S": 4}, np.random.default_rng(0), {"ids": (0, 4)})
    assert inputs["ids"].shape == (50, 4)
    assert inputs["ids"].dtype == np.int64
    assert set(np.unique(inputs["ids"])) == {0, 1, 2, 3, 4}


def test_a_range_is_of_sizes_and_may_be_negative_or_empty() -> None:
    plan, rng = parax.compile(embedding()), np.random.default_rng(0)
    sizes = {"N": 50, "S": 4}
    behind = random_inputs(plan.inputs, sizes, rng, {"ids": (-2, ("+", ("*", -1, "S"), 3))})
    assert set(np.unique(behind["ids"])) == {-2, -1}
    with pytest.raises(parax.UsageError, match="no place"):
        random_inputs(plan.inputs, sizes, rng, {"ids": (0, ("+", ("*", -1, "S"), 3))})


def test_other_integers_are_flags() -> None:
    plan = parax.compile(embedding())
    inputs = random_inputs(plan.inputs, {"N": 50, "S": 4}, np.random.default_rng(0))
    assert set(np.unique(inputs["ids"])) == {0, 1}


@pytest.mark.parametrize("dtype", ["f32", "bool", "i64", "u8", "f16"])
def test_scalars_are_arrays_as_other_implementations_want_them(dtype: str) -> None:
    made = random_inputs([TensorSpec("x", dtype, ())], {}, np.random.default_rng(0))["x"]
    assert isinstance(made, np.ndarray) and made.shape == ()
