"""One model through parax in some configurations, held against its expected results. Says how it failed, if it did."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

import parax

from .compare import Expected
from .configurations import UNTOLD, Configuration
from .generate import Case, Feeds
from .votes import dissents

PASS, UNSUPPORTED, NO_ORACLE, UNSTABLE = "pass", "unsupported", "no-oracle", "unstable"
WRONG, UNEQUAL, MEMORY, REFUSED, EXCEPTION = "wrong", "unequal", "memory", "refused", "exception"
CRASH, HANG, DISPUTED = "crash", "hang", "disputed"
FAILURES = (WRONG, UNEQUAL, MEMORY, CRASH, HANG, EXCEPTION, REFUSED, DISPUTED)
"""In order of severity. Where other implementations of a recorded case differ among themselves, it is "disputed" if
nothing explains that, and "unstable", which is no failure, if something does."""
GUARD, GARBAGE = 256, 0xA5
LEARNING, LEARNING_SECONDS = 24, 0.2
"""Requests of one shape, and seconds at most, in which a session that is told nothing tries its ways."""
Tell = Callable[[str], None]


@dataclass
class Outcome:
    """What came of one case. `problem`: in words; `configuration`: where; `seconds`: by phase."""

    status: str
    problem: str = ""
    configuration: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return self.status in FAILURES

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class _Failure(Exception):
    """Ends a trial with a status and a problem."""

    def __init__(self, status: str, problem: str) -> None:
        super().__init__(problem)
        self.status, self.problem = status, problem


def try_case(case: Case, configurations: Sequence[Configuration], tell: Tell = lambda phase: None) -> Outcome:
    """Run a case in every configuration.

    Args:
        tell: called with "oracle", "compile" and "run" as these begin, and "judge" when parax is done.
    """
    seconds: dict[str, float] = {}
    began = time.perf_counter()
    tell("oracle")
    expected = [Expected(case.model, feeds) for feeds in case.feeds]
    seconds["oracle"] = time.perf_counter() - began
    if not any(e.known for e in expected) and case.recorded is None:
        return Outcome(NO_ORACLE, "; ".join(f"{k}: {v}" for k, v in expected[0].refused.items()), None, seconds)
    refusals, unstable = [], ""
    for chosen in configurations:
        try:
            unstable = _try_one(case, chosen, expected, tell, seconds) or unstable
        except _Failure as failure:
            if failure.status != UNSUPPORTED:
                return Outcome(failure.status, failure.problem, chosen.as_json(), seconds)
            refusals.append(failure.problem)
    if refusals:
        return Outcome(UNSUPPORTED, refusals[0], None, seconds)
    return Outcome(UNSTABLE if unstable else PASS, unstable, None, seconds)


def _try_one(
    case: Case, chosen: Configuration, expected: list[Expected], tell: Tell, seconds: dict[str, float]
) -> str:
    """Which other implementations are known to disagree, and why; "" if none does."""
    began = time.perf_counter()
    tell("compile")
    plan = _guarded(lambda: compiled(case, chosen), "compile")
    seconds["compile"] = seconds.get("compile", 0.0) + time.perf_counter() - began
    first: list[Feeds] | None = None
    unstable = ""
    for arrangement in chosen.arrangements:
        began = time.perf_counter()
        tell("run")
        results = _guarded(lambda a=arrangement: _run_all(plan, a, case, expected), f"run {arrangement}")
        seconds["run"] = seconds.get("run", 0.0) + time.perf_counter() - began
        tell("judge")
        began = time.perf_counter()
        if first is None:
            first = results
            for i, (feeds, right) in enumerate(zip(results, expected)):
                problem = right.problem(feeds, fp=chosen.fp) if right.known else ""
                if problem:
                    raise _Failure(WRONG, f"run {i}: {problem}")
            unstable = _voted(case.recorded, expected[0], results[0], chosen.fp)
        else:
            _must_equal(first, results, f"{arrangement} differs from {chosen.arrangements[0]}")
        seconds["judge"] = seconds.get("judge", 0.0) + time.perf_counter() - began
    return unstable


def _voted(recorded: Feeds | None, expected: Expected, found: Feeds, fp: str) -> str:
    """The dissents that are explained, in words; "" if there are none. Those that are not fail."""
    if recorded is None:
        return ""
    against, n_voters = dissents(expected, recorded, found, fp)
    shown = "; ".join(map(str, against))
    if len({dissent.voter for dissent in against}) == n_voters and not expected.known:
        raise _Failure(WRONG, shown)
    if not all(dissent.cause or dissent.undecided for dissent in against):
        raise _Failure(DISPUTED, shown)
    if any(dissent.undecided for dissent in against):
        raise _Failure(NO_ORACLE, shown)
    return shown


def compiled(case: Case, chosen: Configuration) -> parax.Plan:
    """The plan; of the planner's own mode where the model cannot run in the one that was drawn."""
    try:
        return parax.compile(case.model, options=chosen.options())
    except parax.UsageError as error:
        if "cannot run so" not in str(error):
            raise
        return parax.compile(case.model, options=replace(chosen, mode="auto").options())


