"""Whether a result is right, given what other implementations say and how far rounding may carry it.

First strictly: integers and bools equal, floats within some units of rounding of another implementation's. Only where
that fails, the spread of the model under noise (`oracles.Rounding`) says what else is right.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx

from .contents import F64, epsilon, is_float
from .generate import Feeds
from .graphs import prune
from .known import distrusted_model
from .oracles import NoOracle, Rounding, run_other

UNITS = 64.0
"""Units of rounding within which two implementations agree at once, of an element and of its row's typical size."""
KINDS = ("onnxruntime", "nodes", "reference")
NOISE, FACTOR = 3.0, 6.0
FEW, MANY = 4, 40
ROUNDED = 2
"""The run that is only rounded: its ties are those of the narrow types."""


@dataclass
class Expected:
    """The right results of one run, found as they are needed. `others`: by implementation; `refused`: why not."""

    model: onnx.ModelProto
    feeds: Feeds
    others: dict[str, Feeds] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    imprecise: dict[str, str] = field(default_factory=dict)
    _runs: dict[tuple[str, bool], list[np.ndarray]] = field(default_factory=dict)
    _rounding: dict[str, tuple[Rounding, Feeds]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if all(self.ask(kind) is None for kind in KINDS) and self.trusted:
            self.noisy(0, False, self.model.graph.output[0].name)

    @property
    def known(self) -> bool:
        """Whether any implementation runs the model, in its own types or in float64."""
        return bool(self.others or any(self._runs.values()))

    @property
    def trusted(self) -> bool:
        """Whether onnx.reference, and so the model in float64, may say what is right."""
        return not distrusted_model(self.model, "reference")

    def ask(self, kind: str) -> Feeds | None:
        """What an implementation says, None if it cannot run the model."""
        if kind not in self.others and kind not in self.refused:
            try:
                self.others[kind] = run_other(self.model, kind, self.feeds)
            except NoOracle as error:
                self.refused[kind] = str(error)
        return self.others.get(kind)

    def noisy(self, count: int, fast: bool, name: str) -> list[np.ndarray]:
        """The exact result of one output and `count` noisy ones; none where float64 cannot be run.

        Only what the output needs is run: other branches may have what no other implementation runs.
        """
        if name in self.imprecise:
            return []
        runs = self._runs.setdefault((name, fast), [])
        try:
            if name not in self._rounding:
                model = onnx.ModelProto.FromString(self.model.SerializeToString())
                kept = [o for o in model.graph.output if o.name == name]
                del model.graph.output[:]
                model.graph.output.extend(kept)
                inputs = prune(model.graph)
                self._rounding[name] = Rounding(model), {k: v for k, v in self.feeds.items() if k in inputs}
            rounding, feeds = self._rounding[name]
            if not runs:
                runs.append(rounding.run(feeds)[name])
            while len(runs) <= count:
                seed = len(runs)
                runs.append(rounding.run(feeds, 0.0 if seed == ROUNDED else NOISE, seed, fast)[name])
        except NoOracle as error:
            self.imprecise[name] = str(error)
            runs.clear()
        return runs

    def problem(self, found: Feeds, fast: bool = False) -> str:
        """What is wrong with these results, "" if nothing is.

        Args:
            fast: products may have been computed by algorithms of fewer multiplications.
        """
        for name, array in found.items():
            wrong = self._wrong(name, array, fast)
            if wrong:
                return f"output {name} {wrong}"
        return ""

    def _declared(self, name: str, said: np.ndarray) -> np.ndarray:
        """A result in the type that the model declares: onnx.reference widens sums of integers."""
        code = next(o.type.tensor_type.elem_type for o in self.model.graph.output if o.name == name)
        wanted = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)) if code else said.dtype
        return said.astype(wanted) if wanted.kind in "iu" and said.dtype.kind in "iu" else said

    def _wrong(self, name: str, array: np.ndarray, fast: bool) -> str:
        first = ""
        for kind in KINDS:
            if kind == "nodes" and "onnxruntime" in self.others:
                continue
            said = self.ask(kind)
            if said is None:
                continue
            wrong = strict_difference(array, self._declared(name, said[name]))
            if not wrong:
                return ""
            first = first or f"against {kind}: {wrong}"
        if self.others and ("shape" in first or "type" in first):
            return first
        for count in (FEW, MANY):
            runs = self.noisy(count, fast, name)
            if not runs:
                return first
            if any(r.shape != array.shape for r in runs):
                return first or f"against float64: shape {array.shape}, expected {runs[0].shape}"
            said_here = [said[name] for said in self.others.values() if said[name].shape == array.shape]
            if any(
                within_spread(array, runs, middle) for middle in ((None,) if self.trusted else ()) + tuple(said_here)
            ):
                return ""
        return first or f"against float64: {strict_difference(array.astype(runs[0].dtype), runs[0])}"


