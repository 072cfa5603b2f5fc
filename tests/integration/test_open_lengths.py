"""Rows stay independent where other dimensions are open too: requests are cut, whatever the length of their rows."""

from __future__ import annotations

import numpy as np
import pytest

import parax
from examples.models import build, feeds
from parax.compiler.frontend.oracle import best_kind, oracle
from parax.runtime.topology import choose_cores

N_CORES = len(choose_cores(None))


@pytest.mark.parametrize("options", [{"length": "S"}, {"length": "S", "norm": "fused"}])
def test_a_transformer_of_any_length_is_cut_along_its_batch(options: dict[str, str]) -> None:
    model = build("bert-base", small=True, options=options)
    plan = parax.compile(model)
    assert plan.manifest.batch is not None and plan.manifest.batch.symbol == "N"
    reference = oracle(model, best_kind())
    with plan.session(instances=1) as whole, plan.session(instances=N_CORES) as cut:
        for rows, length in ((1, 5), (2, 16), (3, 7), (8, 33), (5, 1)):
            x = feeds("bert-base", rows, small=True, options={"length": length})
            found, expected = cut.run(x), reference(x)
            for name, value in whole.run(x).items():
                np.testing.assert_array_equal(found[name], value)
                np.testing.assert_allclose(value, expected[name], 1e-4, 1e-4)
