"""A failing case made as small as it goes and written as ONNX, inputs and a test.

Candidates are tried in a child process, so that crashes and hangs may be reduced too. Owns the search and the files.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from parax.files import write_whole

from . import candidates
from .candidates import Failing
from .configurations import configuration
from .oracles import NoOracle, run_other
from .pool import TESTS
from .snippet import test_of
from .trial import CRASH, EXCEPTION, HANG, REFUSED, UNEQUAL, Outcome
from .worker import case_of

SECONDS = 150.0
"""A reduction ends after so long with what it has."""
UNSTEADY = 3
"""How often a candidate is tried where failures may depend on timing."""


class Server:
    """A child process that tries cases (see `fuzz.server`); a new one where it died or hung."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.child: subprocess.Popen[str] | None = None
        self.folder = tempfile.TemporaryDirectory(prefix="parax-fuzz-")

    def outcome(self, failing: Failing) -> Outcome:
        """What comes of a case; crashes and hangs too."""
        child = self._running()
        path = Path(self.folder.name) / "case.pickle"
        data = (failing.model.SerializeToString(), failing.feeds, [c.as_json() for c in failing.configurations])
        with path.open("wb") as file:
            pickle.dump(data, file)
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(f"{path}\n")
        child.stdin.flush()
        ready, _, _ = select.select([child.stdout], [], [], 2 * self.timeout)
        line = child.stdout.readline() if ready else ""
        if line.startswith("{"):
            return Outcome(**json.loads(line))
        child.kill()
        child.wait()
        self.child = None
        return Outcome(CRASH if ready else HANG)

    def _running(self) -> subprocess.Popen[str]:
        if self.child is None:
            path = os.pathsep.join(p for p in (str(TESTS), os.environ.get("PYTHONPATH", "")) if p)
            self.child = subprocess.Popen(
                [sys.executable, "-m", "fuzz.server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                stderr=subprocess.DEVNULL, cwd=TESTS, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        return self.child

    def close(self) -> None:
        """End the child."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
        self.folder.cleanup()


class Reducer:
    """The search: takes every candidate that fails as the original does, until none does or the time is over."""

    def __init__(self, failing: Failing, wanted: Outcome, timeout: float = 10.0, seconds: float = SECONDS) -> None:
        self.failing, self.wanted = failing, wanted
        self.server = Server(timeout)
        self.deadline = time.monotonic() + seconds
        self.last = wanted

    def run(self) -> Failing:
        """The smallest version found."""
        try:
            if not self._fails(self.failing):
                return self.failing
            before: Any = None
            while before != candidates.size_of(self.failing) and time.monotonic() < self.deadline:
                before = candidates.size_of(self.failing)
                self._round()
        finally:
            self.server.close()
        return self.failing

    def _round(self) -> None:
        self._take(candidates.fewer_runs)
        self._take(candidates.fewer_outputs)
        self._take(lambda f: candidates.last_nodes(f, _traced(f)))
        self._take(lambda f: candidates.values_as_inputs(f, _traced(f)))
        self._take(lambda f: candidates.earlier_outputs(f, _traced(f)))
        self._take(lambda f: candidates.bypassed(f, _traced(f)))
        self._take(candidates.without_identities)
        self._take(candidates.static_shapes)
        self._take(candidates.smaller_sizes)
        self._take(candidates.fewer_attributes)
        self._take(candidates.plainer_configurations)
        self._take(candidates.plainer_numbers)

    def _take(self, propose: Callable[[Failing], Iterable[Failing]]) -> None:
        """Accept candidates of one kind as long as one fails."""
        accepted, left = True, 60
        while accepted and left:
            accepted = False
            for candidate in propose(self.failing):
                if time.monotonic() > self.deadline:
                    return
                if self._fails(candidate):
                    self.failing, accepted, left = candidate, True, left - 1
                    break

    def _fails(self, candidate: Failing) -> bool:
        """Whether it fails in the same way."""
        for _ in range(UNSTEADY if self.wanted.status in (UNEQUAL, CRASH, HANG) else 1):
            outcome = self.server.outcome(candidate)
            if outcome.status == self.wanted.status and _message(outcome) == _message(self.wanted):
                self.last = outcome
                return True
        return False


def _message(outcome: Outcome) -> str:
    """What must stay the same of an error: where it came from, its kind and its first words."""
    if outcome.status not in (EXCEPTION, REFUSED):
        return ""
    phase, _, rest = outcome.problem.partition(": ")
    return phase.split()[0] + " ".join(w for w in rest.split(";")[0].split() if w.isalpha())[:60]


def _traced(failing: Failing) -> list[dict[str, np.ndarray]]:
    """Every value of the main graph in every run, as another implementation has it; what it lacks is left out."""
    model = onnx.ModelProto()
    model.CopyFrom(failing.model)
    outputs = {o.name for o in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in outputs:
                model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    found = []
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    for feeds in failing.feeds:
        values = {**constants, **feeds}
        for kind in ("onnxruntime", "nodes", "reference"):
            with suppress(NoOracle):
                values.update(run_other(model, kind, feeds))
                break
        found.append(values)
    return found


def reduce_record(record: Any, seed: str, models: Path | None, output: Path, timeout: float) -> Path:
    """Reduce one failed case of a run and write it below `output`; the folder that holds it."""
    paths = None if models is None else sorted(models.rglob("*.onnx"))
    case = case_of(seed, record.number, paths)
    drawn = [configuration(c) for c in record.configurations]
    if record.outcome.configuration is not None:
        drawn = [configuration(record.outcome.configuration)]
    reducer = Reducer(Failing(case.model, tuple(case.feeds), tuple(drawn)), record.outcome, timeout)
    return write(reducer.run(), reducer.last, f"{seed}-{record.number}-{record.outcome.status}", output)


def write(failing: Failing, outcome: Outcome, name: str, output: Path) -> Path:
    """The case as model.onnx, inputs.npz and test_case.py in a folder of that name."""
    folder = output / name
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "model.onnx", failing.model.SerializeToString())
    arrays = {f"{run}/{k}": v for run, feeds in enumerate(failing.feeds) for k, v in feeds.items()}
    np.savez(folder / "inputs.npz", **arrays)  # type: ignore[arg-type]
    shown = "\n".join(map(str, failing.configurations))
    write_whole(folder / "problem.txt", f"{outcome.status}: {outcome.problem}\n{shown}\n")
    write_whole(folder / "test_case.py", test_of(failing, outcome, name))
    return folder
