"""Groups of parameters with settings of their own, such as biases without a weight decay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ...errors import UsageError
from .parameters import check_patterns

ALL = "all"  # the group of every parameter that no other takes
Shape = tuple[int, ...]


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that share settings; a parameter is in the first group that takes it.

    Attributes:
        patterns: shell patterns of names, one of which must fit. max_rank: takes only parameters of at most so many
            axes (1: biases and the scales of norms); None: any. lr_scale: what the learning rate is multiplied by.
            weight_decay: None: the optimiser's.
    """

    patterns: Sequence[str] = ("*",)
    max_rank: int | None = None
    lr_scale: float = 1.0
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.patterns, str) or not all(isinstance(p, str) for p in self.patterns):
            raise UsageError("patterns are a list of texts", where="groups: patterns", found=repr(self.patterns)[:60])
        for name, least in (("max_rank", 0), ("lr_scale", 0.0), ("weight_decay", 0.0)):
            value = getattr(self, name)
            if value is None and name != "lr_scale":
                continue
            kinds = (int, float) if isinstance(least, float) else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value < math.inf:
                raise UsageError("out of range", where=f"groups: {name}", expected=f"{least} or more",
                                 found=repr(value)[:60])  # fmt: skip

    def takes(self, name: str, shape: Sequence[int]) -> bool:
        """Whether a parameter may be in this group."""
        fits = any(fnmatchcase(name, pattern) for pattern in self.patterns)
        return fits and (self.max_rank is None or len(shape) <= self.max_rank)


def grouped(
    shapes: Mapping[str, Shape], groups: Sequence[ParameterGroup]
) -> dict[str, tuple[ParameterGroup, dict[str, Shape]]]:
    """The groups by name, each with its parameters in the order of `shapes`; those that no group takes are `all`.

    Raises:
        UsageError: a pattern fits nothing, or a group takes nothing that one before it has not.
    """
    named = {**{f"group.{i}": group for i, group in enumerate(groups)}, ALL: ParameterGroup()}
    taken: dict[str, dict[str, Shape]] = {name: {} for name in named}
    for parameter, shape in shapes.items():
        taken[next(name for name, group in named.items() if group.takes(parameter, shape))][parameter] = shape
    for i, group in enumerate(groups):
        check_patterns(group.patterns, shapes)
        if not taken[f"group.{i}"]:
            raise UsageError("a group takes no parameter", where=f"groups[{i}]", found=group,
                             hint="the first group that takes a parameter has it")  # fmt: skip
    return {name: (group, taken[name]) for name, group in named.items() if taken[name]}
