"""Whether a result is right, given what other implementations say and how far rounding may carry it.

First strictly: integers and bools equal, floats within some units of rounding of another implementation's. Only where
that fails, the spread of the model under noise (`oracles.Rounding`) says what else is right.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx

from parax.compiler.shrinking.graphs import all_nodes, prune

from .contents import F16, F64, epsilon, is_float
from .generate import Feeds
from .known import NONE, Freedom
from .oracles import Rounding, noisy_nodes
from .others import NoOracle, run_other
from .widening import without_weights

UNITS = 64.0
"""Units of rounding within which two implementations agree at once, of an element and of its row's typical size."""
ROW_UNITS, ROW_MOST = 8 * UNITS, 0.05
"""The same of a row's greatest element, where float64 cannot be run; of narrow types no more than this share."""
KINDS = ("onnxruntime", "nodes", "reference")
NOISE, FACTOR = 3.0, 6.0
FEW, MANY, MOST = 4, 40, 200
"""Noisy runs; most for integers, which may name any of several places that are equal but for rounding."""
SEVERAL = 8
"""Jumps of an integer among the noisy runs from which on it is a sum of many that jump each by itself: few runs do not
meet its extremes."""
NO_ROOM = "float64 has no room in memory"
ROUNDED = 2
"""The run that is only rounded: its ties are those of the narrow types."""


