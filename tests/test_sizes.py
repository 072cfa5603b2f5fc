"""Sizes of open dimensions that belong together: proposed where something is left open, named where nothing fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import parax
from decoders import PLACES, decoder
from parax.compiler.check import check
from parax.compiler.samples import random_inputs
from parax.compiler.sizes import DEFAULT_SIZE, naming_sizes, symbol_sizes
from parax.runtime.manifest import Manifest


def manifest_of(text: str, **options: object) -> Manifest:
    header = '<ir_version: 8, opset_import: ["": 17]> '
    return parax.compile(onnx.parser.parse_model(header + text), **options).manifest  # type: ignore[arg-type]


def test_the_length_of_a_mask_follows_from_past_and_present() -> None:
    for mask in ("added", "looked up"):
        manifest = parax.compile(decoder(mask)).manifest
        assert symbol_sizes(manifest, {}, 3) == {"B": 3, "S": DEFAULT_SIZE, "T": 2 * DEFAULT_SIZE, "P": DEFAULT_SIZE}
        length = 6 if mask == "added" else DEFAULT_SIZE  # what is looked up may lie in a longer mask
        assert symbol_sizes(manifest, {"S": 1, "P": 5}, 1) == {"B": 1, "S": 1, "T": length, "P": 5}
        assert symbol_sizes(manifest, {"S": 3, "T": 8}, 1)["P"] == 5
        small = symbol_sizes(manifest, {"T": 8}, 1)
        assert small["S"] + small["P"] == 8
        assert 0 < small["S"] < 8


def test_a_past_of_nothing_is_taken_only_where_nothing_else_fits() -> None:
    assert symbol_sizes(parax.compile(decoder()).manifest, {"S": 4, "T": 4}, 1) == {"B": 1, "S": 4, "T": 4, "P": 0}


def test_tables_bound_the_sizes_that_are_counted_along_them() -> None:
    sizes = symbol_sizes(parax.compile(decoder("looked up", "counted")).manifest, {}, 1)
    assert DEFAULT_SIZE < sizes["S"] + sizes["P"] <= PLACES
    assert sizes["T"] >= sizes["S"] + sizes["P"]


@pytest.mark.parametrize("mask", ["added", "looked up"])
@pytest.mark.parametrize("positions", ["given", "counted"])
def test_a_decoder_needs_nothing_said(mask: str, positions: str) -> None:
    model = decoder(mask, positions)
    check(parax.compile(model), model, times=3)


def test_sizes_that_do_not_fit_are_named_with_the_relation() -> None:
    manifest = parax.compile(decoder()).manifest
    with pytest.raises(parax.UsageError, match=r"P\+S == T.*change one of --dim S T P") as caught:
        symbol_sizes(manifest, {"S": 4, "T": 9, "P": 4}, 1)
    assert "do not broadcast" in str(caught.value)
    with pytest.raises(parax.UsageError, match=r"P\+S == T.*give --dim P=…, or leave out one of --dim S T"):
        symbol_sizes(manifest, {"S": 9, "T": 4}, 1)


def test_given_sizes_that_break_a_condition_are_run_and_the_error_names_it() -> None:
    plan = parax.compile(decoder("looked up"))
    sizes = symbol_sizes(plan.manifest, {"S": 4, "T": 5, "P": 4}, 1)
    inputs = random_inputs(plan.inputs, sizes, np.random.default_rng(0), plan.manifest.samples.ranges)
    with plan.session() as session, pytest.raises(parax.InvalidInput) as caught, naming_sizes(plan.manifest, sizes):
        session.run(inputs)
    assert "S=4 T=5 P=4; which breaks P+S <= T" in str(caught.value)


def test_bounds_hold_for_what_is_derived() -> None:
    manifest = parax.compile(decoder(), dims={"T": (1, 40), "P": (1, 30)}).manifest
    sizes = symbol_sizes(manifest, {}, 1)
    assert sizes["T"] == sizes["S"] + sizes["P"] <= 40
    assert sizes["P"] <= 30


def test_sizes_are_raised_until_outputs_hold_something() -> None:
    manifest = manifest_of("""
      g (float[N,L] x) => (float[N,M] y) <int64[1] a = {100}, int64[1] b = {1000000}, int64[1] axis = {1}> {
        y = Slice(x, a, b, axis)
      }""")
    assert symbol_sizes(manifest, {}, 1) == {"N": 1, "L": 101}
    assert symbol_sizes(manifest, {"L": 99}, 1) == {"N": 1, "L": 99}


def test_a_length_that_must_divide_is_one_that_does() -> None:
    manifest = manifest_of("""
      g (float[N,L] x) => (float[N,M,48] y) { s = Constant<value_ints=[0, -1, 48]>() y = Reshape(x, s) }""")
    assert symbol_sizes(manifest, {}, 1)["L"] % 48 == 0


def test_plans_keep_what_samples_need(tmp_path: Path) -> None:
    plan = parax.compile(decoder("looked up"))
    plan.save(tmp_path / "plan.bin")
    kept = parax.load(tmp_path / "plan.bin").manifest.samples
    assert kept == plan.manifest.samples
    assert kept.ranges["ids"] == (0, 49)
    assert [(c.op, c.right) for c in kept.conditions] == [("<=", "T")]
