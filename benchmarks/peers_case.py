"""One model in one mode: are all results equal, then who is how fast. Runs in a process of its own.

`python -m benchmarks.peers_case JSON` prints one record. Owns the line-up and the comparison; the set-ups of each side
come from `parax bench`, the measuring from its contest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import parax
from examples.models import MODELS, feeds
from parax.compiler import contest
from parax.compiler.commands import peers
from parax.compiler.compare import difference
from parax.compiler.contest import Contestant
from parax.errors import UsageError

Record = dict[str, Any]
LineUp = Callable[[], list[Contestant]]
NARROW = 0.1  # of a result's length as a vector: random weights make steps of 8 bits and roundings of bf16 add up


def run_case(task: Mapping[str, Any]) -> Record:
    """Measure one case.

    Args:
        task: name, small, mode (latency or throughput), batch, model (the file with the batch fixed, for the peers),
            plan, cores, rounds, seconds (for each set-up in each round), precision, and the sides that take part.

    Returns:
        Record: `contestants` with rates per round, and `problem` where a side was left out. The first peer's results
        are the reference. A side whose results differ, or that cannot run the model, is not timed.
    """
    feed = feeds(task["name"], task["batch"], small=task["small"])
    lines = _line_ups(task, feed)
    reference: list[np.ndarray] | None = None
    running: list[Contestant] = []
    left_out: list[str] = []
    worst: dict[str, float] = {}
    for side in sorted(task["sides"], key=lambda side: side == "parax"):  # parax last: the peers are the reference
        try:
            contestants = lines[side]()
        except Exception as error:  # one side's failure must not hide the others' figures
            left_out.append(f"{side}: {type(error).__name__}: {str(error)[:300]}")
            continue
        for contestant in contestants:
            found = peers.outputs(contestant)
            reference = found if reference is None else reference
            if task["precision"] == "f32":
                problem, ratio = disagreement(found, reference, MODELS[task["name"]].classifies)
            else:
                problem, ratio = distance(found, reference)
            worst[side] = max(worst.get(side, 0.0), ratio)
            if problem:
                left_out.append(f"{side} {contestant.setup}: {problem}")
                contestant.close()
            else:
                running.append(contestant)
    if running:
        contest.hold(running, task["seconds"] * task["rounds"], task["rounds"], lambda what, done: None)
    return {
        "contestants": [described(contestant) for contestant in running],
        "difference": worst, "batch": task["batch"], "problem": "; ".join(left_out),
    }  # fmt: skip


def disagreement(found: list[np.ndarray], expected: list[np.ndarray], classifies: bool) -> tuple[str, float]:
    """Where two results differ ("" where they are the same by parax's rule), and the largest |Δ| / allowed."""
    if len(found) != len(expected):
        return f"{len(found)} outputs, expected {len(expected)}", float("inf")
    differences = [difference(str(i), a, b) for i, (a, b) in enumerate(zip(found, expected, strict=True))]
    problem = next((f"output {each.name} {each.problem}" for each in differences if not each.passed), "")
    if classifies and not problem and (found[0].argmax(-1) != expected[0].argmax(-1)).any():
        problem = "another top-1"
    return problem, max((each.worst for each in differences), default=0.0)


def distance(found: list[np.ndarray], expected: list[np.ndarray]) -> tuple[str, float]:
    """As `disagreement`, for results in few bits: each output's |Δ| / |expected| as vectors, by NARROW."""
    if len(found) != len(expected):
        return f"{len(found)} outputs, expected {len(expected)}", float("inf")
    apart = [float(np.linalg.norm(a - b) / np.linalg.norm(b) / NARROW) for a, b in zip(found, expected, strict=True)]
    problem = next((f"output {i} is {r * NARROW:.2g} away" for i, r in enumerate(apart) if not r <= 1), "")
    return problem, max(apart, default=0.0)


def described(contestant: Contestant) -> Record:
    """A measured contestant as JSON values."""
    return {
        "side": contestant.side, "setup": contestant.setup, "rate": contestant.rate, "spread": contestant.spread,
        "rates": contestant.rates, "calls": len(contestant.seconds),
        "p50": contestant.latency(0.5), "p90": contestant.latency(0.9), "p99": contestant.latency(0.99),
    }  # fmt: skip


def _line_ups(task: Mapping[str, Any], feed: dict[str, np.ndarray]) -> dict[str, LineUp]:
    """Per side, a function that sets it up in every way worth trying."""
    cores, rows, model = tuple(task["cores"]), task["batch"], Path(task["model"])
    n, alone = len(cores), task["mode"] == "latency"
    hint = "bf16" if task["precision"] == "bf16" else "f32"

    def ours() -> list[Contestant]:
        plan = parax.load(task["plan"])
        if alone:
            return peers.parax(plan, feed, rows, cores, [(1, n), (1, 1)] if n > 1 else [(1, 1)])
        contestants = peers.parax(plan, feed, rows, cores, [(1, n), (n, 1)] if n > 1 else [(1, 1)])
        return contestants + (peers.parax(plan, feed, rows, cores, [(n, 1)], callers=1) if n > 1 else [])

    return {
        "parax": ours,
        "onnxruntime": lambda: peers.onnxruntime(model, feed, rows, cores, alone=alone),
        "openvino": lambda: peers.openvino(model, feed, rows, cores, alone=alone, precision=hint),
        "torch": lambda: _torch(model, feed, rows, n),
    }


def _torch(model: Path, feed: dict[str, np.ndarray], rows: int, n_cores: int) -> list[Contestant]:
    try:
        from . import peers_torch  # PyTorch is optional
    except ImportError as error:
        raise UsageError(f"{error.name} is not installed", hint="pip install torch") from error
    return peers_torch.contestants(model, feed, rows, n_cores)


if __name__ == "__main__":
    print(json.dumps(run_case(json.loads(sys.argv[1]))), flush=True)
