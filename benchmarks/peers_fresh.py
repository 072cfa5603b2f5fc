"""Figures that need fresh processes: compile time, cold start, peak memory, memory of a second instance.

Owns the clock around `fresh.py`: a process's first result is timed from before it is started until its line arrives.
Sides are interleaved. Knows nothing of tables.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parax import env
from parax.compiler.backend.calibration import running_machine
from parax.errors import InternalError, ResourceLimit
from parax.runtime.dims import evaluate
from parax.runtime.plan import Plan
from parax.runtime.topology import choose_cores

from .peers_table import Figure, figure

Record = dict[str, Any]
FRESH = Path(__file__).with_name("fresh.py")


def timed(task: Mapping[str, Any], timeout: float) -> tuple[float, dict[str, Record]]:
    """Run one task of `fresh.py`: (seconds until its first line, its lines by event).

    Raises:
        ResourceLimit: it took longer than `timeout` seconds.
        InternalError: it failed; its messages are in the error.
    """
    with tempfile.TemporaryFile("w+") as messages:
        began = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, str(FRESH), json.dumps(task)], stdout=subprocess.PIPE, stderr=messages, text=True
        ) as child:
            watch = threading.Timer(timeout, child.kill)
            watch.start()
            assert child.stdout is not None
            first = child.stdout.readline()
            seconds = time.perf_counter() - began
            rest = child.stdout.read()
            child.wait()
            late = not watch.is_alive()
            watch.cancel()
        messages.seek(0)
        told = messages.read().strip()[-400:]
    if late:
        raise ResourceLimit("took too long", where=f"{task['side']} in a fresh process", expected=f"{timeout} s")
    if child.returncode:
        raise InternalError("failed", where=f"{task['side']} in a fresh process", found=told)
    lines = [json.loads(line) for line in (first + rest).splitlines() if line.startswith("{")]
    return seconds, {line.pop("event"): line for line in lines}


def compiled(model: Path, plan: Path, arguments: Sequence[str], timeout: float) -> Record:
    """Compile on a machine that is known, with nothing else cached; seconds of the whole command, its peak memory, the
    plan's size.
    """
    with tempfile.TemporaryDirectory(prefix="parax-cache-") as folder:
        know_machine(Path(folder))
        flags = ["-q", "--cache-dir", folder, *arguments]
        task = {"side": "paraxc", "arguments": [str(model), "-o", str(plan), *flags]}
        began = time.perf_counter()
        _, lines = timed(task, timeout)
        seconds = time.perf_counter() - began
    return {"seconds": seconds, "peak": lines["compiled"]["peak"], "plan": plan.stat().st_size}


def know_machine(folder: Path) -> None:
    """What is measured of this machine, now or before, into another cache folder."""
    if env.read("PARAX_CALIBRATE"):
        running_machine(env.cache_dir(), choose_cores(None))
        for file in env.cache_dir().glob("machine-*.toml"):
            shutil.copy2(file, folder)


def cold_start(tasks: Mapping[str, Mapping[str, Any]], rounds: int, timeout: float) -> dict[str, Record]:
    """Per side the seconds from process start to the first result, and the peak memory by then.

    Every side runs once unmeasured, which fills the page cache and OpenVINO's model cache; then round by round.
    """
    seconds: dict[str, list[float]] = {side: [] for side in tasks}
    peaks: dict[str, list[float]] = {side: [] for side in tasks}
    for number in range(rounds + 1):
        for side, task in tasks.items():
            took, lines = timed(task, timeout)
            if number:
                seconds[side].append(took)
                peaks[side].append(lines["first"]["peak"])
    return {
        side: {"seconds": vars(figure(seconds[side])), "peak": figure(peaks[side]).median, "rounds": seconds[side]}
        for side in tasks
    }


def second_instance(tasks: Mapping[str, Mapping[str, Any]], rounds: int, timeout: float) -> dict[str, Record]:
    """Per side the bytes by which a process grows when it starts and runs a second instance of the same model."""
    growth: dict[str, list[float]] = {side: [] for side in tasks}
    for _ in range(rounds):
        for side, task in tasks.items():
            _, lines = timed({**task, "second": True}, timeout)
            growth[side].append(lines["second"]["growth"])
    found: dict[str, Figure] = {side: figure(values) for side, values in growth.items()}
    return {side: {"growth": value.median} for side, value in found.items()}


def plan_memory(plan: Plan, rows: int) -> Record:
    """Bytes of the plan's weights and of one instance's arena for `rows` rows, at most a micro-batch of them."""
    manifest = plan.manifest
    at_once = min(rows, manifest.micro_batch or rows)
    sizes = {symbol.name: max(symbol.min, at_once) for symbol in manifest.symbols}
    steps = manifest.native_steps()
    arena = max((evaluate(step.arena, sizes) + evaluate(step.scratch, sizes) for step in steps), default=0)
    return {"weights": len(plan.weights), "arena": arena}
