"""A compiled plan against another implementation on fresh random inputs.

Owns the procedure; what counts as equal is in `compare`, where the right answer comes from in `frontend.oracle`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import AccuracyMismatch
from .compare import Difference, Tolerance
from .frontend.oracle import best_kind, oracle
from .frontend.precision import precision
from .row_order import differences
from .samples import random_inputs
from .sizes import naming_sizes, symbol_sizes

if TYPE_CHECKING:
    from ..runtime.plan import Plan
    from .frontend.parse import Source


@dataclass(frozen=True)
class Procedure:
    """How a plan is compared.

    Args:
        kind: "onnxruntime" or "reference".
        times: how many random inputs.
        sizes: symbol → size.
        seed: of the random inputs.
        instances, cores_per_instance: how the plan's session is set up.
        rtol, atol: what may differ; None: by the types of what is computed, see `compare`.
    """

    kind: str
    sizes: Mapping[str, int]
    times: int = 1
    seed: int = 0
    instances: int | None = None
    cores_per_instance: int | None = None
    rtol: float | None = None
    atol: float | None = None


def compare_with_oracle(plan: Plan, model: Source, how: Procedure) -> Iterator[list[Difference]]:
    """Run both on `how.times` random inputs; one list of differences, an entry per output, for each."""
    right, of_model = oracle(model, how.kind), precision(model)
    allowed, rounded = Tolerance(how.rtol, how.atol, of_model.coarsest), of_model.rounded
    ranges, rng = plan.manifest.samples.ranges, np.random.default_rng(how.seed)
    with plan.session(instances=how.instances, cores_per_instance=how.cores_per_instance) as session:
        for _ in range(how.times):
            inputs = random_inputs(plan.inputs, how.sizes, rng, ranges)
            with naming_sizes(plan.manifest, how.sizes):
                found = session.run(inputs)
            expected = right(inputs)
            yield differences(found, expected, allowed, rounded)


def check(plan: Plan, model: Source, *, times: int) -> None:
    """Compare on `times` random inputs; what says little is warned of.

    Raises:
        AccuracyMismatch: an output differs by more than the rule allows.
    """
    kind, warned = best_kind(), dict[str, None]()
    sizes = symbol_sizes(plan.manifest, {}, 1)
    for found in compare_with_oracle(plan, model, Procedure(kind, sizes, times)):
        for each in found:
            if not each.passed:
                raise AccuracyMismatch(f"differs from {kind}: {each.problem}", where=f"output {each.name}")
            if each.warning:
                warned[f"output {each.name}: {each.warning}"] = None
    for text in warned:
        warnings.warn(f"compared with {kind}: {text}", stacklevel=2)
