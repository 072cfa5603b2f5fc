"""A failing case made as small as it goes and written as ONNX, inputs and a test.

The search is that of `parax reduce`. Owns what the fuzzer adds: configurations, and the files.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from parax.compiler.shrinking.candidates import Case, Recorded
from parax.compiler.shrinking.child import Child
from parax.compiler.shrinking.search import Search
from parax.files import write_whole

from .configurations import Configuration, configuration
from .models import Source
from .others import NoOracle, run_other
from .pool import TESTS
from .snippet import test_of
from .trial import CRASH, EXCEPTION, HANG, REFUSED, UNEQUAL, Outcome

SECONDS = 150.0
"""A reduction ends after so long with what it has."""
UNSTEADY = 3
"""How often a candidate is tried where failures may depend on timing."""


@dataclass(frozen=True)
class Failing(Case):
    """A model, its inputs for each run, and the configurations that it fails in."""

    configurations: tuple[Configuration, ...]

    @property
    def size(self) -> tuple[int, ...]:
        """Arrangements, too."""
        return (*super().size, sum(len(c.arrangements) for c in self.configurations))


def fewer_configurations(failing: Failing) -> Iterator[Failing]:
    """One configuration, two arrangements."""
    if len(failing.configurations) > 1:
        for chosen in failing.configurations:
            yield replace(failing, configurations=(chosen,))
    (*_, chosen) = failing.configurations
    if len(failing.configurations) == 1 and len(chosen.arrangements) > 1:
        first, *others = chosen.arrangements
        yield replace(failing, configurations=(replace(chosen, arrangements=(first,)),))
        if len(others) > 1:
            for other in others:
                yield replace(failing, configurations=(replace(chosen, arrangements=(first, other)),))


def plainer_configurations(failing: Failing) -> Iterator[Failing]:
    """The usual target, hint and mode, a lower level."""
    if len(failing.configurations) != 1:
        return
    (chosen,) = failing.configurations
    for change in (
        {"mode": "auto"}, {"hint": "throughput"}, {"target": "native"}, {"fp": "default"}, {"level": 0}, {"level": 2},
    ):  # fmt: skip
        changed = replace(chosen, **change)
        if changed != chosen and not (chosen.level == 0 and change.get("level") == 2):
            yield replace(failing, configurations=(changed,))


class Reducer:
    """The search among cases that fail as the original does, in a child process (see `fuzz.server`)."""

    def __init__(self, failing: Failing, wanted: Outcome, timeout: float = 10.0, seconds: float = SECONDS) -> None:
        path = os.pathsep.join(p for p in (str(TESTS), os.environ.get("PYTHONPATH", "")) if p)
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        self.child = Child(["-m", "fuzz.server"], 2 * timeout, cwd=TESTS, env=environment)
        self.failing, self.wanted, self.seconds = failing, wanted, seconds
        self.last = wanted

    def run(self) -> Failing:
        """The smallest version found."""
        try:
            if not self._fails(self.failing):
                return self.failing
            return Search(self.failing, self._fails, _recorded, seconds=self.seconds, before=(fewer_configurations,),
                          after=(plainer_configurations,)).run()  # fmt: skip
        finally:
            self.child.close()

    def _fails(self, candidate: Failing) -> bool:
        """Whether it fails in the same way."""
        question = candidate.model.SerializeToString(), candidate.feeds, [c.as_json() for c in candidate.configurations]
        for _ in range(UNSTEADY if self.wanted.status in (UNEQUAL, CRASH, HANG) else 1):
            outcome = Outcome(**self.child.ask(pickle.dumps(question)))
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


def _recorded(failing: Failing) -> Recorded:
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
    return Recorded(found)


def reduce_record(record: Any, source: Source, output: Path, timeout: float) -> Path:
    """Reduce one failed case of a run and write it below `output`; the folder that holds it."""
    case = source.case(record.number)
    drawn = [configuration(c) for c in record.configurations]
    if record.outcome.configuration is not None:
        drawn = [configuration(record.outcome.configuration)]
    reducer = Reducer(Failing(case.model, tuple(case.feeds), tuple(drawn)), record.outcome, timeout)
    return write(reducer.run(), reducer.last, f"{source.seed}-{record.number}-{record.outcome.status}", output)


def write(failing: Failing, outcome: Outcome, name: str, output: Path) -> Path:
    """The case as model.onnx, inputs.npz and test_case.py in a folder of that name."""
    folder = output / name
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "model.onnx", failing.model.SerializeToString())
    arrays = {f"{run}/{k}": v for run, feeds in enumerate(failing.feeds) for k, v in feeds.items()}
    np.savez(folder / "inputs.npz", **arrays)  # type: ignore[arg-type]
    shown = "\n".join(map(str, failing.configurations))
    write_whole(folder / "problem.txt", f"{outcome.status}: {outcome.problem}\n{shown}\n")
    write_whole(folder / "test_case.py", test_of(failing, failing.configurations, outcome, name))
    return folder
