"""Kernels of the catalogue's cases, as the operators' generators build them: no LLVM, no memory, any target."""

from __future__ import annotations

from backend.harness import expand_composites, lowered_calls
from catalogue.cases import Case, all_cases
from catalogue.running import build
from parax.compiler.backend.lowering import LowerContext, WeightStore
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.ops.base import Host
from parax.compiler.kernel_ir.loops import KFunc, all_functions
from parax.compiler.targets.target import Target

CASES = [case for case in all_cases() if not issubclass(lookup(case.domain, case.op), Host)]


def functions_of(case: Case, target: Target) -> list[KFunc]:
    """The functions of a case's kernels, callees before callers."""
    graph, _, symbols, _ = build(case)
    expand_composites(graph)
    calls = lowered_calls(graph, LowerContext(target, tuple(symbols), WeightStore()))
    return all_functions([call.func for _, call in calls])
