"""One way to run a plan, and which ways there are for so many cores and rows.

Owns the list of what is tried; knows neither costs nor plans.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

SEQUENTIAL, LAYERED, PIPELINED = "sequential", "layered", "pipelined"
LATENCY, THROUGHPUT = "latency", "throughput"
MOST_ROWS = 1024
"""Of a micro-batch: beyond it no weight is read noticeably less often."""


@dataclass(frozen=True)
class Load:
    """What a plan is to serve.

    Attributes:
        rows: of the batch in each request. saturated: a request waits for every instance, instead of one at a time.
    """

    rows: int = 1
    saturated: bool = False


@dataclass(frozen=True)
class Candidate:
    """One way to run a plan.

    Attributes:
        instances: copies that serve requests, or pieces of one, side by side. cores_each: of each of them.
        rows: of a native call, the micro-batch; None where requests are not cut.
        mode: how an instance uses its cores: all on each kernel in turn, on the branches of a layer, or on the stages
            of a pipeline.
        stages, micro_batches: of the pipeline.
        delay_groups, delay_seconds: instances start in so many groups, each so much later than the one before.
    """

    instances: int
    cores_each: int
    rows: int | None = None
    mode: str = SEQUENTIAL
    stages: int = 1
    micro_batches: int = 1
    delay_groups: int = 1
    delay_seconds: float = 0.0

    @property
    def n_cores(self) -> int:
        """Of all instances."""
        return self.instances * self.cores_each

    @property
    def name(self) -> str:
        """In words: `2 × 1 core, 4 rows`."""
        words = [f"{self.instances} × {_many(self.cores_each, 'core')}"]
        if self.mode != SEQUENTIAL:
            words.append(self.mode)
        if self.stages > 1:
            words.append(f"{self.stages} stages, {self.micro_batches} micro-batches")
        if self.delay_groups > 1:
            words.append(f"{self.delay_groups} groups {self.delay_seconds * 1e3:.2g} ms apart")
        if self.rows is not None:
            words.append(f"{_many(self.rows, 'row')} a call")
        return ", ".join(words)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def arrangements(n_cores: int) -> list[tuple[int, int]]:
    """(instances, cores of each) for so many cores, ⌊p/k⌋ of them in each of k instances: divisors and powers of two.

    One instance over all cores comes first, one instance a core last; of those with as many cores each, the one with
    most instances stays.
    """
    counts = {k for k in range(1, n_cores + 1) if n_cores % k == 0}
    counts |= {1 << i for i in range(n_cores.bit_length()) if 1 << i <= n_cores}
    most: dict[int, int] = {}
    for k in sorted(counts):
        most[n_cores // k] = k
    return [(k, x) for x, k in most.items()]


def micro_batches(most: int) -> list[int]:
    """Rows of a native call worth trying: the powers of two up to `most`, and `most` itself if it is small."""
    sizes = [1 << i for i in range(most.bit_length()) if 1 << i <= min(most, MOST_ROWS)]
    return sizes if most > MOST_ROWS or most in sizes else [*sizes, most]


def sequential_candidates(n_cores: int, load: Load, most_rows: int | None) -> list[Candidate]:
    """Instances × cores × rows a call, each kernel on all cores of its instance.

    Args:
        most_rows: of a native call, by what memory allows; None where requests are not cut.
    """
    found = []
    for instances, cores in arrangements(n_cores):
        if most_rows is None:
            found.append(Candidate(instances, cores))
            continue
        share = load.rows if load.saturated else -(-load.rows // instances)
        found += [Candidate(instances, cores, rows) for rows in micro_batches(max(1, min(share, most_rows)))]
    return found
