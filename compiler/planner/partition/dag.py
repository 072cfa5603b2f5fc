"""A DAG of operators with sets of operators as bit masks: what the partition algorithms compute on.

Owns the graph theory on masks. Knows neither nodes nor costs; bit i of a mask is operator i, numbered in topological
order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from .works import Work

Mask = int
"""A set of operators: bit i is set for operator i."""


class Dag:
    """Operators 0 … n−1 in topological order and what each waits for.

    Attributes:
        before, behind: direct predecessors and successors of each. ancestors, descendants: all of them.
        everything: the mask of all operators.
    """

    def __init__(self, after: Sequence[Sequence[int]]) -> None:
        self.n = len(after)
        self.everything: Mask = (1 << self.n) - 1
        self.before: list[Mask] = [mask_of(waits) for waits in after]
        self.behind: list[Mask] = [0] * self.n
        self.ancestors: list[Mask] = []
        for i, waits in enumerate(after):
            above = self.before[i]
            for b in waits:
                self.behind[b] |= 1 << i
                above |= self.ancestors[b]
            self.ancestors.append(above)
        self.descendants: list[Mask] = [0] * self.n
        for i in reversed(range(self.n)):
            for b in bits(self.behind[i]):
                self.descendants[i] |= 1 << b | self.descendants[b]
        self.beside: list[Mask] = [a | b for a, b in zip(self.before, self.behind, strict=True)]

    def is_closed(self, part: Mask, within: Mask) -> bool:
        """Whether `part` has all predecessors that its members have within `within`."""
        return not part & ~within and all(not self.before[i] & within & ~part for i in bits(part))

    def ready(self, within: Mask, done: Mask) -> Mask:
        """The operators of `within` that may run next when `done` of it has run."""
        rest = within & ~done
        return mask_of(i for i in bits(rest) if not self.before[i] & rest)

    def components(self, part: Mask) -> list[Mask]:
        """The weakly connected components of `part`: they do not depend on one another."""
        found, beside = [], self.beside
        while part:
            fresh = component = part & -part
            while fresh:
                lowest = fresh & -fresh
                new = beside[lowest.bit_length() - 1] & part & ~component
                component |= new
                fresh = (fresh ^ lowest) | new
            found.append(component)
            part ^= component
        return found

    def alike(self, colours: Sequence[Hashable]) -> list[int]:
        """A number for each operator; equal if colour, what leads there and what follows look the same."""
        up, down = [0] * self.n, [0] * self.n
        for i in range(self.n):
            up[i] = hash((colours[i], *sorted(up[b] for b in bits(self.before[i]))))
        for i in reversed(range(self.n)):
            down[i] = hash((colours[i], *sorted(down[b] for b in bits(self.behind[i]))))
        return [hash(pair) for pair in zip(up, down, strict=True)]

    def levels(self, part: Mask) -> list[Mask]:
        """A set by the most operators of it in a chain before one: those of a level do not depend on one another."""
        depth: dict[int, int] = {}
        found: list[Mask] = []
        for i in bits(part):
            depth[i] = at = 1 + max([depth[b] for b in bits(self.before[i] & part)], default=-1)
            if at == len(found):
                found.append(0)
            found[at] |= 1 << i
        return found

    def by_depth(self, part: Mask) -> list[int]:
        """The operators of a set in topological order: those with the fewest operators before them in a chain first."""
        return [i for level in self.levels(part) for i in bits(level)]

    def width_at(self, done: Mask) -> int:
        """How many operators of a predecessor-closed set the rest waits for: what crosses a cut behind it."""
        return sum(1 for i in bits(done) if self.behind[i] & ~done)


def bits(mask: Mask) -> Iterator[int]:
    """The members of a set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def mask_of(members: Iterator[int] | Sequence[int]) -> Mask:
    """The set of some operators."""
    mask = 0
    for i in members:
        mask |= 1 << i
    return mask


def contract_views(works: Sequence[Work]) -> tuple[Dag, list[list[int]], list[int]]:
    """The DAG of the works that cost something.

    Returns:
        The DAG; for each of its operators the works it stands for, a view being one with what it is a view of; and the
        views of graph inputs, which no operator has to wait for. A view of what several operators compute (a Concat
        whose operands lie in its result) is an operator of its own, since it waits for all of them.
    """
    operator: dict[int, int] = {}
    groups: list[list[int]] = []
    free: list[int] = []
    after: list[list[int]] = []
    for i, work in enumerate(works):
        waits = sorted({operator[b] for b in work.after if b in operator})
        if work.cost.kind != "view" or len(waits) > 1:
            operator[i] = len(groups)
            groups.append([i])
            after.append(waits)
        elif not waits:
            free.append(i)
        else:
            operator[i] = waits[-1]
            groups[waits[-1]].append(i)
    return Dag(after), groups, free


__all__ = ["Dag", "Mask", "bits", "contract_views", "mask_of"]
