"""Small graphs of the catalogue's cases give the same bits however cores share them: instances, layers, pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random

import numpy as np
import pytest

from catalogue.cases import Case, Constant
from catalogue.running import assert_close, build, expected
from contract.variants import cases_of
from parax import CompileOptions
from parax.compiler import driver
from parax.compiler.compilation import Compilation
from parax.compiler.ir.graph import Graph, Value
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.types import NARROW, TensorType
from parax.compiler.passes.dataflow.batch_rows import batch_rows
from parax.runtime import Plan
from parax.runtime.topology import machine
from schedules import random_schedule

CORES = machine().default_cores()
TOGETHER = 8  # cases in a graph
SEEDS = 6
BATCH = 3
BY_OPERATOR = cases_of()


def rows_of(case: Case) -> bool:
    """Whether the batch is operand 0's first axis, and no other operand has a symbol."""
    first, *others = case.operands
    return isinstance(first, str) and f"[N={BATCH}" in first and "=" not in first.replace(f"N={BATCH}", "") and all(
        o is None or isinstance(o, Constant) for o in others)  # fmt: skip


def is_static(case: Case) -> bool:
    return not any(isinstance(o, str) and "=" in o for o in case.operands)


def joined(cases: Sequence[Case]) -> tuple[Graph, dict[str, np.ndarray], list[tuple[Case, list[np.ndarray]]]]:
    """One graph with each case's operator and a negation of its results, inputs, and what the oracle wants of each."""
    graph, feeds, results, wanted = Graph("joined"), {}, [], []
    for i, case in enumerate(cases):
        own, given, _, contents = build(case)
        with np.errstate(all="ignore"):
            wanted.append((case, [np.asarray(a) for a in expected(case, contents)]))
        inner: dict[Value, Value] = {c: graph.add_constant(c.data, f"c{i}_{c.name}") for c in own.constants}
        for v in own.inputs:
            inner[v] = graph.add_input(f"x{i}_{v.name}", v.type)
            feeds[inner[v].name] = given[v.name]
        (node,) = own
        operands = [None if v is None else inner[v] for v in node.inputs]
        made = graph.add_node(node.op, operands, n_outputs=len(node.outputs), name=f"{case.op} {i}")
        results += [_twice_negated(graph, v) for v in made.outputs]
    graph.set_outputs(results)
    return graph, feeds, wanted


def _twice_negated(graph: Graph, v: Value) -> Value:
    """So that there is something that works in place."""
    if not isinstance(v.type, TensorType) or not v.type.dtype.is_float or v.type.dtype in NARROW:
        return v
    return graph.add_node(lookup("", "Neg")(), [graph.add_node(lookup("", "Neg")(), [v]).output]).output


def compiled(graph: Graph, level: int, random: Random, n_stages: int, micro_batches: int) -> Plan:
    scheduler = partial(random_schedule, random=random, n_cores=2, n_stages=n_stages, micro_batches=micro_batches)
    run = Compilation(CompileOptions(cache=False, opt_level=level), lambda name, fraction: None, scheduler=scheduler)
    driver.optimise(graph, run)
    return driver.build_plan(graph, run)


@pytest.fixture(autouse=True)
def several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads, however few cores there are; and small calls are divided while they run, as large ones are."""
    chosen = tuple(CORES[i % min(2, len(CORES))] for i in range(4))
    monkeypatch.setattr("parax.runtime.session.choose_cores", lambda cores: chosen)
    monkeypatch.setattr("parax.compiler.backend.link_waves.LEAST_NANOSECONDS", 0)


def check(plan: Plan, feeds: Mapping[str, np.ndarray], wanted: Sequence[tuple[Case, list[np.ndarray]]]) -> None:
    """One core against the oracle; everything else against one core."""
    with plan.session(instances=1, cores_per_instance=1, mode="sequential") as session:
        alone = list(session.run(feeds).values())
    found = iter(alone)
    for case, arrays in wanted:
        for array in arrays:
            assert_close(case, next(found), array)
    ways = [(2, 1, "sequential"), (1, 2, "sequential"), (1, 3, "sequential"), (1, 4, "sequential"), (1, 2, None)]
    for instances, cores, mode in ways:
        with plan.session(instances=instances, cores_per_instance=cores, mode=mode) as session:
            for _ in range(3):
                for spec, a, b in zip(plan.outputs, alone, session.run(feeds).values()):
                    assert a.tobytes() == b.tobytes(), f"{spec}: other bits from {session}"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_layers_and_instances_of_several_cores(seed: int) -> None:
    random = Random(seed)
    every = [c for cases in BY_OPERATOR.values() for c in cases if is_static(c)]
    graph, feeds, wanted = joined(random.sample(every, TOGETHER))
    check(compiled(graph, random.choice((0, 2)), random, 0, 1), feeds, wanted)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_pipelines(seed: int) -> None:
    random = Random(seed)
    every = [c for cases in BY_OPERATOR.values() for c in cases if rows_of(c) and batch_rows(build(c)[0])]
    graph, feeds, wanted = joined(random.sample(every, TOGETHER))
    check(compiled(graph, random.choice((0, 2)), random, 2, random.randint(1, 4)), feeds, wanted)
