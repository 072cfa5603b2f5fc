"""Small DAGs with random costs, alike wherever they are drawn: at random, or like a block of Inception."""

from __future__ import annotations

import random

from parax.compiler.costs.cost import Cost
from parax.compiler.planner.partition.dag import Dag

KINDS = ("conv", "conv1x1", "winograd", "pool", "elementwise", "depthwise")


def random_cost(rng: random.Random) -> Cost:
    """From some microseconds to some milliseconds, that from one to many cores can share."""
    kind = rng.choice(KINDS)
    flops = 10 ** (rng.uniform(5, 9) if kind.startswith("conv") else rng.uniform(4, 7))
    sizes = [10 ** rng.uniform(3, 6.5) for _ in range(3)]
    return Cost(flops, *sizes, rng.choice([1, 2, 3, 4, 7, 8, 14, 28, 56, 200]), kind)


def random_dag(rng: random.Random, n: int, density: float) -> Dag:
    """`n` operators; each waits for each of those before it with probability `density`."""
    return Dag([[b for b in range(i) if rng.random() < density] for i in range(n)])


def inception_block(rng: random.Random) -> Dag:
    """An entry, two to five chains of up to three operators, some with a second end, and the concatenation."""
    after: list[list[int]] = [[]]
    ends: list[int] = []
    for _ in range(rng.randint(2, 5)):
        last = 0
        for _ in range(rng.randint(1, 3)):
            after.append([last])
            last = len(after) - 1
            if rng.random() < 0.15:
                after.append(list(after[last]))
                ends.append(len(after) - 1)
        ends.append(last)
    return Dag([*after, ends])
