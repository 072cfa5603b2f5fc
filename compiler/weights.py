"""What a training begins with and what it hands on: weights from and to files by name, and a new head.

Owns how a file's names fit a model's; formats are runtime/train/weights.py's, the new head is the frontend's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import InvalidInput
from ..runtime.train.weights import Match, matched, read_weights, require_all, write_weights
from .frontend.head import Head, with_head
from .frontend.initializers import weights_of, with_initializers

if TYPE_CHECKING:
    from ..runtime.train.state import TrainingState
    from .frontend.parse import Settled


class Start(NamedTuple):
    """A model to train.

    Attributes:
        model: with its weights and its head. head: names of the new head's parameters. loaded: names that came from
            `where`, a file; None: there was none.
    """

    model: Settled
    head: tuple[str, ...] = ()
    loaded: frozenset[str] | None = None
    where: str = ""

    def require(self, names: Collection[str]) -> None:
        """Refuse a file that lacks parameters or running statistics. Raises InvalidInput."""
        if self.loaded is not None:
            require_all(Match(tuple(sorted(set(names) - self.loaded - set(self.head))), ()), self.where)


def started(model: Settled, weights: Path | None, head: Head | None, result: str | None) -> Start:
    """The model with the weights of a file, then with a new head.

    Raises:
        InvalidInput: a weight of another shape, or one that the model does not have. Else as `read_weights` and
            `with_head`.
    """
    loaded = None
    if weights is not None:
        given, own = read_weights(weights), weights_of(model)
        require_all(Match((), tuple(sorted(set(given) - set(own)))), str(weights))
        taken = matched(given, {name: array.shape for name, array in own.items()}, str(weights))
        model = with_initializers(model, {name: array.astype(own[name].dtype) for name, array in taken.items()})
        loaded = frozenset(taken)
    if head is None:
        return Start(model, (), loaded, str(weights))
    renewed = with_head(model, head, result)
    return Start(renewed.model, renewed.parameters, loaded, str(weights))


def load(state: TrainingState, model: Settled, path: Path, strict: bool) -> Match:
    """Take the parameters and running statistics of a file over; what the optimiser keeps stays.

    Args:
        model: that is trained: its other weights are constants of the compiled code, which a file may name again.
        strict: refuse a file that lacks names or has others.

    Raises:
        InvalidInput: see `strict`; another shape; another value of a weight that is not trained. Nothing is taken over.
    """
    given, own, where = read_weights(path), state.values(), str(path)
    fixed = {name: array for name, array in weights_of(model).items() if name not in own}
    match = Match(tuple(sorted(set(own) - set(given))), tuple(sorted(set(given) - set(own) - set(fixed))))
    if strict:
        require_all(match, where)
    shapes = {name: array.shape for name, array in (own | fixed).items()}
    taken = matched(given, shapes, where)
    for name in sorted(set(taken) & set(fixed)):
        if not np.array_equal(taken[name], fixed[name].astype(np.float32), equal_nan=True):
            raise InvalidInput("another value of a weight that is not trained", where=f"{where}: {name!r}",
                               hint="it is a constant of the compiled code: Trainer(weights=path) sets it")  # fmt: skip
    state.take({name: array for name, array in taken.items() if name in own})
    return match


def save(parameters: Mapping[str, np.ndarray], model: Settled, path: Path) -> None:
    """Write the parameters and statistics, and every other weight of the model, which stays as it was; in f32."""
    every = {**weights_of(model), **parameters}
    write_weights(path, {name: array.astype(np.float32, copy=False) for name, array in every.items()})
