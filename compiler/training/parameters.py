"""Which tensors of a model are trained: those of its initializers that the loss depends on, by names and patterns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from ...errors import InvalidModel, UnsupportedOp, UsageError
from ..ir.graph import Graph, Value
from ..ir.types import F32


@dataclass(frozen=True)
class Wanted:
    """What the user wants trained, as shell patterns of tensors' names; None: everything. `frozen` wins."""

    trained: Sequence[str] | None = None
    frozen: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Raises UsageError: no lists of texts."""
        for name, patterns in (("trained", self.trained), ("frozen", self.frozen)):
            if patterns is not None and (isinstance(patterns, str) or not all(isinstance(p, str) for p in patterns)):
                raise UsageError("patterns are a list of texts", where=name, found=repr(patterns)[:60])

    def covers(self, name: str) -> bool:
        """Whether a tensor is wanted."""
        kept = self.trained is None or any(fnmatchcase(name, pattern) for pattern in self.trained)
        return kept and not any(fnmatchcase(name, pattern) for pattern in self.frozen)

    def check(self, names: Collection[str]) -> None:
        """Refuse patterns that fit nothing.

        Raises:
            UsageError: one fits no tensor that could be trained.
        """
        check_patterns((*(self.trained or ()), *self.frozen), names)


def check_patterns(patterns: Iterable[str], names: Collection[str]) -> None:
    """Refuse patterns that fit no name.

    Raises:
        UsageError: says which, and what names there are.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = get_close_matches(pattern, names, 1)
            raise UsageError("no parameter fits the pattern", where=repr(pattern)[:100], expected=_few(names),
                             hint=f"did you mean {near[0]}?" if near else None)  # fmt: skip


def candidates(graph: Graph) -> list[Value]:
    """Constants that may be parameters: named, of floats. Of a model that was imported with `trained`."""
    return [v for v in graph.constants if v.tensor.dtype.is_float and not v.name.isdigit()]


def chosen(depending: Iterable[Value], wanted: Wanted) -> tuple[list[str], list[str]]:
    """Names of the parameters among the candidates that the loss depends on; and of the single numbers left out.

    A number without an axis is a setting in most models (an exponent, a scale, an epsilon): one is trained where a
    pattern of the user names it.

    Raises:
        InvalidModel: there is none. UsageError: a pattern fits nothing. UnsupportedOp: one is no f32.
    """
    values = {v.name: v for v in depending}
    wanted.check(values)
    able = [name for name in values if wanted.covers(name)]
    left_out = [name for name in able if not values[name].tensor.rank and not _is_named(name, wanted)]
    names = [name for name in able if name not in left_out]
    if not names:
        raise InvalidModel("nothing can be trained", expected="an initializer of floats that the loss depends on",
                           found=_few(values))  # fmt: skip
    for name in names:
        if values[name].tensor.dtype != F32:
            raise UnsupportedOp("parameters are trained in f32", where=repr(name), found=values[name].type,
                                hint="freeze it, or convert the model to f32")  # fmt: skip
    return names, left_out


def _is_named(name: str, wanted: Wanted) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in wanted.trained or ())


def _few(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "") or "none"
