"""Whether other implementations agree with results that are right by the judge, and with each other.

`compare` calls a result right that any of its judges does. Here everybody has a vote, the framework that the model
comes from too: who differs from the results by more than rounding dissents, and has to be explained.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np

from .compare import FEW, MANY, Expected, near_row, strictly_right, within_spread
from .contents import F32, F64
from .generate import Feeds
from .known import NONE, causes

VOTERS = ("onnxruntime", "optimised")
"""ONNX Runtime as the model is written down, and as it runs by default."""


@dataclass(frozen=True)
class Dissent:
    """Somebody whose results are others.

    Attributes:
        voter: who. problem: where, and how. cause: why, where that is known; else "".
    """

    voter: str
    problem: str
    cause: str

    def __str__(self) -> str:
        return f"{self.voter}: {self.problem}{f' ({self.cause})' if self.cause else ''}"


def dissents(expected: Expected, recorded: Feeds, found: Feeds, fp: str) -> tuple[list[Dissent], int]:
    """Who disagrees with the results, and how many had a vote.

    Args:
        recorded: the framework's results. found: the results that are voted on. fp: as they were compiled.
    """
    votes = {"framework": recorded}
    votes.update({kind: said for kind in VOTERS if (said := expected.ask(kind)) is not None})
    against = []
    if "onnxruntime" in votes and "optimised" not in votes:
        against.append(Dissent("optimised", expected.refused["optimised"], "ONNX Runtime breaks what it optimises"))
    for voter, said in votes.items():
        for name, array in found.items():
            value = expected.declared(name, np.asarray(said[name]))
            problem = _difference(expected, name, array, value, fp)
            if problem:
                cause = _explained(expected, name, voter, array, value, fp)
                against.append(Dissent(voter, f"output {name} {problem}", cause))
    return against, len(votes)


def _explained(expected: Expected, name: str, voter: str, found: np.ndarray, said: np.ndarray, fp: str) -> str:
    """The cause that explains a difference, or all that together do; "" if they do not."""
    known = causes(expected.model, name, voter)
    for chosen in [*([cause] for cause in known), known]:
        freedom = reduce(or_, (cause.freedom for cause in chosen), NONE)
        widened = freedom.as_float32 and {found.dtype, said.dtype} == {F32, F64}
        value = said.astype(found.dtype) if widened else said
        if chosen and not _difference(expected.loosened(freedom), name, found, value, fp):
            return "; ".join(cause.reason for cause in chosen)
    return ""


def _difference(expected: Expected, name: str, found: np.ndarray, said: np.ndarray, fp: str) -> str:
    """How two results differ by more than rounding may move either; "" if they do not."""
    if found.shape != said.shape or found.dtype != said.dtype:
        return f"is {said.dtype} {list(said.shape)}, not {found.dtype} {list(found.shape)}"
    same = strictly_right(found, said)
    for count in (FEW, MANY):
        if same.all():
            return ""
        runs = expected.noisy(count, fp, name)
        if not runs or runs[0].shape != found.shape:
            same = same | near_row(found, said)
            break
        same = same | (within_spread(found, runs, said) & within_spread(said, runs, found))
    if same.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"at {list(at)}: {said[at]}, not {found[at]}; {int((~same).sum())} of {same.size} differ"
