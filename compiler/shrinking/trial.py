"""One model on its inputs, as a question: does it show what is looked for? A program that answers such questions, too.

`python -m parax.compiler.shrinking.trial` is the child of `parax reduce`; it reads pickles that its parent has written,
nobody else's. A trial ends the process where the compiler or the kernels do.
"""

from __future__ import annotations

import pickle
import re
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...errors import InternalError, ParaxError, UsageError
from .. import api
from ..compare import Tolerance
from ..frontend.oracle import oracle
from ..frontend.other_side import other_side
from ..frontend.precision import precision
from ..options import CompileOptions
from ..row_order import differences
from . import inputs, recording
from .child import CRASH, HANG, serve

PASS, WRONG, SLOW, REFUSED, NO_REFERENCE = "pass", "wrong", "slow", "refused", "no reference"
EXPECTATIONS = (WRONG, SLOW, CRASH, REFUSED)
LEAST_SECONDS = 100e-6
"""A run that takes less is not called slow: most of it is the call."""
WARM_UPS, ROUNDS, TIMED_SECONDS = 3, 30, 1.0


@dataclass(frozen=True)
class Expectation:
    """What a model is to show.

    Attributes:
        status: WRONG: an output differs from another implementation's; SLOW: one core takes `factor` times as long as
            ONNX Runtime on one; CRASH: the process dies, hangs, or raises what is our mistake; REFUSED: a ParaxError.
        against: the other implementation, "onnxruntime" or "reference".
        options: how it is compiled. rtol, atol: see `compare`.
    """

    status: str
    against: str
    options: CompileOptions
    rtol: float | None = None
    atol: float | None = None
    factor: float = 2.0


@dataclass(frozen=True)
class Outcome:
    """What came of a trial: PASS, one of EXPECTATIONS, HANG or NO_REFERENCE, and the problem in words."""

    status: str
    problem: str = ""

    def shows(self, wanted: Outcome) -> bool:
        """Whether this is the same mistake: the same kind, and of errors the same words but for names and numbers."""
        if self.status != wanted.status:
            return False
        return self.status in (WRONG, SLOW) or _kind(self.problem) == _kind(wanted.problem)


def _kind(problem: str) -> str:
    """An error without the place, and its words without names and numbers."""
    name, _, rest = problem.partition(": ")
    words = re.sub(r"\"[^\"]*\"|'[^']*'|%\S+|\S*\d\S*", "", rest).split(";")
    return " ".join([name, *words[0].rpartition(": ")[2].split()])


def tried(model: bytes, feeds: Mapping[str, np.ndarray], wanted: Expectation) -> Outcome:
    """Compile and run the model, and judge it."""
    try:
        plan = api.compile(model, options=wanted.options)
        with plan.session(instances=1, cores_per_instance=1) as session:
            found = session.run(dict(feeds))
            if wanted.status == WRONG:
                return _compared(model, feeds, found, wanted)
            if wanted.status == SLOW:
                return _timed(model, feeds, partial(session.run, dict(feeds)), wanted)
    except InternalError as error:
        return Outcome(CRASH, f"InternalError: {error}")
    except ParaxError as error:
        return Outcome(REFUSED, f"{type(error).__name__}: {error}")
    except Exception as error:  # no error of ours: what is looked for
        return Outcome(CRASH, f"{type(error).__name__}: {error}")
    return Outcome(PASS)


def _compared(
    model: bytes, feeds: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray], wanted: Expectation
) -> Outcome:
    try:
        expected = oracle(model, wanted.against)(feeds)
    except ParaxError as error:
        return Outcome(NO_REFERENCE, str(error))
    of_model = precision(model)
    allowed = Tolerance(wanted.rtol, wanted.atol, of_model.coarsest)
    wrong = [d for d in differences(found, expected, allowed, of_model.rounded) if not d.passed]
    return Outcome(WRONG, f"output {wrong[0].name}: {wrong[0].problem}") if wrong else Outcome(PASS)


def _timed(
    model: bytes, feeds: Mapping[str, np.ndarray], ours: Callable[[], object], wanted: Expectation
) -> Outcome:  # fmt: skip
    """Both in turns, the best time of each: what else the machine does only adds to a time."""
    try:
        theirs = _onnxruntime(model, feeds)
    except ParaxError as error:
        return Outcome(NO_REFERENCE, str(error))
    best = [float("inf")] * 2
    end = time.perf_counter() + TIMED_SECONDS
    for number in range(WARM_UPS + ROUNDS):
        for side, call in enumerate((ours, theirs)):
            began = time.perf_counter()
            call()
            if number >= WARM_UPS or number == 0:
                best[side] = min(best[side], time.perf_counter() - began)
        if number >= WARM_UPS and time.perf_counter() > end:
            break
    own, other = best
    problem = f"{own * 1e3:.3g} ms, onnxruntime {other * 1e3:.3g} ms"
    return Outcome(SLOW if own > max(wanted.factor * other, LEAST_SECONDS) else PASS, problem)


def _onnxruntime(model: bytes, feeds: Mapping[str, np.ndarray]) -> Callable[[], object]:
    """A call of ONNX Runtime at its best on one core.

    Raises:
        UsageError: it is not installed. UnsupportedOp: it does not run the model.
    """
    try:
        import onnxruntime as ort  # optional: the extra "bench"
    except ImportError as error:
        raise UsageError("onnxruntime is not installed", hint="pip install onnxruntime") from error
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    with other_side("onnxruntime"):
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        session.run(None, dict(feeds))
    return partial(session.run, None, dict(feeds))


MAKERS: dict[str, Callable[..., Any]] = {
    "record": recording.recorded, "inputs by plan": inputs.by_plan, "inputs by declaration": inputs.by_declaration,
}  # fmt: skip


def answer(question: bytes) -> dict[str, Any]:
    """One question of the parent: what, its arguments, and the path where what is more than an outcome is written."""
    what, *rest = pickle.loads(question)
    if what == "try":
        return asdict(tried(*rest))
    *rest, path = rest
    try:
        made = MAKERS[what](*rest)
    except ParaxError as error:
        return asdict(Outcome(REFUSED, f"{type(error).__name__}: {error}"))
    with open(path, "wb") as file:
        pickle.dump(made, file)
    return asdict(Outcome(PASS))


def without_watching(options: CompileOptions) -> CompileOptions:
    """Options for trials: nothing is dumped, printed, measured or kept."""
    return replace(options, dump=None, print_after=(), check=0, cache=False, calibrate=False, jobs=1)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    np.seterr(all="ignore")
    serve(answer)

__all__ = ["CRASH", "EXPECTATIONS", "HANG", "Expectation", "Outcome", "answer", "tried", "without_watching"]
