"""Training as parax compiles it on the simulated machine: the backward graph's work, and what instances share."""

from __future__ import annotations

import pytest

from benchmarks.paper_framework import direct_cost
from benchmarks.paper_training import OwnStep
from examples.models import build
from parax.compiler.driver import import_graph
from parax.compiler.options import CompileOptions
from parax.compiler.planner.partition.simulate import graph_works
from parax.compiler.targets.machine import Machine
from parax.compiler.training.losses import SoftmaxCrossEntropy

BOX = Machine("box", 4, 1e10, 1e10, 2e10, n_sockets=2, l2_nbytes=1 << 20, l3_nbytes=1 << 20)


@pytest.fixture(scope="module")
def step() -> OwnStep:
    return OwnStep.of(build("cifar-resnet20", small=True), SoftmaxCrossEntropy(), BOX)


def test_the_work_is_about_three_times_the_forward(step: OwnStep) -> None:
    """Both gradients of every convolution but the first's of the image."""
    forward = import_graph(build("cifar-resnet20", small=True), CompileOptions())
    once = sum(work.cost.flops for work in graph_works(forward, {"N": 4}, direct_cost))
    trained = sum(work.cost.flops for work in graph_works(step.graph, {"N": 4}, direct_cost))
    assert 2.5 * once < trained < 4 * once


def test_more_rows_take_longer_and_no_step_beats_the_peak(step: OwnStep) -> None:
    few, many = (step.seconds(BOX, BOX.n_cores, rows) for rows in (2, 16))
    assert few < many
    work = sum(w.cost.flops for w in graph_works(step.graph, {"N": 16}, direct_cost))
    assert many >= work / BOX.flops_per_core


def test_the_server_moves_three_times_the_gradients(step: OwnStep) -> None:
    server, update = step._update(1, 8, BOX)
    assert server.cost.read_nbytes + server.cost.written_nbytes == 3 * step.nbytes and update.after == (1,)
    (alone,) = step._update(1, 1, BOX)
    assert alone.name == "Update" and alone.cost.read_nbytes == 2 * step.nbytes
