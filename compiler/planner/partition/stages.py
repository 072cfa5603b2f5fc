"""Consecutive layers become pipeline stages: the longest stage as short as the cores allow.

Owns both forms of the dynamic programme. A stage that must end within T seconds has a price: in `stages_by_utilisation`
(Mofang) the largest share of the cores that one of its layers keeps busy, all shares together at most 1; in
`balanced_stages` the fewest cores that do it in time, all together at most what there is. For given T the cheapest K
stages are

    cheapest(k, l) = min over i < l of cheapest(k−1, i) + price(i, l, T)            O(L²K)

and the least T at which they are cheap enough is found by binary search over the lengths that stages can have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....errors import UsageError

ROUNDING = 1e-9
"""Of shares that are added up."""


def stages_by_utilisation(
    seconds: Sequence[float], utilisation: Sequence[float], n_stages: int | None = None
) -> list[range]:
    """The layers of each stage.

    Args:
        seconds: of each layer. utilisation: the share of all cores that each keeps busy, at most 1.
        n_stages: how many; None: as many as make the longest stage shortest, fewer if that is equal.

    Raises:
        UsageError: no such partition keeps the sum of the stages' utilisations at or below 1.
    """
    n = len(seconds)
    lengths, highest = _table(n, lambda i, l: sum(seconds[i:l])), _table(n, lambda i, l: max(utilisation[i:l]))
    counts = range(1, n + 1) if n_stages is None else (n_stages,)
    found = [_shortest(lambda t: np.where(lengths <= t, highest, np.inf), lengths, 1 + ROUNDING, k) for k in counts]
    feasible = [f for f in found if f is not None]
    if not feasible:
        raise UsageError("no such stages", where="stages", expected="utilisations of at most 1 in all",
                         found=f"{n_stages or 'any number of'} stages of {n} layers")  # fmt: skip
    longest = min(t for t, _ in feasible)
    return next(ranges for t, ranges in feasible if t <= longest * (1 + ROUNDING))


def balanced_stages(
    seconds: Callable[[int], Sequence[float]], n_units: int, n_cores: int, n_stages: int
) -> list[tuple[range, int]]:
    """The units of each stage and its cores: the longest stage is as short as possible, all cores are given away.

    Args:
        seconds: number of cores → seconds of each unit on them.

    Raises:
        UsageError: fewer units or cores than stages.
    """
    if not 1 <= n_stages <= min(n_units, n_cores):
        raise UsageError("no such number of stages", where="stages", expected=f"1 to {min(n_units, n_cores)}",
                         found=n_stages)  # fmt: skip
    tables = []
    for c in range(1, n_cores - n_stages + 2):
        sums = np.concatenate([[0.0], np.cumsum(seconds(c))])
        tables.append(np.where(_upper(n_units), sums[None, :] - sums[:, None], np.inf))
    times = np.stack(tables)

    def price(t: float) -> np.ndarray:
        in_time = times <= t * (1 + ROUNDING)
        return np.where(in_time.any(axis=0), in_time.argmax(axis=0) + 1.0, np.inf)

    found = _shortest(price, times, n_cores, n_stages)
    assert found is not None  # one core for each stage is always allowed
    ranges = found[1]
    cores = [1] * n_stages
    for _ in range(n_cores - n_stages):  # the next core to the longest stage
        k = max(range(n_stages), key=lambda k: times[cores[k] - 1][ranges[k].start, ranges[k].stop])
        cores[k] += 1
    return list(zip(ranges, cores, strict=True))


def _upper(n: int) -> np.ndarray:
    return np.triu(np.ones((n + 1, n + 1), bool), 1)


def _table(n: int, of: Callable[[int, int], float]) -> np.ndarray:
    """A value for every [i, l), infinite where l ≤ i."""
    table = np.full((n + 1, n + 1), np.inf)
    for i in range(n):
        for l in range(i + 1, n + 1):
            table[i, l] = of(i, l)
    return table


def _shortest(
    price: Callable[[float], np.ndarray], lengths: np.ndarray, limit: float, n_stages: int
) -> tuple[float, list[range]] | None:
    """The least length of the longest stage at which `n_stages` stages cost at most `limit`, and the stages."""
    candidates = np.unique(lengths[np.isfinite(lengths)])
    best = None
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) // 2
        total, ranges = _cheapest(price(candidates[middle]), n_stages)
        if total <= limit:
            best, high = (float(candidates[middle]), ranges), middle
        else:
            low = middle + 1
    return best


def _cheapest(prices: np.ndarray, n_stages: int) -> tuple[float, list[range]]:
    """The least sum of prices of `n_stages` stages that cover everything, and the stages."""
    n = len(prices) - 1
    cost = np.where(np.arange(n + 1) == 0, 0.0, np.inf)
    came: list[np.ndarray] = []
    for _ in range(n_stages):
        through = cost[:, None] + prices
        came.append(through.argmin(axis=0))
        cost = through.min(axis=0)
    ranges, end = [], n
    for begins in reversed(came):
        ranges.append(range(int(begins[end]), end))
        end = int(begins[end])
    return float(cost[n]), ranges[::-1]


__all__ = ["balanced_stages", "stages_by_utilisation"]