def _guarded(work: Callable[[], Any], where: str) -> Any:
    """The work's result; errors as failures of their kind."""
    try:
        return work()
    except _Failure:
        raise
    except parax.UnsupportedOp as error:
        raise _Failure(UNSUPPORTED, str(error)) from error
    except parax.InternalError as error:
        raise _Failure(EXCEPTION, f"{where}: InternalError: {error}"[:600]) from error
    except parax.InvalidInput as error:
        # sizes that something took to be 1 or more are refused where they are 0, as documented
        kind = UNSUPPORTED if "expected 1 or more; found 0" in str(error) else REFUSED
        raise _Failure(kind, f"{where}: {type(error).__name__}: {error}"[:600]) from error
    except parax.ParaxError as error:
        raise _Failure(REFUSED, f"{where}: {type(error).__name__}: {error}"[:600]) from error
    except Exception as error:  # what this is looking for
        raise _Failure(EXCEPTION, f"{where}: {type(error).__name__}: {error}"[:600]) from error


def _run_all(plan: parax.Plan, arrangement: Any, case: Case, expected: list[Expected]) -> list[Feeds]:
    """The results for all inputs: each run twice, once into buffers between guards."""
    results = []
    with plan.session(**arrangement.keywords()) as session:
        for feeds in case.feeds:
            kept = {k: v.copy() for k, v in feeds.items()}
            found = {k: np.asarray(v).copy() for k, v in session.run(feeds).items()}
            _must_equal([found], [_into_guarded(session, feeds, found)], "a second run differs from the first")
            if any(kept[k].tobytes() != feeds[k].tobytes() for k in kept):
                raise _Failure(MEMORY, "an input was written")
            results.append(found)
        end = time.perf_counter() + LEARNING_SECONDS
        for _ in range(LEARNING if arrangement == UNTOLD else 1):
            again = {k: np.asarray(v) for k, v in session.run(case.feeds[0]).items()}
            _must_equal([results[0]], [again], "a later run differs from the first")
            if time.perf_counter() > end:
                break
    return results


def _into_guarded(session: Any, feeds: Feeds, found: Feeds) -> Feeds:
    """The request again, into memory with guards where the plan knows the sizes."""
    rng = random.Random(len(found))
    whole, out = {}, {}
    for name, array in found.items():
        before = GUARD + array.itemsize * rng.randrange(16)
        whole[name] = np.full(before + array.nbytes + GUARD, GARBAGE, np.uint8)
        if array.size:
            out[name] = whole[name][before : before + array.nbytes].view(array.dtype).reshape(array.shape)
    try:
        results = session.run(feeds, out=out)
    except parax.UsageError as error:
        if "out=" not in str(error):
            raise
        return {k: np.asarray(v) for k, v in session.run(feeds).items()}
    for name, array in out.items():
        memory = whole[name]
        start = array.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
        if (memory[:start] != GARBAGE).any() or (memory[start + array.nbytes :] != GARBAGE).any():
            raise _Failure(MEMORY, f"bytes around output {name} were written")
    return {k: np.asarray(v).copy() for k, v in results.items()}


def _must_equal(first: list[Feeds], second: list[Feeds], what: str) -> None:
    for run, (a, b) in enumerate(zip(first, second)):
        for name, x in a.items():
            y = b[name]
            if x.dtype != y.dtype or x.shape != y.shape:
                raise _Failure(UNEQUAL, f"run {run}: output {name}: {what}")
            raw = np.ascontiguousarray(x).reshape(-1).view(np.uint8) != np.ascontiguousarray(y).reshape(-1).view(
                np.uint8
            )
            if raw.any():
                with np.errstate(all="ignore"):
                    different = (x != y) & ~((x != x) & (y != y))
                signs = raw.reshape(-1, x.itemsize).any(1).reshape(x.shape) & ~((x != x) & (y != y))
                if signs.any():
                    at = tuple(int(i) for i in np.argwhere(signs)[0])
                    count = int(different.sum())
                    raise _Failure(
                        UNEQUAL, f"run {run}: output {name}: {what} at {list(at)}: {x[at]} and {y[at]}; {count} differ"
                    )
