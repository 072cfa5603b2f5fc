"""The layer partition on DAGs of costs: closed sets, nearness to the optimum, bounds."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from parax.compiler.planner.partition.branches import Branches, TaskTimes, share_cores
from parax.compiler.planner.partition.dag import Dag, bits, mask_of
from parax.compiler.planner.partition.layers import LayerOptions, _Search, imbalance, layer_partition, pieces
from parax.compiler.planner.partition.optimal import closed_sets, optimal_layers
from parax.compiler.planner.partition.works import Work
from parax.compiler.targets.machine import Machine
from parax.errors import ResourceLimit
from planner.partition.random_dags import inception_block, random_cost, random_dag

MACHINE = Machine("test", cores_per_socket=8, flops_per_core=100e9, bandwidth_per_core=15e9, bandwidth_per_socket=60e9)


def branches_of(dag: Dag, rng: random.Random, n_cores: int) -> Branches:
    return Branches(dag, TaskTimes([Work(str(i), random_cost(rng)) for i in range(dag.n)], MACHINE), n_cores)


def partition(branches: Branches, options: LayerOptions | None = None) -> list[int]:
    return layer_partition(branches.dag, branches.times.on(1), branches, options or LayerOptions())


@dataclass
class Shares:
    """A latency by hand: operators of a connected set follow one another, each takes its seconds on one of n cores."""

    dag: Dag
    alone: list[float]
    n_cores: int = 2

    def seconds(self, part: int) -> float:
        loads = sorted((sum(self.alone[i] for i in bits(c)) for c in self.dag.components(part)), reverse=True)
        cores = [0.0] * self.n_cores
        for load in loads:
            cores[cores.index(min(cores))] += load
        return max(cores) + 0.1


def test_two_equal_chains_become_one_layer_between_their_ends() -> None:
    dag = Dag([[], [0], [1], [0], [3], [2, 4]])
    found = layer_partition(dag, [1.0] * 6, Shares(dag, [1.0] * 6), LayerOptions())
    assert found == [1 << 0, mask_of([1, 2, 3, 4]), 1 << 5]


def test_a_cut_that_pays_only_with_another_is_found() -> None:
    dag = Dag([[], [0], [0], [1, 2], [3], [3], [4, 5]])
    found = layer_partition(dag, [1.0] * 7, Shares(dag, [1.0, 3.0, 3.0, 1.0, 3.0, 3.0, 1.0]), LayerOptions())
    assert mask_of([1, 2]) in found and mask_of([4, 5]) in found


def test_a_chain_is_cut_at_every_bottleneck_and_nothing_runs_side_by_side() -> None:
    dag = Dag([[], [0], [1], [2]])
    assert pieces(dag, 32) == [1, 2, 4, 8]
    branches = branches_of(dag, random.Random(0), 2)
    assert all(len(branches.arrange(layer).parts) == 1 for layer in partition(branches))


@pytest.mark.parametrize("n_cores", [1, 2, 8])
@pytest.mark.parametrize("seed", range(8))
def test_layers_are_closed_and_cover_the_graph(seed: int, n_cores: int) -> None:
    rng = random.Random(seed)
    dag = random_dag(rng, rng.randint(1, 30), rng.choice([0.02, 0.1, 0.3]))
    branches = branches_of(dag, rng, n_cores)
    done = 0
    for layer in partition(branches, LayerOptions(most_operators=10, most_sets=100, most_evaluations=2000)):
        assert layer and not layer & done
        assert dag.is_closed(done | layer, dag.everything)
        parts = branches.arrange(layer).parts
        assert sum(n for _, n, _ in parts) <= n_cores
        assert sum(mask for _, _, mask in parts) == layer
        for _, _, mask in parts:
            assert all(not (dag.before[i] & layer & ~mask) for i in bits(mask))
        done |= layer
    assert done == dag.everything


@pytest.mark.sample(3)
@pytest.mark.parametrize("most_evaluations", [1000, LayerOptions().most_evaluations])
@pytest.mark.parametrize("n_cores", [2, 8])
@pytest.mark.parametrize("kind", ["random", "inception"])
def test_the_heuristic_is_within_three_percent_of_the_optimum(kind: str, n_cores: int, most_evaluations: int) -> None:
    """Also where it may try so few sets that most of these graphs are beyond its own search for the optimum."""
    worse = []
    for seed in range(40):
        rng = random.Random(seed)
        random_graph = random_dag(rng, rng.randint(4, 10), rng.choice([0.1, 0.2, 0.35]))
        dag = random_graph if kind == "random" else inception_block(rng)
        if dag.n > 13:
            continue
        branches = branches_of(dag, rng, n_cores)
        best, layers = optimal_layers(dag, branches)
        assert best == pytest.approx(sum(map(branches.seconds, layers)))
        found = sum(map(branches.seconds, partition(branches, LayerOptions(most_evaluations=most_evaluations))))
        assert found >= best * (1 - 1e-9), seed
        worse.append(found / best)
    assert len(worse) >= 20
    assert max(worse) <= 1.03, worse.index(max(worse))


def test_the_search_is_bounded() -> None:
    rng = random.Random(1)
    dag = random_dag(rng, 120, 0.01)  # wide: many thousands of closed sets of every size
    branches = branches_of(dag, rng, 4)
    partition(branches, LayerOptions(most_evaluations=2000))
    assert branches.n_evaluated < 2000 + 3 * dag.n * 64
    with pytest.raises(ResourceLimit, match="too wide"):
        optimal_layers(dag, branches, most_pairs=10_000)


def test_cuts_of_sets_whose_costs_are_known_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(2)
    dag = random_dag(rng, 29, 0.02)
    looked: dict[int, int] = {}

    def counting(self: object, part: int, plain: Any = _Search.seconds) -> float:
        looked[most] += 1
        return float(plain(self, part))

    monkeypatch.setattr(_Search, "seconds", counting)
    for most in (1000, 5000):
        looked[most] = 0
        partition(branches_of(dag, rng, 2), LayerOptions(most_cuts=most))
    assert looked[1000] < 3000 < looked[5000]


def test_an_unbalanced_cut_is_left_out_below_its_tau() -> None:
    assert imbalance(1.0, 3.0) == 0.5 and imbalance(0.0, 0.0) == 0.0
    dag = Dag([[], [], [0, 1], [0, 1]])
    alone = [1.0, 1.0, 8.0, 8.0]
    free = layer_partition(dag, alone, Shares(dag, alone), LayerOptions())
    assert free == [mask_of([0, 1]), mask_of([2, 3])]
    bound = layer_partition(dag, alone, Shares(dag, alone), LayerOptions(phi=0.5))
    assert sum(map(Shares(dag, alone).seconds, bound)) >= sum(map(Shares(dag, alone).seconds, free))


def test_closed_sets_of_a_square() -> None:
    square = Dag([[], [0], [0], [1, 2]])
    assert closed_sets(square, square.everything, 6) == [0, 1, 3, 5, 7, 15]
    assert closed_sets(square, square.everything, 5) is None
    assert closed_sets(square, 6, 100) == [0, 2, 4, 6]


def test_cores_follow_the_loads() -> None:
    assert share_cores([3.0, 1.0], 8) == [6, 2]
    assert share_cores([1.0, 0.0, 0.0], 3) == [1, 1, 1]
    assert sum(share_cores([5.0, 3.0, 0.1], 7)) == 7
