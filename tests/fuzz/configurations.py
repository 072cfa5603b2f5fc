"""The ways in which one model is compiled and run: levels, targets, hints, modes, instances × cores."""

from __future__ import annotations

import os
import random
from dataclasses import asdict, dataclass
from typing import Any

from parax import env
from parax.compiler.backend.host import host_features
from parax.compiler.options import CompileOptions
from parax.compiler.targets.target import TARGETS


@dataclass(frozen=True)
class Arrangement:
    """Instances × cores of a session, and its mode (None: the plan's)."""

    instances: int
    cores: int
    mode: str | None = None

    def __str__(self) -> str:
        return f"{self.instances}x{self.cores}{f' {self.mode}' if self.mode else ''}" if self != UNTOLD else "untold"

    def keywords(self) -> dict[str, Any]:
        """For Plan.session."""
        if self == UNTOLD:
            return {}
        return {"instances": self.instances, "cores_per_instance": self.cores, "mode": self.mode}


UNTOLD = Arrangement(0, 0)
"""A session that is told nothing finds out which instances × cores suit each shape, and serves it in all ways until it
knows."""


@dataclass(frozen=True)
class Configuration:
    """One compilation, and the sessions that its plan runs in: the first is what the others must equal bit for bit."""

    level: int
    target: str
    hint: str
    mode: str
    fp: str
    arrangements: tuple[Arrangement, ...]

    def options(self) -> CompileOptions:
        """For parax.compile. Nothing is measured and nothing kept."""
        return CompileOptions(
            opt_level=self.level,
            targets=(self.target,),
            hint=self.hint,
            mode=self.mode,
            strict_fp=self.fp == "strict",
            fast_fp=self.fp == "fast",
            tune_seconds=0.0,
            cache=False,
            jobs=1,
            instances=1 if self.level == 3 else None,
        )

    def __str__(self) -> str:
        shown = " ".join(map(str, self.arrangements))
        return f"-O{self.level} {self.target} {self.hint} {self.mode} --fp {self.fp} on {shown}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def configuration(data: dict[str, Any]) -> Configuration:
    """From `as_json`."""
    return Configuration(**{**data, "arrangements": tuple(Arrangement(**a) for a in data["arrangements"])})


def targets_here() -> list[str]:
    """The portable targets that this machine runs, and plans may be run of: of PARAX_TARGET alone."""
    if env.read("PARAX_TARGET") != env.NATIVE:
        return [env.NATIVE]
    return [name for name, t in TARGETS.items() if t.supported_by(host_features())]


def draw(rng: random.Random) -> list[Configuration]:
    """One or two configurations; over many graphs all have their share."""
    levels = rng.choice([[0], [2], [2], [0, 2], [1], [2], [0, 2], [3]])
    return [_one(rng, level) for level in levels]


def _one(rng: random.Random, level: int) -> Configuration:
    target = rng.choice([env.NATIVE, env.NATIVE, env.NATIVE, *targets_here()])
    mode = rng.choices(["auto", "sequential", "layered", "pipelined"], [4, 3, 3, 2])[0]
    first = Arrangement(1, 1, "sequential")
    others = [Arrangement(1, 2), Arrangement(2, 1), Arrangement(1, 2, "sequential")]
    chosen = rng.sample(others, rng.choice([1, 2])) if len(os.sched_getaffinity(0)) > 1 else []
    hint = rng.choice(["throughput", "latency"])
    fp = rng.choices(["default", "strict", "fast"], [8, 1, 1])[0]
    return Configuration(level, target, hint, mode, fp, (first, *chosen, UNTOLD))
