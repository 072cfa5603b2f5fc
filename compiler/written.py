"""The last phases of a compilation: object code of the linked modules, and the plan that holds it.

Owns what goes into a plan and what a user is told of it.
"""

from __future__ import annotations

from typing import Any

from ..errors import ResourceLimit
from ..log import inform
from ..runtime.dims import evaluate
from ..runtime.interface import interface_digests, marked_code
from ..runtime.plan import Plan
from ..runtime.topology import choose_cores
from .backend.objects import compile_objects
from .compilation import Compilation
from .host_work import OUTSIDE
from .ir.graph import Graph
from .ir.text import print_graph
from .lowered import Lowered
from .manifest import build_manifest
from .options import CompileOptions
from .passes.text import print_passes
from .profiling import PROFILE, notes


def assembled(low: Lowered, run: Compilation) -> dict[str, bytes]:
    """The phase that makes object code, by the name of the target."""
    with run.phase("code", 0.5):
        jobs = run.options.jobs or len(choose_cores(None))
        return compile_objects(low.modules, 2, jobs, run.options.cache_dir if run.options.cache else None)


def written(graph: Graph, low: Lowered, code: dict[str, bytes], run: Compilation) -> Plan:
    """The phase that makes the plan.

    Raises:
        ResourceLimit: it needs more memory than the options allow.
    """
    with run.phase("write", 0.97):
        raw, weights = manifest_of(low, run), low.weights.to_bytes()
        marked = {name: marked_code(data, interface_digests(raw, name, len(weights))) for name, data in code.items()}
        plan = Plan.build(raw, marked, weights, print_graph(graph))
    inform(_decided(plan, run))
    check_memory(plan, run.options)
    run.progress("done", 1.0)
    return plan


def manifest_of(low: Lowered, run: Compilation) -> dict[str, Any]:
    """The plan's manifest, without what depends on object code."""
    assert run.decision is not None
    raw = build_manifest(low.block, low.segments, low.targets, low.symbols, low.errors, low.weights, low.rows,
                         run.decision, low.tuner.choices, run.options, run.indexing, low.programs)  # fmt: skip
    if low.rows is None and low.not_split:
        raw["provenance"]["not_split"] = low.not_split
    if run.trace:  # whose kernel each recorded call is
        raw["provenance"][PROFILE] = notes(low.block, low.segments[0], low.memory, run.decision.machine)
    if run.options.passes is not None:
        raw["provenance"]["passes"] = print_passes(run.passes.passes, run.passes.step_passes)
    if low.host.operators:
        raw["provenance"][OUTSIDE] = str(low.host)
    return raw


def _decided(plan: Plan, run: Compilation) -> str:
    """What was decided for the user, in one line: the batch, what runs outside native code, instances and why."""
    manifest = plan.manifest
    parts = [f"batch {manifest.batch.symbol}" if manifest.batch else f"no batch ({'; '.join(manifest.not_split)})"]
    if outside := manifest.provenance.get(OUTSIDE):
        parts.append(f"{OUTSIDE}: {outside}")
    choice = run.decision.choice if run.decision else None
    if choice is not None:
        parts.append(f"{choice.candidate.name} on {choice.machine}: {'; '.join(choice.reasons)}")
    return f"compiled {plan.name!r}: {', '.join(parts)}"


def check_memory(plan: Plan, options: CompileOptions) -> None:
    """Refuse a plan above `options.max_memory`, symbols taken at their least above 0."""
    if options.max_memory is None:
        return
    least = {s.name: max(s.min, 1) for s in plan.manifest.symbols}
    scheduled = plan.manifest.scheduled
    arenas = [evaluate(step.arena, least) + evaluate(step.scratch, least) for step in plan.manifest.native_steps()]
    other = evaluate(scheduled.step.arena, least) + evaluate(scheduled.step.scratch, least) if scheduled else 0
    need = len(plan.weights) + max(sum(arenas), other)
    if need > options.max_memory:
        raise ResourceLimit("the plan needs too much memory", expected=f"at most {options.max_memory} bytes",
                            found=f"{need} bytes", hint="raise --max-memory or make a dimension smaller")


__all__ = ["assembled", "check_memory", "manifest_of", "written"]
