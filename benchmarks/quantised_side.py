"""One model of `python -m benchmarks.quantised` in a process of its own: `python -m benchmarks.quantised_side JSON`.

Prints one line of JSON: what `--precision auto` takes and says, what that loses on data it has not seen, how fast it is
beside f32, measured anew, and what bf16, int8 and int4-weights would be. Owns the procedure.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

import parax
from parax import CompileOptions
from parax.compiler.backend.costs import costs_at
from parax.compiler.driver import quiet
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.text import parse_graph
from parax.compiler.planner.host_machine import machine_here
from parax.compiler.planner.partition.simulate import Sequential, graph_works, simulate
from parax.compiler.precision.gates import decided
from parax.compiler.precision.metrics import MeanSquare, Top1
from parax.compiler.precision.samples import Request
from parax.compiler.precision.speed import measured_gain
from parax.errors import ParaxError, UnsupportedOp, UsageError
from parax.runtime.plan import Plan
from parax.runtime.topology import choose_cores

from .cases import open_case
from .quantised_data import Inputs, variations

Record = dict[str, Any]
LOWER = ("bf16", "int8", "int4-weights")
ANY = 1e9  # of accuracy lost


def measured(name: str, folder: Path, n_samples: int, budget: float) -> Record:
    """The record of a model: see the module.

    Raises:
        ParaxError: as parax.compile: the budget is not met by f32 itself, say.
    """
    case = open_case(f"shared/{name}", small=False, batches=(), folder=folder, work=folder)
    stacked = variations(case.runs, n_samples)
    seen = {key: array[0::2] for key, array in stacked.items()}
    unseen = [Request({key: a[i] for key, a in stacked.items()}, {}, 1) for i in range(1, n_samples, 2)]
    plain = CompileOptions()
    asked = replace(plain, precision="auto", calibration=seen, max_accuracy_drop=budget)
    try:
        f32 = parax.compile(case.path, options=plain)
        found = decided(case.path, asked)
    except (UsageError, UnsupportedOp) as error:
        return {"status": "refused", "problem": str(error)}
    lost = losses(f32, found.plan, unseen)
    same = found.record.taken == "fp32" and identical(found.plan, f32)
    gain = None if same else asdict(measured_gain(found.plan, f32, unseen[0], quiet))
    sizes = {key: tuple(array.shape[1:]) for key, array in stacked.items()}
    return {
        "status": "ok", **found.record.to_json(), "n_unseen": len(unseen), **lost, "is_f32": same, "measured": gain,
        "predicted": predicted_gain(found.plan, f32, sizes), "nbytes": len(f32.weights),
        "lower": {precision: lower(case.path, precision, seen, f32) for precision in LOWER},
    }  # fmt: skip


def losses(f32: Plan, plan: Plan, unseen: list[Request]) -> Record:
    """`lost`: by MeanSquare; `agreement`: of the largest output, None where outputs are no lines of several floats."""
    with f32.session() as exact, plan.session() as session:
        before, after = ([each.run(request.inputs) for request in unseen] for each in (exact, session))
    first = next((array for array in before[0].values() if array.dtype.kind == "f"), None)
    classes = first is not None and first.ndim in (1, 2) and first.shape[-1] > 1
    return {"lost": MeanSquare().drop(before, after, unseen),
            "agreement": 1 - Top1().drop(before, after, unseen) if classes else None}  # fmt: skip


def identical(plan: Plan, f32: Plan) -> bool:
    """Whether both are one plan: of one graph, with the same weights."""
    return plan.manifest.graph_digest == f32.manifest.graph_digest and plan.weights == f32.weights


def predicted_gain(plan: Plan, f32: Plan, shapes: Mapping[str, tuple[int, ...]]) -> float:
    """f32's seconds of one request by the plan's, as the cost model of this machine has them."""
    return predicted_seconds(f32, shapes) / predicted_seconds(plan, shapes)


def predicted_seconds(plan: Plan, shapes: Mapping[str, tuple[int, ...]]) -> float:
    """Of one request on all cores."""
    graph, cores = parse_graph(plan.graph or ""), choose_cores(None)
    sizes = {str(dim): size for value in graph.inputs
             for dim, size in zip(value.tensor.dims, shapes[value.name], strict=True)}  # fmt: skip
    machine = machine_here(CompileOptions(), cores)
    works = graph_works(graph, sizes, costs_at(Fp.DEFAULT, machine), machine.caches(1, len(cores)))
    return simulate(works, machine, Sequential(len(cores))).total_seconds


def lower(path: Path, precision: str, seen: Inputs, f32: Plan) -> Record:
    """A precision as it is asked for: its plan's weights by f32's, what it loses by its own gate, and its speed."""
    data = None if precision in ("int4-weights",) else seen
    options = CompileOptions(precision=precision, calibration=data, max_accuracy_drop=ANY)
    try:
        plan = parax.compile(path, options=options)
    except UsageError as error:
        return {"problem": str(error)}
    record = plan.manifest.provenance["precision"]
    return {"weights": len(plan.weights) / max(1, len(f32.weights)), "drop": record["drop"], "gain": record["gain"]}


def main() -> int:
    """Entry point."""
    task = json.loads(sys.argv[1])
    np.seterr(all="ignore")
    try:
        record = measured(task["name"], Path(task["folder"]), task["samples"], task["budget"])
    except ParaxError as error:
        record = {"status": "error", "problem": f"{type(error).__name__}: {error}"}
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