@dataclass
class Expected:
    """The right results of one run, found as they are needed.

    Attributes:
        others: by implementation. refused: why not. imprecise: outputs that cannot be run in float64, and why.
        freedom: how much further they may be off than by rounding.
    """

    model: onnx.ModelProto
    feeds: Feeds
    others: dict[str, Feeds] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    imprecise: dict[str, str] = field(default_factory=dict)
    freedom: Freedom = NONE
    _runs: dict[tuple[str, str], list[np.ndarray]] = field(default_factory=dict)
    _rounding: dict[str, tuple[Rounding, Feeds]] = field(default_factory=dict)
    _halves: set[str] = field(default_factory=set)
    """Outputs with float16 among what they are computed by."""

    def __post_init__(self) -> None:
        if all(self.ask(kind) is None for kind in KINDS):
            self.noisy(0, "strict", self.model.graph.output[0].name)

    @property
    def known(self) -> bool:
        """Whether any implementation runs the model, in its own types or in float64."""
        return bool(self.others or any(self._runs.values()))

    @property
    def scans(self) -> bool:
        """Whether a loop makes results of what its steps give."""
        return any(n.op_type in ("Loop", "Scan") for n in all_nodes(self.model.graph))

    def loosened(self, freedom: Freedom) -> Expected:
        """The same, with results that may be further off."""
        return Expected(self.model, self.feeds, self.others, self.refused, freedom=freedom)

    def ask(self, kind: str) -> Feeds | None:
        """What an implementation says, None if it cannot run the model."""
        if kind not in self.others and kind not in self.refused:
            try:
                self.others[kind] = run_other(self.model, kind, self.feeds)
            except NoOracle as error:
                self.refused[kind] = str(error)
        return self.others.get(kind)

    def noisy(self, count: int, fp: str, name: str) -> list[np.ndarray]:
        """The exact result of one output and `count` noisy ones; none where float64 cannot be run.

        Only what the output needs is run: other branches may have what no other implementation runs.
        """
        if name in self.imprecise:
            return []
        runs = self._runs.setdefault((name, fp), [])
        try:
            try:
                self._run_on(runs, count, fp, name)
            except MemoryError:  # each output's weights in float64 are kept: those of others may take the room
                self._rounding.clear()
                self._run_on(runs, count, fp, name)
        except (NoOracle, MemoryError) as error:
            self.imprecise[name] = NO_ROOM if isinstance(error, MemoryError) else str(error)
            self._rounding.pop(name, None)
            runs.clear()
        return runs

    def _run_on(self, runs: list[np.ndarray], count: int, fp: str, name: str) -> None:
        """Adds what is missing of `noisy`. Raises NoOracle, MemoryError."""
        if name not in self._rounding:
            model, weights = without_weights(self.model)
            for output in [o for o in model.graph.output if o.name != name]:
                model.graph.output.remove(output)
            inputs = prune(model.graph)
            feeds = {k: onnx.numpy_helper.to_array(t) for k, t in weights.items() if k in inputs}
            feeds.update({k: v for k, v in self.feeds.items() if k in inputs})
            self._rounding[name] = Rounding(model, self.freedom, weights), feeds
            if F16 in self._rounding[name][0].types.values():
                self._halves.add(name)
        rounding, feeds = self._rounding[name]
        if not runs:
            runs.append(rounding.run(feeds)[name])
        while len(runs) <= count:
            seed = len(runs)
            noisy = rounding.run(feeds, 0.0 if seed == ROUNDED else NOISE, seed, fp)[name]
            runs.append(noisy if noisy.shape == runs[0].shape else runs[0])

    def kept_wide(self, fp: str, name: str) -> list[np.ndarray]:
        """Runs in which float16 is as great as parax lets it be, kept in float32; none where it may not be so."""
        runs = self.noisy(0, fp, name)
        if fp == "strict" or not runs or name not in self._halves:
            return []
        wide = self.loosened(Freedom(kept_wide=True)).noisy(FEW, fp, name)
        return wide if wide and wide[0].shape == runs[0].shape else []

    def problem(self, found: Feeds, fp: str = "strict") -> str:
        """What is wrong with these results, "" if nothing is.

        Args:
            fp: as compiled: but for "strict", products may have been computed by algorithms of fewer multiplications.
        """
        for name, array in found.items():
            wrong = self._wrong(name, array, fp)
            if wrong:
                return f"output {name} {wrong}"
        return ""

    def declared(self, name: str, said: np.ndarray) -> np.ndarray:
        """A result in the type that the model declares: onnx.reference widens sums of integers."""
        code = next(o.type.tensor_type.elem_type for o in self.model.graph.output if o.name == name)
        wanted = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)) if code else said.dtype
        return said.astype(wanted) if wanted.kind in "iu" and said.dtype.kind in "iu" else said

    def _wrong(self, name: str, array: np.ndarray, fp: str) -> str:
        """What no judge calls right: each element has to be right by any of them."""
        right, mismatch = np.zeros(array.shape, bool), ""
        wanted: dict[str, np.ndarray] = {}
        for kind in KINDS:
            if kind == "nodes" and "onnxruntime" in self.others:
                continue
            said = self.ask(kind)
            if said is None:
                continue
            value = self.declared(name, said[name])
            differs = _mismatch(array, value)
            if differs and self.scans and not array.size and not value.size:
                return ""  # what no step scans has no shape that can be known
            if differs:
                mismatch = mismatch or f"against {kind}: {differs}"
                continue
            wanted[kind] = value
            right |= strictly_right(array, value)
            if right.all():
                return ""
        if mismatch and not wanted and (" type " in mismatch or not self.noisy(0, fp, name)):
            return mismatch  # the model in float64, which may run this output alone, knows shapes but no types
        right, problem = self._rounded(name, array, fp, right)
        if right.all() and not problem:
            return ""
        if not wanted:
            runs = self.noisy(0, fp, name)
            if problem or not runs:  # without a run nobody knows
                return problem
            wanted["float64"] = runs[0]
        kind, value = next(iter(wanted.items()))
        return f"against {kind}: {_first(array, value, ~right)}"

    def _rounded(self, name: str, array: np.ndarray, fp: str, right: np.ndarray) -> tuple[np.ndarray, str]:
        """`right` with what rounding may give, and what is wrong with all of the array."""
        said_here = [said[name] for said in self.others.values() if said[name].shape == array.shape]
        for count in (FEW, MANY) if is_float(array.dtype) else (FEW, MANY, MOST):
            runs = self.noisy(count, fp, name)
            if not runs:
                return right | self._near_others(name, array), ""
            if runs[0].shape != array.shape:
                return right, f"against float64: shape {array.shape}, expected {runs[0].shape}"
            for middle in (None, *said_here):
                right = right | within_spread(array, runs, middle)
            if right.all():
                return right, ""
        wide = self.kept_wide(fp, name)
        return (right | within_spread(array, wide)) if wide else right, ""

    def _near_others(self, name: str, array: np.ndarray) -> np.ndarray:
        """What rounding may give, as far as it can be said without float64."""
        others = [self.others[k][name] for k in KINDS[:2] if k in self.others]
        near = np.logical_or.reduce([np.zeros(array.shape, bool), *(near_row(array, o) for o in others)])
        if near.all():
            return near
        try:
            runs = [noisy_nodes(self.model, self.feeds, NOISE if k else 0.0, k)[name] for k in range(FEW + 1)]
        except NoOracle:
            return near
        if any(run.shape != array.shape for run in runs):
            return near
        return near | within_spread(array, [run.astype(F64) if is_float(run.dtype) else run for run in runs])