def strict_difference(found: np.ndarray, wanted: np.ndarray) -> str:
    """How two results differ beyond some units of rounding; "" if they do not."""
    if found.shape != wanted.shape:
        return f"shape {found.shape}, expected {wanted.shape}"
    if found.dtype != wanted.dtype:
        return f"type {found.dtype}, expected {wanted.dtype}"
    if not is_float(found.dtype):
        bad = found != wanted
        return _first(found, wanted, bad) if bad.any() else ""
    a, b = found.astype(F64), wanted.astype(F64)
    with np.errstate(all="ignore"):
        allowed = UNITS * epsilon(found.dtype) * (np.abs(b) + 0.05 * _typical(b)) + smallest(found.dtype)
        near = (np.abs(a - b) <= allowed) & np.isfinite(a) & np.isfinite(b)
        bad = ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
    return _first(found, wanted, bad) if bad.any() else ""


def _typical(x: np.ndarray) -> np.ndarray:
    """The root mean square of each row's finite elements, to be broadcast to it."""
    if x.ndim == 0 or x.size == 0:
        return np.zeros(x.shape)
    finite = np.where(np.isfinite(x), x, 0.0)
    return np.sqrt((finite**2).mean(-1, keepdims=True))


def _first(found: np.ndarray, wanted: np.ndarray, bad: np.ndarray) -> str:
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"at {list(at)}: {found[at]}, expected {wanted[at]}; {int(bad.sum())} of {bad.size} differ"


def within_spread(found: np.ndarray, runs: list[np.ndarray], other: np.ndarray | None = None) -> bool:
    """Whether every element lies where rounding may put it, or, where the noisy runs jump, among or between them.

    Args:
        runs: the exact results and noisy ones. other: another implementation's, which may stand for the exact one.
    """
    middle = runs[0] if other is None else other.astype(runs[0].dtype)
    stack = np.stack(runs)
    if not is_float(found.dtype):
        if found.dtype.kind == "b":
            jumps = (stack != stack[0]).any(0)
            return bool(((found == middle) | jumps).all())
        low, high = stack.min(0).astype(np.int64), stack.max(0).astype(np.int64)
        inside = (found.astype(np.int64) >= low) & (found.astype(np.int64) <= high)
        return bool(((found == middle) | (inside & (low != high))).all())
    with np.errstate(all="ignore"):
        a, b = found.astype(F64), middle.astype(F64)
        spread = np.abs(stack - stack[0]).max(0)
        spread = np.where(np.isfinite(spread), spread, 0.0)  # what jumps to or from infinity is unsure
        unsure = ~np.isfinite(stack).all(0) & ~(np.isnan(stack).all(0) | (stack == stack[0]).all(0))
        allowed = FACTOR * spread + UNITS * epsilon(found.dtype) * np.abs(b) + smallest(found.dtype)
        near = (np.abs(a - b) <= allowed) & np.isfinite(a) & np.isfinite(b)
        fine = near | (a == b) | (np.isnan(a) & np.isnan(b)) | unsure
    return bool(fine.all())


def smallest(dtype: np.dtype) -> float:
    """Below this, numbers of a type have no full precision: some denormal steps."""
    return {"float16": 2.0**-20, "bfloat16": 2.0**-120, "float32": 2.0**-120, "float64": 2.0**-1000}[dtype.name]
