"""Whether other implementations agree with results that are right by the judge, and with each other.

`compare` calls a result right that any of its judges does. Here everybody has a vote, the framework that the model
comes from too: who differs from the results by more than rounding dissents, and has to be explained. Either it is known
who does so and why (`known`); or the model in float64 says that both are off by no more than the order of a sum's terms
may move them, and the results by no more than parax promises, or by less than who dissents.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np

from .compare import FEW, MANY, NO_ROOM, Expected, near_row, strictly_right, within_spread
from .contents import F32, F64, is_float
from .generate import Feeds
from .known import NONE, Freedom, causes

VOTERS = ("onnxruntime", "optimised")
"""ONNX Runtime as the model is written down, and as it runs by default."""


@dataclass(frozen=True)
class Dissent:
    """Somebody whose results are others.

    Attributes:
        voter: who. problem: where, and how. cause: why, where that is known; else "".
        undecided: why nobody can say who is right, where no cause is known and no referee could be asked; else "".
    """

    voter: str
    problem: str
    cause: str
    undecided: str = ""

    def __str__(self) -> str:
        why = self.cause or self.undecided
        return f"{self.voter}: {self.problem}{f' ({why})' if why else ''}"


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
                cause = (_explained(expected, name, voter, array, value, fp)
                         or _kept_wide(expected, name, array, value, fp)
                         or _refereed(expected, name, voter, array, value, fp))  # fmt: skip
                undecided = NO_ROOM if not cause and expected.imprecise.get(name) == NO_ROOM else ""
                against.append(Dissent(voter, f"output {name} {problem}", cause, undecided))
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


def _kept_wide(expected: Expected, name: str, found: np.ndarray, said: np.ndarray, fp: str) -> str:
    """Why a difference is none: the results are right where parax keeps float16 in float32, as it says it does, and
    who dissents where float16 overflows. "" where either is not, or the overflow changes nothing."""
    if found.shape != said.shape or found.dtype != said.dtype:
        return ""
    narrow, wide = expected.noisy(FEW, fp, name), expected.kept_wide(fp, name)
    if not (narrow and wide) or narrow[0].shape != found.shape:
        return ""
    with np.errstate(all="ignore"):
        changes = (narrow[0] != wide[0]) & ~((narrow[0] != narrow[0]) & (wide[0] != wide[0]))
    right = changes & within_spread(found, wide) & within_spread(said, narrow)
    off = ~_same(expected, name, found, said, fp)
    return "float16 overflows on the way, where parax keeps float32" if right[off].all() else ""


def _refereed(expected: Expected, name: str, voter: str, found: np.ndarray, said: np.ndarray, fp: str) -> str:
    """Why a difference of rounding is no fault of the results, by the model in float64; "" if it may be one."""
    if found.shape != said.shape or found.dtype != said.dtype or not is_float(found.dtype):
        return ""
    off = ~_same(expected, name, found, said, fp)
    exact = expected.noisy(FEW, fp, name)
    orders = expected.loosened(Freedom(in_sequence=True)).noisy(FEW, fp, name)
    promised = expected.loosened(Freedom(in_blocks=True)).noisy(FEW, fp, name)
    if not (exact and orders and promised) or exact[0].shape != found.shape:
        return ""
    with np.errstate(invalid="ignore"):
        ours, theirs = (np.abs(x.astype(F64) - exact[0]) for x in (found, said))
    if not (theirs <= _most_off(orders))[off].all():
        return ""
    if (within_spread(found, exact) & (ours <= theirs))[off].all():
        most, least = theirs[off].max(), ours[off].max()
        return f"float64 is {least:.2g} from parax and {most:.2g} from {voter}, which adds in another order"
    if (ours <= _most_off(promised))[off].all():
        return f"float64 is {ours[off].max():.2g} from parax, less than parax promises of its sums"
    return ""


def _most_off(runs: list[np.ndarray]) -> np.ndarray:
    """How far the noisy runs are from the exact one, where all are finite; else 0."""
    with np.errstate(invalid="ignore"):
        most = np.abs(np.stack(runs) - runs[0]).max(0)
    return np.where(np.isfinite(most), most, 0.0)


def _difference(expected: Expected, name: str, found: np.ndarray, said: np.ndarray, fp: str) -> str:
    """How two results differ by more than rounding may move either; "" if they do not."""
    if found.shape != said.shape or found.dtype != said.dtype:
        return f"is {said.dtype} {list(said.shape)}, not {found.dtype} {list(found.shape)}"
    same = _same(expected, name, found, said, fp)
    if same.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"at {list(at)}: {said[at]}, not {found[at]}; {int((~same).sum())} of {same.size} differ"


def _same(expected: Expected, name: str, found: np.ndarray, said: np.ndarray, fp: str) -> np.ndarray:
    """Which elements are equal but for rounding, of two results of one shape and type."""
    same = strictly_right(found, said)
    for count in (FEW, MANY):
        if same.all():
            break
        runs = expected.noisy(count, fp, name)
        if not runs or runs[0].shape != found.shape:
            return same | near_row(found, said)
        same = same | (within_spread(found, runs, said) & within_spread(said, runs, found))
    return same