def _mismatch(found: np.ndarray, wanted: np.ndarray) -> str:
    """How the shape or the type differs, "" if neither does."""
    if found.shape != wanted.shape:
        return f"shape {found.shape}, expected {wanted.shape}"
    return f"type {found.dtype}, expected {wanted.dtype}" if found.dtype != wanted.dtype else ""


def strict_difference(found: np.ndarray, wanted: np.ndarray) -> str:
    """How two results differ beyond some units of rounding; "" if they do not."""
    mismatch = _mismatch(found, wanted)
    if mismatch:
        return mismatch
    right = strictly_right(found, wanted)
    return "" if right.all() else _first(found, wanted, ~right)


def strictly_right(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which elements agree to some units of rounding; shapes and types are equal."""
    if not is_float(found.dtype):
        return found == wanted
    b = np.abs(wanted.astype(F64))
    with np.errstate(all="ignore"):
        allowed = UNITS * epsilon(found.dtype) * (b + 0.05 * _typical(b)) + smallest(found.dtype)
    return _near(found.astype(F64), wanted.astype(F64), allowed)


def near_row(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which elements differ by units of the greatest of their row only: all that can be said without float64."""
    if _mismatch(found, wanted) or not is_float(found.dtype) or found.ndim == 0 or found.size == 0:
        return np.zeros(found.shape, bool)
    b = wanted.astype(F64)
    greatest = np.abs(np.where(np.isfinite(b), b, 0.0)).max(-1, keepdims=True)
    return _near(found.astype(F64), b, min(ROW_UNITS * epsilon(found.dtype), ROW_MOST) * greatest)


def _near(a: np.ndarray, b: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Which elements are equal, both NaN, or both finite and no further apart than allowed."""
    with np.errstate(all="ignore"):
        near = (np.abs(a - b) <= allowed) & np.isfinite(a) & np.isfinite(b)
    return near | (a == b) | (np.isnan(a) & np.isnan(b))


def _typical(x: np.ndarray) -> np.ndarray:
    """The root mean square of each row's finite elements, to be broadcast to it."""
    if x.ndim == 0 or x.size == 0:
        return np.zeros(x.shape)
    finite = np.where(np.isfinite(x), x, 0.0)
    return np.sqrt((finite**2).mean(-1, keepdims=True))


def _first(found: np.ndarray, wanted: np.ndarray, bad: np.ndarray) -> str:
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"at {list(at)}: {found[at]}, expected {wanted[at]}; {int(bad.sum())} of {bad.size} differ"


def within_spread(found: np.ndarray, runs: list[np.ndarray], other: np.ndarray | None = None) -> np.ndarray:
    """Which elements lie where rounding may put them, or, where the noisy runs jump, among or between them.

    Args:
        runs: the exact results and noisy ones. other: another implementation's, which may stand for the exact one.
    """
    middle = runs[0] if other is None else other.astype(runs[0].dtype)
    stack = np.stack(runs)
    if found.dtype.kind == "b":
        return (found == middle) | (stack != stack[0]).any(0)
    if not is_float(found.dtype):
        low, high = stack.min(0).astype(np.int64), stack.max(0).astype(np.int64)
        several = (np.diff(np.sort(stack, axis=0), axis=0) != 0).sum(0) >= SEVERAL
        margin = np.where(several, high - low, 0)
        inside = (found.astype(np.int64) >= low - margin) & (found.astype(np.int64) <= high + margin)
        return (found == middle) | (inside & (low != high))
    with np.errstate(all="ignore"):
        b = middle.astype(F64)
        spread = np.abs(stack - stack[0]).max(0)
        spread = np.where(np.isfinite(spread), spread, 0.0)  # what jumps to or from infinity is unsure
        unsure = ~np.isfinite(stack).all(0) & ~(np.isnan(stack).all(0) | (stack == stack[0]).all(0))
        allowed = FACTOR * spread + UNITS * epsilon(found.dtype) * np.abs(b) + smallest(found.dtype)
    return _near(found.astype(F64), b, allowed) | unsure


def smallest(dtype: np.dtype) -> float:
    """Below this, numbers of a type have no full precision: some denormal steps."""
    return {"float16": 2.0**-20, "bfloat16": 2.0**-120, "float32": 2.0**-120, "float64": 2.0**-1000}[dtype.name]
