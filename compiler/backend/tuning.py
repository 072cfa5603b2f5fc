"""Which of several kernels serves a node: what was measured here, before or now, and else what a cost model expects.

Owns the choice and its cache. Candidates come from the kernels (`LowerContext.pick`), times from `measuring`. An entry
of the cache holds for one CPU, target, node and text of the kernels; compilers that run at once replace each other's
entries whole, and a damaged one counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

import llvmlite

from ... import __version__
from ...files import keep
from ...runtime.cpu import cpu_identity
from ..ir.graph import Node
from .host import host_features
from .lowering import Candidates, LowerContext, node_signature
from .measuring import can_measure, measure

FORMAT = 2
COMPILER = Path(__file__).parents[1]
MOST_CACHED = 4096
MARGIN = 0.02
Measure = Callable[[LowerContext, Node, Candidates], dict[str, float]]


@dataclass(frozen=True)
class Choice:
    """What was decided for one node.

    Attributes:
        node: its ONNX name. target: whose code. kernel: the candidate taken. by: "measured" (in this compilation),
            "cache" (in an earlier one) or "model" (not at all). seconds: of each candidate, None where not measured.
    """

    node: str
    target: str
    kernel: str
    by: str
    seconds: dict[str, float | None]


@dataclass
class Tuner:
    """Decides between candidates; implements `lowering.Chooser`.

    Attributes:
        folder: of the cache, None for no cache. budget_seconds: what measuring may take in all; 0 measures nothing.
        measure: context, node, candidates → seconds of each. choices: every decision so far.
    """

    folder: Path | None
    budget_seconds: float = 0.0
    measure: Measure = measure
    choices: list[Choice] = field(default_factory=list)
    _known: dict[str, tuple[str, dict[str, float]]] = field(default_factory=dict)

    def choose(self, ctx: LowerContext, node: Node, candidates: Candidates) -> str:
        """The fastest candidate as far as is known, the first one where nothing is."""
        names = list(candidates)
        if len(names) == 1:
            return names[0]
        by, seconds = self._seconds(ctx, node, candidates)
        kernel = _fastest(names, seconds) if seconds else names[0]
        self.choices.append(Choice(node.name, ctx.target.name, kernel, by, {name: seconds.get(name) for name in names}))
        return kernel

    def _seconds(self, ctx: LowerContext, node: Node, candidates: Candidates) -> tuple[str, dict[str, float]]:
        """Who measured, and what."""
        key = key_of(ctx, node, list(candidates))
        if key not in self._known and self.folder is not None:
            found = read_entry(self.folder, key, list(candidates))
            if found is not None:
                self._known[key] = "cache", found
        if key not in self._known and self.budget_seconds > 0 and can_measure(ctx, node):
            began = time.perf_counter()
            self._known[key] = "measured", self.measure(ctx, node, candidates)
            self.budget_seconds -= time.perf_counter() - began
            if self.folder is not None:
                write_entry(self.folder, key, node.name, self._known[key][1])
        return self._known.get(key, ("model", {}))


def _fastest(names: Sequence[str], seconds: dict[str, float]) -> str:
    """The first candidate unless another one is clearly faster: noise should not decide."""
    best = min(names, key=seconds.__getitem__)
    return best if seconds[best] < (1 - MARGIN) * seconds[names[0]] else names[0]


def key_of(ctx: LowerContext, node: Node, names: Sequence[str]) -> str:
    """A name for everything that the candidates' times depend on."""
    versions = [FORMAT, __version__, kernels_digest(), llvmlite.__version__]
    machine = [cpu_identity(), sorted(host_features()), asdict(ctx.target)]
    asked = [ctx.fp.value, ctx.matmul_input.name, ctx.rows, asdict(ctx.calls)]
    facts = [*versions, *machine, *asked, list(names), repr(node_signature(node))]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@cache
def kernels_digest() -> str:
    """Of the source of all that a kernel's code follows from: another text may have other times."""
    digest = hashlib.sha256()
    for room in ("backend", "ir", "kernel_ir", "passes", "targets"):
        for file in sorted((COMPILER / room).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def read_entry(folder: Path, key: str, names: Sequence[str]) -> dict[str, float] | None:
    """Seconds of the candidates, None where nothing usable is kept; a damaged entry is told of and left alone."""
    file = folder / "tuning" / f"{key}.json"
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            warnings.warn(f"tuning cache: {file} cannot be read and was ignored: {error}", stacklevel=2)
        return None
    try:
        entry = json.loads(text)
        seconds = {name: float(entry["seconds"][name]) for name in names}
        if not all(math.isfinite(value) and value > 0 for value in seconds.values()):
            raise ValueError("a time that is none")
    except (ValueError, TypeError, KeyError) as error:
        warnings.warn(f"tuning cache: {file} is damaged and was ignored: {error!r}", stacklevel=2)
        return None
    return seconds


def write_entry(folder: Path, key: str, label: str, seconds: dict[str, float]) -> None:
    """Keep what was measured, whole or not at all, and let the oldest go. No cache is no error."""
    tuning = folder / "tuning"
    if not keep(tuning / f"{key}.json", json.dumps({"node": label, "seconds": seconds}, indent=1)):
        return
    with suppress(OSError):  # the folder is somebody else's now
        kept = sorted(tuning.glob("*.json"), key=_age)
        for file in kept[MOST_CACHED:]:
            file.unlink(missing_ok=True)


def _age(file: Path) -> float:
    """Newest first; a file that another compiler has just removed is the oldest."""
    try:
        return -file.stat().st_mtime
    except FileNotFoundError:
        return math.inf
