"""What `row_axis` says of every case of the catalogue, held against another implementation: a row run alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from catalogue.cases import Case, Constant, all_cases
from catalogue.running import assert_close, build, expected
from parax.compiler.ir.graph import Graph, Node
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.ops.base import Composite, Host
from parax.compiler.ir.ops.row_rules import Rows, RowsInteract
from parax.compiler.ir.types import DType, TensorType, symbol
from parax.errors import ParaxError

CASES = [case for case in all_cases() if not issubclass(lookup(case.domain, case.op), (Composite, Host))]
Contents = Sequence["np.ndarray | None"]


@dataclass(frozen=True)
class RowAxes:
    """Axis of each operand that counts `n` rows, None for those that all rows share."""

    axes: tuple[int | None, ...]
    n: int


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_that_are_called_independent_are(case: Case) -> None:
    _, _, _, contents = build(case)
    for rows in _candidates(case, contents):
        try:
            node = _open(case, contents, rows)
            axes = [_axis(node, rows, i) for i in range(case.outputs)]
        except (RowsInteract, ParaxError):
            continue
        with np.errstate(all="ignore"):
            whole = expected(case, list(contents))
            for r in (0, rows.n - 1):
                alone = expected(case, _row(contents, rows, r))
                for y, part, axis in zip(whole, alone, axes, strict=True):
                    assert_close(case, np.asarray(part), y if axis is None else _places(y, axis, rows.n, r))


def _candidates(case: Case, contents: Contents) -> Iterator[RowAxes]:
    """Rows on axis 0 or 1 of the first operand, alone and with all others that have as many there."""
    given = [None if isinstance(o, Constant) else c for o, c in zip(case.operands, contents, strict=True)]
    if not given or given[0] is None:
        return
    for axis in range(min(2, given[0].ndim)):
        n = given[0].shape[axis]
        alike = tuple(axis if c is not None and c.ndim > axis and c.shape[axis] == n else None for c in given)
        if n > 1:
            yield from {RowAxes(alike, n), RowAxes((axis, *[None] * (len(given) - 1)), n)}


def _open(case: Case, contents: Contents, rows: RowAxes) -> Node:
    """The case's operator on inputs with N for the number of rows."""
    graph, operands = Graph("case"), []
    for i, (content, operand, axis) in enumerate(zip(contents, case.operands, rows.axes, strict=True)):
        if content is None or isinstance(operand, Constant):
            operands.append(None if content is None else graph.add_constant(content, f"x{i}"))
            continue
        dims = [symbol("N") if a == axis else d for a, d in enumerate(content.shape)]
        operands.append(graph.add_input(f"x{i}", TensorType(DType.from_numpy(content.dtype), tuple(dims))))
    node = graph.add_node(lookup(case.domain, case.op).from_attributes(case.attrs), operands, n_outputs=case.outputs)
    if graph.constraints:
        raise RowsInteract("the number of rows must equal something else")
    return node


def _axis(node: Node, rows: RowAxes, i: int) -> int | None:
    return node.op.row_axis(Rows(node.context(), list(rows.axes), node.outputs[i].tensor, i))


def _row(contents: Contents, rows: Rows, r: int) -> list[np.ndarray | None]:
    return [c if c is None or axis is None else c.take([r], axis) for c, axis in zip(contents, rows.axes, strict=True)]


def _places(y: np.ndarray, axis: int, n: int, r: int) -> np.ndarray:
    """A row's share of a result: as many places along the axis for every row."""
    return np.array_split(np.asarray(y), n, axis)[r]
