"""What accuracy is: how much worse the results of one plan are than another's, as one number.

A drop is 0 where nothing is lost and 0.005 where half a per cent is; it may be negative where labels say so.
"""

from __future__ import annotations

import runpy
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from ...errors import InvalidData, UsageError
from .samples import Request

Outputs = Mapping[str, np.ndarray]
STUDENT = (12.7, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10,
           2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04)  # fmt: skip
"""97.5 % of Student's distribution lie below, by degrees of freedom from 1 on; as losses are skewed, some 95 % do."""
SCORE = "score"  # the function of a metric's script


class Metric(ABC):
    """A way to compare results.

    Attributes:
        name: in words.
    """

    name: ClassVar[str] = ""

    @abstractmethod
    def drop(self, exact: Sequence[Outputs], found: Sequence[Outputs], requests: Sequence[Request]) -> float:
        """What `found` loses of `exact`, both the outputs of `requests`; infinite where `found` is not finite."""
        raise NotImplementedError(type(self).__name__)

    def at_most(self, exact: Sequence[Outputs], found: Sequence[Outputs], requests: Sequence[Request]) -> float:
        """What is lost of other data like this, at most, in about 19 of 20 cases; the drop where nothing says that.

        In fewer cases where requests are few and differ much.
        """
        return self.drop(exact, found, requests)

    def noise(self, exact: Sequence[Outputs], found: Sequence[Outputs], requests: Sequence[Request]) -> float:
        """The same in a finer measure, by which layers are told apart that a coarse one finds equal."""
        return self.drop(exact, found, requests)


class Top1(Metric):
    """The share of right classes that is lost; without labels, the share of classes that change.

    Classes lie along the last axis of the first output of f32, or along axis 1 where it has four axes or more.
    """

    name = "top1"

    def drop(self, exact: Sequence[Outputs], found: Sequence[Outputs], requests: Sequence[Request]) -> float:
        """See the class."""
        before = np.concatenate([_classes(o).reshape(-1) for o in exact])
        after = np.concatenate([_classes(o).reshape(-1) for o in found])
        if any(request.labels is None for request in requests):
            return float(np.mean(before != after))
        labels = np.concatenate([np.asarray(request.labels).reshape(-1) for request in requests])
        if labels.shape != before.shape:
            raise UsageError("other labels than results", where="top1", expected=f"{before.size} classes",
                             found=f"{labels.size} labels")  # fmt: skip
        lost = np.count_nonzero(before == labels) - np.count_nonzero(after == labels)
        return float(lost / labels.size)

    def noise(self, exact: Sequence[Outputs], found: Sequence[Outputs], requests: Sequence[Request]) -> float:
        """The mean squared difference: a class changes where that is large, but not all of a few samples show it."""
        return MeanSquare().drop(exact, found, requests)


def _classes(outputs: Outputs) -> np.ndarray:
    scores = next((array for array in outputs.values() if array.dtype.kind == "f" and array.ndim), None)
    if scores is None or scores.shape[-1 if scores.ndim < 4 else 1] < 2:
        raise UsageError("no output of scores", where="top1", expected="floats, several classes along the last axis",
                         found=", ".join(f"{n} {a.dtype}{list(a.shape)}" for n, a in outputs.items()),
                         hint="--metric mse, cosine or a script")  # fmt: skip
    return scores.argmax(-1 if scores.ndim < 4 else 1)


class _OfOutputs(Metric):
    """The worst of the outputs of floats, as it follows from sums over their elements."""

    def drop(self, exact: Sequence[Outputs], found: Sequence[Outputs], requests: Sequence[Request]) -> float:
        """See the class."""
        return max(self.of(sums.sum(0)) for sums in self._sums(exact, found))

    def at_most(self, exact: Sequence[Outputs], found: Sequence[Outputs], requests: Sequence[Request]) -> float:
        """By the jackknife over requests, whose losses differ: rare ones that lose much are what a mean misses."""
        return max(self._upper(sums) for sums in self._sums(exact, found))

    @abstractmethod
    def of(self, sums: np.ndarray) -> float:
        """What is lost, by the sums of `_products`."""
        raise NotImplementedError(type(self).__name__)

    def _sums(self, exact: Sequence[Outputs], found: Sequence[Outputs]) -> Iterator[np.ndarray]:
        """f64[requests, 4] of each output of floats."""
        names = [name for name, array in exact[0].items() if array.dtype.kind == "f"]
        if not names:
            raise UsageError("no output of floats", where=self.name, hint="--metric SCRIPT.py says what counts")
        for name in names:
            yield np.array([_products(name, a[name], b[name]) for a, b in zip(exact, found, strict=True)])

    def _upper(self, sums: np.ndarray) -> float:
        whole, n = self.of(sums.sum(0)), len(sums)
        if n < 2 or not np.isfinite(whole):
            return whole
        without = np.array([self.of(sums.sum(0) - own) for own in sums])
        if not np.isfinite(without).all():
            return float("inf")
        error = np.sqrt((n - 1) / n * np.sum((without - without.mean()) ** 2))
        return float(whole + STUDENT[min(n - 1, len(STUDENT)) - 1] * error)


