"""A model that shows a mistake made small: checks that it does, runs the search with trials in a child.

Nothing of the compiler under suspicion runs in this process.
"""

from __future__ import annotations

import fnmatch
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from ...errors import ResourceLimit, UsageError
from ..options import CompileOptions
from .candidates import Case, Feeds, Recorded
from .child import Child
from .search import Search
from .trial import PASS, REFUSED, SLOW, WRONG, Expectation, Outcome

MOST_NBYTES = (1 << 31) - 1  # of a message, by protobuf
TRIES = 3  # of what may depend on timing, before a candidate is given up
STEADY = (WRONG, REFUSED)


@dataclass(frozen=True)
class Sizes:
    """Of random inputs: symbol → size, rows, and the seeds that are tried until one shows the mistake."""

    sizes: Mapping[str, int]
    batch: int
    seeds: range


def whole_model(path: Path) -> onnx.ModelProto:
    """The model with its external data.

    Raises:
        ResourceLimit: it is larger than a message may be.
    """
    model = onnx.load(path)
    if model.ByteSize() > MOST_NBYTES:
        raise ResourceLimit("too large to be handed on", where=str(path), expected="2 GiB with its external data",
                            found=f"{model.ByteSize() / 2**30:.1f} GiB")  # fmt: skip
    return model


def fitting(options: CompileOptions, model: onnx.ModelProto) -> CompileOptions:
    """The options without those of inputs, outputs and symbols that a smaller model has no longer."""
    inputs, outputs = [i.name for i in model.graph.input], [o.name for o in model.graph.output]
    symbols = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim}
    return replace(
        options,
        shapes={name: shape for name, shape in options.shapes.items() if name in inputs},
        dims={symbol: size for symbol, size in options.dims.items() if symbol in symbols},
        overridable=tuple(name for name in options.overridable if name in inputs),
        state={k: v for k, v in options.state.items() if fnmatch.filter(inputs, k) and fnmatch.filter(outputs, v)},
    )


class Reduction:
    """One reduction; close it when it is done."""

    def __init__(self, model: onnx.ModelProto, wanted: Expectation, timeout: float) -> None:
        """
        Args:
            wanted: what is looked for. timeout: seconds that a trial may take.
        """
        self.model, self.wanted = model, wanted
        self.child = Child(["-m", "parax.compiler.shrinking.trial"], timeout)
        self.shown: Outcome | None = None

    def close(self) -> None:
        """End the child."""
        self.child.close()

    def start(self, given: Feeds, made: Sizes) -> Case:
        """The whole model with inputs on which it shows what is expected.

        Args:
            given: arrays of some inputs; the others are random.

        Raises:
            UsageError: it does not on any of the inputs; or no inputs can be made.
        """
        outcome = Outcome(PASS)
        for seed in made.seeds:
            case = Case(self.model, (self._inputs(given, made, seed),))
            outcome = self._trial(case)
            if outcome.status == self.wanted.status or (self.wanted.status, outcome.status) == ("crash", "hang"):
                self.shown = outcome
                return case
        found = f"{outcome.status}: {outcome.problem}" if outcome.problem else outcome.status
        raise UsageError("the model does not show it", where=f"--expect {self.wanted.status}", found=found,
                         hint="give other inputs by --input, --seed, --dim or --batch; `parax verify --layerwise` "
                              "looks inside")  # fmt: skip

    def run(self, case: Case, seconds: float, tell: Callable[[Case, int], None]) -> Case:
        """The smallest case found within so many seconds."""
        return Search(case, self._fails, self._recorded, seconds=seconds, tell=tell).run()

    def _inputs(self, given: Feeds, made: Sizes, seed: int) -> Feeds:
        wanted = {i.name for i in self.model.graph.input} - {t.name for t in self.model.graph.initializer}
        if wanted <= set(given):
            return dict(given)
        data = self.model.SerializeToString()
        found, outcome = self._made("inputs by plan", data, self.wanted.options, made.sizes, made.batch, seed)
        if found is None:
            found, outcome = self._made("inputs by declaration", data, made.sizes, made.batch, seed)
        if found is None:
            raise UsageError("no inputs can be made", where="--expect", found=outcome.problem,
                             hint="give --input NAME=@FILE.npy for each")  # fmt: skip
        return {**found, **given}

    def _made(self, what: str, *arguments: Any) -> tuple[Any, Outcome]:
        path = Path(self.child.folder.name) / "made"
        outcome = Outcome(**self.child.ask(pickle.dumps((what, *arguments, str(path)))))
        return (pickle.loads(path.read_bytes()) if outcome.status == PASS else None), outcome

    def _recorded(self, case: Case) -> Recorded:
        data = case.model.SerializeToString()
        found, _ = self._made("record", data, case.feeds[0], self.wanted.against)
        return found if found is not None else Recorded([{}])

    def _trial(self, case: Case) -> Outcome:
        wanted = replace(self.wanted, options=fitting(self.wanted.options, case.model))
        question = pickle.dumps(("try", case.model.SerializeToString(), case.feeds[0], wanted))
        return Outcome(**self.child.ask(question))

    def _fails(self, case: Case) -> bool:
        assert self.shown is not None
        if self.shown.status == SLOW:  # what else the machine does makes slow, too
            return self._shows(case) and self._shows(case)
        return any(self._shows(case) for _ in range(1 if self.shown.status in STEADY else TRIES))

    def _shows(self, case: Case) -> bool:
        assert self.shown is not None
        outcome = self._trial(case)
        if outcome.shows(self.shown):
            self.shown = outcome
            return True
        return False
