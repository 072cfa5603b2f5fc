"""Which program a session runs, on which cores, and how a pipeline's rows are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_plans import ADD, add_manifest, fake_plan, object_code
from parax.errors import UsageError
from parax.runtime import Plan
from parax.runtime.pipeline_cut import micro_batch_ranges
from parax.runtime.sync import branch_slot, stage_slot, sync_nbytes
from parax.runtime.topology import machine

N_CORES = len(machine().default_cores())
X = np.arange(32, dtype=np.float32).reshape(8, 4)
two_cores = pytest.mark.skipif(N_CORES < 2, reason="needs two usable cores")
TWICE = ADD.replace("fadd float %v, %w", "fadd float %w2, %v").replace(
    "  %first =", "  %w2 = fadd float %w, %w\n  %first ="
)  # adds the weight twice


@pytest.fixture(scope="module")
def layered_plan() -> Plan:
    """y = x + 1; its layered program, for two cores, gives x + 2, which tells it from the other."""
    manifest = add_manifest()
    step = {**manifest["steps"][0], "segment": 1}
    stages = [{"first_core": 0, "n_cores": 2, "n_layers": 1}]
    schedule = {"mode": "layered", "n_cores": 2, "micro_batches": None, "stages": stages, "step": step}
    one, two = ADD.format(segment=0), TWICE.format(segment=1).replace("declare void @llvm.trap()", "")
    code = object_code(one + two)
    return fake_plan({**manifest, "schedule": schedule}, {"base": code}, np.ones(16, np.float32))


def added(plan: Plan, **arguments: Any) -> tuple[float, str]:
    """What the plan adds, and the session's mode."""
    with plan.session(**arguments) as session:
        outputs = session.run({"x": X})["y"]
        assert np.array_equal(outputs - X, np.full_like(X, outputs[0, 0]))
        return float(outputs[0, 0]), session.mode


@two_cores
def test_the_plans_mode_is_the_default_where_the_cores_fit(layered_plan: Plan) -> None:
    assert added(layered_plan) == (2.0, "layered")
    assert added(layered_plan, mode="layered") == (2.0, "layered")
    assert added(layered_plan, micro_batch=3) == (2.0, "layered")
    assert added(layered_plan, instances=1, cores_per_instance=2) == (2.0, "layered")


@two_cores
def test_asked_for_the_sequential_program_runs_on_as_many_cores(layered_plan: Plan) -> None:
    assert added(layered_plan, mode="sequential") == (1.0, "sequential")
    with layered_plan.session(mode="sequential") as session:
        assert len(session.core_groups[0]) == 2
        assert "sequential, code" in repr(session)


def test_other_numbers_of_cores_run_the_sequential_program(layered_plan: Plan) -> None:
    assert added(layered_plan, instances=1) == (1.0, "sequential")
    with layered_plan.session(instances=1) as session:
        assert "the plan's layered program is for 2 cores an instance" in repr(session)
    with pytest.raises(UsageError, match="expected 2; found 1"):
        layered_plan.session(instances=1, mode="layered")


def test_a_mode_that_the_plan_has_not(layered_plan: Plan) -> None:
    with pytest.raises(UsageError, match="compile the model with --mode pipelined"):
        layered_plan.session(mode="pipelined")
    with pytest.raises(UsageError, match="no such mode"):
        layered_plan.session(mode="fast")


@given(st.integers(0, 50), st.integers(1, 300), st.integers(1, 40))
def test_micro_batches_cover_the_rows_the_larger_first(first: int, rows: int, n: int) -> None:
    ranges = micro_batch_ranges(first, rows, n)
    assert [row for start, size in ranges for row in range(start, start + size)] == list(range(first, first + rows))
    sizes = [size for _, size in ranges]
    assert len(sizes) == min(n, rows) and sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1


def test_the_micro_batches_of_the_source() -> None:
    assert [size for _, size in micro_batch_ranges(0, 256, 6)] == [43, 43, 43, 43, 42, 42]


@given(st.integers(1, 200))
def test_slots_lie_apart(n_cores: int) -> None:
    slots = [0, *map(stage_slot, range(n_cores)), *(branch_slot(core, n_cores) for core in range(n_cores))]
    assert slots == list(range(0, sync_nbytes(n_cores), 192))
