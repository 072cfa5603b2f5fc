"""The classes with the greatest scores, for `parax run --top 5 --labels FILE`. Knows arrays; knows no model."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import UsageError
from . import arguments
from .console import Table

if TYPE_CHECKING:
    import numpy as np


class Ranked(NamedTuple):
    """A class of a row, its label (None where there are none), and its score."""

    number: int
    label: str | None
    score: float


Ranking = list[list[Ranked]]
"""Per row, best first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--top, --labels, --softmax."""
    group = parser.add_argument_group("classes")
    group.add_argument("--top", type=arguments.positive, metavar="K", help="print the K best classes of every row")
    group.add_argument("--labels", type=Path, metavar="FILE", help="their names, one a line, the first class first")
    group.add_argument("--softmax", action="store_true", help="scores as probabilities: the softmax of each row")


def read_labels(args: argparse.Namespace) -> list[str] | None:
    """The labels, None where there are none.

    Raises:
        UsageError: the file cannot be read; options without --top.
    """
    for flag, given in (("--labels", args.labels), ("--softmax", args.softmax)):
        if given and args.top is None:
            raise UsageError("only with --top", where=flag, hint="give --top 5")
    if args.labels is None:
        return None
    try:
        lines = args.labels.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise UsageError("no labels, one a line", where=str(args.labels), found=found) from error
    while lines and not lines[-1].strip():
        del lines[-1]
    return [line.strip() for line in lines]


def rankings(
    outputs: Mapping[str, np.ndarray], k: int, labels: Sequence[str] | None, softmax: bool
) -> dict[str, Ranking]:
    """The best classes of every output that holds scores, of as many classes as there are labels.

    Raises:
        UsageError: no output does.
    """
    found = {name: matrix for name, array in outputs.items() if (matrix := scores(array)) is not None}
    fitting = {name: matrix for name, matrix in found.items() if labels is None or matrix.shape[1] == len(labels)}
    if not fitting:
        from ..flattened import flattened

        shapes = ", ".join(f"{name}: {flattened(value)[0][:60]}" for name, value in outputs.items())
        expected = "[rows, classes]" if labels is None else f"[rows, {len(labels)}], a class for each label"
        raise UsageError("no output with scores of classes", where="--top", expected=expected, found=shapes)
    return {name: [_best(row, k, labels, softmax) for row in matrix] for name, matrix in fitting.items()}


def scores(array: Any) -> np.ndarray | None:
    """An output as f64[rows, classes], None where it is none: [classes], [rows, classes], axes of 1 behind them."""
    import numpy as np

    if not isinstance(array, np.ndarray):
        return None
    shape = list(array.shape)
    while len(shape) > 2 and shape[-1] == 1:
        del shape[-1]
    if array.dtype.kind in "bcOUSM" or not 1 <= len(shape) <= 2 or shape[-1] < 2:
        return None
    return array.astype(np.float64).reshape(-1, shape[-1])


def _best(row: np.ndarray, k: int, labels: Sequence[str] | None, softmax: bool) -> list[Ranked]:
    """The first of equal scores is the better one; NaN is the worst."""
    import numpy as np

    if softmax:
        with np.errstate(invalid="ignore"):  # of infinite scores: NaN, as the formula says
            powers = np.exp(row - row.max())
        row = powers / powers.sum()
    order = np.argsort(-row, kind="stable")[:k]
    return [Ranked(int(i), labels[i] if labels is not None else None, float(row[i])) for i in order]


def documented(found: Mapping[str, Ranking]) -> dict[str, Any]:
    """The rankings in JSON's types."""
    return {
        name: [[{"class": r.number, "label": r.label, "score": r.score} for r in row] for row in ranking]
        for name, ranking in found.items()
    }


def tables(found: Mapping[str, Ranking]) -> list[Table]:
    """A table for each output."""
    return [
        Table(f"best classes by {name}", ("row", "class", "label", "score"), [
            [number if place == 0 else "", r.number, r.label, f"{r.score:.6g}"]
            for number, row in enumerate(ranking) for place, r in enumerate(row)
        ])
        for name, ranking in found.items()
    ]  # fmt: skip
