"""The heuristic layer partition: Mofang's algorithm 1 on predecessor-closed sets, bounded.

    layer(V): best = lat(V)
      C = { U predecessor-closed, grown breadth-first from the entries of V, τ(U) ≤ φ }
      U* = argmin over C of lat(U) + lat(V−U)
      if lat(layer(U*)) + lat(layer(V−U*)) ≥ best: return [V]        else: return layer(U*) ++ layer(V−U*)

with τ(U) = |com(U) − com(V−U)| / com(V). The paper stops where lat(U*) + lat(V−U*) ≥ best; a cut may pay only together
with the cuts of both sides, so the few best U are followed down before V stays whole, and costs of sets are remembered.

A set with so few predecessor-closed subsets that the evaluations reach for all their pairs gets the optimum instead
(`optimal`), and so do, in the end, stretches of neighbouring layers of a larger set.

Two things bound the search. The graph is first cut where few values cross (`pieces`): a set that has a bottleneck
inside is one connected component there and cannot run side by side anyway. And growing keeps the best sets of
each size, and one of those that look the same. Owns the search; what a set costs is asked of a `Latency`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .dag import Dag, Mask, bits
from .optimal import Latency, best_chain, closed_sets

LONGEST = 64  # operators of a layer that is looked for along an order
STRETCH = 4  # neighbouring layers that are partitioned anew together
MOST_SETS = 128  # predecessor-closed ones of a stretch


def imbalance(first: float, second: float) -> float:
    """τ: how far apart the computation of both sides of a cut is, as a share of both."""
    return abs(first - second) / (first + second) if first + second > 0 else 0.0


@dataclass(frozen=True)
class LayerOptions:
    """How far the search goes.

    Attributes:
        phi: cuts with τ above are left out; 1 keeps all. tau: the measure of balance.
        breadth: how many of the best cuts of a set are followed.
        most_sets: that grow further when a set is cut, those of each size the same share.
        most_operators: of a piece; larger ones are halved where few values cross.
        most_evaluations: of latencies, in all; then sets stay whole. most_cuts: that are looked at, the same.
    """

    phi: float = 1.0
    tau: Callable[[float, float], float] = imbalance
    breadth: int = 8
    most_sets: int = 640
    most_operators: int = 32
    most_evaluations: int = 20_000
    most_cuts: int = 100_000


def layer_partition(
    dag: Dag, computation: Sequence[float], latency: Latency, options: LayerOptions, within: Mask | None = None
) -> list[Mask]:
    """The layers of a DAG in order: disjoint sets whose unions are predecessor-closed.

    Args:
        computation: of each operator, in any unit.
        within: the operators to partition (a pipeline stage's): closed but for what ran in earlier stages.
    """
    found: list[Mask] = []
    search = _Search(dag, computation, latency, options)
    parts = [piece if within is None else piece & within for piece in pieces(dag, options.most_operators)]
    parts = [part for part in parts if part]
    for i, piece in enumerate(parts):
        search.allow((i + 1) / len(parts))
        found += search.optimum(piece) or search.refined(search.improved(search.layers(piece)[1]))
    return found


class _Search:
    """Algorithm 1 on one DAG, with what it found out about sets."""

    def __init__(self, dag: Dag, computation: Sequence[float], latency: Latency, options: LayerOptions) -> None:
        self.dag, self.computation, self.latency, self.options = dag, computation, latency, options
        self.alike = dag.alike([(c, latency.seconds(1 << i)) for i, c in enumerate(computation)])
        self.known: dict[Mask, tuple[float, list[Mask]]] = {}
        self.asked: dict[Mask, float] = {}
        self.n_cuts = 0
        self.allow(1.0)

    def allow(self, share: float) -> None:
        """So much of what the options allow may have been spent from now on."""
        self.limit = int(self.options.most_evaluations * share)
        self.most_cuts = int(self.options.most_cuts * share)

    def layers(self, whole: Mask) -> tuple[float, list[Mask]]:
        """Seconds and layers of a set."""
        if whole in self.known:
            return self.known[whole]
        best = (self.seconds(whole), [whole])
        for cut in self.cuts(whole)[: self.options.breadth]:
            first, second = self.layers(cut), self.layers(whole & ~cut)
            if first[0] + second[0] < best[0]:
                best = (first[0] + second[0], first[1] + second[1])
        self.known[whole] = best
        return best

    def improved(self, layers: list[Mask]) -> list[Mask]:
        """The best layers along the order of some, or along the operators' depths, if that is better.

        Along one order every layer is an interval, so that dynamic programming finds the best bounds.
        """
        whole = 0
        for layer in layers:
            whole |= layer
        best = (self._total(layers), layers)
        for order in ([i for layer in layers for i in bits(layer)], self.dag.by_depth(whole)):
            best = min(best, self._along(order))
        return best[1]

    def optimum(self, whole: Mask, most_sets: int | None = None) -> list[Mask] | None:
        """The best layers of a set; None if there are too many predecessor-closed ones to try all pairs."""
        affordable = math.isqrt(2 * max(0, self.limit - len(self.asked)))
        sets = closed_sets(self.dag, whole, min(affordable, most_sets or affordable))
        return None if sets is None else best_chain(sets, self)[1]

    def refined(self, layers: list[Mask]) -> list[Mask]:
        """The layers with stretches of neighbours replaced by their optimum, for as long as that makes any shorter."""
        at = 0
        while at < len(layers):
            for n in range(min(STRETCH, len(layers) - at), 0, -1):
                old = layers[at : at + n]
                new = self.optimum(sum(old), MOST_SETS)
                if new is not None and self._total(new) < self._total(old) * (1 - 1e-9):
                    layers = [*layers[:at], *new, *layers[at + n :]]
                    at = max(0, at - STRETCH)
                    break
            else:
                at += 1
        return layers

    def _total(self, layers: Sequence[Mask]) -> float:
        return sum([self.seconds(layer) for layer in layers])

    def _along(self, order: Sequence[int]) -> tuple[float, list[Mask]]:
        best: list[tuple[float, list[Mask]]] = [(0.0, [])]
        for end in range(1, len(order) + 1):
            found: list[tuple[float, int, Mask]] = []
            part = 0
            for begin in reversed(range(max(0, end - LONGEST), end)):
                part |= 1 << order[begin]
                found.append((best[begin][0] + self.seconds(part), begin, part))
            seconds, begin, part = min(found)
            best.append((seconds, [*best[begin][1], part]))
        return best[-1]

    def seconds(self, part: Mask) -> float:
        """The latency of a set as one layer."""
        found = self.asked.get(part)
        if found is None:
            found = self.asked[part] = self.latency.seconds(part)
        return found

    def cuts(self, whole: Mask) -> list[Mask]:
        """The first sides of the cuts with τ ≤ φ, the best first."""
        total = sum([self.computation[i] for i in bits(whole)])
        scores: dict[Mask, float] = {}
        front: dict[Mask, float] = {0: 0.0}
        beam = max(8, self.options.most_sets // whole.bit_count())
        while front:
            grown: dict[Mask, float] = {}
            for done, com in front.items():
                ready = {self.alike[i]: i for i in bits(self.dag.ready(whole, done))}  # one of each kind will do
                for i in ready.values():
                    part = done | 1 << i
                    if part != whole and part not in grown:
                        grown[part] = com + self.computation[i]
            self.n_cuts += len(grown)
            if len(self.asked) >= self.limit or self.n_cuts >= self.most_cuts:
                break
            for part in grown:
                scores[part] = self.seconds(part) + self.seconds(whole & ~part)
            front = {p: grown[p] for p in sorted(grown, key=scores.__getitem__)[:beam]}
            for part, com in grown.items():
                if self.options.tau(com, total - com) > self.options.phi:
                    del scores[part]
        return sorted(scores, key=lambda part: (scores[part], part))


def pieces(dag: Dag, most_operators: int) -> list[Mask]:
    """The DAG cut into predecessor-closed steps: at every bottleneck, then, above `most_operators`, at narrow places.

    Behind a bottleneck is all that depends on it, before it all that it depends on: nothing can run beside it. A
    narrow place is behind an operator and all it needs, or before an operator and all that needs it.
    """
    alone = [i for i in range(dag.n) if dag.ancestors[i] | 1 << i | dag.descendants[i] == dag.everything]
    around = [bound for i in alone for bound in (dag.ancestors[i], dag.ancestors[i] | 1 << i)]
    bounds = sorted({0, *around, dag.everything})
    cuts = {dag.ancestors[i] | 1 << i for i in range(dag.n)}
    cuts |= {dag.everything & ~(dag.descendants[i] | 1 << i) for i in range(dag.n)}
    by_width = sorted((dag.width_at(cut), cut) for cut in cuts)
    found: list[Mask] = []
    pending = list(zip(bounds, bounds[1:]))[::-1]
    while pending:
        begin, end = pending.pop()
        cut = _narrowest(by_width, begin, end) if (end & ~begin).bit_count() > most_operators else None
        if cut is None:
            found.append(end & ~begin)
        else:
            pending += [(cut, end), (begin, cut)]
    return found


def _narrowest(by_width: Sequence[tuple[int, Mask]], begin: Mask, end: Mask) -> Mask | None:
    """The cut between two others where the fewest values cross, of these the one nearest to the middle."""
    size, middle = (end & ~begin).bit_count(), (begin.bit_count() + end.bit_count()) / 2
    best: tuple[int, float, Mask] | None = None
    for width, cut in by_width:
        if best is not None and width > best[0]:
            break
        if begin & ~cut or cut & ~end or cut in (begin, end):
            continue
        off = abs(cut.bit_count() - middle)
        if off <= size * 0.4 and (best is None or (width, off) < best[:2]):
            best = (width, off, cut)
    return None if best is None else best[2]


__all__ = ["LayerOptions", "Latency", "imbalance", "layer_partition", "pieces"]
