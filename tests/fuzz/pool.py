"""Worker processes over the numbers of a run: starts them, reads them, replaces those that die or hang.

Owns processes and deadlines; knows nothing of how a case is made or judged. A worker is told which numbers are its own,
by `--numbers first:count:step`, and says on stdout, an object of JSON a line, with the number, which phase of it begins
and what came of it (`fuzz.worker`).
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .models import Source
from .trial import CRASH, HANG, NO_ORACLE, Outcome

TESTS = Path(__file__).parent.parent
GRACE = 60.0
"""Seconds that making a case and other implementations may take."""
PAUSE = 5.0
"""Seconds between two looks at the workers from which on this process did not run meanwhile."""


@dataclass
class Record:
    """One case that is done."""

    number: int
    outcome: Outcome
    seconds: float = 0.0
    ops: dict[str, int] = field(default_factory=dict)
    configurations: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Command:
    """How a worker is started: program and arguments, where it runs, and what is added to its environment."""

    words: Sequence[str]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def trials_of(source: Source) -> Command:
    """The command of workers that try a source's cases."""
    path = os.pathsep.join(p for p in (str(TESTS), os.environ.get("PYTHONPATH", "")) if p)
    environment = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return Command([sys.executable, "-m", "fuzz.worker", *source.words()], TESTS, environment)


@dataclass
class _Worker:
    """A process, and the case that it is at."""

    process: subprocess.Popen[bytes]
    last: int
    step: int
    number: int | None = None
    phase: str = ""
    since: float = field(default_factory=time.monotonic)
    ops: dict[str, int] = field(default_factory=dict)
    drawn: list[dict[str, Any]] = field(default_factory=list)
    buffer: bytes = b""
    messages: bytes = b""


class Pool:
    """Runs numbers 0 … count - 1 (or one of them) on some processes; iterating gives records as they come."""

    def __init__(
        self,
        command: Command,
        count: int,
        jobs: int,
        *,
        timeout: float = 10.0,
        seconds: float | None = None,
        first: int = 0,
    ) -> None:
        """
        Args:
            timeout: seconds that parax may take for one phase (compile, run) of a case.
            seconds: stop starting cases after so long. first: the number to begin with.
        """
        self.command, self.count, self.jobs, self.timeout = command, count, jobs, timeout
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.first = first
        self.looked = time.monotonic()
        self.selector = selectors.DefaultSelector()
        self.workers: list[_Worker] = []

    def __iter__(self) -> Iterator[Record]:
        try:
            for i in range(min(self.jobs, self.count - self.first)):
                self._start(self.first + i)
            while self.workers:
                for key, _ in self.selector.select(timeout=0.5):
                    yield from self._read(*key.data)
                yield from self._overdue()
                if self.deadline is not None and time.monotonic() > self.deadline:
                    return
        finally:
            for worker in self.workers:
                _kill(worker)

    def _start(self, number: int) -> None:
        if number >= self.count:
            return
        words = [*self.command.words, "--numbers", f"{number}:{self.count}:{self.jobs}"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.command.folder,
                                   env={**os.environ, **self.command.environment}, start_new_session=True)  # fmt: skip
        worker = _Worker(process, number, self.jobs)
        assert process.stdout is not None and process.stderr is not None
        for kind, stream in (("out", process.stdout), ("err", process.stderr)):
            os.set_blocking(stream.fileno(), False)
            self.selector.register(stream, selectors.EVENT_READ, (worker, kind, stream))
        self.workers.append(worker)

    def _read(self, worker: _Worker, kind: str, stream: Any) -> Iterator[Record]:
        data = stream.read()
        if data is None or worker not in self.workers:
            return
        if not data:
            self.selector.unregister(stream)
            if kind == "out":
                yield from self._ended(worker)
            return
        if kind == "err":
            worker.messages = (worker.messages + data)[-4000:]
            return
        *lines, worker.buffer = (worker.buffer + data).split(b"\n")
        for line in lines:
            yield from self._heard(worker, json.loads(line))

    def _heard(self, worker: _Worker, record: dict[str, Any]) -> Iterator[Record]:
        worker.since = time.monotonic()
        if "outcome" in record:
            worker.last, worker.number = record["number"] + worker.step, None
            yield Record(record["number"], Outcome(**record["outcome"]), record["seconds"], worker.ops, worker.drawn)
            return
        worker.number, worker.phase = record["number"], record["phase"]
        if worker.phase == "made":
            worker.ops, worker.drawn = record["ops"], record["configurations"]
        elif worker.phase == "make":
            worker.ops, worker.drawn = {}, []

    def _ended(self, worker: _Worker) -> Iterator[Record]:
        """A worker's stdout closed: it is done, or it died at a case."""
        code = worker.process.wait()
        if worker.process.stderr is not None and worker.process.stderr in self.selector.get_map():
            worker.messages += worker.process.stderr.read() or b""
        self._forget(worker)
        if worker.number is not None:
            reason = signal.Signals(-code).name if code < 0 else f"exit {code}"
            status = NO_ORACLE if worker.phase == "oracle" else CRASH  # the other implementation died
            yield self._lost(
                worker, status, f"{reason} in {worker.phase}: {worker.messages.decode(errors='replace')[-900:]}"
            )
            self._start(worker.number + worker.step)
        elif code:
            raise RuntimeError(f"a worker could not start: {worker.messages.decode(errors='replace')[-2000:]}")

    def _overdue(self) -> Iterator[Record]:
        self._leave_out_pauses()
        for worker in list(self.workers):
            ours = worker.phase in ("compile", "run")
            limit = self.timeout if ours else GRACE
            if worker.number is None or time.monotonic() - worker.since < limit:
                continue
            _kill(worker)
            self._forget(worker)
            problem = f"{worker.phase}: more than {limit:g} s"
            yield self._lost(worker, HANG if ours else NO_ORACLE, problem)
            self._start(worker.number + worker.step)

    def _leave_out_pauses(self) -> None:
        """Do not count while somebody has stopped a worker, or this process."""
        now = time.monotonic()
        missed, self.looked = now - self.looked, now
        for worker in self.workers:
            if missed > PAUSE or _is_stopped(worker.process.pid):
                worker.since += missed

    def _lost(self, worker: _Worker, status: str, problem: str) -> Record:
        assert worker.number is not None
        return Record(worker.number, Outcome(status, problem), 0.0, worker.ops, worker.drawn)

    def _forget(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        for stream in (worker.process.stdout, worker.process.stderr):
            if stream is not None and stream in self.selector.get_map():
                self.selector.unregister(stream)


def _is_stopped(pid: int) -> bool:
    """Whether a process stands still by a signal, as Linux says; False where it does not say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False


def _kill(worker: _Worker) -> None:
    """End a worker's process group, which it leads."""
    if worker.process.poll() is None:
        os.killpg(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
