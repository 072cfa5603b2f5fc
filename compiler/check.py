"""A compiled plan against another implementation on fresh random inputs.

Owns the procedure; what counts as equal is in `compare`, where the right answer comes from in `frontend.oracle`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import AccuracyMismatch
from .compare import ATOL, RTOL, Difference, difference
from .frontend.index_bounds import index_bounds
from .frontend.oracle import best_kind, oracle
from .samples import random_inputs, symbol_sizes

if TYPE_CHECKING:
    from ..runtime.plan import Plan
    from .frontend.parse import Source


@dataclass(frozen=True)
class Procedure:
    """How a plan is compared.

    Args:
        kind: "onnxruntime" or "reference".
        times: how many random inputs.
        sizes: symbol → size; the others take their defaults.
        batch: the size of the batch symbol.
        seed: of the random inputs.
        instances, cores_per_instance: how the plan's session is set up.
    """

    kind: str
    times: int = 1
    sizes: Mapping[str, int] | None = None
    batch: int = 1
    seed: int = 0
    instances: int | None = None
    cores_per_instance: int | None = None
    rtol: float = RTOL
    atol: float = ATOL


def compare_with_oracle(plan: Plan, model: Source, how: Procedure) -> Iterator[list[Difference]]:
    """Run both on `how.times` random inputs; one list of differences, an entry per output, for each."""
    right = oracle(model, how.kind)
    sizes = symbol_sizes(plan.manifest, how.sizes or {}, how.batch)
    bounds, rng = index_bounds(model), np.random.default_rng(how.seed)
    with plan.session(instances=how.instances, cores_per_instance=how.cores_per_instance) as session:
        for _ in range(how.times):
            inputs = random_inputs(plan.inputs, sizes, rng, bounds)
            expected, found = right(inputs), session.run(inputs)
            yield [difference(name, found[name], expected[name], how.rtol, how.atol) for name in expected]


def check(plan: Plan, model: Source, *, times: int) -> None:
    """Compare on `times` random inputs.

    Raises:
        AccuracyMismatch: an output differs by more than the rule allows.
    """
    kind = best_kind()
    for differences in compare_with_oracle(plan, model, Procedure(kind, times)):
        for each in differences:
            if not each.passed:
                raise AccuracyMismatch(f"differs from {kind}: {each.problem}", where=f"output {each.name}")
