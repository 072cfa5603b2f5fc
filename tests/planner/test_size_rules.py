"""Which sizes of requests a plan sends to other instances than the planned ones; delayed starts as candidates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import parax
from parax.compiler.ir.text import parse_graph
from parax.compiler.planner.candidate import PIPELINED, Candidate, Load
from parax.compiler.planner.choice import Choice
from parax.compiler.planner.decide import decide
from parax.compiler.planner.delays import delayed
from parax.compiler.planner.planner import Planner
from parax.compiler.planner.size_rules import size_rules
from parax.compiler.targets.machine import Machine
from parax.runtime.manifest import SizeRule

TWO = Machine("two", 2, 1e9, 10e9, 20e9, barrier_seconds=1e-6)
MEETS_BADLY = replace(TWO, barrier_seconds=1.0)
CHAIN = """graph @g(%x: f32[N,512]) {
  %a = const f32[512,512] "a"
  %1 = MatMul(%x, %a)
  %2 = Relu(%1)
  %3 = MatMul(%2, %a)
  return %3
}"""
FIRST_HEAVY = """graph @g(%x: f32[N,4096]) {
  %a = const f32[4096,64] "a"
  %b = const f32[64,64] "b"
  %0 = Exp(%x)
  %1 = MatMul(%0, %a)
  %2 = MatMul(%1, %b)
  return %2
}"""


def planner(machine: Machine, text: str = CHAIN, hint: str = "throughput") -> Planner:
    shapes = {"a": (4096, 64) if text == FIRST_HEAVY else (512, 512), "b": (64, 64)}
    constants = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    return Planner(parse_graph(text, constants), machine, machine.n_cores, hint)


def chosen(p: Planner, candidate: Candidate, load: Load) -> Choice:
    rows = [row for row in p.rows(load) if row.candidate == candidate]
    return p.choose(rows, load)


def test_one_row_takes_all_cores_where_every_core_has_an_instance() -> None:
    p = planner(TWO)
    found = size_rules(p, chosen(p, Candidate(2, 1, 8), Load(64, True)), 8)
    assert found[0] == SizeRule(1, 1, 1, 2)
    assert all(rule.instances == 1 and rule.cores_each == 2 for rule in found)
    odd = {n for rule in found for n in range(rule.least, (rule.most or 64) + 1)}
    assert {1, 3} <= odd and not odd & {2, 4, 8, 64}  # odd numbers leave an instance idle, even ones do not


def test_many_rows_take_an_instance_a_core_where_cores_meet_badly() -> None:
    p = planner(MEETS_BADLY, hint="latency")
    found = size_rules(p, chosen(p, Candidate(1, 2, 1), Load(1)), 8)
    assert found == (SizeRule(1, None, 2, 1),)


def test_bounds_of_the_batch_bound_the_table() -> None:
    p = planner(MEETS_BADLY, hint="latency")
    choice = chosen(p, Candidate(1, 2, 1), Load(1))
    assert size_rules(p, choice, 8, 2, 5) == (SizeRule(2, 5, 2, 1),)
    assert size_rules(p, choice, None) == ()
    pipeline = replace(choice, chosen=replace(choice.chosen, candidate=Candidate(1, 2, None, PIPELINED, 2, 4)))
    assert size_rules(p, pipeline, 8) == ()


@pytest.mark.parametrize("given", [{"mode": "sequential"}, {"instances": 2}, {"opt_level": 1}])
def test_what_the_user_fixes_has_no_table(given: dict[str, object]) -> None:
    graph = planner(TWO).graph
    assert decide(graph, parax.CompileOptions(), TWO, 2).size_rules
    assert decide(graph, parax.CompileOptions(**given), TWO, 2).size_rules == ()  # type: ignore[arg-type]


def test_starts_are_delayed_where_instances_would_meet_at_the_memory() -> None:
    slow_memory = Machine("slow memory", 4, 20e9, 10e9, 10e9)
    p = planner(slow_memory, FIRST_HEAVY)
    load = Load(64, saturated=True)
    rows = p.rows(load)
    found = delayed(p, load, rows)
    plain = min((row for row in rows if row.candidate.instances > 1), key=lambda row: row.cost(load))
    for row in found:
        assert row.candidate.delay_groups > 1 and row.candidate.delay_seconds > 0
        assert row.cost(load) < plain.cost(load)
        assert not p.plain(row.candidate, load)


def test_no_delay_where_arithmetic_sets_the_pace() -> None:
    p = planner(TWO)
    load = Load(64, saturated=True)
    assert delayed(p, load, p.rows(load)) == []
