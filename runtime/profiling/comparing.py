"""Two profiles side by side, and several of one session as one.

Owns which operators of two plans are the same work: those that share a node of the model, however each plan fused it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple


class Pair(NamedTuple):
    """The same nodes of the model in two profiles.

    Attributes:
        title: of the longest operator among them. first, second: seconds of a request; 0.0 where it has none of them.
        ops: names of the operators in either.
    """

    title: str
    first: float
    second: float
    ops: tuple[str, str]


def pairs(first: dict[str, Any], second: dict[str, Any]) -> list[Pair]:
    """Every operator of either profile in one pair, those whose seconds differ most first."""
    listed = [(side, own) for side, document in enumerate((first, second)) for own in document["operators"]]
    group = list(range(len(listed)))

    def root(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    seen: dict[str, int] = {}
    for i, (_, own) in enumerate(listed):
        for name in own["names"] or [f"%{own['value']}"]:
            group[root(i)] = root(seen.setdefault(name, i))
    members: dict[int, list[tuple[int, dict[str, Any]]]] = {}
    for i, item in enumerate(listed):
        members.setdefault(root(i), []).append(item)
    found = [_pair(items) for items in members.values()]
    return sorted(found, key=lambda pair: -abs(pair.second - pair.first))


def _pair(items: Sequence[tuple[int, dict[str, Any]]]) -> Pair:
    sides = [[own for side, own in items if side == wanted] for wanted in (0, 1)]
    seconds = [sum(own["seconds"] for own in side) for side in sides]
    ops = [", ".join(dict.fromkeys(own["op"] for own in side)) for side in sides]
    longest = max(items, key=lambda item: item[1]["seconds"])[1]
    return Pair(longest["title"], seconds[0], seconds[1], (ops[0], ops[1]))


def of_rounds(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One profile of several of the same requests: the last, with medians over all for its seconds."""
    made = dict(documents[-1])
    for key in ("seconds_per_request", "outside", "entering"):
        made[key] = median(document[key] for document in documents)
    made["latency"] = {key: median(document["latency"][key] for document in documents) for key in made["latency"]}
    made["requests"] = sum(document["requests"] for document in documents)
    by_value = [{own["value"]: own for own in document["operators"]} for document in documents]
    made["operators"] = [
        {**own, **{key: median(round_[own["value"]][key] for round_ in by_value if own["value"] in round_)
                   for key in ("seconds", "waiting", "share")}}
        for own in made["operators"]
    ]  # fmt: skip
    return made
