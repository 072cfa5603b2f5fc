"""Branches of If that sizes choose between, where the branches' results differ in rank.

Exporters write `x.squeeze(1)` of an open size as `If(size == 1) {Squeeze} {Identity}`: one type cannot describe both
results, and what follows mostly fits only one of them. Then the model is imported again with each branch in place of
the If, and where exactly one fits, it is taken: that sizes choose it becomes a constraint, which a run checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ...errors import InvalidModel, UnsupportedOp
from ..ir.dim import exact_min
from ..ir.graph import Graph, Value
from ..ir.ops.logic import Equal
from ..ir.types import Dim, TensorType

MOST_IMPORTS = 16
"""Of one model; beyond it its Ifs stay as they are."""


class Choices:
    """Which branches one import takes.

    Args:
        planned: the first decisions, in the order in which such Ifs are met; further ones take the then-branch. None:
            no If is replaced, they are only counted.

    Attributes:
        made: decisions of this import.
        met: how many such Ifs it met.
        left_out: how many branches of other Ifs did not fit.
    """

    def __init__(self, planned: Sequence[bool] | None = None) -> None:
        self._planned = planned
        self.made: list[bool] = []
        self.met = self.left_out = 0

    def taken(self, condition: Value | None, branches: Mapping[str, Graph], graph: Graph, where: str) -> bool | None:
        """Whether the then-branch takes an If's place, or the else-branch; None: it stays, as most do.

        Args:
            branches: then and else, imported. graph: the one that the If is in, which gets the constraint.
        """
        sizes = None if condition is None else _compared_sizes(condition)
        if sizes is None or not _ranks_differ(*branches.values()):
            return None
        self.met += 1
        if self._planned is None:
            return None
        n = len(self.made)
        self.made.append(self._planned[n] if n < len(self._planned) else True)
        _constrain(graph, *sizes, self.made[-1], where)
        return self.made[-1]


def import_choosing(run: Callable[[Choices], Graph]) -> Graph:
    """The graph of a model: as it is, or with those branches in place that alone fit.

    Args:
        run: imports the model anew with the choices.

    Raises:
        InvalidModel, UnsupportedOp: as the import of the model as it is does, where not exactly one choice fits.
    """
    choices = Choices()
    try:
        return run(choices)
    except (InvalidModel, UnsupportedOp) as error:
        found = _only(run) if choices.met else None
        if found is None:
            raise
        error.__traceback__ = None  # holds the first import's graph
        return found


def _only(run: Callable[[Choices], Graph]) -> Graph | None:
    """The graph of the one choice that fits, or fits with the fewest branches of other Ifs left out."""
    found: list[tuple[int, Graph]] = []
    pending: list[tuple[bool, ...]] = [()]
    for _ in range(MOST_IMPORTS):
        if not pending:
            break
        planned = pending.pop()
        choices = Choices(planned)
        with suppress(InvalidModel, UnsupportedOp):
            graph = run(choices)
            found.append((choices.left_out, graph))
        pending += [(*choices.made[:i], False) for i in range(len(planned), len(choices.made))]
    fewest = min((left_out for left_out, _ in found), default=0)
    best = [graph for left_out, graph in found if left_out == fewest]
    return best[0] if len(best) == 1 and not pending else None


def _compared_sizes(condition: Value) -> tuple[Dim, Dim] | None:
    """The two sizes of whose being equal a condition tells; None where it tells of something else."""
    node = condition.producer
    if node is None or not isinstance(node.op, Equal):
        return None
    known = [value.known for value in node.operands if value is not None]
    if any(content is None or content.size != 1 for content in known):
        return None
    a, b = (content.reshape(-1)[0] for content in known if content is not None)
    return None if isinstance(a, float) or isinstance(b, float) else (a, b)


def _ranks_differ(a: Graph, b: Graph) -> bool:
    """Whether some result of two branches has two known ranks."""
    pairs = ((x.type, y.type) for x, y in zip(a.outputs, b.outputs, strict=False))
    return any(isinstance(x, TensorType) and isinstance(y, TensorType) and x.shape is not None and y.shape is not None
               and x.rank != y.rank for x, y in pairs)  # fmt: skip


def _constrain(graph: Graph, a: Dim, b: Dim, equal: bool, where: str) -> None:
    """Let a run check that two sizes are equal, or that they are not."""
    if equal:
        graph.add_constraint(a, b, f"{where}: the model fits together only where its condition holds, {a} = {b}")
    else:
        apart = exact_min((a - b) * (a - b), 1)
        graph.add_constraint(apart, 1, f"{where}: the model fits together only where its condition does not hold, "
                                       f"{a} ≠ {b}")  # fmt: skip