def _products(name: str, exact: np.ndarray, found: np.ndarray) -> tuple[float, float, float, float]:
    """The sums of a², b², ab and (a - b)² of a request's output; the last is infinite where b is not what a is like."""
    a, b = exact.astype(np.float64).reshape(-1), found.astype(np.float64).reshape(-1)
    if a.shape == b.shape and not np.isfinite(a).all():
        raise InvalidData("the f32 model's result is not finite", where=f"output {name}",
                          expected="calibration data as the model sees it in use")  # fmt: skip
    if a.shape != b.shape or not np.isfinite(b).all():
        return 0.0, 0.0, 0.0, float("inf")
    return float(a @ a), float(b @ b), float(a @ b), float(np.sum((a - b) ** 2))


class MeanSquare(_OfOutputs):
    """Mean squared difference by the mean square of the f32 results, of the worst output."""

    name = "mse"

    def of(self, sums: np.ndarray) -> float:
        """See the class."""
        power, noise = float(sums[0]), float(sums[3])
        return noise / power if power > 0 else (0.0 if noise <= 0 else float("inf"))


class Cosine(_OfOutputs):
    """One less the cosine of the angle between the results, of the worst output."""

    name = "cosine"

    def of(self, sums: np.ndarray) -> float:
        """See the class."""
        a, b, both, noise = map(float, sums)
        if not np.isfinite(noise):
            return float("inf")
        if a <= 0 or b <= 0:
            return 0.0 if noise <= 0 else 1.0
        return max(0.0, 1.0 - both / (np.sqrt(a) * np.sqrt(b)))


@dataclass(frozen=True)
class Script(Metric):
    """A file's function `score(outputs, inputs)`: a number, more is better; the drop is what is lost of it.

    Both arguments are lists of a dict for each request: name → array. What comes with the inputs (labels, other
    arrays of the calibration data) is among the latter.
    """

    path: Path
    score: Callable[[list[dict[str, np.ndarray]], list[dict[str, np.ndarray]]], object]

    def drop(self, exact: Sequence[Outputs], found: Sequence[Outputs], requests: Sequence[Request]) -> float:
        """See the class."""
        given = [{**request.inputs, **request.others} for request in requests]
        before, after = (self._scored([dict(o) for o in outputs], given) for outputs in (exact, found))
        if not np.isfinite(before):
            raise UsageError("the f32 model's score is not finite", where=str(self.path), found=before)
        return before - after if np.isfinite(after) else float("inf")

    def _scored(self, outputs: list[dict[str, np.ndarray]], inputs: list[dict[str, np.ndarray]]) -> float:
        try:
            value = self.score(outputs, inputs)
            return float(value)  # type: ignore[arg-type]  # whatever the script made
        except Exception as error:
            raise _failed(self.path, error) from error


def _failed(path: Path, error: Exception) -> UsageError:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    line = f", line {frames[-1].lineno}" if frames else ""
    return UsageError("the metric script failed", where=f"{path}{line}", found=f"{type(error).__name__}: {error}"[:500],
                      expected=f"def {SCORE}(outputs, inputs): a number, more is better")  # fmt: skip


def metric_named(name: str, *, has_labels: bool) -> Metric:
    """A metric: top1, mse, cosine, the path of a script; auto is top1 where there are labels, else mse.

    Raises:
        UsageError: there is none such, or the script cannot be run.
    """
    known: dict[str, type[Metric]] = {cls.name: cls for cls in (Top1, MeanSquare, Cosine)}
    if name == "auto":
        name = Top1.name if has_labels else MeanSquare.name
    if name in known:
        return known[name]()
    path = Path(name)
    if path.suffix != ".py" or not path.is_file():
        raise UsageError("no such metric", where="metric", expected=f"auto, {', '.join(known)} or a script's path",
                         found=name)  # fmt: skip
    try:
        score = runpy.run_path(str(path)).get(SCORE)
    except Exception as error:
        raise _failed(path, error) from error
    if not callable(score):
        raise UsageError("the script has no such function", where=str(path), expected=f"def {SCORE}(outputs, inputs)")
    return Script(path, score)
