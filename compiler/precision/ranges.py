"""What activations hold: the f32 graph runs on calibration data with all that may be rounded among its outputs.

Owns the ways from what was seen to a range. A second run makes histograms where a way asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import InvalidData
from ..ir.graph import Graph, Value
from ..options import CompileOptions
from ..passes.quantize.affine import LEVELS, ValueRange
from ..passes.quantize.layers import Readers, layers_of, readers_of
from .observing import Observing
from .samples import Request

N_BINS = 2048
KEPT_SHARE = 0.9999  # of the numbers of a tensor, by the percentile's range
CLIPS = tuple(np.linspace(1.0, 0.3, 36))  # shares of the seen range that the entropy's is chosen among
Method = Callable[["Histogram"], ValueRange]


@dataclass(frozen=True)
class Histogram:
    """How often numbers were seen: counts i64[N_BINS] of equal bins over `seen`."""

    seen: ValueRange
    counts: np.ndarray

    @property
    def edges(self) -> np.ndarray:
        """f64[N_BINS + 1], ascending."""
        return np.linspace(self.seen.low, self.seen.high, len(self.counts) + 1)


def minmax(histogram: Histogram) -> ValueRange:
    """All that was seen."""
    return histogram.seen


def percentile(histogram: Histogram) -> ValueRange:
    """What holds KEPT_SHARE of the numbers seen, as many left out below as above."""
    total, edges = np.cumsum(histogram.counts), histogram.edges
    tail = (1 - KEPT_SHARE) / 2 * total[-1]
    low = int(np.searchsorted(total, tail, side="right"))
    high = int(np.searchsorted(total, total[-1] - tail, side="left"))
    return ValueRange(float(edges[low]), float(edges[high + 1]))


def entropy(histogram: Histogram) -> ValueRange:
    """The share of the range seen whose rounding loses least, by the Kullback–Leibler divergence of histograms.

    As Migacz, "8-bit inference with TensorRT", GTC 2017, but both ends are drawn toward zero by the same factor.
    """
    losses = [(_divergence(histogram, clip), -clip) for clip in CLIPS]
    clip = -min(losses)[1]
    return ValueRange(histogram.seen.low * clip, histogram.seen.high * clip)


def _divergence(histogram: Histogram, clip: float) -> float:
    """Of the histogram with what is outside moved to the ends, from that as LEVELS + 1 equal steps tell it."""
    edges, counts = histogram.edges, histogram.counts.astype(np.float64)
    middle = (edges[:-1] + edges[1:]) / 2
    low, high = histogram.seen.low * clip, histogram.seen.high * clip
    inside = (middle >= low) & (middle <= high)
    if not inside.any():
        return float("inf")
    first, last = np.flatnonzero(inside)[[0, -1]]
    clipped = counts[first : last + 1].copy()
    clipped[0] += counts[:first].sum()
    clipped[-1] += counts[last + 1 :].sum()
    own = counts[first : last + 1]
    step = np.minimum((np.arange(own.size) * (LEVELS + 1)) // own.size, LEVELS)
    held = own > 0
    sums, bins = np.bincount(step, own, LEVELS + 1), np.bincount(step, held, LEVELS + 1)
    told = np.where(held, (sums / np.maximum(bins, 1))[step], 0.0)
    p, q = clipped / clipped.sum(), told / max(told.sum(), 1.0)
    seen = p > 0
    return float(np.sum(p[seen] * np.log(p[seen] / np.maximum(q[seen], 1e-12))))


METHODS: Mapping[str, Method] = {"minmax": minmax, "percentile": percentile, "entropy": entropy}


class Observations:
    """What the values of a graph that may be rounded held.

    Attributes:
        constant: names of values that held one number only, which tells nothing of what they hold in use.
        means, reach: name of what a layer reads → f64[channels], mean and greatest magnitude of each of its channels.
    """

    def __init__(self, graph: Graph, requests: Sequence[Request], options: CompileOptions) -> None:
        """Run the graph on the requests.

        Raises:
            InvalidData: a value was not finite.
        """
        values = _rounded(graph)
        self._observing = Observing(graph, values, requests, options)
        self._seen: dict[str, ValueRange] = {}
        axes = {layer.activations.name: layer.contracted for layer in layers_of(graph)}
        self.reach: dict[str, np.ndarray] = {}
        sums: dict[str, np.ndarray] = {}
        counts = dict.fromkeys(axes, 0)
        for name, array in self._observing.arrays():
            if not np.isfinite(array).all():
                raise InvalidData("an activation is NaN or infinite on the calibration data", where=f"value {name}",
                                  hint="calibrate with data as the model sees it in use")  # fmt: skip
            if array.size:
                own = ValueRange(float(array.min()), float(array.max()))
                self._seen[name] = own.hull(self._seen.get(name, own))
                if name in axes:
                    by_channel = np.moveaxis(array, axes[name], -1).reshape(-1, array.shape[axes[name]])
                    sums[name] = sums.get(name, 0.0) + by_channel.sum(0, np.float64)
                    counts[name] += len(by_channel)
                    reach = np.abs(by_channel).max(0).astype(np.float64)
                    self.reach[name] = np.maximum(reach, self.reach.get(name, 0.0))
        self.means = {name: total / counts[name] for name, total in sums.items()}
        self.constant = [name for name, seen in self._seen.items() if seen.low == seen.high]
        self._histograms: dict[str, Histogram] | None = None

    def ranges(self, method: str) -> dict[str, ValueRange]:
        """Name of a value → its range, by one of METHODS; without those that were constant."""
        useful = {name: seen for name, seen in self._seen.items() if name not in self.constant}
        if METHODS[method] is minmax:
            return useful
        if self._histograms is None:
            self._histograms = self._counted(useful)
        return {name: METHODS[method](self._histograms[name]) for name in useful}

    def _counted(self, seen: Mapping[str, ValueRange]) -> dict[str, Histogram]:
        counts = {name: np.zeros(N_BINS, np.int64) for name in seen}
        for name, array in self._observing.arrays():
            if name in seen:
                counts[name] += np.histogram(array, N_BINS, (seen[name].low, seen[name].high))[0]
        return {name: Histogram(seen[name], counts[name]) for name in seen}


def possible_readers(graph: Graph) -> Readers:
    """What would read rounded activations, whatever they hold."""
    return readers_of(graph, {value.name: ValueRange(0.0, 1.0) for value in graph.values()})


def _rounded(graph: Graph) -> list[Value]:
    """The values that may be rounded, each once."""
    return list(dict.fromkeys(value for _, _, value in possible_readers(graph).reads()))


__all__ = ["METHODS", "Histogram", "Observations", "entropy", "minmax", "percentile", "possible_readers"]
