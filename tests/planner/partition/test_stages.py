"""Stages: the published example, and the dynamic programme against trying everything."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parax.compiler.planner.partition.stages import balanced_stages, stages_by_utilisation
from parax.errors import UsageError


def cuts(n: int, k: int) -> list[list[range]]:
    return [[range(a, b) for a, b in zip((0, *inner), (*inner, n))] for inner in combinations(range(1, n), k - 1)]


def test_six_layers_become_two_stages_that_fill_the_cores() -> None:
    utilisation = [0.5, 0.4, 0.3, 0.4, 0.5, 0.4]
    found = stages_by_utilisation([1.0] * 6, utilisation)
    assert found == [range(3), range(3, 6)]
    assert sum(max(utilisation[i] for i in stage) for stage in found) == 1.0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 10)), min_size=1, max_size=7), st.data())
def test_the_longest_stage_is_as_short_as_the_utilisation_allows(layers: list, data: st.DataObject) -> None:
    seconds, shares = [float(s) for s, _ in layers], [u / 10 for _, u in layers]
    k = data.draw(st.none() | st.integers(1, len(layers)))
    allowed = [c for n in (range(1, len(layers) + 1) if k is None else [k]) for c in cuts(len(layers), n)
               if sum(max(shares[i] for i in stage) for stage in c) <= 1 + 1e-9]  # fmt: skip
    if not allowed:
        with pytest.raises(UsageError, match="no such stages"):
            stages_by_utilisation(seconds, shares, k)
        return
    found = stages_by_utilisation(seconds, shares, k)
    assert found in allowed
    longest = max(sum(seconds[i] for i in stage) for stage in found)
    assert longest == min(max(sum(seconds[i] for i in stage) for stage in c) for c in allowed)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 4)), min_size=2, max_size=6), st.integers(2, 6), st.data())
def test_cores_are_given_so_that_the_longest_stage_is_shortest(units: list, n_cores: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(2, min(len(units), n_cores)))

    def seconds(cores: int) -> list[float]:
        return [work / min(cores, most) for work, most in units]

    found = balanced_stages(seconds, len(units), n_cores, k)
    assert [i for stage, _ in found for i in stage] == list(range(len(units)))
    assert sum(cores for _, cores in found) == n_cores and all(cores >= 1 for _, cores in found)
    longest = max(sum(seconds(cores)[i] for i in stage) for stage, cores in found)
    shares = [c for c in _compositions(n_cores, k)]
    best = min(max(sum(seconds(c)[i] for i in stage) for stage, c in zip(stages, cores))
               for stages in cuts(len(units), k) for cores in shares)  # fmt: skip
    assert longest <= best * (1 + 1e-9)


def _compositions(n: int, k: int) -> list[tuple[int, ...]]:
    return [tuple(b - a for a, b in zip((0, *inner), (*inner, n))) for inner in combinations(range(1, n), k - 1)]


def test_more_stages_than_cores_are_refused() -> None:
    with pytest.raises(UsageError, match="no such number of stages"):
        balanced_stages(lambda cores: [1.0, 1.0, 1.0], 3, 2, 3)
